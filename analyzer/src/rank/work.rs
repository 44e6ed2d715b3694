//! The work of a pipeline stage: which micro-batch went through it, which way, and when.

use stepscope_traces::{MicroBatch, Phase, Step};

use crate::{
    figures::Class,
    rank::activity::{Activities, ActivityPlace},
};

/// Forward or backward; what is computed again belongs to the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pass {
    /// Forward.
    Forward,
    /// Backward.
    Backward,
}

/// One pass of one micro-batch, from its first kernel's start to its last kernel's end, in the rank's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkItem {
    /// In which step.
    pub step: Step,
    /// Of which micro-batch.
    pub micro_batch: MicroBatch,
    /// Which way.
    pub pass: Pass,
    /// When it begins.
    pub start: i64,
    /// When it ends.
    pub end: i64,
}

/// The work of a rank, in order. The activities are sorted by start.
pub(crate) fn of_activities(activities: &Activities) -> Vec<WorkItem> {
    items(activities.items.iter().map(|activity| (activity.start, activity.end, activities.place(activity))))
}

/// The work of a rank, in order: runs of kernels that belong together, since a stage does one thing after another. Each
/// activity begins no earlier than the one before it.
pub(crate) fn items<'a>(activities: impl Iterator<Item = (i64, i64, &'a ActivityPlace)>) -> Vec<WorkItem> {
    let mut items: Vec<WorkItem> = Vec::new();
    for (start, end, place) in activities {
        let pass = match place.phase {
            Some(Phase::Forward) => Pass::Forward,
            Some(Phase::Backward | Phase::Recompute) => Pass::Backward,
            _ => continue,
        };
        let (Class::Compute, Some(step), Some(micro_batch)) = (place.class, place.step, place.micro_batch) else {
            continue;
        };
        match items.last_mut() {
            Some(last) if (last.step, last.micro_batch, last.pass) == (step, micro_batch, pass) => {
                last.end = end.max(last.end);
            }
            _ => items.push(WorkItem { step, micro_batch, pass, start, end }),
        }
    }
    items
}
