//! One clock for all ranks: by what ties each to the time of day, then by collectives, which end together.
//!
//! Ranks of one host whose times are of the same source share a clock, and nothing changes it. Clocks are brought
//! together pair by pair, along a tree that begins with the first rank's: first over collectives, the most of them
//! first; where there are none, over messages, which are not received before they are sent; and where there are none of
//! those, by the time of day. Each pair gets an offset and a drift that a few wrong moments do not change.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use stepscope_traces::{GroupInfo, SpanKind};

use crate::{
    figures::{AlignedBy, ClockSummary, RankClock},
    job::{
        clock_fit::{ClockFit, Reading},
        messages::{Message, messages},
    },
    rank::result::RankResult,
};

/// The share of moments whose ends are no farther apart than the residual says, in percent.
const RESIDUAL_PERCENT: usize = 95;

/// Turns every rank's time into one.
pub(crate) struct Alignment {
    pub(crate) summary: ClockSummary,
    /// Of each rank.
    fits: Vec<ClockFit>,
}

impl Alignment {
    /// Aligns the clocks of some ranks to that of the first one, by all that they say to each other: a clock goes on whether
    /// a step counts or not.
    pub(crate) fn of(ranks: &[RankResult], groups: &[GroupInfo]) -> Alignment {
        let moments = Moments::of(ranks);
        let clocks = Clocks::of(ranks);
        let messages = if clocks.count > 1 { messages(ranks, groups) } else { Vec::new() };
        let (tree, aligned_by) = clocks.tree(ranks, &moments, &messages);
        let fits: Vec<ClockFit> = clocks.of_rank.iter().map(|clock| tree[*clock]).collect();
        let clock = |(rank, fit): (&RankResult, &ClockFit)| RankClock {
            rank: rank.info.rank,
            offset_ns: fit.offset_at(beginning(rank)),
            drift_ns_per_second: fit.drift() * 1e9,
        };
        let summary = ClockSummary {
            aligned_by: if ranks.len() > 1 { aligned_by } else { AlignedBy::None },
            residual_ns: residual(ranks, &fits, &moments, &messages),
            ranks: ranks.iter().zip(&fits).map(clock).collect(),
        };
        Alignment { summary, fits }
    }

    /// The clock of the rank at this place of the list.
    pub(crate) fn clock(&self, index: usize) -> AlignedClock {
        AlignedClock(self.fits[index])
    }

    /// A time of the rank at this place of the list, in the first rank's clock.
    pub(crate) fn align(&self, index: usize, time: i64) -> i64 {
        self.fits[index].map(time)
    }
}

/// A rank's clock, brought together with the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlignedClock(ClockFit);

impl AlignedClock {
    /// A time of the rank, in the first rank's clock. What comes later never comes earlier there.
    pub fn at(self, time: i64) -> i64 {
        self.0.map(time)
    }
}

/// When the recording of a rank begins.
fn beginning(rank: &RankResult) -> i64 {
    let anchor = rank.info.clock.snapshots.first().map(|snapshot| snapshot.rank_ns.0);
    anchor.or(rank.communication.first().map(|span| span.start)).unwrap_or(0)
}

/// A rank's end of a collective; equal but for rank and time, they are of the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    group: u32,
    sequence: u64,
    operation: SpanKind,
    /// The place of the rank in the list.
    rank: u32,
    time: i64,
}

/// The ends of all collectives that end together, sorted.
struct Moments(Vec<End>);

impl Moments {
    fn of(ranks: &[RankResult]) -> Moments {
        let mut ends: Vec<End> = Vec::new();
        for (rank, result) in ranks.iter().enumerate() {
            let from = ends.len();
            let together = result.communication.iter().filter(|span| ends_together(span.operation));
            ends.extend(together.filter_map(|span| {
                let (group, sequence) = (span.group?.0, span.sequence?.0);
                Some(End { group, sequence, operation: span.operation, rank: rank as u32, time: span.end })
            }));
            ends[from..].sort();
        }
        // Each rank's are sorted by now, and the stable sort merges such runs.
        ends.sort();
        Moments(ends)
    }

    /// The ends of each collective that more than one rank recorded, once.
    fn iter(&self) -> impl Iterator<Item = &[End]> {
        let same = |one: &End, other: &End| {
            (one.group, one.sequence, one.operation) == (other.group, other.sequence, other.operation)
        };
        let once = |ends: &&[End]| ends.len() > 1 && ends.windows(2).all(|pair| pair[0].rank != pair[1].rank);
        self.0.chunk_by(same).filter(once)
    }
}

/// Whether no rank can be done before the others are there. The root of a broadcast can, and all but the root of a
/// reduction.
fn ends_together(operation: SpanKind) -> bool {
    use SpanKind::{AllGather, AllReduce, AllToAll, Barrier, ReduceScatter};
    matches!(operation, AllReduce | AllGather | ReduceScatter | AllToAll | Barrier)
}

/// The clocks of a run. The first rank's is the first.
struct Clocks {
    count: usize,
    /// The clock of each rank.
    of_rank: Vec<usize>,
    /// What ties each clock to the time of day.
    anchors: Vec<Option<ClockFit>>,
}

/// What is known of two clocks, as readings of the first and the second.
#[derive(Default)]
struct Pair {
    /// Of ends that are one moment.
    together: Vec<Reading>,
    /// The second one's may be too early, or too late.
    too_early: Vec<Reading>,
    too_late: Vec<Reading>,
}

impl Pair {
    /// From the first clock to the second.
    fn fit(&self, expected_drift: f64) -> Option<ClockFit> {
        let together = ClockFit::through(&self.together, expected_drift);
        together.or_else(|| ClockFit::between(&self.too_early, &self.too_late, expected_drift))
    }

