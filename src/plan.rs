//! `stepscope plan`: which configurations fit, and how fast they should be. Every figure is predicted.

use std::{io::Write, path::PathBuf};

use anstyle::Style;
use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;
use stepscope_plan::{
    Assumptions, Attention, Configuration, Device, ModelShape, ParallelLayout, Precision, Rejection, Request, Schedule,
    Search, text,
};

use crate::{Format, amount, terminal, words};

/// Find the configurations that fit a model on GPUs, and rank them by predicted throughput.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope plan --model llama-70b --gpu h100 --gpus 64\n  \
    stepscope plan --model config.json --gpu h200 --gpus 8 --global-batch 1048576 --seq-len 8192 --tokens 100B")]
pub(crate) struct Arguments {
    /// The model: a preset, a Hugging Face config.json, or a TOML file.
    #[arg(long, value_name = "NAME|FILE")]
    model: PathBuf,
    /// The GPU, such as h100, or the name its driver reports.
    #[arg(long, value_name = "NAME")]
    gpu: String,
    /// The number of GPUs.
    #[arg(long, value_name = "N", value_parser = amount::parse)]
    gpus: u64,
    /// Tokens per step over all GPUs [default: about 4M, divisible by any number of replicas]
    #[arg(long, value_name = "TOKENS", value_parser = amount::parse, help_heading = "Workload")]
    global_batch: Option<u64>,
    /// Tokens per sequence [default: 4096, or fewer if the model has fewer learned positions]
    #[arg(long, value_name = "S", value_parser = amount::parse, help_heading = "Workload")]
    seq_len: Option<u64>,
    /// Precision of parameters and activations.
    #[arg(long, value_parser = words::precision(), default_value = "bf16", help_heading = "Workload")]
    precision: Precision,
    /// Precision of gradients [default: that of the parameters]
    #[arg(long, value_parser = words::precision(), help_heading = "Workload")]
    grads: Option<Precision>,
    /// Tokens to train on; adds the training time in days and GPU-days.
    #[arg(long, value_name = "TOKENS", value_parser = amount::parse, help_heading = "Workload")]
    tokens: Option<u64>,
    /// Rows per table; JSON always has all.
    #[arg(long, value_name = "N", default_value = "10")]
    limit: usize,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten, next_help_heading = "Assumptions")]
    assumptions: AssumptionArguments,
}

#[derive(clap::Args)]
struct AssumptionArguments {
    /// Share of the dense peak that compute kernels reach.
    #[arg(long, value_name = "SHARE")]
    efficiency: Option<f64>,
    /// Share of GPU memory that training can use.
    #[arg(long, value_name = "SHARE")]
    usable_memory: Option<f64>,
    /// GPUs per node.
    #[arg(long, value_name = "N")]
    gpus_per_node: Option<u64>,
    /// One-way bandwidth between the GPUs of a node, in GB/s.
    #[arg(long, value_name = "GB/S")]
    link_bandwidth: Option<f64>,
    /// Time of a message between the GPUs of a node however small, in µs.
    #[arg(long, value_name = "µS")]
    link_latency: Option<f64>,
    /// One-way network bandwidth per GPU to other nodes, in GB/s.
    #[arg(long, value_name = "GB/S")]
    network_bandwidth: Option<f64>,
    /// Time of a message between nodes however small, in µs.
    #[arg(long, value_name = "µS")]
    network_latency: Option<f64>,
    /// Share of compute that data-parallel communication can overlap with.
    #[arg(long, value_name = "SHARE")]
    data_overlap: Option<f64>,
    /// Share of tensor-parallel communication that overlaps with compute.
    #[arg(long, value_name = "SHARE")]
    tensor_overlap: Option<f64>,
    /// Attention implementation.
    #[arg(long, value_enum)]
    attention: Option<AttentionName>,
}

#[derive(Clone, Copy, ValueEnum)]
enum AttentionName {
    /// Tiled: the score matrix is never stored.
    Flash,
    /// Stores the score matrix, with dropout.
    Naive,
}

