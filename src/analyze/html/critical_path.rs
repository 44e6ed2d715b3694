//! The critical path as a lane above the streams.

use stepscope_analyzer::{Analysis, PathPart, PathStretch};
use stepscope_traces::Family;

/// Neighbors on the path that are alike, as one.
pub(super) struct PathSpan {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) name: String,
    pub(super) family: Family,
    /// How many it stands for.
    pub(super) count: u32,
}

/// What of it lies in a stretch of time, since that begins.
pub(super) fn between(analysis: &Analysis, (begin_ns, length_ns): (i64, i64)) -> Vec<PathSpan> {
    let place = |time: i64| time.saturating_sub(begin_ns).clamp(0, length_ns);
    let mut spans: Vec<PathSpan> = Vec::new();
    for PathStretch { rank, start_ns, end_ns, part } in analysis.critical_path.iter().flat_map(|path| &path.stretches) {
        let name = format!("rank {rank}: {}", part.words());
        let (start, end) = (place(*start_ns), place(*end_ns));
        if start == end {
            continue;
        }
        match spans.last_mut() {
            Some(last) if last.name == name => (last.end, last.count) = (end, last.count + 1),
            _ => spans.push(PathSpan { start, end, name, family: family(*part), count: 1 }),
        }
    }
    spans
}

/// What it is colored as.
fn family(part: PathPart) -> Family {
    match part {
        PathPart::Compute { family } => family,
        PathPart::Communication { .. } => Family::Communication,
        PathPart::Copy => Family::Copy,
        PathPart::Idle { .. } | PathPart::Bubble | PathPart::Lag => Family::Other,
    }
}
