//! What one rank comes to: its figures, and what other ranks ask of it.

use std::collections::BTreeMap;

use stepscope_traces::{Loss, RankInfo, State, Step};

use crate::{
    figures::{CountedSteps, CountedTime, Partition, RankFigures, RankMemory},
    rank::{
        axes::{Axes, AxisNames},
        backward_passes::BackwardPasses,
        communication::CommunicationSpan,
        device_samples::DeviceSamples,
        host::RankHost,
        intervals::Intervals,
        kernel_sums::KernelTable,
        stage_waits::StageWaits,
        step_counters::StepCounters,
        step_parts::RankParts,
        step_sample::StepSample,
        step_windows::StepWindow,
        streams::StreamTimes,
        work::WorkItem,
    },
};

/// What one rank comes to.
pub(crate) struct RankResult {
    pub(crate) info: RankInfo,
    pub(crate) state: State,
    pub(crate) loss: Loss,
    /// Which of its steps were counted.
    pub(crate) counted: CountedSteps,
    /// Of the whole recording.
    pub(crate) figures: RankFigures,
    /// Of the steps that were counted.
    pub(crate) time: CountedTime,
    /// Every step of it, where each lies and where its time goes.
    pub(crate) steps: Vec<RankStep>,
    /// Whether nothing says of them but what repeats.
    pub(crate) steps_are_inferred: bool,
    /// Of the steps that were counted; none, where it has to be known before reading which those are.
    pub(crate) kernels: Option<KernelTable>,
    pub(crate) communication: Vec<CommunicationSpan>,
    pub(crate) work: Vec<WorkItem>,
    pub(crate) backward_passes: BackwardPasses,
    /// Whether its micro-batches were told from messages.
    pub(crate) work_is_inferred: bool,
    /// When it computed in each step, where a stage did not say what it worked on.
    pub(crate) unlabelled_work: Vec<(Step, Intervals)>,
    pub(crate) memory: Option<RankMemory>,
    pub(crate) device: DeviceSamples,
    pub(crate) host: RankHost,
    /// Tokens that went through its experts in the steps that were counted, by layer and expert.
    pub(crate) expert_tokens: BTreeMap<(u64, u64), f64>,
    pub(crate) streams: StreamTimes,
    pub(crate) memory_events: u64,
    /// From the first to the last moment of its activity and its steps.
    pub(crate) extent: Option<(i64, i64)>,
    /// When anything else was recorded first.
    pub(crate) first_other: Option<i64>,
    /// Its steps part by part, if they were asked for.
    pub(crate) parts: Option<RankParts>,
    /// When it waits for other stages; none, where it is none.
    pub(crate) stage_waits: Option<StageWaits>,
    /// One of the steps that were counted, activity by activity.
    pub(crate) sample: Option<StepSample>,
}

impl RankResult {
    /// Whether it counted just the steps that count for the whole job, of those that it has.
    pub(crate) fn agrees_with(&self, counted: &CountedSteps) -> bool {
        let agrees = |step: Option<Step>| self.counted.has(step) == counted.has(step);
        agrees(None) && self.steps.iter().all(|(window, ..)| agrees(Some(window.step)))
    }

    /// Calls axes by other names, if times along them stay what they are; says whether they do.
    pub(crate) fn rename_axes(&mut self, before: &Axes, after: &Axes) -> bool {
        let Some(names) = AxisNames::of(&self.communication, before, after) else { return false };
        for breakdown in [&mut self.figures.breakdown, &mut self.time.breakdown] {
            breakdown.axes.iter_mut().for_each(|share| names.rename(&mut share.axis));
            breakdown.axes.sort_by_key(|share| share.axis);
        }
        if let Some(parts) = &mut self.parts {
            parts.rename_axes(&names);
        }
        if let Some(waits) = &mut self.stage_waits {
            waits.rename_axes(&names);
        }
        true
    }

    /// Whether it worked, and nothing says on what.
    pub(crate) fn worked_on_what_is_inferred(&self) -> bool {
        self.work_is_inferred && !(self.work.is_empty() && self.unlabelled_work.is_empty())
    }
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
