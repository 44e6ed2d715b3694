//! One rank's part of the analysis: read once, in pieces, and reduced to figures and to what other ranks ask of it.

use std::collections::BTreeSet;

use polars::prelude::DataFrame;
use serde::Serialize;
use stepscope_traces::{
    Counter, CounterSample, Loss, MEMORY_TIMES, Rank, RankData, RankDirectory, RankInfo, RankReport, RunInfo,
    RunSource, Spans, State, Step, TIMES_OF_HOST,
};

use crate::{
    activity::{Activities, Class},
    breakdown::{Breakdown, BreakdownSum},
    communication::{self, CommunicationSpan},
    devices::DeviceSamples,
    diff::RankParts,
    error::AnalysisError,
    intervals::Intervals,
    kernels::KernelSums,
    memory::{MemoryReplay, RankMemory},
    partition::Partition,
    selection::Selection,
    steps::{self, StepWindow, windows},
    streams::StreamTimes,
    sweep::sweep,
    work::{self, WorkItem},
};

/// Where one rank's time goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankFigures {
    /// Which rank.
    pub rank: Rank,
    /// Its time.
    #[serde(flatten)]
    pub partition: Partition,
    /// How many kernels it ran, those that communicate included; no copies.
    pub kernel_count: u64,
    /// Its time by what it was for.
    #[serde(flatten)]
    pub breakdown: Breakdown,
}

/// What one rank comes to.
pub(crate) struct RankResult {
    pub(crate) info: RankInfo,
    pub(crate) state: State,
    pub(crate) loss: Loss,
    pub(crate) figures: RankFigures,
    /// Its steps, where each lies and where its time goes.
    pub(crate) steps: Vec<(StepWindow, Partition, StepCounters)>,
    /// Whether nothing says of them but what repeats.
    pub(crate) steps_are_inferred: bool,
    /// The first and the last step of all that were read, chosen or not.
    pub(crate) first_and_last_step: Option<(Step, Step)>,
    pub(crate) kernels: DataFrame,
    pub(crate) communication: Vec<CommunicationSpan>,
    pub(crate) work: Vec<WorkItem>,
    /// When it computed in each step, where a stage did not say what it worked on.
    pub(crate) unlabelled_work: Vec<(Step, Intervals)>,
    pub(crate) memory: Option<RankMemory>,
    pub(crate) device: DeviceSamples,
    pub(crate) streams: StreamTimes,
    pub(crate) memory_events: u64,
    /// From the first to the last moment of its activity and its steps.
    pub(crate) extent: Option<(i64, i64)>,
    /// When anything else was recorded first.
    pub(crate) first_other: i64,
    /// Its steps part by part, if they were asked for.
    pub(crate) parts: Option<RankParts>,
}

/// How much of a rank is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Its figures.
    Figures,
    /// Each step, part by part, too.
    Parts,
}

/// What was counted for a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct StepCounters {
    pub(crate) loss: Option<f64>,
    pub(crate) tokens: Option<f64>,
    /// Whether it ended while it was recorded.
    pub(crate) finished: bool,
}

impl RankResult {
    /// Reads a rank and reduces it.
    pub(crate) fn of(
        run: &RunInfo,
        rank: &RankDirectory,
        selection: &Selection,
        detail: Detail,
    ) -> Result<RankResult, AnalysisError> {
        let mut activities = Activities::new(&run.groups);
        let (mut kernels, mut communication) = (KernelSums::default(), Vec::new());
        let mut memory = MemoryReplay::default();
        let mut annotated = Vec::new();
        let mut streams = StreamTimes::default();
        let window = selection.window_of(rank.info.rank);
        let take = |_: &RankData, spans: &Spans| {
            activities.take(spans);
            kernels.take(spans, selection.steps);
            communication::take(&mut communication, spans, selection.steps);
            annotated.extend(steps::annotated(spans));
            streams.take(spans);
        };
        let (mut memory_events, mut first_other) = (0, i64::MAX);
        let (data, RankReport { info, state, loss, steps_are_inferred }) =
            rank.read_in_pieces(window, take, |events| {
                memory_events += events.len() as u64;
                first_other = events.time_ns.iter().map(|time| time.0).fold(first_other, i64::min);
                memory.take(events);
            })?;
        let device = DeviceSamples::of(&data.counters, &data.names, info.sharing().is_some());
        activities.sort();
        check_times(rank.info.rank, &activities)?;
        let every_step = windows(&activities);
        let finished = annotated.iter().map(|window: &StepWindow| window.step).collect();
        let counters = StepCounters::of(&every_step, &finished, data.counters.rows());
        let chosen: Vec<StepWindow> =
            every_step.iter().copied().filter(|window| selection.steps.has(Some(window.step))).collect();
        let mut work = work::items(&activities);
        let compute = activities.items.iter().filter(|item| activities.place(item).class == Class::Compute);
        let compute = Intervals::union_of(compute.map(|item| (item.start, item.end)).collect());
        communication::expose(&mut communication, &compute);
        // A rank that does not say what it worked on worked when it computed.
        let worked = match work.as_slice() {
            [] => compute.clone(),
            items => Intervals::union_of(items.iter().map(|item| (item.start, item.end)).collect()),
        };
        let may_be_stage = run.layout.map_or(!work.is_empty(), |layout| layout.pp > 1);
        let mut parts = (detail == Detail::Parts).then(|| RankParts::new(&chosen, may_be_stage.then_some(worked)));
        let (figures, partitions) = reduce(rank.info.rank, &activities, &chosen, selection, &kernels, parts.as_mut());
        first_other = data.counters.time_ns.iter().map(|time| time.0).fold(first_other, i64::min);
        let extent = extent(&activities, &annotated);
        work.retain(|item| selection.steps.has(Some(item.step)));
        let is_stage = run.layout.is_some_and(|layout| layout.pp > 1);
        let unlabelled = chosen.iter().filter(|_| is_stage && work.is_empty());
        let unlabelled_work = unlabelled.map(|step| (step.step, compute.within(step.start, step.end))).collect();
        let counted = |window: &StepWindow| {
            every_step.iter().position(|other| other == window).map_or(StepCounters::default(), |step| counters[step])
        };
        let steps = chosen.iter().zip(partitions).map(|(window, partition)| (*window, partition, counted(window)));
        Ok(RankResult {
            loss,
            state,
            steps: steps.collect(),
            steps_are_inferred,
            first_and_last_step: {
                let numbers = || every_step.iter().map(|window| window.step);
                numbers().min().zip(numbers().max())
            },
            kernels: kernels.table(&data.names)?,
            memory: {
                // Our own recorder brings memory into the device's time; frameworks have the host's, which runs ahead.
                let times = info.collector.get(MEMORY_TIMES).and_then(|times| times.as_str());
                let host_time = run.source != RunSource::Stepscope || times == Some(TIMES_OF_HOST);
                let steps = if host_time { &steps::on_the_host(annotated) } else { &every_step };
                memory.finish(run, &info, steps, selection.steps, &device)
            },
            info,
            device,
            parts: parts.map(|parts| parts.called(data.names)),
            streams,
            memory_events,
            extent,
            first_other,
            figures,
            communication,
            work,
            unlabelled_work,
        })
    }
}

