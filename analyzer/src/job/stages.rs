//! Which ranks are the stages of a pipeline, and in which order they work.
//!
//! A run says so in its layout. A trace of another tool has none, and there it is inferred, where nothing else would look
//! the same:
//!
//! - all ranks of the job are there, each says which micro-batch it works on, and each sends or receives;
//! - in most steps each begins its first forward pass when the one before it has done at least half of its own; replicas
//!   begin together, and then nothing is said;
//! - stages are in the order in which they begin, and there are as many micro-batches as the highest number says;
//! - where every rank does all forward passes of a step before its first backward pass, the schedule is GPipe; where each
//!   works several times on every micro-batch, it is interleaved; else it is 1F1B.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_plan::{Coordinates, ParallelLayout, Schedule};
use stepscope_traces::{RunInfo, SpanKind, Step};

use crate::{
    job::clock::Alignment,
    rank::{
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
        let mut pipelines: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
        for (index, rank) in ranks.iter().enumerate() {
            let Coordinates { dp, tp, .. } = coordinates(rank);
            pipelines.entry((dp, tp)).or_default().push(index);
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
        if ranks.len() < 2 || !all_there || !ranks.iter().all(talks_to_one) {
            return None;
        }
        let order = order(ranks, alignment)?;
        let items = || ranks.iter().flat_map(|rank| &rank.work);
        let micro_batches = u64::try_from(items().map(|item| item.micro_batch.0).max()?).ok()? + 1;
        let chunks = chunks(ranks, micro_batches);
        let schedule = match chunks {
            1 if ranks.iter().all(forward_comes_first) => Schedule::Gpipe,
            1 => Schedule::OneForwardOneBackward,
            _ => Schedule::Interleaved,
        };
        let mut of_ranks = vec![0; ranks.len()];
        (0..).zip(&order).for_each(|(stage, index)| of_ranks[*index] = stage);
        let count = ranks.len() as u64;
        Some(Stages { count, micro_batches, chunks, schedule, of_ranks, pipelines: vec![order], inferred: true })
    }
}

/// Whether a rank sends or receives: what all ranks of a group do together is no hand-over.
fn talks_to_one(rank: &RankResult) -> bool {
    let one = |kind: SpanKind| matches!(kind, SpanKind::Send | SpanKind::Receive | SpanKind::Communication);
    rank.communication.iter().any(|span| one(span.operation))
}

/// The ranks in the order in which they begin, if in most steps each hands over to the next one.
fn order(ranks: &[RankResult], alignment: &Alignment) -> Option<Vec<usize>> {
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
