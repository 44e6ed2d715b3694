//! One rank's part of the analysis: read once, in pieces, and reduced to figures and to what other ranks ask of it.

mod counters;
mod reading;
mod reduce;

use polars::prelude::DataFrame;
use stepscope_traces::{CounterSamples, Loss, RankDirectory, RankInfo, RunInfo, Spans, State, Step};

use crate::{
    activity::Activities,
    communication::CommunicationSpan,
    devices::DeviceSamples,
    diff::RankParts,
    error::AnalysisError,
    figures::{Partition, RankFigures, RankMemory},
    intervals::Intervals,
    memory::MemoryReplay,
    selection::Selection,
    steps::{self, StepWindow, windows},
    streams::StreamTimes,
    work::WorkItem,
};

pub(crate) use counters::StepCounters;
pub(crate) use reading::{RankReading, memory_has_times_of_host};

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
    pub(crate) streams: StreamTimes,
    pub(crate) memory_events: u64,
    /// From the first to the last moment of its activity and its steps.
    pub(crate) extent: Option<(i64, i64)>,
    /// When anything else was recorded first.
    pub(crate) first_other: Option<i64>,
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

/// A step of a rank: where it lies, where its time goes, and what was counted for it.
pub(crate) type RankStep = (StepWindow, Partition, StepCounters);

impl RankResult {
    /// Reads a rank and reduces it.
    pub(crate) fn of(
        run: &RunInfo,
        rank: &RankDirectory,
        selection: &Selection,
        detail: Detail,
    ) -> Result<RankResult, AnalysisError> {
        let mut reading = RankReading::new(run, selection.steps, detail);
        let mut memory = MemoryReplay::default();
        let window = selection.window_of(rank.info.rank);
        let (data, report) =
            rank.read_in_pieces(window, |_, spans| reading.take(spans), |events| memory.take(events))?;
        let (info, taken) = (report.info.clone(), memory.taken());
        let memory =
            |steps: &[StepWindow], device: &DeviceSamples| memory.finish(run, &info, steps, selection.steps, device);
        reading.finish(run, report, &data, taken, memory)
    }
}

/// The steps that some spans of a rank are of, and nothing else of them.
pub(crate) fn steps_alone<'a>(
    run: &RunInfo,
    spans: impl Iterator<Item = &'a Spans>,
    counters: &CounterSamples,
) -> Vec<RankStep> {
    let (mut activities, mut annotated) = (Activities::new(&run.groups), Vec::new());
    for spans in spans {
        activities.take(spans);
        annotated.extend(steps::annotated(spans));
    }
    activities.sort();
    let every_step = windows(&activities);
    let counters = StepCounters::of(&every_step, &annotated, counters.rows());
    let partitions = reduce::partitions(&activities, &every_step, |_, _| {});
    every_step.iter().zip(partitions).zip(counters).map(|((window, part), counted)| (*window, part, counted)).collect()
}
