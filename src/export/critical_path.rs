//! The critical path of a step as a track: of all ranks together, and of each rank that it goes over.

use stepscope_analyzer::{Analysis, PathStretch};
use stepscope_traces::{Rank, export::perfetto::Stretches};

const TRACK: &str = "critical path";

/// Where it goes, from rank to rank.
pub(super) fn of_run(analysis: &Analysis) -> Stretches {
    track(analysis, |_| true, |stretch| format!("rank {}: {}", stretch.rank, stretch.part.words()))
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
    let mut stretches: Vec<(i64, i64, String)> = Vec::new();
    for stretch in path.filter(|stretch| is_on_it(stretch)) {
        let name = name(stretch);
        match stretches.last_mut() {
            Some((_, end, last)) if *end == stretch.start_ns && *last == name => *end = stretch.end_ns,
            _ => stretches.push((stretch.start_ns, stretch.end_ns, name)),
        }
    }
    Stretches { name: TRACK, stretches }
}