    /// How much it counts: any collective more than all messages.
    fn weight(&self) -> (usize, usize) {
        (self.together.len(), self.too_early.len() + self.too_late.len())
    }
}

impl Clocks {
    fn of(ranks: &[RankResult]) -> Clocks {
        let mut numbers: HashMap<(&str, &str), usize> = HashMap::new();
        let (mut count, mut of_rank, mut readings) = (0, Vec::new(), Vec::<Vec<Reading>>::new());
        for rank in ranks {
            let clock = &rank.info.clock;
            // Of a rank whose `rank.json` is lost the host and the source are not known.
            let known = (!clock.snapshots.is_empty()).then_some((rank.info.host.as_str(), clock.source.as_str()));
            let number = known.map_or(count, |known| *numbers.entry(known).or_insert(count));
            if number == count {
                count += 1;
                readings.push(Vec::new());
            }
            of_rank.push(number);
            readings[number].extend(clock.snapshots.iter().map(|snapshot| (snapshot.rank_ns.0, snapshot.wall_ns.0)));
        }
        let anchors = readings.iter().map(|readings| ClockFit::through_clocks(readings)).collect();
        Clocks { count, of_rank, anchors }
    }

    /// Every two clocks of which something is known, the lower number first.
    fn pairs(&self, ranks: &[RankResult], moments: &Moments, messages: &[Message]) -> BTreeMap<(usize, usize), Pair> {
        let mut pairs: BTreeMap<(usize, usize), Pair> = BTreeMap::new();
        if self.count < 2 {
            return pairs;
        }
        for ends in moments.iter() {
            let first = (self.of_rank[ends[0].rank as usize], ends[0].time);
            for end in &ends[1..] {
                let other = (self.of_rank[end.rank as usize], end.time);
                let (low, high) = (first.min(other), first.max(other));
                if low.0 != high.0 {
                    pairs.entry((low.0, high.0)).or_default().together.push((low.1, high.1));
                }
            }
        }
        for message in messages {
            let [sent, received] = message.spans(ranks).map(|span| span.end);
            let (from, to) = (self.of_rank[message.send.0], self.of_rank[message.receive.0]);
            if from < to {
                pairs.entry((from, to)).or_default().too_late.push((sent, received));
            } else if from > to {
                pairs.entry((to, from)).or_default().too_early.push((received, sent));
            }
        }
        pairs
    }

    /// From each clock to the first one, and by what.
    fn tree(&self, ranks: &[RankResult], moments: &Moments, messages: &[Message]) -> (Vec<ClockFit>, AlignedBy) {
        let pairs = self.pairs(ranks, moments, messages);
        let mut fits: Vec<Option<ClockFit>> = vec![None; self.count];
        if let Some(first) = fits.first_mut() {
            *first = Some(ClockFit::IDENTITY);
        }
        // Ranks that share a clock are known to by their anchors.
        let mut aligned_by = if self.count == 1 { AlignedBy::Anchors } else { AlignedBy::None };
        while let Some(unknown) = fits.iter().position(Option::is_none) {
            let leads_on = |(one, other): (usize, usize)| fits[one].is_some() != fits[other].is_some();
            let best = pairs.iter().filter(|(clocks, _)| leads_on(**clocks)).max_by_key(|(_, pair)| pair.weight());
            if let Some((&(one, other), pair)) = best {
                let fit = pair.fit(self.expected_drift(one, other)).unwrap_or(ClockFit::IDENTITY);
                match (fits[one], fits[other]) {
                    (Some(known), _) => fits[other] = Some(fit.inverse().then(known)),
                    (_, known) => fits[one] = known.map(|known| fit.then(known)),
                }
                aligned_by = AlignedBy::Collectives;
                continue;
            }
            let known = (0..self.count).filter_map(|clock| Some((fits[clock]?, self.anchors[clock]?))).next();
            let anchored = (0..self.count).find(|clock| fits[*clock].is_none() && self.anchors[*clock].is_some());
            match (known, anchored) {
                (Some((known, anchor)), Some(clock)) => {
                    fits[clock] = self.anchors[clock].map(|wall| wall.then(anchor.inverse()).then(known));
                    if aligned_by == AlignedBy::None {
                        aligned_by = AlignedBy::Anchors;
                    }
                }
                // Nothing ties this one to any other.
                _ => fits[unknown] = Some(ClockFit::IDENTITY),
            }
        }
        (fits.into_iter().map(|fit| fit.unwrap_or(ClockFit::IDENTITY)).collect(), aligned_by)
    }

    /// What the second clock gains on the first by the time of day.
    fn expected_drift(&self, one: usize, other: usize) -> f64 {
        let anchors = self.anchors[one].zip(self.anchors[other]);
        anchors.map_or(0.0, |(one, other)| one.then(other.inverse()).drift())
    }
}

fn residual(ranks: &[RankResult], fits: &[ClockFit], moments: &Moments, messages: &[Message]) -> Option<i64> {
    let mut apart: Vec<i64> = Vec::new();
    for ends in moments.iter() {
        let times = || ends.iter().map(|end| fits[end.rank as usize].map(end.time));
        apart.extend(times().max().zip(times().min()).map(|(last, first)| last.saturating_sub(first)));
    }
    if apart.is_empty() {
        for message in messages {
            let [sent, received] = message.spans(ranks).map(|span| span.end);
            let (sent, received) = (fits[message.send.0].map(sent), fits[message.receive.0].map(received));
            apart.push(received.saturating_sub(sent).saturating_abs());
        }
    }
    let place = (apart.len() * RESIDUAL_PERCENT).div_ceil(100).checked_sub(1)?;
    Some(*apart.select_nth_unstable(place).1)
}

#[cfg(test)]
mod tests;
