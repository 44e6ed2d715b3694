//! The tables of a report, for every form of it: headers and rows as text, as it came.

use std::collections::BTreeMap;

use stepscope_analyzer::{Analysis, AxisShare, CountedTime, KernelFigures, Share, WaitingRank, outliers};
use stepscope_plan::text;
use stepscope_traces::{Nanos, OperationState, RunSource, Step, without_signature};

use super::{devices, host, launched, memory, places, time::Time, waterfall};
use crate::folded;
use crate::render::table::{Table, Topic, duration, known, unknown};

/// How many rows there is room for.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) ranks: usize,
    pub(super) steps: usize,
    pub(super) kernels: usize,
}

/// Every table that has rows.
pub(super) fn tables(analysis: &Analysis, room: Room) -> Vec<Table> {
    let tables = [
        waterfall::table(analysis),
        waiting(analysis, room),
        time_by_rank(analysis, room),
        time_by_phase(analysis),
        time_by_layer(analysis),
        waterfall::critical_path(analysis),
        steps(analysis, room),
        memory::by_category(analysis),
        memory::by_rank(analysis, room.ranks),
        memory::blocks(analysis),
        memory::callers(analysis),
        pipeline(analysis, room),
        collectives(analysis),
        axes(analysis),
        stragglers(analysis, room),
        places::table(analysis, room),
        families(analysis),
        kernels(analysis, room),
        host::phases(analysis),
        host::operators(analysis, room.kernels),
        launched::operators(analysis, room.kernels),
        launched::shapes(analysis, room.kernels),
        launched::modules(analysis, room.kernels),
        launched::sources(analysis, room.kernels),
        launched::gemms(analysis, room.kernels),
        launched::durations(analysis),
        conventions(analysis),
        devices::table(analysis),
    ];
    tables.into_iter().map(Table::without_unknown).filter(|table| !table.rows.is_empty()).collect()
}

/// What each rank waited in when its recorder wrote down what it knew.
fn waiting(analysis: &Analysis, room: Room) -> Table {
    let waiting = analysis.hang.iter().flat_map(|hang| &hang.waiting);
    let row = |waiting: &WaitingRank| {
        let operation = &waiting.operation;
        let number = match operation.peer {
            Some(peer) => format!("with {peer}"),
            None => format!("#{}", operation.sequence),
        };
        let for_whom = if waiting.waits_for.is_empty() { "nobody".into() } else { folded::named(&waiting.waits_for) };
        let group = format!("{} ({})", operation.group, folded::named(&operation.group_ranks));
        let cells = [waiting.rank.to_string(), operation.operation.clone(), number, group, for_whom];
        let begun = known(operation.state, |state| match state {
            OperationState::Scheduled => "no".to_owned(),
            OperationState::Started | OperationState::Completed => "yes".to_owned(),
        });
        let at = known(operation.caller(), str::to_owned);
        cells.into_iter().chain([text::count(waiting.pending), begun, at]).collect()
    };
    let headers = vec![">rank", "waits in", ">number", "group", "for", ">pending", "begun on GPU", "asked for at"];
    let count = waiting.clone().count();
    let title = match count > room.ranks {
        true => format!("Waiting for communication (the first {} of {count} ranks)", room.ranks),
        false => "Waiting for communication".into(),
    };
    let rows = waiting.take(room.ranks).map(row).collect();
    Table { topic: Topic::Waiting, title, headers, rows, detail: false }
}

/// A time and its share, with the shares of a column below each other.
fn with_share(nanoseconds: i64, share: f64) -> String {
    format!("{} {:>6}", duration(nanoseconds), text::percent(share))
}

