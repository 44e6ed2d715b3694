//! Collectives by operation and size of group.
//!
//! For users, it is defined in `docs/src/metrics.md#collectives`.
//!
//! Spans of several ranks with the same group, number and operation are one collective. Its own time is the least
//! duration over its ranks; where all its ranks recorded it, the rest of each rank's time in it is waiting. A message
//! is one on each side: both have the shorter side's time as their own, where both are known.
//!
//! Collectives without a group or a number cannot be told apart across ranks. The rank that recorded the most of a group stands
//! for all of them, and of ranks that recorded as many the one that took least time.

use std::{cmp::Reverse, collections::BTreeMap};

use hashbrown::{HashMap, HashSet};
use stepscope_plan::Axis;
use stepscope_traces::{Group, GroupInfo, SpanKind, Step};

use crate::{
    figures::{CollectiveFigures, CountedSteps, MessageSize, Straggler, Wait},
    job::{messages::messages, stragglers::Stragglers},
    rank::{
        axes::Axes,
        communication::{CommunicationSpan, union},
        result::RankResult,
    },
};

/// How ranks wait in collectives.
pub(crate) struct CollectiveWaits {
    /// Every rank's waiting.
    pub(crate) stragglers: Vec<Straggler>,
    /// That of ranks for each other.
    pub(crate) pairs: Vec<Wait>,
    /// Of each rank, by axis, what of its waiting nothing hides.
    pub(crate) exposed: Vec<BTreeMap<Option<Axis>, i64>>,
}

/// The figures of all collectives of the steps that count, the most time first, and of every rank's waiting.
pub(crate) fn collectives(
    ranks: &[RankResult],
    groups: &[GroupInfo],
    sizes: &GroupSizes,
    counted: &CountedSteps,
) -> (Vec<CollectiveFigures>, CollectiveWaits) {
    let mut sums: BTreeMap<CollectiveKind, CollectiveSum> = BTreeMap::new();
    let mut stragglers = Stragglers::of(ranks);
    let stages = groups.iter().any(|group| group.axis == Axis::Pipeline);
    let pairs = add_collectives(ranks, counted, sizes, stages, &mut sums, &mut stragglers);
    add_messages(ranks, groups, counted, sizes, &mut sums);
    add_busy_time(ranks, counted, sizes, &mut sums);
    let mut figures: Vec<CollectiveFigures> = sums.iter().map(|(kind, sum)| sum.figures(kind)).collect();
    figures.sort_by_key(|figures| Reverse(figures.busy_ns));
    let exposed = stragglers.exposed();
    (figures, CollectiveWaits { stragglers: stragglers.finish(ranks), pairs, exposed })
}

/// What collectives are put together by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CollectiveKind {
    operation: SpanKind,
    axis: Option<Axis>,
    pub(crate) group_size: Option<u64>,
}

/// What is known of groups: the axis, and how many ranks.
pub(crate) struct GroupSizes {
    axes: Axes,
    sizes: HashMap<Group, Option<u64>>,
}

impl GroupSizes {
    /// A group without a description has as many ranks as say so who are in it. Where nobody does, and all ranks of the job
    /// are there, it has as many as used it, if that is more than one.
    pub(crate) fn of(ranks: &[RankResult], groups: &[GroupInfo], world_size: u32) -> GroupSizes {
        let describe = |group: &GroupInfo| (group.group, Some(group.ranks.len() as u64));
        let told = ranks.iter().flat_map(|rank| &rank.info.groups).map(|own| (own.group, Some(u64::from(own.size))));
        let mut sizes: HashMap<_, _> = groups.iter().map(describe).chain(told).collect();
        let mut users: HashMap<Group, HashSet<usize>> = HashMap::new();
        for (rank, result) in ranks.iter().enumerate() {
            let undescribed = result.communication.iter().filter_map(|span| span.group);
            for group in undescribed.filter(|group| !sizes.contains_key(group)) {
                users.entry(group).or_default().insert(rank);
            }
        }
        let are_all = ranks.len() >= world_size as usize;
        let size = |users: HashSet<usize>| (are_all && users.len() > 1).then_some(users.len() as u64);
        sizes.extend(users.into_iter().map(|(group, users)| (group, size(users))));
        GroupSizes { axes: Axes::of(groups), sizes }
    }

    pub(crate) fn kind(&self, span: &CommunicationSpan) -> CollectiveKind {
        let axis = span.group.and_then(|group| self.axes.along(group, span.operation));
        let group_size = span.group.and_then(|group| self.sizes.get(&group).copied().flatten());
        CollectiveKind { operation: span.operation, axis, group_size }
    }
}

