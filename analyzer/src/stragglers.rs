//! Who waits for whom in collectives.
//!
//! A collective's own time is the least duration over its ranks; the rest of each rank's time in it is waiting. The
//! rank that waits least came last: the others waited for it, and where several wait as little it is the first of those.

use serde::Serialize;
use stepscope_traces::Rank;

use crate::rank::RankResult;

/// A rank's waiting, in collectives that all their ranks recorded. Not in messages, and not in collectives of several
/// stages: that is a bubble of the pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Straggler {
    /// Which rank.
    pub rank: Rank,
    /// How long it waited in collectives for others.
    pub wait_ns: i64,
    /// How long others waited in collectives of which it was the last.
    pub caused_wait_ns: i64,
}

/// Sums of waiting, by the place of a rank in the list; none where a rank met nobody.
pub(crate) struct Stragglers(Vec<Option<(i64, i64)>>);

impl Stragglers {
    pub(crate) fn of(ranks: &[RankResult]) -> Stragglers {
        Stragglers(vec![None; ranks.len()])
    }

    /// Adds a collective: its ranks, each with how long it took there, in the order of the ranks.
    pub(crate) fn add(&mut self, parts: &[(u32, i64)]) {
        let Some(&(last, own)) = parts.iter().min_by_key(|(_, duration)| *duration) else { return };
        let mut all = 0_i64;
        for (rank, duration) in parts {
            let (waited, _) = self.0[*rank as usize].get_or_insert_default();
            *waited = waited.saturating_add(duration.saturating_sub(own));
            all = all.saturating_add(duration.saturating_sub(own));
        }
        let (_, caused) = self.0[last as usize].get_or_insert_default();
        *caused = caused.saturating_add(all);
    }

    pub(crate) fn finish(self, ranks: &[RankResult]) -> Vec<Straggler> {
        let sums = ranks.iter().zip(self.0);
        let straggler = |(rank, sums): (&RankResult, Option<(i64, i64)>)| {
            sums.map(|(wait_ns, caused_wait_ns)| Straggler { rank: rank.info.rank, wait_ns, caused_wait_ns })
        };
        sums.filter_map(straggler).collect()
    }
}