fn time_by_rank(analysis: &Analysis, room: Room) -> Table {
    // Of what was not recorded there is nothing to divide.
    let mut ranks: Vec<&CountedTime> =
        if host::is_alone(analysis) { Vec::new() } else { analysis.counted.iter().collect() };
    // Those that stand out come first, so that they are never among those without a row of their own.
    let first = outliers(analysis);
    ranks.sort_by_key(|time| first.iter().position(|rank| *rank == time.rank).unwrap_or(first.len()));
    let row = |name: String, time: &Time| {
        // A rank of which nothing is left has no parts.
        let is_known = time.span() > Nanos(0);
        let parts =
            time.parts().map(|(time, share)| known(is_known.then_some(share), |share| with_share(time.0, share)));
        let times = [name, known(is_known.then_some(time.span().0), text::duration)].into_iter().chain(parts);
        times.chain([known(time.overlap(), text::percent)]).collect()
    };
    let (shown, others) = ranks.split_at(ranks.len().min(room.ranks));
    let mut rows: Vec<Vec<String>> =
        shown.iter().map(|time| row(time.rank.to_string(), &Time::counted([*time]))).collect();
    if !others.is_empty() {
        rows.push(row(format!("{} more", others.len()), &Time::counted(others.iter().copied())));
    }
    let title = match analysis.step_time.as_ref().filter(|_| !analysis.window.whole) {
        Some(time) => format!("Time per step (mean of {})", text::counted(time.count, "step")),
        None => "Time".into(),
    };
    let headers = vec![">rank", ">time", ">compute", ">exposed comm", ">exposed copies", ">idle", ">overlap"];
    Table { topic: Topic::Time, title, headers, rows, detail: false }
}

/// Shares of time by some key, summed over ranks; those without a key come last.
fn shares<K: Ord>(keyed: impl Iterator<Item = (Option<K>, Share)>) -> Vec<(Option<K>, Share)> {
    let mut sums: BTreeMap<Option<K>, Share> = BTreeMap::new();
    for (key, share) in keyed {
        let sum = sums.entry(key).or_default();
        sum.compute_ns += share.compute_ns;
        sum.exposed_communication_ns += share.exposed_communication_ns;
        sum.exposed_copy_ns += share.exposed_copy_ns;
    }
    let rest = sums.remove(&None).map(|share| (None, share));
    sums.into_iter().chain(rest).collect()
}

const SHARE_HEADERS: [&str; 5] = [">compute", ">exposed comm", ">exposed copies", ">total", ">share"];

fn share_cells(share: &Share, whole: i64) -> [String; 5] {
    let Share { compute_ns, exposed_communication_ns, exposed_copy_ns } = *share;
    let together = compute_ns + exposed_communication_ns + exposed_copy_ns;
    let [compute, communication, copies] = [compute_ns, exposed_communication_ns, exposed_copy_ns].map(duration);
    [compute, communication, copies, duration(together), text::percent(together as f64 / whole.max(1) as f64)]
}

fn all_time(analysis: &Analysis) -> i64 {
    analysis.counted.iter().map(|time| time.partition.span_ns).sum()
}

fn time_by_phase(analysis: &Analysis) -> Table {
    let phases = analysis.counted.iter().flat_map(|rank| &rank.breakdown.phases);
    let whole = all_time(analysis);
    let mut rows: Vec<Vec<String>> = shares(phases.map(|phase| (phase.phase, phase.share)))
        .iter()
        .map(|(phase, share)| {
            let name = phase.map_or("other".into(), |phase| phase.word().to_owned());
            [name].into_iter().chain(share_cells(share, whole)).collect()
        })
        .collect();
    let idle: i64 = analysis.counted.iter().map(|time| time.partition.idle_ns).sum();
    if !rows.is_empty() {
        let share = text::percent(idle as f64 / whole.max(1) as f64);
        rows.push(vec!["idle".into(), unknown(), unknown(), unknown(), duration(idle), share]);
    }
    let headers = ["phase"].into_iter().chain(SHARE_HEADERS).collect();
    let inferred = if analysis.run.phases_inferred { "Time by phase (partly inferred)" } else { "Time by phase" };
    let title = over_ranks(inferred, analysis);
    Table { topic: Topic::Time, title, headers, rows, detail: false }
}

