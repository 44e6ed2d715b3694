//! What went wrong while ranks were recorded.

use stepscope_traces::RankDirectory;

use crate::folded::Folded;

/// What went wrong, a few lines.
pub(super) fn lines(ranks: &[RankDirectory]) -> Vec<String> {
    Folded::of(ranks.iter().filter_map(|rank| Some((rank.info.rank, problem(rank)?)))).lines()
}

/// Why a rank has no kernels, if the recorder said so, or why it ended early.
fn problem(rank: &RankDirectory) -> Option<String> {
    let cupti = rank.info.collector.get("cupti").and_then(|note| note.as_str());
    let why = cupti.and_then(|note| note.strip_prefix("not recorded: ")).map(|why| format!("no kernels, since {why}"));
    why.or_else(|| rank.info.reason.clone())
}
