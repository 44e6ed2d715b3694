//! How often the GPU was not recorded because the program's own profiler ran.

use stepscope_traces::RankInfo;

use crate::figures::Paused;

/// As ranks say it of themselves; none if no profiler of theirs ever ran.
pub fn paused<'ranks>(ranks: impl Iterator<Item = &'ranks RankInfo>) -> Option<Paused> {
    let paused: Vec<_> = ranks.filter_map(|rank| Some((rank.rank, rank.collector.other_profiler?))).collect();
    let longest = paused.iter().map(|(_, pauses)| pauses).max_by_key(|pauses| (pauses.nanos, pauses.count))?;
    let missing = paused.iter().filter(|(_, pauses)| pauses.missing_since.is_some());
    let ranks_without_kernels = missing.map(|(rank, _)| *rank).collect();
    Some(Paused { count: longest.count, paused_ns: longest.nanos, ranks_without_kernels })
}