fn time_by_layer(analysis: &Analysis) -> Table {
    let layers = analysis.counted.iter().flat_map(|rank| &rank.breakdown.layers);
    let whole = all_time(analysis);
    let mut rows = shares(layers.map(|layer| (layer.layer, layer.share)));
    // Where no layer is known, this is what the other tables say.
    if rows.iter().all(|(layer, _)| layer.is_none()) {
        rows.clear();
    }
    let rows = rows.iter().map(|(layer, share)| {
        let name = layer.map_or("none".into(), |layer| layer.to_string());
        [name].into_iter().chain(share_cells(share, whole)).collect()
    });
    let headers = [">layer"].into_iter().chain(SHARE_HEADERS).collect();
    let title = over_ranks("Time by layer", analysis);
    Table { topic: Topic::Time, title, headers, rows: rows.collect(), detail: true }
}

/// A title that says how many ranks are summed.
pub(super) fn over_ranks(title: &str, analysis: &Analysis) -> String {
    match analysis.ranks.len() {
        1 => title.into(),
        // What else is said of it stands in the same brackets.
        ranks => match title.strip_suffix(')') {
            Some(title) => format!("{title}; sum of {ranks} ranks)"),
            None => format!("{title} (sum of {ranks} ranks)"),
        },
    }
}

fn steps(analysis: &Analysis, room: Room) -> Table {
    let steps = &analysis.job_steps;
    let bubble = |step: Step| {
        let bubbles = analysis.pipeline.iter().flat_map(|pipeline| &pipeline.per_step);
        bubbles.into_iter().find(|bubble| bubble.step == step).map(|bubble| bubble.bubble)
    };
    let left_out = steps.len().saturating_sub(room.steps);
    let rows = steps.iter().skip(left_out).map(|step| {
        vec![
            step.step.to_string(),
            duration(step.duration_ns),
            step.slowest.to_string(),
            known(step.tokens_per_second, |tokens| text::count(tokens.round() as u64)),
            known(step.mfu, text::percent),
            known(bubble(step.step), text::percent),
            known(step.loss, text::training_loss),
        ]
    });
    let headers = vec![">step", ">time", ">slowest rank", ">tokens/s", ">MFU", ">bubble", ">loss"];
    let title = if left_out > 0 { format!("Last {} steps", room.steps) } else { "Steps".into() };
    Table { topic: Topic::Time, title, headers, rows: rows.collect(), detail: true }
}

fn pipeline(analysis: &Analysis, room: Room) -> Table {
    let stages = analysis.pipeline.iter().flat_map(|pipeline| &pipeline.per_stage);
    let mut stages: Vec<_> = stages.collect();
    stages.sort_by_key(|stage| (stage.stage, stage.rank));
    let left_out = stages.len().saturating_sub(room.ranks.max(16));
    let rows = stages.iter().take(room.ranks.max(16)).map(|stage| {
        vec![
            stage.stage.to_string(),
            stage.rank.to_string(),
            duration(stage.work_ns),
            known(stage.bubble, text::percent),
            known(stage.warm_up_ns, duration),
            known(stage.steady_ns, duration),
            known(stage.cool_down_ns, duration),
        ]
    });
    let headers = vec![">stage", ">rank", ">work", ">bubble", ">warm-up", ">steady", ">cool-down"];
    let more = if left_out > 0 { format!(", {left_out} more ranks not shown") } else { String::new() };
    let inferred =
        if analysis.pipeline.as_ref().is_some_and(|pipeline| pipeline.inferred) { " (inferred)" } else { "" };
    let title = format!("Pipeline by stage{inferred}{more}");
    Table { topic: Topic::Pipeline, title, headers, rows: rows.collect(), detail: false }
}

fn collectives(analysis: &Analysis) -> Table {
    let rows = analysis.collectives.iter().map(|figures| {
        vec![
            figures.operation.word().replace('_', "-"),
            known(figures.axis, |axis| axis.name().into()),
            known(figures.group_size, |size| size.to_string()),
            text::count(figures.count),
            known(figures.bytes, text::bytes),
            duration(figures.busy_ns),
            duration(figures.exposed_ns),
            known(figures.waiting_ns, duration),
            known(figures.bus_bandwidth, text::bandwidth),
        ]
    });
    let headers =
        vec!["operation", "axis", ">ranks", ">count", ">bytes", ">busy", ">exposed", ">waiting", ">bus bandwidth"];
    let inferred = if analysis.run.groups_inferred { " (groups inferred)" } else { "" };
    let title = over_ranks(&format!("Communication by operation{inferred}"), analysis);
    Table { topic: Topic::Communication, title, headers, rows: rows.collect(), detail: false }
}