/// All collectives of one kind.
#[derive(Default)]
struct CollectiveSum {
    count: u64,
    bytes: Option<u64>,
    /// Own time of those that were seen on all their ranks, if any was.
    own_ns: Option<i64>,
    /// Bytes and own time of those whose bytes and own time are known.
    timed: (u64, i64),
    by_step: BTreeMap<Option<Step>, (u64, i64)>,
    /// Count, bytes and own time of those, by the power of two below their bytes.
    by_size: BTreeMap<u32, (u64, u64, i64)>,
    waiting_ns: Option<i64>,
    busy_ns: i64,
    exposed_ns: i64,
}

impl CollectiveSum {
    fn add(&mut self, own: Option<i64>, bytes: Option<u64>, step: Option<Step>) {
        self.count += 1;
        if let Some(own) = own {
            self.own_ns = Some(self.own_ns.unwrap_or(0).saturating_add(own));
        }
        if let Some(bytes) = bytes {
            self.bytes = Some(self.bytes.unwrap_or(0).saturating_add(bytes));
        }
        if let (Some(own), Some(bytes)) = (own, bytes) {
            self.timed = (self.timed.0.saturating_add(bytes), self.timed.1.saturating_add(own));
            let (all_bytes, all_own) = self.by_step.entry(step).or_default();
            (*all_bytes, *all_own) = (all_bytes.saturating_add(bytes), all_own.saturating_add(own));
            let (count, all_bytes, all_own) = self.by_size.entry(bytes.max(1).ilog2()).or_default();
            (*count, *all_bytes, *all_own) = (*count + 1, all_bytes.saturating_add(bytes), all_own.saturating_add(own));
        }
    }

    fn wait(&mut self, waited: i64) {
        self.waiting_ns = Some(self.waiting_ns.unwrap_or(0).saturating_add(waited));
    }

    fn figures(&self, kind: &CollectiveKind) -> CollectiveFigures {
        let bandwidth = |(bytes, time): (u64, i64)| (time > 0).then(|| bytes as f64 / (time as f64 / 1e9));
        let on_bus =
            |bandwidth: Option<f64>| bandwidth.zip(kind.bus_factor()).map(|(bandwidth, factor)| bandwidth * factor);
        let size = |(count, bytes, own_ns): &(u64, u64, i64)| {
            let algorithm_bandwidth = bandwidth((*bytes, *own_ns));
            let bus_bandwidth = on_bus(algorithm_bandwidth);
            MessageSize { count: *count, bytes: *bytes, own_ns: *own_ns, algorithm_bandwidth, bus_bandwidth }
        };
        CollectiveFigures {
            operation: kind.operation,
            axis: kind.axis,
            group_size: kind.group_size,
            count: self.count,
            bytes: self.bytes,
            busy_ns: self.busy_ns,
            exposed_ns: self.exposed_ns,
            own_ns: self.own_ns,
            waiting_ns: self.waiting_ns,
            algorithm_bandwidth: bandwidth(self.timed),
            bus_bandwidth: on_bus(bandwidth(self.timed)),
            by_size: self.by_size.values().map(size).collect(),
            by_step: self.by_step.clone(),
        }
    }
}

impl CollectiveKind {
    /// What crosses a rank's link, as a share of the message.
    pub(crate) fn bus_factor(&self) -> Option<f64> {
        let others = || self.group_size.map(|size| size.saturating_sub(1) as f64 / size.max(1) as f64);
        match self.operation {
            SpanKind::AllReduce => others().map(|others| 2.0 * others),
            SpanKind::AllGather | SpanKind::ReduceScatter => others(),
            _ => Some(1.0),
        }
    }
}

