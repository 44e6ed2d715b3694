//! The tables of a comparison, for every form of it.

use std::collections::BTreeSet;

use stepscope_analyzer::{Diff, KernelDiff, KernelStatus, MemoryCause, MetricDiff, TimeCause, TimeDiff, Unit};
use stepscope_plan::text;
use stepscope_traces::without_signature;

use super::answer;
use crate::render::table::{Table, Topic, UNKNOWN, duration, known, unknown};

/// How many rows there is room for.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Causes of time; the others share a row.
    pub(super) causes: usize,
    pub(super) kernels: usize,
}

/// Every table that has rows.
pub(super) fn tables(diff: &Diff, room: Room) -> Vec<Table<String>> {
    let tables = [time(diff, room), memory(diff, room), metrics(diff), kernels(diff, room)];
    tables.into_iter().map(Table::without_unknown).filter(|table| !table.rows.is_empty()).collect()
}

fn headers(headers: &[&str]) -> Vec<String> {
    headers.iter().map(|header| (*header).to_owned()).collect()
}

/// What stands under the names of the runs.
fn named(diff: &Diff, before: &[&str], after: &[&str]) -> Vec<String> {
    let names = [&diff.base, &diff.other].map(|name| format!(">{}", text::shortened(name, 16)));
    headers(before).into_iter().chain(names).chain(headers(after)).collect()
}

/// Changes that are more than chance have a mark; a run of one step has none.
fn mark(significant: bool) -> String {
    if significant { "*".into() } else { String::new() }
}

fn between(low: Option<i64>, high: Option<i64>) -> String {
    known(low.zip(high), |(low, high)| format!("{} to {}", text::longer(low), text::longer(high)))
}

fn time(diff: &Diff, room: Room) -> Table<String> {
    let rows = diff.step_time.iter().flat_map(|time| {
        let share = |change: i64| text::percent_more(change as f64 / time.base_ns.max(1) as f64);
        let row = |cause: &TimeCause| {
            vec![
                cause.cause.clone(),
                duration(cause.base_ns),
                duration(cause.other_ns),
                text::longer(cause.change_ns),
                share(cause.change_ns),
                mark(cause.significant),
                between(cause.low_ns, cause.high_ns),
            ]
        };
        let TimeDiff { base_ns, other_ns, change_ns, low_ns, high_ns, .. } = *time;
        let is_clear = answer::metric(diff, "step_time").is_some_and(|metric| metric.significant);
        let all = vec![
            "total".into(),
            duration(base_ns),
            duration(other_ns),
            text::longer(change_ns),
            share(change_ns),
            mark(is_clear),
            between(low_ns, high_ns),
        ];
        let (shown, others) = time.causes.split_at(time.causes.len().min(room.causes));
        let mut rows: Vec<Vec<String>> = shown.iter().map(row).collect();
        if !others.is_empty() {
            let sum = |of: fn(&TimeCause) -> i64| others.iter().map(of).sum::<i64>();
            let change = sum(|cause| cause.change_ns);
            let name = format!("{} more", others.len());
            let times = [sum(|cause| cause.base_ns), sum(|cause| cause.other_ns)].map(duration);
            let [base, other] = times;
            rows.push(vec![name, base, other, text::longer(change), share(change), String::new(), unknown()]);
        }
        rows.push(all);
        rows
    });
    let compared = answer::compared(diff);
    let title = format!("Change in {compared} time by cause (* significant)");
    let headers = named(diff, &["cause"], &[">change", &format!(">of {compared}"), "", ">95% CI"]);
    Table { topic: Topic::Time, title, headers, rows: rows.collect(), detail: false }
}

fn memory(diff: &Diff, room: Room) -> Table<String> {
    let rows = diff.peak_memory.iter().flat_map(|memory| {
        let size = |bytes: i64| text::bytes(bytes.max(0) as u64);
        let row = |name: &str, [base, other]: [i64; 2], parts: String| {
            vec![name.to_owned(), size(base), size(other), text::larger(other - base), parts]
        };
        let category = |cause: &MemoryCause| row(&cause.cause, [cause.base_bytes, cause.other_bytes], parts(cause));
        // The largest come first, and what does not change last.
        let changed = memory.causes.iter().filter(|cause| cause.change_bytes != 0).count();
        if changed == 0 && memory.fragmentation.is_none_or(|left| left.change_bytes == 0) {
            return Vec::new();
        }
        let (shown, others) = memory.causes.split_at(changed.min(room.causes));
        let mut rows: Vec<Vec<String>> = shown.iter().map(category).collect();
        if !others.is_empty() {
            let sum = |of: fn(&MemoryCause) -> i64| others.iter().map(of).sum::<i64>();
            let sizes = [sum(|cause| cause.base_bytes), sum(|cause| cause.other_bytes)];
            rows.push(row(&format!("{} more", others.len()), sizes, unknown()));
        }
        rows.push(row("total", [memory.base_bytes, memory.other_bytes], unknown()));
        if let Some(left) = memory.fragmentation {
            rows.push(row("+ fragmentation", [left.base_bytes, left.other_bytes], unknown()));
        }
        let all = memory.all_ranks;
        if [all.base_bytes, all.other_bytes] != [memory.base_bytes, memory.other_bytes] {
            rows.push(row("sum over ranks", [all.base_bytes, all.other_bytes], unknown()));
        }
        rows
    });
    let inferred = match diff.peak_memory.as_ref().is_some_and(|memory| memory.inferred) {
        true => " (categories inferred)",
        false => "",
    };
    let title = format!("Change in peak memory of the fullest rank{inferred}");
    let headers = named(diff, &["category"], &[">change", "predicted by setting"]);
    Table { topic: Topic::Memory, title, headers, rows: rows.collect(), detail: false }
}

