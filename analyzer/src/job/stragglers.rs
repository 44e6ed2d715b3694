//! Who waits for whom in collectives.
//!
//! A collective's own time is the least duration over its ranks; the rest of each rank's time in it is waiting. The
//! rank that waits least came last: the others waited for it, and where several wait as little it is the first of those.

use std::{cmp::Reverse, collections::BTreeMap};

use stepscope_plan::Axis;

use crate::{
    figures::{Straggler, Wait},
    rank::result::RankResult,
};

/// How many of the ranks that wait, and of those that are waited for, are told in pairs.
const MOST_IN_PAIRS: usize = 32;

/// Waiting of ranks, by their places in the list.
pub(crate) struct Stragglers {
    /// What each waits, and what others wait for it; none for ranks that shared no collective.
    sums: Vec<Option<(i64, i64)>>,
    /// By axis, what of its waiting nothing hides.
    exposed: Vec<BTreeMap<Option<Axis>, i64>>,
}

impl Stragglers {
    pub(crate) fn of(ranks: &[RankResult]) -> Stragglers {
        Stragglers { sums: vec![None; ranks.len()], exposed: vec![BTreeMap::new(); ranks.len()] }
    }

    /// Adds a collective: its ranks, each with how long it took there, in the order of the ranks.
    pub(crate) fn add(&mut self, parts: &[(u32, i64)]) {
        let Some((last, own)) = last(parts) else { return };
        let mut all = 0_i64;
        for (rank, duration) in parts {
            let (waited, _) = self.sums[*rank as usize].get_or_insert_default();
            *waited = waited.saturating_add(duration.saturating_sub(own));
            all = all.saturating_add(duration.saturating_sub(own));
        }
        let (_, caused) = self.sums[last as usize].get_or_insert_default();
        *caused = caused.saturating_add(all);
    }

    /// Adds what of a rank's waiting nothing hides.
    pub(crate) fn add_exposed(&mut self, rank: u32, axis: Option<Axis>, waited: i64) {
        let sum = self.exposed[rank as usize].entry(axis).or_default();
        *sum = sum.saturating_add(waited);
    }

    /// By axis, what of each rank's waiting nothing hides.
    pub(crate) fn exposed(&self) -> Vec<BTreeMap<Option<Axis>, i64>> {
        self.exposed.clone()
    }

    /// Pairs of ranks, to which the same collectives are added again: of all ranks, or of those with most waiting.
    pub(crate) fn pairs(&self) -> Pairs {
        let worst = |of: fn((i64, i64)) -> i64| {
            let amounts = self.sums.iter().map(|sums| sums.map_or(0, of));
            let mut ranks: Vec<(Reverse<i64>, u32)> = amounts.map(Reverse).zip(0..).collect();
            ranks.sort_unstable();
            ranks.truncate(MOST_IN_PAIRS);
            let mut is_worst = vec![false; self.sums.len()];
            ranks.iter().for_each(|(_, rank)| is_worst[*rank as usize] = true);
            is_worst
        };
        Pairs { waits: worst(|(waited, _)| waited), is_waited_for: worst(|(_, caused)| caused), sums: BTreeMap::new() }
    }

    pub(crate) fn finish(self, ranks: &[RankResult]) -> Vec<Straggler> {
        let sums = ranks.iter().zip(self.sums);
        let straggler = |(rank, sums): (&RankResult, Option<(i64, i64)>)| {
            sums.map(|(wait_ns, caused_wait_ns)| Straggler { rank: rank.info.rank, wait_ns, caused_wait_ns })
        };
        sums.filter_map(straggler).collect()
    }
}

/// The rank that came last, and how long it took: the first of those that took least.
fn last(parts: &[(u32, i64)]) -> Option<(u32, i64)> {
    parts.iter().copied().min_by_key(|(_, duration)| *duration)
}

/// Waiting of ranks for each other, by the places of both in the list.
pub(crate) struct Pairs {
    waits: Vec<bool>,
    is_waited_for: Vec<bool>,
    sums: BTreeMap<(u32, u32), i64>,
}

impl Pairs {
    /// Adds a collective.
    pub(crate) fn add(&mut self, parts: &[(u32, i64)]) {
        let Some((last, own)) = last(parts).filter(|(last, _)| self.is_waited_for[*last as usize]) else { return };
        for (rank, duration) in parts.iter().filter(|(rank, _)| *rank != last && self.waits[*rank as usize]) {
            let sum = self.sums.entry((*rank, last)).or_default();
            *sum = sum.saturating_add(duration.saturating_sub(own));
        }
    }

    pub(crate) fn finish(self, ranks: &[RankResult]) -> Vec<Wait> {
        let rank = |place: u32| ranks[place as usize].info.rank;
        let waited = self.sums.into_iter().filter(|(_, wait_ns)| *wait_ns > 0);
        waited.map(|((one, other), wait_ns)| Wait { rank: rank(one), for_rank: rank(other), wait_ns }).collect()
    }
}