/// From the first to the last moment of any activity, or of a step.
fn extent(activities: &Activities, annotated: &[StepWindow]) -> Option<(i64, i64)> {
    let activity = activities.items.iter().map(|activity| (activity.start, activity.end));
    let steps = annotated.iter().map(|window| (window.start, window.end));
    activity.chain(steps).reduce(|(first, last), (start, end)| (first.min(start), last.max(end)))
}

/// Refuses times that lie further apart than any run lasts: they would not add up.
fn check_times(rank: Rank, activities: &Activities) -> Result<(), AnalysisError> {
    let first = activities.items.first().map_or(0, |activity| activity.start);
    let last = activities.items.iter().map(|activity| activity.end).max().unwrap_or(first);
    match last.checked_sub(first) {
        Some(extent) if extent <= LONGEST_NS => Ok(()),
        _ => Err(AnalysisError::Times { rank, first, last }),
    }
}

/// A hundred years.
const LONGEST_NS: i64 = 100 * 366 * 86_400 * 1_000_000_000;

/// The figures of a rank, and of each of its chosen steps.
fn reduce(
    rank: Rank,
    activities: &Activities,
    steps: &[StepWindow],
    selection: &Selection,
    kernels: &KernelSums,
    mut parts: Option<&mut RankParts>,
) -> (RankFigures, Vec<Partition>) {
    let mut borders: Vec<i64> = steps.iter().flat_map(|step| [step.start, step.end]).collect();
    borders.dedup();
    let mut partitions = vec![Partition::default(); steps.len()];
    let (mut whole, mut breakdown) = (Partition::default(), BreakdownSum::new(activities));
    let everything = selection.steps == Default::default();
    let mut current = 0;
    sweep(activities, &borders, |slice| {
        while steps.get(current).is_some_and(|step| step.end <= slice.start) {
            current += 1;
        }
        let inside = steps.get(current).is_some_and(|step| step.start <= slice.start);
        if inside {
            partitions[current].add(slice);
        }
        if let Some(parts) = parts.as_mut().filter(|_| inside || everything && steps.is_empty()) {
            parts.add(current, slice, activities);
        }
        if inside || everything {
            whole.add(slice);
            breakdown.add(slice, activities);
        }
    });
    if let Some(parts) = parts {
        parts.count(steps, activities);
    }
    let figures = RankFigures {
        rank,
        partition: whole.finished(),
        kernel_count: kernels.kernel_count(),
        breakdown: breakdown.finish(activities),
    };
    (figures, partitions.into_iter().map(Partition::finished).collect())
}

impl StepCounters {
    /// What was counted for each step: the first value after it began is its own. The annotation of a step is recorded
    /// when it ends: where there are any, a step without one was cut off, and what was counted is of more than is there.
    fn of(
        steps: &[StepWindow],
        finished: &BTreeSet<Step>,
        samples: impl Iterator<Item = CounterSample>,
    ) -> Vec<StepCounters> {
        let ended = |step: &StepWindow| finished.is_empty() || finished.contains(&step.step);
        let of = |step: &StepWindow| StepCounters { finished: ended(step), ..StepCounters::default() };
        let mut counters: Vec<StepCounters> = steps.iter().map(of).collect();
        for sample in samples {
            let is = |counter: Counter| sample.counter == counter.id();
            let after = steps.partition_point(|step| step.start <= sample.time_ns.0);
            let Some(step) = after.checked_sub(1) else { continue };
            let counted = &mut counters[step];
            if is(Counter::Loss) {
                counted.loss.get_or_insert(sample.value);
            } else if is(Counter::Tokens) && counted.finished {
                counted.tokens.get_or_insert(sample.value);
            }
        }
        counters
    }
}
