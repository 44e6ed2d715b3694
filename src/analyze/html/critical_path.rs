//! The critical path as a lane above the streams.

use stepscope_analyzer::{Analysis, Class, LaneSpan, PathPart, PathStretch};
use stepscope_traces::Family;

/// What of it lies in a stretch of time, since that begins.
pub(super) fn between(analysis: &Analysis, (begin_ns, length_ns): (i64, i64)) -> Vec<LaneSpan> {
    let place = |time: i64| time.saturating_sub(begin_ns).clamp(0, length_ns);
    let mut spans: Vec<LaneSpan> = Vec::new();
    for PathStretch { rank, start_ns, end_ns, part } in analysis.critical_path.iter().flat_map(|path| &path.stretches) {
        let name = format!("rank {rank}: {}", part.words());
        let (start, end) = (place(*start_ns), place(*end_ns));
        if start == end {
            continue;
        }
        match spans.last_mut() {
            Some(last) if last.name == name => (last.end, last.count) = (end, last.count + 1),
            _ => spans.push(span(*part, name, (start, end))),
        }
    }
    spans
}

fn span(part: PathPart, name: String, (start, end): (i64, i64)) -> LaneSpan {
    let (family, class) = match part {
        PathPart::Compute { family } => (family, Class::Compute),
        PathPart::Communication { .. } => (Family::Communication, Class::Communication),
        PathPart::Copy => (Family::Copy, Class::Copy),
        PathPart::Idle { .. } | PathPart::Bubble | PathPart::Lag => (Family::Other, Class::Compute),
    };
    LaneSpan { start, end, name, family, class, micro_batch: None, phase: None, count: 1 }
}
