//! Where time goes, by unions of intervals: written for these tests, and nothing else uses it.

use serde_json::{Value, json};
use stepscope_traces::{RankData, Span, SpanKind};

/// What a device did: spans that are no annotations and no launches.
pub(crate) fn activities(data: &RankData) -> Vec<Span> {
    let is_activity = |span: &Span| !span.kind.is_annotation() && span.kind != SpanKind::Launch;
    data.spans.rows().filter(is_activity).collect()
}

/// The figures of a window of time.
pub(crate) fn figures(activities: &[Span], from: i64, to: i64) -> Value {
    let of = |wanted: fn(SpanKind) -> bool| {
        let chosen = activities.iter().filter(|span| wanted(span.kind)).map(|span| {
            let (start, end) = span.interval();
            (start.0.max(from), end.0.min(to))
        });
        union(chosen.filter(|(start, end)| start < end).collect())
    };
    let compute = of(|kind| kind == SpanKind::Kernel);
    let communication = of(SpanKind::is_communication);
    let copies = of(SpanKind::is_copy);
    let busy = union([compute.clone(), communication.clone()].concat());
    let all = union([busy.clone(), copies.clone()].concat());
    let overlapped = common(&communication, &compute);
    json!({
        "span_ns": to - from,
        "compute_ns": length(&compute),
        "communication_ns": length(&communication),
        "overlapped_communication_ns": overlapped,
        "exposed_communication_ns": length(&communication) - overlapped,
        "copy_ns": length(&copies),
        "exposed_copy_ns": length(&copies) - common(&copies, &busy),
        "idle_ns": to - from - length(&all),
    })
}

/// From the first start to the last end.
pub(crate) fn extent<'a>(activities: impl Iterator<Item = &'a Span> + Clone) -> (i64, i64) {
    let starts = activities.clone().map(|span| span.interval().0.0);
    (starts.min().unwrap(), activities.map(|span| span.interval().1.0).max().unwrap())
}

fn union(mut intervals: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    intervals.sort_unstable();
    let mut union: Vec<(i64, i64)> = Vec::new();
    for (start, end) in intervals {
        match union.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => union.push((start, end)),
        }
    }
    union
}

fn length(intervals: &[(i64, i64)]) -> i64 {
    intervals.iter().map(|(start, end)| end - start).sum()
}

/// How long both go on.
fn common(one: &[(i64, i64)], other: &[(i64, i64)]) -> i64 {
    let both = |a: &(i64, i64)| other.iter().map(|b| (a.1.min(b.1) - a.0.max(b.0)).max(0)).sum::<i64>();
    one.iter().map(both).sum()
}
