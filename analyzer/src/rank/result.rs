//! What one rank comes to: its figures, and what other ranks ask of it.

use polars::prelude::DataFrame;
use stepscope_traces::{Loss, RankInfo, State, Step};

use crate::{
    figures::{Partition, RankFigures, RankMemory},
    rank::{
        communication::CommunicationSpan, device_samples::DeviceSamples, intervals::Intervals,
        step_counters::StepCounters, step_parts::RankParts, step_windows::StepWindow, streams::StreamTimes,
        work::WorkItem,
    },
};

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
