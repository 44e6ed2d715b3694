//! One rank's part of the analysis: read once, in pieces, and reduced to figures and to what other ranks ask of it.

use std::collections::BTreeSet;

use polars::prelude::DataFrame;
use serde::Serialize;
use stepscope_traces::{
    Counter, CounterSample, CounterSamples, Loss, Rank, RankData, RankDirectory, RankInfo, RankReport, RunInfo,
    RunSource, Spans, State, Step, Window,
};

use crate::{
    activity::{Activities, Class},
    breakdown::{Breakdown, BreakdownSum},
    communication::{self, CommunicationSpan},
    devices::DeviceSamples,
    error::AnalysisError,
    inferred_steps::UnnumberedKernels,
    intervals::Intervals,
    kernels::KernelSums,
    memory::{MemoryReplay, RankMemory},
    partition::Partition,
    selection::{Selection, StepRange},
    steps::{self, StepWindow, windows},
    sweep::{Slice, sweep},
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
    pub(crate) steps: Vec<RankStep>,
    /// Those that were not asked for.
    pub(crate) other_steps: Vec<RankStep>,
    /// Whether nothing says of them but what repeats.
    pub(crate) steps_are_inferred: bool,
    pub(crate) kernels: DataFrame,
    pub(crate) communication: Vec<CommunicationSpan>,
    pub(crate) work: Vec<WorkItem>,
    /// When it computed in each step, where a stage did not say what it worked on.
    pub(crate) unlabelled_work: Vec<(Step, Intervals)>,
    pub(crate) memory: Option<RankMemory>,
    pub(crate) device: DeviceSamples,
}

/// A step of a rank: where it lies, where its time goes, and what was counted for it.
pub(crate) type RankStep = (StepWindow, Partition, StepCounters);

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
    pub(crate) fn of(run: &RunInfo, rank: &RankDirectory, selection: &Selection) -> Result<RankResult, AnalysisError> {
        let mut reading = RankReading::new(run, &rank.info, selection.steps);
        let mut memory = MemoryReplay::default();
        let window = selection.window.unwrap_or(Window::ALL);
        let (data, report) =
            rank.read_in_pieces(window, |_, spans| reading.take(spans), |events| memory.take(events))?;
        let info = report.info.clone();
        let memory =
            |steps: &[StepWindow], device: &DeviceSamples| memory.finish(run, &info, steps, selection.steps, device);
        reading.finish(run, report, &data, memory)
    }
}

/// What is collected of a rank while its spans are read.
pub(crate) struct RankReading {
    /// The steps that are asked for.
    steps: StepRange,
    activities: Activities,
    kernels: KernelSums,
    communication: Vec<CommunicationSpan>,
    annotated: Vec<StepWindow>,
    unnumbered: UnnumberedKernels,
}

impl RankReading {
    pub(crate) fn new(run: &RunInfo, info: &RankInfo, steps: StepRange) -> RankReading {
        RankReading {
            steps,
            activities: Activities::new(&run.groups),
            kernels: KernelSums::default(),
            communication: Vec::new(),
            annotated: Vec::new(),
            unnumbered: UnnumberedKernels::of(info),
        }
    }

    pub(crate) fn take(&mut self, spans: &Spans) {
        self.activities.take(spans);
        self.kernels.take(spans, self.steps);
        communication::take(&mut self.communication, spans, self.steps);
        self.annotated.extend(steps::annotated(spans));
        self.unnumbered.take(spans);
    }