fn parts(cause: &MemoryCause) -> String {
    let parts = cause.parts.iter().map(|part| format!("{} {}", part.cause.words(), text::larger(part.change_bytes)));
    let parts = parts.collect::<Vec<_>>().join(", ");
    if parts.is_empty() { UNKNOWN.into() } else { parts }
}

fn metrics(diff: &Diff) -> Table<String> {
    let row = |metric: &MetricDiff| {
        let value = |value: Option<f64>| known(value, |value| answer::value(metric.unit, value));
        let better = match (metric.significant, metric.more_is_better, metric.change) {
            (true, Some(more), Some(change)) if (change > 0.0) == more => "* better".into(),
            (true, Some(_), Some(_)) => "* worse".into(),
            (significant, ..) => mark(significant),
        };
        vec![
            metric.metric.clone(),
            value(metric.base),
            value(metric.other),
            match (metric.relative, metric.change) {
                (_, Some(change)) if metric.unit == Unit::Share => format!("{:+.1} points", 100.0 * change),
                (Some(change), _) => text::percent_more(change),
                // From nothing there is no share.
                (None, Some(change)) if change > 0.0 => format!("+{}", answer::value(metric.unit, change)),
                _ => unknown(),
            },
            better,
        ]
    };
    let values = |name: &str| answer::metric(diff, name).map(|metric| vec![metric.base, metric.other]);
    let says_something = |metric: &&MetricDiff| answer::says_something(&metric.metric, &values);
    let rows = diff.metrics.iter().filter(says_something).map(row).collect();
    let headers = named(diff, &["metric"], &[">change", ""]);
    Table { topic: Topic::Figures, title: "Metrics (* significant)".into(), headers, rows, detail: false }
}

fn kernels(diff: &Diff, room: Room) -> Table<String> {
    let changed = || diff.kernels.iter().filter(|kernel| kernel.change_ns != 0 || kernel.status != KernelStatus::Same);
    let row = |kernel: &KernelDiff| {
        let count = |count: f64| if count.fract() == 0.0 { format!("{count:.0}") } else { format!("{count:.1}") };
        let counts = match (count(kernel.base_count), count(kernel.other_count)) {
            (base, other) if base == other => base,
            (base, other) => format!("{base} → {other}"),
        };
        vec![
            kernel_name(kernel),
            counts,
            text::longer(kernel.change_ns),
            text::longer(kernel.count_effect_ns),
            text::longer(kernel.duration_effect_ns),
            mark(kernel.significant),
        ]
    };
    let all = changed().count();
    let rows: Vec<Vec<String>> = changed().take(room.kernels).map(row).collect();
    let title = match all {
        all if all > room.kernels => {
            format!("Kernels per {}: top {} of {all} by change", answer::compared(diff), room.kernels)
        }
        _ => format!("Kernels per {}", answer::compared(diff)),
    };
    let headers = headers(&["kernel", ">count", ">change", ">by count", ">by duration", ""]);
    Table { topic: Topic::Kernels, title, headers, rows, detail: false }
}

/// A kernel, and whether it is new, gone or renamed.
fn kernel_name(kernel: &KernelDiff) -> String {
    let names =
        |names: &BTreeSet<String>| names.iter().map(|name| without_signature(name)).collect::<Vec<_>>().join(", ");
    let (base, other) = (names(&kernel.base_names), names(&kernel.other_names));
    let again = if kernel.cause == "recomputation" { " (recomputed)" } else { "" };
    match kernel.status {
        KernelStatus::Same => format!("{base}{again}"),
        KernelStatus::New => format!("new: {other}{again}"),
        KernelStatus::Gone => format!("gone: {base}{again}"),
        KernelStatus::Renamed => format!("renamed: {base} → {other}{again}"),
    }
}
