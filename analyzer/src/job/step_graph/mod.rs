//! What each activity of a step waited for, over all ranks, and the step as it would have been otherwise.
//!
//! For users, it is defined in `docs/src/metrics.md#the-critical-path`.
//!
//! An activity begins when what it waits for is over, and a lag later. It waits for the activity before it on its stream, and
//! for the one of its rank that ended last before it began: that is what an event of another stream would have waited for, and
//! what a host waits for that launches late. Ranks meet in collectives and messages: those are over for all ranks a while after
//! the last of them has come, but for a message that was put aside for a receiver who came later: its sender waited for nobody.
//! Lags are what was measured, so that the graph replays the step to the nanosecond.

mod path;
mod replay;
mod slack;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use hashbrown::HashMap;
use stepscope_plan::Axis;
use stepscope_traces::{Family, Group, GroupInfo, Phase, Sequence, SpanKind, Step, Stream};

pub(crate) use self::{path::critical_path, replay::StepChange};
use crate::{
    figures::{Class, IdleReason},
    job::{clock::Alignment, messages::messages},
    rank::{axes::Axes, intervals::Intervals, result::RankResult, step_sample::SampledActivity},
};

/// An activity, and what it waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// The place of its rank in the list.
    pub(crate) rank: u32,
    /// In the clock that all ranks are aligned to.
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) class: Class,
    pub(crate) phase: Option<Phase>,
    pub(crate) family: Family,
    /// Along which axis it communicates, where that is known.
    pub(crate) axis: Option<Axis>,
    /// The one before it on its stream, and the one of its rank that ended last before it began.
    before: [Option<u32>; 2],
    /// How long it began after those were over.
    pub(crate) lag: i64,
    /// What that is.
    pub(crate) lag_on: LagKind,
    /// Where it waits for other ranks.
    meeting: Option<u32>,
    /// Where other ranks wait for it, and it for none of them: it was over before they had all come.
    left: Option<u32>,
}

impl Node {
    pub(crate) fn duration(&self) -> i64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it goes on until the last one of a meeting has come.
    fn waits_until(&self, last: i64) -> bool {
        self.end >= last
    }
}

/// What the time is that an activity begins after all that it waits for is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LagKind {
    /// Nothing ran on the rank.
    Idle(IdleReason),
    /// Nothing ran on the rank: it is a stage of a pipeline, and had nothing to do.
    Bubble,
    /// Something else ran there.
    Busy,
}

/// Activities of several ranks, for all of which at least one of them waits.
#[derive(Clone, Debug)]
struct Meeting {
    nodes: Vec<u32>,
    /// When the last one came, and who that was.
    last: i64,
    last_node: u32,
    /// Which of them stands last among the nodes.
    newest: u32,
    /// How long it takes those who wait once all are there.
    own: i64,
}

/// One step of all ranks: its activities in the order in which they began.
pub(crate) struct StepGraph {
    /// None, where it is the whole recording.
    pub(crate) step: Option<Step>,
    pub(crate) nodes: Vec<Node>,
    meetings: Vec<Meeting>,
    /// When the first activity of any rank begins.
    pub(crate) begin: i64,
    pub(crate) ranks: usize,
}