    /// What all of it comes to. What memory says depends on when steps are, and on what the device says.
    pub(crate) fn finish(
        self,
        run: &RunInfo,
        RankReport { info, state, loss }: RankReport,
        data: &RankData,
        memory: impl FnOnce(&[StepWindow], &DeviceSamples) -> Option<RankMemory>,
    ) -> Result<RankResult, AnalysisError> {
        let RankReading { steps: wanted, mut activities, kernels, mut communication, annotated, unnumbered } = self;
        let device = DeviceSamples::of(&data.counters, &data.names, info.sharing().is_some());
        activities.sort();
        check_times(info.rank, &activities)?;
        let mut every_step = windows(&activities);
        let steps_are_inferred = every_step.is_empty();
        if steps_are_inferred {
            every_step = unnumbered.steps();
        }
        let finished = annotated.iter().map(|window: &StepWindow| window.step).collect();
        let counters = StepCounters::of(&every_step, &finished, data.counters.rows());
        let (figures, partitions) = reduce(info.rank, &activities, &every_step, wanted, &kernels);
        let compute = activities.items.iter().filter(|item| activities.place(item).class == Class::Compute);
        let compute = Intervals::union_of(compute.map(|item| (item.start, item.end)).collect());
        communication::expose(&mut communication, &compute);
        let mut work = work::items(&activities);
        work.retain(|item| wanted.has(Some(item.step)));
        let is_stage = run.layout.is_some_and(|layout| layout.pp > 1);
        let steps = every_step.iter().zip(partitions).zip(counters);
        let (steps, other_steps): (Vec<RankStep>, Vec<RankStep>) = steps
            .map(|((window, partition), counters)| (*window, partition, counters))
            .partition(|(window, ..)| wanted.has(Some(window.step)));
        let unlabelled = steps.iter().filter(|_| is_stage && work.is_empty());
        let unlabelled_work = unlabelled.map(|(step, ..)| (step.step, compute.within(step.start, step.end))).collect();
        Ok(RankResult {
            loss,
            state,
            steps,
            other_steps,
            steps_are_inferred,
            kernels: kernels.table(&data.names)?,
            memory: {
                // Our own recorder brings memory into the device's time; other tools have the host's, which runs ahead.
                let host_time = run.source != RunSource::Stepscope;
                let steps = if host_time { steps::on_the_host(annotated) } else { every_step };
                memory(&steps, &device)
            },
            info,
            device,
            figures,
            communication,
            work,
            unlabelled_work,
        })
    }
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

/// The figures of a rank in the steps that are wanted, and where the time of every step goes.
fn reduce(
    rank: Rank,
    activities: &Activities,
    steps: &[StepWindow],
    wanted: StepRange,
    kernels: &KernelSums,
) -> (RankFigures, Vec<Partition>) {
    let (mut whole, mut breakdown) = (Partition::default(), BreakdownSum::new(activities));
    let partitions = partitions(activities, steps, |step, slice| {
        if wanted.has(step) {
            whole.add(slice);
            breakdown.add(slice, activities);
        }
    });
    let figures = RankFigures {
        rank,
        partition: whole.finished(),
        kernel_count: kernels.kernel_count(),
        breakdown: breakdown.finish(activities),
    };
    (figures, partitions)
}

/// Where the time of every step goes. `show` is shown every stretch of time, with its step.
fn partitions(
    activities: &Activities,
    steps: &[StepWindow],
    mut show: impl FnMut(Option<Step>, &Slice<'_>),
) -> Vec<Partition> {
    let mut borders: Vec<i64> = steps.iter().flat_map(|step| [step.start, step.end]).collect();
    borders.dedup();
    let mut partitions = vec![Partition::default(); steps.len()];
    let mut current = 0;
    sweep(activities, &borders, |slice| {
        while steps.get(current).is_some_and(|step| step.end <= slice.start) {
            current += 1;
        }
        let inside = steps.get(current).filter(|step| step.start <= slice.start);
        if inside.is_some() {
            partitions[current].add(slice);
        }
        show(inside.map(|step| step.step), slice);
    });
    partitions.into_iter().map(Partition::finished).collect()
}

/// The steps that some spans of a rank are of, and nothing else of them.
pub(crate) fn steps_alone<'a>(
    run: &RunInfo,
    spans: impl Iterator<Item = &'a Spans>,
    counters: &CounterSamples,
) -> Vec<RankStep> {
    let (mut activities, mut finished) = (Activities::new(&run.groups), BTreeSet::new());
    for spans in spans {
        activities.take(spans);
        finished.extend(steps::annotated(spans).map(|window| window.step));
    }
    activities.sort();
    let every_step = windows(&activities);
    let counters = StepCounters::of(&every_step, &finished, counters.rows());
    let partitions = partitions(&activities, &every_step, |_, _| {});
    every_step.iter().zip(partitions).zip(counters).map(|((window, part), counted)| (*window, part, counted)).collect()
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
