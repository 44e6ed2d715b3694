//! Which ranks are the stages of a pipeline, and in which order they work.
//!
//! A run says so in its layout. Of other people's runs it is inferred:
//!
//! - All ranks of the job are there, and each sends or receives.
//! - Where messages are known from both sides, they tell who is a pipeline, and in which order. Else, stages are in the
//!   order of the group in which they send, if its first rank is the only one that sends before it receives. Else, if each
//!   rank says which micro-batch it works on, all ranks are one pipeline if in most steps each begins its first forward pass
//!   when the one before it has done at least half of its own; replicas begin together, and then nothing is said.
//! - There are as many micro-batches as the highest number says. Where nothing numbers them, the passes of a stage and the
//!   messages of the first one tell how many there are, and how often each goes through it: several times, if stages have
//!   chunks. The passes are those that ranks say, or else what work falls into.
//! - Where every rank does all forward passes of a step before its first backward pass, the schedule is GPipe; where each
//!   works several times on every micro-batch, it is interleaved; where the last stage goes back through each once more, for the
//!   gradients of its weights, it is a zero-bubble one; else it is 1F1B.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_plan::{Axis, Coordinates, ParallelLayout, Schedule};
use stepscope_traces::{GroupInfo, MicroBatch, Rank, RunInfo, SpanKind, Step};

use crate::{
    job::{clock::Alignment, messages::messages},
    rank::{
        axes::is_hand_over,
        result::RankResult,
        work::{Pass, WorkItem},
    },
};

/// The stages of a run. Ranks are named by their places in the list of all.
pub(crate) struct Stages {
    /// How many there are.
    pub(crate) count: u64,
    pub(crate) micro_batches: u64,
    /// How many parts of the model a stage has.
    pub(crate) chunks: u64,
    pub(crate) schedule: Schedule,
    /// Of each rank, which stage it is.
    pub(crate) of_ranks: Vec<u64>,
    /// Ranks that pass micro-batches to each other. One of which a stage is missing has no window that means anything, and
    /// is left out.
    pub(crate) pipelines: Vec<Vec<usize>>,
    /// Whether the run does not say any of this itself.
    pub(crate) inferred: bool,
}

impl Stages {
    /// The stages of a run with more than one.
    pub(crate) fn of(run: &RunInfo, ranks: &[RankResult], alignment: &Alignment) -> Option<Stages> {
        match run.layout {
            Some(layout) => (layout.pp > 1).then(|| Stages::of_layout(&layout, ranks)),
            None => Stages::inferred(run, ranks, alignment),
        }
    }

    fn of_layout(layout: &ParallelLayout, ranks: &[RankResult]) -> Stages {
        let coordinates = |rank: &RankResult| layout.coordinates(rank.info.rank.0.into());
        let mut pipelines: BTreeMap<Coordinates, Vec<usize>> = BTreeMap::new();
        for (index, rank) in ranks.iter().enumerate() {
            pipelines.entry(Coordinates { stage: 0, ..coordinates(rank) }).or_default().push(index);
        }
        Stages {
            count: layout.pp,
            micro_batches: layout.micro_batches,
            chunks: layout.chunks,
            schedule: layout.schedule,
            of_ranks: ranks.iter().map(|rank| coordinates(rank).stage).collect(),
            pipelines: pipelines.into_values().filter(|members| members.len() as u64 == layout.pp).collect(),
            inferred: false,
        }
    }