impl StepGraph {
    /// The graph of a step that all ranks have kept; none, where they have kept none, or different ones, or not at one time.
    /// `bubbles`: when each rank's stage has nothing to do, if it is one.
    pub(crate) fn of(
        ranks: &[RankResult],
        groups: &[GroupInfo],
        alignment: &Alignment,
        bubbles: &[Intervals],
    ) -> Option<StepGraph> {
        let step = ranks.iter().find_map(|rank| rank.sample.as_ref())?.step;
        let has_it = |rank: &RankResult| rank.sample.as_ref().is_some_and(|sample| sample.step == step);
        if ranks.iter().any(|rank| rank.figures.kernel_count > 0 && !has_it(rank)) {
            return None;
        }
        let sampled = Sampled::of(ranks, alignment);
        if !sampled.is_one_step() {
            return None;
        }
        let begin = sampled.order.first()?.start;
        let axes = Axes::of(groups);
        let node = |(at, activity): (&Place, SampledActivity)| Node {
            rank: at.rank,
            start: at.start,
            end: at.end,
            class: activity.class,
            phase: activity.phase,
            family: activity.family,
            axis: activity.group.and_then(|group| axes.along(group, activity.kind)),
            before: [None; 2],
            lag: 0,
            lag_on: LagKind::Busy,
            meeting: None,
            left: None,
        };
        let mut nodes: Vec<Node> = sampled.iter().map(node).collect();
        let meetings = meetings(&nodes, &sampled, groups);
        for (number, meeting) in (0..).zip(&meetings) {
            for index in &meeting.nodes {
                let node = &mut nodes[*index as usize];
                let place = if node.waits_until(meeting.last) { &mut node.meeting } else { &mut node.left };
                *place = Some(number);
            }
        }
        tie(&mut nodes, &sampled, begin, bubbles);
        Some(StepGraph { step, nodes, meetings, begin, ranks: ranks.len() })
    }

    /// How long it is, from the first start until the next step has begun on all ranks, or to the last end.
    pub(crate) fn length(&self) -> i64 {
        self.nodes.iter().map(|node| node.end).max().unwrap_or(self.begin) - self.begin
    }
}

/// Where an activity lies: when, and its place among those that its rank has kept. Such places are in the order in which
/// activities begin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    start: i64,
    end: i64,
    rank: u32,
    activity: u32,
}

/// What ranks have kept of a step, in the order in which it began. It is as large as the job, so it is looked up where it lies.
struct Sampled<'a> {
    ranks: &'a [RankResult],
    order: Vec<Place>,
}

impl Sampled<'_> {
    fn of<'a>(ranks: &'a [RankResult], alignment: &Alignment) -> Sampled<'a> {
        let mut order: Vec<Place> = Vec::with_capacity(ranks.iter().map(count).sum());
        for (index, rank) in ranks.iter().enumerate() {
            order.extend((0..count(rank)).filter_map(|number| {
                let SampledActivity { start, end, .. } = activity(rank, number)?;
                let [start, end] = [start, end].map(|time| alignment.align(index, time));
                Some(Place { start, end: end.max(start), rank: index as u32, activity: number as u32 })
            }));
        }
        order.sort_unstable();
        Sampled { ranks, order }
    }

    /// Whether there is a moment at which all ranks are in the step: else they were recorded one after another, or their clocks
    /// are apart.
    fn is_one_step(&self) -> bool {
        let mut extents: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
        for place in &self.order {
            let (_, end) = extents.entry(place.rank).or_insert((place.start, place.end));
            *end = place.end.max(*end);
        }
        let first_end = extents.values().map(|(_, end)| *end).min();
        extents.values().map(|(start, _)| *start).max() <= first_end
    }

    /// Each activity and where it lies.
    fn iter(&self) -> impl Iterator<Item = (&Place, SampledActivity)> {
        let look_up = |at: &Place| activity(&self.ranks[at.rank as usize], at.activity as usize);
        self.order.iter().filter_map(move |at| Some((at, look_up(at)?)))
    }
}

/// How many activities a rank has kept. A step lasts until the next one begins: that is one of no length.
fn count(rank: &RankResult) -> usize {
    rank.sample.as_ref().map_or(0, |sample| sample.activities.len() + usize::from(sample.next.is_some()))
}

/// One of those that a rank has kept.
fn activity(rank: &RankResult, number: usize) -> Option<SampledActivity> {
    let sample = rank.sample.as_ref()?;
    let next = || sample.next.map(|(time, reason)| SampledActivity::next_step(time, reason));
    sample.activities.get(number).copied().or_else(next)
}

