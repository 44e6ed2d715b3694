//! The critical path of a step as a track: of all ranks together, and of each rank that it goes over.

use stepscope_analyzer::{Analysis, PathPart, PathStretch};
use stepscope_traces::{
    Rank,
    export::perfetto::{NamedStretch, Stretches},
};

const TRACK: &str = "critical path";

/// Shorter pauses between two activities are shown with what comes after them, in nanoseconds: that is how long it takes a
/// device to begin.
const SHORT: i64 = 2_000;

/// Where it goes, from rank to rank, where there are several.
pub(super) fn of_run(analysis: &Analysis) -> Stretches {
    let are_several = analysis.ranks.len() > 1;
    track(analysis, |_| are_several, |stretch| format!("rank {}: {}", stretch.rank, stretch.part.words()))
}

/// What of it is on a rank.
pub(super) fn of_rank(analysis: &Analysis, rank: Rank) -> Stretches {
    track(analysis, |stretch| stretch.rank == rank, |stretch| stretch.part.words())
}

/// Neighbors that say the same are one.
fn track(
    analysis: &Analysis,
    is_on_it: impl Fn(&PathStretch) -> bool,
    name: impl Fn(&PathStretch) -> String,
) -> Stretches {
    let path = analysis.critical_path.iter().flat_map(|path| &path.stretches);
    let mut stretches: Vec<NamedStretch> = Vec::new();
    let mut pause: Option<(i64, i64)> = None;
    for stretch in path.filter(|stretch| is_on_it(stretch)) {
        let PathStretch { start_ns, end_ns, part, .. } = *stretch;
        let start = pause.take().filter(|(_, end)| *end == start_ns).map_or(start_ns, |(start, _)| start);
        if matches!(part, PathPart::Idle { .. } | PathPart::Lag) && end_ns - start < SHORT {
            pause = Some((start, end_ns));
            continue;
        }
        let name = name(stretch);
        match stretches.last_mut() {
            Some(last) if last.end_ns == start && last.name == name => last.end_ns = end_ns,
            _ => stretches.push(NamedStretch { start_ns: start, end_ns, name, arguments: Vec::new() }),
        }
    }
    // What the step ends with belongs to what came before it.
    if let (Some((_, over)), Some(last)) = (pause, stretches.last_mut()) {
        last.end_ns = over;
    }
    Stretches { name: TRACK, stretches }
}