    fn inferred(run: &RunInfo, ranks: &[RankResult], alignment: &Alignment) -> Option<Stages> {
        let all_there = run.world_size.is_none_or(|size| size as usize == ranks.len());
        if working(ranks).count() < 2 || !all_there || !working(ranks).all(|index| talks_to_one(&ranks[index])) {
            return None;
        }
        let pipelines = chains(ranks, &run.groups)
            .or_else(|| groups_of_stages(ranks, &run.groups))
            .or_else(|| order(ranks, alignment).map(|order| vec![order]))?;
        let count = pipelines.first()?.len() as u64;
        let (micro_batches, chunks) = micro_batches(ranks, &pipelines)?;
        let schedule = match chunks {
            1 if working(ranks).all(|index| forward_comes_first(&ranks[index])) => Schedule::Gpipe,
            1 if pipelines.iter().all(|members| comes_back_twice(&ranks[members[members.len() - 1]])) => {
                Schedule::ZeroBubble
            }
            1 => Schedule::OneForwardOneBackward,
            _ => Schedule::Interleaved,
        };
        let mut of_ranks = vec![0; ranks.len()];
        for members in &pipelines {
            (0..).zip(members).for_each(|(stage, index)| of_ranks[*index] = stage);
        }
        Some(Stages { count, micro_batches, chunks, schedule, of_ranks, pipelines, inferred: true })
    }
}

/// How many micro-batches a step has, and how many parts of the model a stage. Where ranks number micro-batches, the
/// highest number says; else messages do.
fn micro_batches(ranks: &[RankResult], pipelines: &[Vec<usize>]) -> Option<(u64, u64)> {
    let members = || pipelines.iter().flatten().map(|index| &ranks[*index]);
    if members().all(|rank| !rank.work_is_inferred) {
        let highest = members().flat_map(|rank| &rank.work).map(|item| item.micro_batch.0).max()?;
        let micro_batches = u64::try_from(highest).ok()? + 1;
        return Some((micro_batches, chunks(ranks, micro_batches)));
    }
    let said = most_common(members().flat_map(|rank| rank.backward_passes.of_steps()));
    let passes = said.or_else(|| most_common(members().flat_map(forward_passes)))?;
    // Messages of the first stage, there and back.
    let handed_over = most_common(pipelines.iter().flat_map(|members| messages_per_step(&ranks[members[0]])));
    Some(by_messages(passes, handed_over.map(|messages| messages / 2)))
}

/// The first stage passes on every micro-batch once for each of its chunks, and gets it back for all of them but the first:
/// `m · (2 · chunks - 1)` messages each way, for `m · chunks` forward passes.
fn by_messages(passes: u64, handed_over: Option<u64>) -> (u64, u64) {
    match handed_over {
        Some(messages) if messages > passes && messages < 2 * passes => {
            let micro_batches = 2 * passes - messages;
            let fits = passes.is_multiple_of(micro_batches);
            if fits { (micro_batches, passes / micro_batches) } else { (passes, 1) }
        }
        // Messages are counted; that work was divided at the right places is inferred.
        Some(messages) if messages > 0 && messages < passes => (messages, 1),
        _ => (passes, 1),
    }
}

/// How many forward passes a rank makes in each step.
fn forward_passes(rank: &RankResult) -> Vec<u64> {
    let mut counts: BTreeMap<Step, u64> = BTreeMap::new();
    for item in rank.work.iter().filter(|item| item.pass == Pass::Forward) {
        *counts.entry(item.step).or_default() += 1;
    }
    counts.into_values().collect()
}

/// How many messages a rank sends and receives in each step. Several in one kernel are as many as their size says.
fn messages_per_step(rank: &RankResult) -> Vec<u64> {
    let messages = || rank.communication.iter().filter(|span| is_hand_over(span.operation));
    let one = messages().filter(|span| span.is_message()).filter_map(|span| span.bytes).filter(|bytes| *bytes > 0);
    // Stages may tell each other shapes before they send what has them.
    let unit = most_common(one);
    let mut counts: BTreeMap<Step, u64> = BTreeMap::new();
    for span in messages() {
        let several = if span.is_message() { 1 } else { 2 };
        let count = unit.zip(span.bytes).map_or(several, |(unit, bytes)| bytes / unit);
        if let Some(step) = span.step {
            *counts.entry(step).or_default() += count;
        }
    }
    counts.into_values().collect()
}