impl AssumptionArguments {
    fn apply(&self, device: &Device) -> Assumptions {
        let mut assumptions = Assumptions::of(device);
        let set = |target: &mut f64, value: Option<f64>, scale: f64| {
            if let Some(value) = value {
                *target = value * scale;
            }
        };
        set(&mut assumptions.compute_efficiency, self.efficiency, 1.0);
        set(&mut assumptions.usable_memory, self.usable_memory, 1.0);
        set(&mut assumptions.link_bandwidth, self.link_bandwidth, 1e9);
        set(&mut assumptions.network_bandwidth, self.network_bandwidth, 1e9);
        set(&mut assumptions.link_latency, self.link_latency, 1e-6);
        set(&mut assumptions.network_latency, self.network_latency, 1e-6);
        set(&mut assumptions.data_overlap, self.data_overlap, 1.0);
        set(&mut assumptions.tensor_overlap, self.tensor_overlap, 1.0);
        assumptions.gpus_per_node = self.gpus_per_node.unwrap_or(assumptions.gpus_per_node);
        assumptions.attention = match self.attention {
            None => assumptions.attention,
            Some(AttentionName::Flash) => Attention::Flash,
            Some(AttentionName::Naive) => Attention::Naive,
        };
        assumptions
    }
}

/// Default tokens per step and per sequence.
const USUAL_BATCH: u64 = 4 << 20;
const USUAL_LENGTH: u64 = 4096;

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let model = ModelShape::load(&arguments.model.to_string_lossy())?;
    let device = Device::named(&arguments.gpu)?.clone();
    let precision = arguments.precision;
    let most = model.learned_positions.unwrap_or(USUAL_LENGTH);
    let sequence_length = arguments.seq_len.unwrap_or(USUAL_LENGTH.min(most));
    let request = Request {
        model,
        assumptions: arguments.assumptions.apply(&device),
        device,
        gpus: arguments.gpus,
        global_batch_tokens: arguments.global_batch.unwrap_or_else(|| {
            let evenly = arguments.gpus.saturating_mul(sequence_length).max(1);
            USUAL_BATCH.div_ceil(evenly).saturating_mul(evenly)
        }),
        sequence_length,
        precision,
        gradients: arguments.grads.unwrap_or(precision),
    };
    let search = request.search()?;
    let report = Report { request: &request, search: &search, tokens: arguments.tokens };
    let mut stdout = anstream::stdout().lock();
    match arguments.format {
        Format::Text => stdout.write_all(report.text(arguments.limit).as_bytes())?,
        Format::Json => writeln!(stdout, "{}", serde_json::to_string_pretty(&report.json())?)?,
    }
    Ok(stdout.flush()?)
}

/// What was asked and what was found.
struct Report<'a> {
    request: &'a Request,
    search: &'a Search,
    tokens: Option<u64>,
}

