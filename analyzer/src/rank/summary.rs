//! What one rank comes to, as it is kept in a file: by itself, in the steps that count for it.
//!
//! It has three sections, since not everybody needs all of it: where the time of each step goes; what other ranks ask of it;
//! and its steps part by part. What is known of the rank besides is not in it, but in `run.json` and `rank.json`.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_plan::Axis;
use stepscope_traces::{Group, Loss, RankInfo, State, Step};

use crate::{
    figures::{CountedSteps, CountedTime, RankFigures, RankMemory},
    rank::{
        axes::Axes,
        backward_passes::BackwardPasses,
        communication::CommunicationSpan,
        device_samples::DeviceSamples,
        host::RankHost,
        intervals::Intervals,
        kernel_sums::KernelTable,
        reading::LONGEST_NS,
        result::{RankResult, RankStep},
        stage_waits::StageWaits,
        step_parts::{RankPart, RankParts},
        step_sample::StepSample,
        streams::StreamTimes,
        work::WorkItem,
    },
    stored::{Damaged, fields, restored, stored},
};

/// The version of what a summary says: another one, whenever a rank comes to something else.
pub(crate) const FORMAT: u32 = 2;

/// The sections, by number.
pub(crate) const STEPS: usize = 0;
pub(crate) const REST: usize = 1;
pub(crate) const PARTS: usize = 2;

/// Where the time of a rank and of its steps goes.
pub(crate) struct RankSteps {
    pub(crate) loss: Loss,
    pub(crate) counted: CountedSteps,
    pub(crate) figures: RankFigures,
    pub(crate) time: CountedTime,
    pub(crate) steps: Vec<RankStep>,
    pub(crate) steps_are_inferred: bool,
    /// The most memory that was allocated at once.
    pub(crate) peak_bytes: Option<u64>,
}

fields!(RankSteps { loss, counted, figures, time, steps, steps_are_inferred, peak_bytes });

/// What else a rank comes to.
struct RankRest {
    /// The axis of each group that it communicates in, as it was known.
    axes: BTreeMap<Group, Option<Axis>>,
    kernels: Option<KernelTable>,
    communication: Vec<CommunicationSpan>,
    work: Vec<WorkItem>,
    backward_passes: BackwardPasses,
    work_is_inferred: bool,
    unlabelled_work: Vec<(Step, Intervals)>,
    memory: Option<RankMemory>,
    device: DeviceSamples,
    host: RankHost,
    expert_tokens: BTreeMap<(u64, u64), f64>,
    streams: StreamTimes,
    memory_events: u64,
    extent: Option<(i64, i64)>,
    first_other: Option<i64>,
    stage_waits: Option<StageWaits>,
    sample: Option<StepSample>,
}

fields!(RankRest {
    axes,
    kernels,
    communication,
    work,
    backward_passes,
    work_is_inferred,
    unlabelled_work,
    memory,
    device,
    host,
    expert_tokens,
    streams,
    memory_events,
    extent,
    first_other,
    stage_waits,
    sample,
});

/// The sections of a rank's summary. It was read alone, part by part.
pub(crate) fn sections(rank: RankResult, axes: &Axes) -> Vec<Vec<u8>> {
    let rest = RankRest {
        axes: axes_of(&rank.communication, axes),
        kernels: rank.kernels,
        communication: rank.communication,
        work: rank.work,
        backward_passes: rank.backward_passes,
        work_is_inferred: rank.work_is_inferred,
        unlabelled_work: rank.unlabelled_work,
        device: rank.device,
        host: rank.host,
        expert_tokens: rank.expert_tokens,
        streams: rank.streams,
        memory_events: rank.memory_events,
        extent: rank.extent,
        first_other: rank.first_other,
        stage_waits: rank.stage_waits,
        sample: rank.sample,
        memory: rank.memory,
    };
    let steps = RankSteps {
        loss: rank.loss,
        counted: rank.counted,
        figures: rank.figures,
        time: rank.time,
        steps: rank.steps,
        steps_are_inferred: rank.steps_are_inferred,
        peak_bytes: rest.memory.as_ref().map(|memory| memory.peak_bytes),
    };
    vec![stored(&steps), stored(&rest), stored(&rank.parts)]
}

/// The axis of each group of some communication.
fn axes_of(communication: &[CommunicationSpan], axes: &Axes) -> BTreeMap<Group, Option<Axis>> {
    communication.iter().filter_map(|span| span.group).map(|group| (group, axes.of_group(group))).collect()
}