/// The number that is there most often; of several, the largest.
fn most_common(numbers: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    numbers.into_iter().for_each(|number| *counts.entry(number).or_default() += 1);
    counts.into_iter().max_by_key(|(number, count)| (*count, *number)).map(|(number, _)| number)
}

/// The ranks of each pipeline in the order of its stages, as messages tell, of which both sides are known.
///
/// A micro-batch begins on the one rank of a pipeline whose first message of a step is a send. Each stage sends first to the
/// next one. What goes round in a ring begins on every rank, and is no pipeline.
fn chains(ranks: &[RankResult], groups: &[GroupInfo]) -> Option<Vec<Vec<usize>>> {
    // Of each rank and step: when it first sent, and to whom.
    let mut sent: BTreeMap<(usize, Option<Step>), (i64, usize)> = BTreeMap::new();
    for message in messages(ranks, groups) {
        let [send, _] = message.spans(ranks);
        let first = sent.entry((message.send.0, send.step)).or_insert((send.start, message.receive.0));
        *first = (*first).min((send.start, message.receive.0));
    }
    let mut next: BTreeMap<usize, BTreeMap<usize, usize>> = BTreeMap::new();
    for ((rank, _), (_, to)) in &sent {
        *next.entry(*rank).or_default().entry(*to).or_default() += 1;
    }
    let next = |rank: usize| Some(*next.get(&rank)?.iter().max_by_key(|(_, count)| **count)?.0);
    let mut pipelines: Vec<Vec<usize>> = Vec::new();
    for first in (0..ranks.len()).filter(|index| begins(&ranks[*index])) {
        let mut order = vec![first];
        while let Some(stage) = order.last().and_then(|last| next(*last)).filter(|stage| !order.contains(stage)) {
            order.push(stage);
        }
        pipelines.push(order);
    }
    whole(pipelines, ranks)
}

/// The ranks of each pipeline in the order in which they are in its group, where messages do not tell: several in one kernel
/// do not say who gets them. The first one begins, and no other does.
fn groups_of_stages(ranks: &[RankResult], groups: &[GroupInfo]) -> Option<Vec<Vec<usize>>> {
    let mut pipelines: Vec<Vec<usize>> = Vec::new();
    for group in groups.iter().filter(|group| matches!(group.axis, Axis::Pipeline | Axis::World)) {
        let talks = |rank: &RankResult| {
            rank.communication.iter().any(|span| span.group == Some(group.group) && is_hand_over(span.operation))
        };
        let place = |rank: &Rank| ranks.iter().position(|other| other.info.rank == *rank && talks(other));
        let members: Option<Vec<usize>> = group.ranks.iter().map(place).collect();
        pipelines.extend(members.filter(|members| !pipelines.contains(members)));
    }
    let begins_with_the_first = |members: &Vec<usize>| {
        (0..).zip(members).all(|(stage, index): (usize, &usize)| begins(&ranks[*index]) == (stage == 0))
    };
    whole(pipelines, ranks).filter(|pipelines| pipelines.iter().all(begins_with_the_first))
}

/// Pipelines that have every rank that works once, and as many stages each.
fn whole(pipelines: Vec<Vec<usize>>, ranks: &[RankResult]) -> Option<Vec<Vec<usize>>> {
    let members: BTreeSet<usize> = pipelines.iter().flatten().copied().collect();
    let is_once = members.len() == pipelines.iter().map(Vec::len).sum::<usize>();
    let is_everyone = members.iter().copied().eq(working(ranks));
    let stages = pipelines.first()?.len();
    let is_alike = stages > 1 && pipelines.iter().all(|members| members.len() == stages);
    (is_once && is_everyone && is_alike).then_some(pipelines)
}

/// The ranks that work. A launcher that asked CUDA something is a rank, too, and does nothing.
fn working(ranks: &[RankResult]) -> impl Iterator<Item = usize> {
    (0..ranks.len()).filter(|index| ranks[*index].figures.kernel_count > 0)
}