/// Adds what several ranks do together; gives how long they waited for each other.
fn add_collectives(
    ranks: &[RankResult],
    counted: &CountedSteps,
    sizes: &GroupSizes,
    stages: bool,
    sums: &mut BTreeMap<CollectiveKind, CollectiveSum>,
    stragglers: &mut Stragglers,
) -> Vec<Wait> {
    let mut spans: Vec<(u32, &CommunicationSpan)> = Vec::new();
    for (rank, result) in (0..).zip(ranks) {
        let together = |span: &&CommunicationSpan| !span.is_message() && counted.has(span.step);
        spans.extend(result.communication.iter().filter(together).map(|span| (rank, span)));
    }
    // Rows of a collective are far apart in memory: as little as possible is looked up there.
    let all: Vec<(u32, i64)> = spans.iter().map(|(rank, span)| (*rank, span.duration())).collect();
    let mut parts: Vec<(u32, i64)> = Vec::new();
    // Those in which somebody may have been waited for.
    let mut met: Vec<Vec<u32>> = Vec::new();
    for rows in rows_of_collectives(&spans) {
        let span = |row: &u32| spans[*row as usize].1;
        let first = span(&rows[0]);
        let kind = sizes.kind(first);
        let sum = sums.entry(kind).or_default();
        // The rows are in the order of the ranks.
        parts.clear();
        parts.extend(rows.iter().map(|row| all[*row as usize]));
        let numbered = first.group.is_some() && first.sequence.is_some();
        // Numbers that a rank used twice are none.
        if !numbered || parts.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            let chosen = standing_for_all(&parts);
            for (row, _) in rows.iter().zip(&parts).filter(|(_, part)| Some(part.0) == chosen) {
                sum.add(Some(span(row).duration()), span(row).bytes, span(row).step);
            }
            continue;
        }
        let own = parts.iter().map(|part| part.1).min().unwrap_or(0);
        // Where a rank is missing, or one has come that does not belong there, nobody knows how long it took.
        let odd = kind.group_size.is_some_and(|size| size != parts.len() as u64);
        sum.add((!odd).then_some(own), rows.iter().find_map(|row| span(row).bytes), first.step);
        if parts.len() > 1 && kind.group_size == Some(parts.len() as u64) {
            sum.wait(parts.iter().fold(0_i64, |sum, part| sum.saturating_add(part.1.saturating_sub(own))));
            // Stages do not end together, so who comes last among them says nothing.
            if !(stages && matches!(kind.axis, Some(Axis::World | Axis::Embedding))) {
                stragglers.add(&parts);
                for row in &rows {
                    let waited = span(row).duration().saturating_sub(own);
                    stragglers.add_exposed(all[*row as usize].0, kind.axis, waited.min(span(row).exposed_ns));
                }
                met.push(rows);
            }
        }
    }
    let mut pairs = stragglers.pairs();
    for rows in met {
        parts.clear();
        parts.extend(rows.iter().map(|row| all[*row as usize]));
        pairs.add(&parts);
    }
    pairs.finish(ranks)
}

/// The rows of each collective, in their order: those of one group, number and operation. A number is one in a group.
fn rows_of_collectives(spans: &[(u32, &CommunicationSpan)]) -> Vec<Vec<u32>> {
    let key = |span: &CommunicationSpan| (span.group, span.group.and(span.sequence), span.operation);
    let mut rows: Vec<_> = (0..).zip(spans).map(|(row, (_, span))| (key(span), row)).collect();
    rows.sort_unstable();
    let together = rows.chunk_by(|(one, _), (other, _)| one == other);
    together.map(|rows| rows.iter().map(|(_, row)| *row).collect()).collect()
}

/// The rank with the most spans, and of such ranks the one that took least time. The parts are in the order of the ranks.
fn standing_for_all(parts: &[(u32, i64)]) -> Option<u32> {
    let time = |parts: &[(u32, i64)]| parts.iter().fold(0_i64, |sum, part| sum.saturating_add(part.1));
    let ranks = parts.chunk_by(|one, other| one.0 == other.0);
    ranks.max_by_key(|parts| (parts.len(), Reverse(time(parts)))).and_then(|parts| parts.first()).map(|part| part.0)
}

/// Adds sends and receives. Each is a message of its own.
fn add_messages(
    ranks: &[RankResult],
    groups: &[GroupInfo],
    counted: &CountedSteps,
    sizes: &GroupSizes,
    sums: &mut BTreeMap<CollectiveKind, CollectiveSum>,
) {
    let unknown = |rank: &RankResult| vec![None; rank.communication.len()];
    let mut own: Vec<Vec<Option<i64>>> = ranks.iter().map(unknown).collect();
    for message in messages(ranks, groups) {
        let [send, receive] = message.spans(ranks).map(CommunicationSpan::duration);
        for (rank, span) in [message.send, message.receive] {
            own[rank][span] = Some(send.min(receive));
        }
    }
    for (rank, own) in ranks.iter().zip(own) {
        let messages = rank.communication.iter().zip(own).filter(|(span, _)| span.is_message());
        for (span, own) in messages.filter(|(span, _)| counted.has(span.step)) {
            let sum = sums.entry(sizes.kind(span)).or_default();
            sum.add(own, span.bytes, span.step);
            if let Some(own) = own {
                sum.wait(span.duration() - own);
            }
        }
    }
}

/// Adds the time they cover: on each rank a union, since they may overlap there.
fn add_busy_time(
    ranks: &[RankResult],
    counted: &CountedSteps,
    sizes: &GroupSizes,
    sums: &mut BTreeMap<CollectiveKind, CollectiveSum>,
) {
    for rank in ranks {
        let mut kinds: BTreeMap<CollectiveKind, Vec<&CommunicationSpan>> = BTreeMap::new();
        for span in rank.communication.iter().filter(|span| counted.has(span.step)) {
            kinds.entry(sizes.kind(span)).or_default().push(span);
        }
        for (kind, spans) in kinds {
            let (busy, exposed) = union(spans);
            let sum = sums.entry(kind).or_default();
            sum.busy_ns = sum.busy_ns.saturating_add(busy);
            sum.exposed_ns = sum.exposed_ns.saturating_add(exposed);
        }
    }
}

#[cfg(test)]
mod tests;
