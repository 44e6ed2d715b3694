//! Ranks of which nobody saw what runs, such as one with a memory snapshot beside traces of the others.
//!
//! When their steps were may be known. That nothing ran in them is not, so they have no part in what ranks have in the mean.

use crate::{
    figures::Partition,
    rank::{result::RankResult, step_parts::RankParts},
};

/// The ranks of which something was seen; all of them, where it is none.
pub(crate) fn seen(ranks: &[RankResult]) -> impl Iterator<Item = &RankResult> {
    let any = ranks.iter().any(is_seen);
    ranks.iter().filter(move |rank| !any || is_seen(rank))
}

/// Takes the times of the other ranks away.
pub(crate) fn leave_out(ranks: &mut [RankResult]) {
    if !ranks.iter().any(is_seen) {
        return;
    }
    for rank in ranks.iter_mut().filter(|rank| !is_seen(rank)) {
        rank.steps.clear();
        (rank.figures.partition, rank.time.partition) = (Partition::default(), Partition::default());
        rank.time.windows = 0;
        rank.time.idle.clear();
        rank.parts = rank.parts.take().map(|_| RankParts::default());
        rank.stage_waits = None;
    }
}

fn is_seen(rank: &RankResult) -> bool {
    let Partition { compute_ns, communication_ns, copy_ns, .. } = rank.figures.partition;
    rank.figures.kernel_count > 0 || [compute_ns, communication_ns, copy_ns].iter().any(|time| *time > 0)
}