/// Whether the first message of most steps is one that the rank sends.
fn begins(rank: &RankResult) -> bool {
    let mut first: BTreeMap<Option<Step>, (i64, bool)> = BTreeMap::new();
    for span in rank.communication.iter().filter(|span| is_hand_over(span.operation)) {
        let this = (span.start, span.operation == SpanKind::Send);
        let earliest = first.entry(span.step).or_insert(this);
        *earliest = (*earliest).min(this);
    }
    2 * first.values().filter(|(_, is_send)| *is_send).count() > first.len()
}

/// Whether a rank sends or receives: what all ranks of a group do together is no hand-over.
fn talks_to_one(rank: &RankResult) -> bool {
    rank.communication.iter().any(|span| is_hand_over(span.operation))
}

/// The ranks in the order in which they begin, if in most steps each hands over to the next one.
fn order(ranks: &[RankResult], alignment: &Alignment) -> Option<Vec<usize>> {
    if ranks.iter().any(|rank| rank.work_is_inferred) {
        return None;
    }
    let first: Vec<BTreeMap<Step, (i64, i64)>> = ranks
        .iter()
        .enumerate()
        .map(|(index, rank)| first_forwards(rank, |time| alignment.align(index, time)))
        .collect();
    let steps: BTreeSet<Step> = first.iter().flat_map(BTreeMap::keys).copied().collect();
    let whole = steps.iter().filter(|step| first.iter().all(|of_rank| of_rank.contains_key(step)));
    let mut handed_over: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for step in whole {
        let mut order: Vec<usize> = (0..ranks.len()).collect();
        order.sort_by_key(|index| first[*index][step]);
        let hands_over = |pair: &[usize]| {
            let ((start, end), next) = (first[pair[0]][step], first[pair[1]][step].0);
            next >= start.midpoint(end)
        };
        if order.windows(2).all(hands_over) {
            *handed_over.entry(order).or_default() += 1;
        }
    }
    handed_over.into_iter().find(|(_, count)| 2 * count > steps.len()).map(|(order, _)| order)
}

/// The first forward pass of each step.
fn first_forwards(rank: &RankResult, align: impl Fn(i64) -> i64) -> BTreeMap<Step, (i64, i64)> {
    let mut first = BTreeMap::new();
    for item in rank.work.iter().filter(|item| item.pass == Pass::Forward) {
        first.entry(item.step).or_insert_with(|| (align(item.start), align(item.end)));
    }
    first
}

/// Whether a rank does all forward passes of a step before its first backward pass.
fn forward_comes_first(rank: &RankResult) -> bool {
    let in_order = |pair: &[WorkItem]| pair[0].step != pair[1].step || pair[0].pass <= pair[1].pass;
    rank.work.windows(2).all(in_order)
}

/// Whether a rank goes back twice through more than half of the micro-batches that it numbers.
fn comes_back_twice(rank: &RankResult) -> bool {
    let mut counts: BTreeMap<(Step, MicroBatch), u64> = BTreeMap::new();
    for item in rank.work.iter().filter(|item| item.pass == Pass::Backward) {
        *counts.entry((item.step, item.micro_batch)).or_default() += 1;
    }
    !rank.work_is_inferred && 2 * counts.values().filter(|count| **count == 2).count() > counts.len()
}

/// How often every rank works forward on each micro-batch of a step; once, where that differs.
fn chunks(ranks: &[RankResult], micro_batches: u64) -> u64 {
    let mut counts: BTreeMap<(usize, Step), u64> = BTreeMap::new();
    for (index, rank) in ranks.iter().enumerate() {
        for item in rank.work.iter().filter(|item| item.pass == Pass::Forward) {
            *counts.entry((index, item.step)).or_default() += 1;
        }
    }
    let often: BTreeSet<u64> = counts.into_values().collect();
    match often.into_iter().collect::<Vec<_>>().as_slice() {
        [count] if count % micro_batches == 0 => count / micro_batches,
        _ => 1,
    }
}

#[cfg(test)]
mod tests;
