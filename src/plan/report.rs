//! What the search found, as text and as JSON.

use anstyle::Style;
use serde::Serialize;
use stepscope_plan::{
    Assumptions, Attention, Configuration, ModelShape, ParallelLayout, Rejection, Request, Schedule, Search, Wanted,
    text,
};

use super::recorded::{JsonCalibration, Recorded};
use crate::terminal;

/// What was asked and what was found.
pub(super) struct Report<'a> {
    pub(super) request: &'a Request,
    pub(super) search: &'a Search,
    pub(super) recorded: Option<&'a Recorded>,
    pub(super) tokens: Option<u64>,
}

/// The public JSON.
#[derive(Serialize)]
pub(super) struct Json<'a> {
    schema: u32,
    predicted: bool,
    model: JsonModel<'a>,
    device: JsonDevice,
    assumptions: JsonAssumptions,
    wanted: Wanted,
    calibration: Option<JsonCalibration<'a>>,
    configurations: Vec<JsonConfiguration<'a>>,
    rejected: &'a [Rejection],
}

#[derive(Serialize)]
struct JsonModel<'a> {
    parameters: u64,
    active_parameters: u64,
    #[serde(flatten)]
    shape: &'a ModelShape,
}

#[derive(Serialize)]
struct JsonDevice {
    name: &'static str,
    peak_flops: f64,
    memory_bytes: u64,
}

#[derive(Serialize)]
struct JsonAssumptions {
    gpus: u64,
    global_batch_tokens: u64,
    sequence_length: u64,
    #[serde(flatten)]
    assumptions: Assumptions,
}

#[derive(Serialize)]
struct JsonConfiguration<'a> {
    #[serde(flatten)]
    configuration: &'a Configuration,
    #[serde(skip_serializing_if = "Option::is_none")]
    days: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_days: Option<f64>,
}