/// The public JSON.
#[derive(Serialize)]
struct Json<'a> {
    schema: u32,
    predicted: bool,
    model: JsonModel<'a>,
    device: JsonDevice,
    assumptions: JsonAssumptions,
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
    fn json(&self) -> Json<'_> {
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
            configurations: configurations.collect(),
            rejected: &self.search.rejected,
        }
    }

    /// How long training on all tokens takes.
    fn days(&self, configuration: &Configuration) -> Option<f64> {
        self.tokens.map(|tokens| tokens as f64 / configuration.tokens_per_second / 86_400.0)
    }

    fn text(&self, limit: usize) -> String {
        let Request { model, device, gpus, .. } = self.request;
        let bold = Style::new().bold();
        let mut text = format!(
            "{bold}{}{bold:#}, {} parameters, on {gpus} × {} ({}): {} tokens per step, in sequences of {}\n\n",
            model.name,
            text::parameters(model.parameters()),
            device.name,
            format_args!("{} GiB", device.memory_bytes >> 30),
            text::count(self.request.global_batch_tokens),
            text::count(self.request.sequence_length),
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
        text + &self.assumed()
    }

    fn configurations(&self, limit: usize) -> String {
        let mut headers = LAYOUT_HEADERS.to_vec();
        headers.extend([">memory", ">step", ">tokens/s", ">MFU", ">bubble", ">exposed comm"]);
        if self.tokens.is_some() {
            headers.extend([">days", ">GPU-days"]);
        }
        // Of each grid only the best: the others differ in what they shard or repeat.
        let mut grids = Vec::new();
        let best = self.search.configurations.iter().filter(|configuration| {
            let ParallelLayout { dp, tp, pp, .. } = configuration.layout;
            let new = !grids.contains(&(dp, tp, pp));
            grids.push((dp, tp, pp));
            new
        });
        let rows = best.take(limit).map(|configuration| {
            let mut row = layout_row(&configuration.layout);
            row.extend([
                text::bytes(configuration.memory_bytes) + if configuration.tight { TIGHT } else { "" },
                text::duration(configuration.step_time_ns as i64),
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
        let found = text::counted(self.search.configurations.len() as u64, "configuration");
        format!(
            "predicted: the best of each dp × tp × pp grid, out of {found} that fit; memory is on the fullest rank\n{table}"
        )
    }

    fn rejected(&self, limit: usize) -> String {
        if self.search.rejected.is_empty() {
            return String::new();
        }
        let mut headers = LAYOUT_HEADERS.to_vec();
        headers.push("why");
        let rows = self.search.rejected.iter().take(limit).map(|rejection| {
            let mut row = layout_row(&rejection.layout);
            if rejection.lacking_bytes.is_none() {
                row.iter_mut().skip(GRID_COLUMNS).for_each(|cell| *cell = "-".into());
            }
            row.push(rejection.why.clone());
            row
        });
        format!("\nrejected, closest first\n{}", terminal::table(&headers, rows))
    }

    fn assumed(&self) -> String {
        let Assumptions {
            compute_efficiency,
            usable_memory,
            gpus_per_node,
            link_bandwidth,
            link_latency,
            network_bandwidth,
            network_latency,
            data_overlap,
            tensor_overlap,
            attention,
        } = self.request.assumptions;
        let precision = self.request.precision;
        let peak = self.request.device.peaks.of(precision) / 1e12;
        let attention = match attention {
            Attention::Flash => "flash",
            Attention::Naive => "naive",
        };
        format!(
            "\nassumptions: compute reaches {} of {peak:.0} TFLOP/s ({}, dense); {} of memory is usable; gradients in \
             {};\n  {gpus_per_node} GPUs per node, {:.0} GB/s and {:.1} µs between them, {:.1} GB/s from each to other nodes \
             and {:.1} µs; {attention} attention;\n  data-parallel communication overlaps with {} of compute, \
             {} of tensor-parallel communication is overlapped;\n  MFU counts attention without causal discount\n",
            text::whole_percent(compute_efficiency),
            precision.name(),
            text::whole_percent(usable_memory),
            self.request.gradients.name(),
            link_bandwidth / 1e9,
            link_latency * 1e6,
            network_bandwidth / 1e9,
            network_latency * 1e6,
            text::whole_percent(data_overlap),
            text::whole_percent(tensor_overlap),
        )
    }
}

/// Behind memory of which little is left.
const TIGHT: &str = " !";

/// The columns of a layout that say only how ranks are arranged.
const GRID_COLUMNS: usize = 3;
const LAYOUT_HEADERS: [&str; 7] = [">dp", ">tp", ">pp", ">zero", "schedule", ">micro-batches × size", "recompute"];

fn layout_row(layout: &ParallelLayout) -> Vec<String> {
    let schedule = match layout.schedule {
        _ if layout.pp == 1 => "-".into(),
        Schedule::Interleaved => format!("interleaved ×{}", layout.chunks),
        schedule => schedule.name().to_owned(),
    };
    vec![
        layout.dp.to_string(),
        format!("{}{}", layout.tp, if layout.sequence_parallel { "+sp" } else { "" }),
        layout.pp.to_string(),
        u8::from(layout.zero).to_string(),
        schedule,
        format!("{} × {}", text::count(layout.micro_batches), layout.micro_batch),
        layout.recompute.name().into(),
    ]
}