/// Finds what each activity waits for. They are sorted by start.
fn tie(nodes: &mut [Node], sampled: &Sampled<'_>, begin: i64, bubbles: &[Intervals]) {
    let ranks = bubbles.len();
    let mut on_stream: HashMap<(u32, Option<Stream>), u32> = HashMap::new();
    let mut running: Vec<BinaryHeap<Reverse<(i64, u32)>>> = vec![BinaryHeap::new(); ranks];
    let mut ended: Vec<Option<u32>> = vec![None; ranks];
    for (index, (_, activity)) in sampled.iter().enumerate() {
        let node = nodes[index];
        let rank = node.rank as usize;
        while let Some(Reverse((_, over))) =
            running[rank].peek().copied().filter(|Reverse((end, _))| *end <= node.start)
        {
            running[rank].pop();
            ended[rank] = Some(over);
        }
        let before = on_stream.insert((node.rank, activity.stream), index as u32);
        // What overlaps on a stream has not waited for it.
        let before = before.filter(|before| nodes[*before as usize].end <= node.start);
        let over = ended[rank].map_or(begin, |over| nodes[over as usize].end);
        nodes[index].before = [before, ended[rank]];
        nodes[index].lag = node.start - over;
        nodes[index].lag_on = match running[rank].is_empty() {
            false => LagKind::Busy,
            true if 2 * bubbles[rank].covered(over, node.start) > node.start - over => LagKind::Bubble,
            true => LagKind::Idle(activity.idle_before.unwrap_or(IdleReason::Unknown)),
        };
        running[rank].push(Reverse((node.end, index as u32)));
    }
}

/// Where activities of several ranks meet: collectives by group and number, messages by their two sides.
fn meetings(nodes: &[Node], sampled: &Sampled<'_>, groups: &[GroupInfo]) -> Vec<Meeting> {
    type Met = (Option<Group>, Option<Sequence>, SpanKind);
    let mut met: BTreeMap<Met, Vec<u32>> = BTreeMap::new();
    let mut sides: HashMap<(usize, i64, SpanKind, Option<Group>), u32> = HashMap::new();
    for (index, (at, activity)) in (0..).zip(sampled.iter()) {
        match activity.kind {
            SpanKind::Send | SpanKind::Receive => {
                sides.insert((at.rank as usize, activity.start, activity.kind, activity.group), index);
            }
            SpanKind::Communication => {}
            _ if activity.class == Class::Communication && activity.group.is_some() && activity.sequence.is_some() => {
                met.entry((activity.group, activity.sequence, activity.kind)).or_default().push(index);
            }
            _ => {}
        }
    }
    let mut all: Vec<Vec<u32>> = met.into_values().collect();
    if !sides.is_empty() {
        let side = |(rank, span): (usize, usize)| {
            let span = &sampled.ranks[rank].communication[span];
            sides.get(&(rank, span.start, span.operation, span.group)).copied()
        };
        let pairs = messages(sampled.ranks, groups).into_iter();
        all.extend(pairs.filter_map(|message| Some(vec![side(message.send)?, side(message.receive)?])));
    }
    let node = |index: &u32| &nodes[*index as usize];
    let is_of_each_rank_once = |met: &Vec<u32>| {
        let mut ranks: Vec<u32> = met.iter().map(|index| node(index).rank).collect();
        ranks.sort_unstable();
        ranks.len() > 1 && ranks.windows(2).all(|pair| pair[0] != pair[1])
    };
    let meeting = |met: Vec<u32>| {
        let last_node = met.iter().copied().max_by_key(|index| node(index).start)?;
        let last = node(&last_node).start;
        let own = met.iter().map(node).filter(|node| node.waits_until(last)).map(Node::duration).min()?;
        Some(Meeting { last, last_node, own, newest: met.iter().copied().max()?, nodes: met })
    };
    all.into_iter().filter(is_of_each_rank_once).filter_map(meeting).collect()
}