impl Report<'_> {
    pub(super) fn json(&self) -> Json<'_> {
        let Request { model, device, precision, .. } = self.request;
        let configurations = self.search.configurations.iter().map(|configuration| {
            let days = self.days(configuration);
            JsonConfiguration { configuration, days, gpu_days: days.map(|days| days * self.request.gpus as f64) }
        });
        Json {
            schema: 1,
            predicted: true,
            model: JsonModel {
                parameters: model.parameters(),
                active_parameters: model.active_parameters(),
                shape: model,
            },
            device: JsonDevice {
                name: device.name,
                peak_flops: device.peaks.of(*precision),
                memory_bytes: device.memory_bytes,
            },
            assumptions: JsonAssumptions {
                gpus: self.request.gpus,
                global_batch_tokens: self.request.global_batch_tokens,
                sequence_length: self.request.sequence_length,
                assumptions: self.request.assumptions,
            },
            wanted: self.request.wanted,
            calibration: self.recorded.map(Recorded::json),
            configurations: configurations.collect(),
            rejected: &self.search.rejected,
        }
    }

    /// How long training on all tokens takes.
    fn days(&self, configuration: &Configuration) -> Option<f64> {
        self.tokens.map(|tokens| tokens as f64 / configuration.tokens_per_second / 86_400.0)
    }

    pub(super) fn text(&self, limit: usize) -> String {
        let Request { model, device, gpus, .. } = self.request;
        let (bold, wanted) = (Style::new().bold(), self.request.wanted.options());
        let mut text = format!(
            "{bold}{}{bold:#}, {} parameters, on {} × {} ({}): {} tokens per step, in sequences of {}{}\n\n",
            model.name,
            text::parameters(model.parameters()),
            text::count(*gpus),
            device.name,
            format_args!("{} GiB", device.memory_bytes >> 30),
            text::count(self.request.global_batch_tokens),
            text::count(self.request.sequence_length),
            if wanted.is_empty() { wanted } else { format!(", with {wanted}") },
        );
        match self.search.configurations.first() {
            None => text += "no configuration fits\n",
            Some(best) => {
                text += &self.configurations(limit);
                text += "\npredicted memory of the best, by category: ";
                let categories = best.memory.categories().into_iter().filter(|(_, bytes)| *bytes > 0);
                let categories: Vec<String> = categories
                    .map(|(category, bytes)| format!("{} {}", category.replace('_', " "), text::bytes(bytes)))
                    .collect();
                text += &(categories.join(", ") + "\n");
            }
        }
        text += &self.rejected(limit);
        text += &self.assumed();
        text + &self.recorded.map_or_else(String::new, Recorded::text)
    }

    fn configurations(&self, limit: usize) -> String {
        let mut headers = self.layout_headers();
        headers.extend([">memory", ">step", ">range", ">tokens/s", ">MFU", ">bubble", ">exposed comm"]);
        if self.tokens.is_some() {
            headers.extend([">days", ">GPU-days"]);
        }
        // Of each grid only the best: the others differ in what they shard or repeat.
        let mut grids = Vec::new();
        let best = self.search.configurations.iter().filter(|configuration| {
            let ParallelLayout { dp, tp, cp, pp, .. } = configuration.layout;
            let new = !grids.contains(&(dp, tp, cp, pp));
            grids.push((dp, tp, cp, pp));
            new
        });
        let rows = best.take(limit).map(|configuration| {
            let mut row = self.layout_row(&configuration.layout);
            row.extend([
                text::bytes(configuration.memory_bytes) + if configuration.tight { TIGHT } else { "" },
                text::duration(configuration.step_time_ns as i64),
                range(configuration),
                text::count(configuration.tokens_per_second as u64),
                text::percent(configuration.mfu),
                text::percent(configuration.bubble),
                text::duration(configuration.exposed_communication_ns as i64),
            ]);
            if let Some(days) = self.days(configuration) {
                row.extend([format!("{days:.1}"), text::count((days * self.request.gpus as f64).round() as u64)]);
            }
            row
        });
        let mut table = terminal::table(&headers, rows);
        if table.contains(TIGHT) {
            table += "! less than 5% of usable memory is left: it may not fit\n";
        }
        let found = self.search.configurations.len() as u64;
        let fit = if found == 1 { "fits" } else { "fit" };
        let found = text::counted(found, "configuration");
        format!(
            "predicted: the best of each grid of ranks, out of {found} that {fit}; memory is on the fullest rank\n{table}"
        )
    }

    fn rejected(&self, limit: usize) -> String {
        if self.search.rejected.is_empty() {
            return String::new();
        }
        let mut headers = self.layout_headers();
        headers.push("why");
        let rows = self.search.rejected.iter().take(limit).map(|rejection| {
            let mut row = self.layout_row(&rejection.layout);
            if rejection.lacking_bytes.is_none() {
                row.iter_mut().skip(self.grid_columns()).for_each(|cell| *cell = "-".into());
            }
            row.push(rejection.why.clone());
            row
        });
        format!("\nrejected, closest first\n{}", terminal::table(&headers, rows))
    }

    /// Whether some ranks would share sequences.
    fn shows_parts(&self) -> bool {
        let search = self.search;
        let found = search.configurations.iter().map(|configuration| &configuration.layout);
        found.chain(search.rejected.iter().map(|rejection| &rejection.layout)).any(|layout| layout.cp > 1)
    }

    /// How many columns of a layout say only how ranks are arranged.
    fn grid_columns(&self) -> usize {
        if self.shows_parts() { 4 } else { 3 }
    }

    fn layout_headers(&self) -> Vec<&'static str> {
        let cp = self.shows_parts().then_some(">cp");
        let rest = [">pp", ">zero", "schedule", ">micro-batches × size", "recompute"];
        [">dp", ">tp"].into_iter().chain(cp).chain(rest).collect()
    }

    fn layout_row(&self, layout: &ParallelLayout) -> Vec<String> {
        let schedule = match layout.schedule {
            _ if layout.pp == 1 => "-".into(),
            Schedule::Interleaved => format!("interleaved ×{}", layout.chunks),
            schedule => schedule.name().to_owned(),
        };
        let grid = [
            Some(format!(
                "{}{}",
                text::replicas(layout),
                if layout.ep > 1 { format!(" (ep {})", layout.ep) } else { String::new() }
            )),
            Some(format!("{}{}", layout.tp, if layout.sequence_parallel { "+sp" } else { "" })),
            self.shows_parts().then(|| layout.cp.to_string()),
            Some(layout.pp.to_string()),
        ];
        let rest = [
            u8::from(layout.zero).to_string(),
            schedule,
            format!("{} × {}", text::count(layout.micro_batches), layout.micro_batch),
            layout.recompute.name().into(),
        ];
        grid.into_iter().flatten().chain(rest).collect()
    }

    fn assumed(&self) -> String {
        let Request { assumptions, device, precision, gradients, .. } = self.request;
        let peak = device.peaks.of(*precision) / 1e12;
        let attention = match assumptions.attention {
            Attention::Flash => format!(
                "{} in flash attention of long sequences",
                text::whole_percent(assumptions.attention_efficiency)
            ),
            Attention::Naive => "naive attention".into(),
        };
        format!(
            "\nassumptions: matrix products reach {} of {peak:.0} TFLOP/s ({}, dense), {attention}; other kernels {} of \
             {:.1} TB/s;\n  {:.1} µs between kernels, {:.1} µs to launch one; ranges are for {} more and less than that;\n  \
             {} of memory is usable; gradients in {};\n  {} GPUs per node, {:.0} GB/s and {:.1} µs between them, \
             {:.1} GB/s from each to other nodes and {:.1} µs;\n  data-parallel communication overlaps with {} of compute, \
             {} of tensor-parallel communication is overlapped;\n  MFU counts attention without causal discount\n",
            text::whole_percent(assumptions.compute_efficiency),
            precision.name(),
            text::whole_percent(assumptions.memory_efficiency),
            device.memory_bandwidth / 1e12,
            assumptions.kernel_gap * 1e6,
            assumptions.launch * 1e6,
            text::whole_percent(assumptions.spread),
            text::whole_percent(assumptions.usable_memory),
            gradients.name(),
            assumptions.gpus_per_node,
            assumptions.link_bandwidth / 1e9,
            assumptions.link_latency * 1e6,
            assumptions.network_bandwidth / 1e9,
            assumptions.network_latency * 1e6,
            text::whole_percent(assumptions.data_overlap),
            text::whole_percent(assumptions.tensor_overlap),
        )
    }
}

/// The shortest and the longest step that the assumed spread makes likely.
fn range(configuration: &Configuration) -> String {
    let Configuration { step_time_low_ns, step_time_ns, step_time_high_ns, .. } = *configuration;
    text::durations_around(step_time_low_ns as i64, step_time_ns as i64, step_time_high_ns as i64)
}

/// Behind memory of which little is left.
const TIGHT: &str = " !";