/// Where the time of a rank and of its steps goes, from the first section of its summary.
pub(crate) fn steps_of(section: &[u8], info: &RankInfo) -> Result<RankSteps, Damaged> {
    let steps: RankSteps = restored(section)?;
    if steps.figures.rank == info.rank && steps.time.rank == info.rank && steps.are_sound() {
        Ok(steps)
    } else {
        Err(Damaged)
    }
}

/// What a rank comes to, from its summary; none, where axes are called otherwise now. Its steps have their parts, where that
/// section is given.
pub(crate) fn result_of(
    [steps, rest]: [&[u8]; 2],
    parts: Option<&[u8]>,
    (info, state): (&RankInfo, State),
    axes: &Axes,
) -> Result<Option<RankResult>, Damaged> {
    let steps = steps_of(steps, info)?;
    let rest: RankRest = restored(rest)?;
    let parts: Option<RankParts> = parts.map(restored).transpose()?.flatten();
    rest.check(&steps, info)?;
    check_parts(parts.as_ref(), rest.stage_waits.as_ref())?;
    if axes_of(&rest.communication, axes) != rest.axes {
        return Ok(None);
    }
    Ok(Some(RankResult {
        info: info.clone(),
        state,
        loss: steps.loss,
        counted: steps.counted,
        figures: steps.figures,
        time: steps.time,
        steps: steps.steps,
        steps_are_inferred: steps.steps_are_inferred,
        kernels: rest.kernels,
        communication: rest.communication,
        work: rest.work,
        backward_passes: rest.backward_passes,
        work_is_inferred: rest.work_is_inferred,
        unlabelled_work: rest.unlabelled_work,
        memory: rest.memory,
        device: rest.device,
        host: rest.host,
        expert_tokens: rest.expert_tokens,
        streams: rest.streams,
        memory_events: rest.memory_events,
        extent: rest.extent,
        first_other: rest.first_other,
        parts,
        stage_waits: rest.stage_waits,
        sample: rest.sample,
    }))
}

/// Whether stretches of time are some, and within what a recording can have.
fn are_stretches(mut stretches: impl Iterator<Item = (i64, i64)>) -> bool {
    const LAST: i64 = i64::MAX / 4;
    stretches.all(|(start, end)| (-LAST..=LAST).contains(&start) && start <= end && end - start <= LONGEST_NS)
}

impl RankSteps {
    fn are_sound(&self) -> bool {
        let partitions = [&self.figures.partition, &self.time.partition];
        let mut partitions = partitions.into_iter().chain(self.steps.iter().map(|(_, partition, _)| partition));
        let is_length = |length: i64| (0..=LONGEST_NS).contains(&length);
        are_stretches(self.steps.iter().map(|(window, ..)| (window.start, window.end)))
            && partitions.all(|partition| {
                is_length(partition.span_ns) && partition.parts().iter().all(|(_, part)| is_length(*part))
            })
    }
}

impl RankRest {
    /// Refuses what no rank comes to: times that are none, and waits in windows that are not there.
    fn check(&self, steps: &RankSteps, info: &RankInfo) -> Result<(), Damaged> {
        let waits = || self.stage_waits.iter().flat_map(|waits| &waits.waits);
        let sampled = self.sample.iter().flat_map(|sample| &sample.activities);
        let unlabelled = self.unlabelled_work.iter().flat_map(|(_, work)| work.iter());
        let stretches = (self.communication.iter().map(|span| (span.start, span.end)))
            .chain(self.work.iter().map(|item| (item.start, item.end)))
            .chain(waits().map(|wait| (wait.start, wait.end)))
            .chain(sampled.map(|activity| (activity.start, activity.end)))
            .chain(unlabelled)
            .chain(self.extent);
        let has_windows = waits().all(|wait| wait.window < steps.steps.len().max(1));
        let is_own = self.memory.as_ref().is_none_or(|memory| memory.rank == info.rank);
        if are_stretches(stretches) && has_windows && is_own { Ok(()) } else { Err(Damaged) }
    }
}

/// Refuses parts that have no place for what a stage waited for.
fn check_parts(parts: Option<&RankParts>, waits: Option<&StageWaits>) -> Result<(), Damaged> {
    let Some(parts) = parts else { return Ok(()) };
    let known: BTreeSet<RankPart> = parts.steps.iter().flat_map(|step| step.parts.keys().copied()).collect();
    let mut waits = waits.iter().flat_map(|waits| &waits.waits);
    let are_known = waits.all(|wait| wait.window < parts.steps.len() && known.contains(&RankPart::from(wait.waiting)));
    if are_known { Ok(()) } else { Err(Damaged) }
}
