//! What the program did on the host: how long it waits for data, and operators where no GPU activity was recorded.

use stepscope_analyzer::{Analysis, HostFigures, HostTime};
use stepscope_plan::text;

use super::tables::over_ranks;
use crate::render::table::{Table, Topic, duration};

/// Where a device was recorded, less than this share of the program's time is not worth a line.
const LEAST_SHARE: f64 = 0.01;

/// Whether the host is all there is: nothing ran on a device in the time that counts.
pub(super) fn is_alone(analysis: &Analysis) -> bool {
    analysis.host.is_some() && analysis.counted.iter().all(|time| time.partition.idle_ns == time.partition.span_ns)
}

/// How long the program waits for data and runs operators, of its time on the host.
pub(super) fn summary(analysis: &Analysis) -> Option<String> {
    let host = analysis.host.as_ref()?;
    let windows: i64 = analysis.counted.iter().map(|time| time.windows as i64).sum();
    let part = |what: &str, of: fn(&HostTime) -> Option<i64>| {
        let known = host.ranks.iter().filter_map(|rank| Some((of(rank)?, rank.time_ns)));
        let (time, all) = known.reduce(|one, other| (one.0 + other.0, one.1 + other.1))?;
        let (mean, share) = (text::duration(time / windows.max(1)), time as f64 / all.max(1) as f64);
        (share >= LEAST_SHARE || is_alone(analysis)).then(|| format!("{what} {mean} ({})", text::percent(share)))
    };
    // Most programs talk to nobody.
    let communication = |rank: &HostTime| rank.communication_ns.filter(|time| *time > 0);
    let parts = [
        part("data loading", |rank| rank.data_ns),
        part("operators", |rank| rank.operators_ns),
        part("communication", communication),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let all: i64 = host.ranks.iter().map(|rank| rank.time_ns).sum();
    let per = if analysis.window.whole { "" } else { " per step" };
    (!parts.is_empty()).then(|| format!("{} of {}{per}", parts.join(", "), text::duration(all / windows.max(1))))
}

/// Operators by phase.
pub(super) fn phases(analysis: &Analysis) -> Table {
    let phases = analysis.host.iter().flat_map(|host| &host.phases);
    let all: i64 = phases.clone().map(|phase| phase.self_ns).sum();
    let rows = phases.map(|of| {
        let name = of.phase.map_or("other", |phase| phase.word());
        vec![name.to_owned(), duration(of.self_ns), text::percent(of.self_ns as f64 / all.max(1) as f64)]
    });
    let title = over_ranks("Operators on the host by phase (partly inferred)", analysis);
    Table { topic: Topic::Time, title, headers: vec!["phase", ">time", ">share"], rows: rows.collect(), detail: false }
}

/// Operators by name.
pub(super) fn operators(analysis: &Analysis, most: usize) -> Table {
    let all = analysis.host.as_ref().map_or(&[][..], |HostFigures { operators, .. }| operators);
    let rows = all.iter().take(most).map(|operator| {
        vec![
            text::count(operator.count),
            duration(operator.self_ns),
            duration(operator.total_ns),
            text::percent(operator.share),
            operator.operator.clone(),
        ]
    });
    let title = match all.len() {
        there if there > most => format!("Operators on the host: top {most} of {there} by their own time"),
        _ => "Operators on the host".into(),
    };
    let headers = vec![">calls", ">own time", ">total", ">share", "operator"];
    Table { topic: Topic::Kernels, title: over_ranks(&title, analysis), headers, rows: rows.collect(), detail: false }
}