fn axes(analysis: &Analysis) -> Table {
    let mut axes = AxisShare::sum(analysis.counted.iter().flat_map(|rank| &rank.breakdown.axes));
    if axes.iter().all(|axis| axis.axis.is_none()) {
        axes.clear();
    }
    let rows = axes.iter().map(|along| {
        let name = along.axis.map_or("unknown", |axis| axis.name()).to_owned();
        let hidden = with_share(along.overlapped_ns, along.overlap());
        vec![name, duration(along.communication_ns), hidden, duration(along.exposed_ns)]
    });
    let headers = vec!["axis", ">communication", ">overlapped", ">exposed"];
    let inferred = if analysis.run.axes_inferred { " (inferred)" } else { "" };
    let title = over_ranks(&format!("Communication by axis{inferred}"), analysis);
    Table { topic: Topic::Communication, title, headers, rows: rows.collect(), detail: false }
}

fn stragglers(analysis: &Analysis, room: Room) -> Table {
    let mut ranks: Vec<_> = analysis.stragglers.iter().collect();
    ranks.sort_by_key(|rank| (std::cmp::Reverse(rank.caused_wait_ns), rank.rank));
    let rows = ranks
        .iter()
        .take(room.ranks)
        .map(|rank| vec![rank.rank.to_string(), duration(rank.caused_wait_ns), duration(rank.wait_ns)]);
    let headers = vec![">rank", ">caused waiting", ">waited"];
    // Kineto numbers no collectives: which ones belong together is told from their order.
    let is_inferred = analysis.run.source == RunSource::Kineto || analysis.run.groups_inferred;
    let inferred = if is_inferred { " (inferred)" } else { "" };
    let title = format!("Waiting in collectives{inferred}, worst straggler first");
    Table { topic: Topic::Communication, title, headers, rows: rows.collect(), detail: false }
}

fn families(analysis: &Analysis) -> Table {
    let rows = analysis.families.iter().map(|family| {
        vec![
            family.family.word().into(),
            text::count(family.count),
            duration(family.total_ns),
            text::percent(family.share),
            known(family.flops_per_second, text::flops),
            known(family.peak_share, text::percent),
        ]
    });
    let headers = vec!["family", ">count", ">total", ">share", ">rate", ">of peak"];
    let title = over_ranks("Kernels by family", analysis);
    Table { topic: Topic::Kernels, title, headers, rows: rows.collect(), detail: false }
}

fn kernels(analysis: &Analysis, room: Room) -> Table {
    let several = analysis.ranks.len() > 1;
    let row = |kernel: &KernelFigures| {
        let spread = format!("{} to {}", duration(kernel.least_rank_ns), duration(kernel.most_rank_ns));
        let mut cells = vec![
            without_signature(&kernel.name).into(),
            text::count(kernel.count),
            duration(kernel.total_ns),
            duration(kernel.mean_ns as i64),
            text::percent(kernel.share),
            known(kernel.rates.flops_per_second, text::flops),
        ];
        cells.extend(several.then_some(spread));
        cells
    };
    let mut headers = vec!["kernel", ">count", ">total", ">mean", ">share", ">rate"];
    headers.extend(several.then_some(">range over ranks"));
    let all = analysis.kernels.len();
    let title = match all {
        all if all > room.kernels => format!("Kernels: top {} of {all} by total time", room.kernels),
        _ => "Kernels".into(),
    };
    let title = over_ranks(&title, analysis);
    let rows = analysis.kernels.iter().take(room.kernels).map(row).collect();
    Table { topic: Topic::Kernels, title, headers, rows, detail: false }
}

fn conventions(analysis: &Analysis) -> Table {
    let values = analysis.mfu.iter().flat_map(|mfu| &mfu.by_convention);
    let rows = values.map(|(name, value)| vec![(*name).to_owned(), text::percent(*value)]).collect();
    let title = "MFU by FLOP convention".into();
    Table { topic: Topic::Kernels, title, headers: vec!["convention", ">MFU"], rows, detail: true }
}
