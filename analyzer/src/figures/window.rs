//! Which time counts.

use serde::Serialize;
use stepscope_traces::{Rank, Step};

use super::{
    breakdown::Breakdown,
    idle::IdleShare,
    partition::Partition,
    waterfall::{FamilyTime, WaterfallRow},
};
use crate::stored::fields;

/// The steps that count: every figure is of them, but those of the whole recording (`ranks` and memory).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CountedSteps {
    /// The first and the last of them; none, where there are none.
    pub steps: Option<[Step; 2]>,
    /// Steps that do not count, since a run warms up.
    pub warm_up: Vec<Step>,
    /// Steps that do not count, since they were not recorded to their end, or not from their beginning.
    pub cut_off: Vec<Step>,
    /// Whether the whole recording counts: there are no steps, or it was asked for.
    pub whole: bool,
}

fields!(CountedSteps { steps, warm_up, cut_off, whole });

impl CountedSteps {
    /// Whether something counts that belongs to a step, or to none.
    pub fn has(&self, step: Option<Step>) -> bool {
        self.whole || step.is_some_and(|step| self.counts(step))
    }

    /// Whether a step is one of those that count.
    pub fn counts(&self, step: Step) -> bool {
        let is_between = self.steps.is_some_and(|[first, last]| (first..=last).contains(&step));
        is_between && !self.cut_off.contains(&step) && !self.warm_up.contains(&step)
    }
}

/// Where one rank's time goes in the steps that count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CountedTime {
    /// Which rank.
    pub rank: Rank,
    /// How many steps of it count; where the whole recording does, that is one window.
    pub windows: u64,
    /// The time of all of them together.
    #[serde(flatten)]
    pub partition: Partition,
    /// How many kernels ran in them, those that communicate included; no copies.
    pub kernel_count: u64,
    /// Their time by what it was for.
    #[serde(flatten)]
    pub breakdown: Breakdown,
    /// Compute by family, without what is computed again.
    pub families: Vec<FamilyTime>,
    /// What is computed again.
    pub recomputation_ns: i64,
    /// Idle time by reason.
    pub idle: Vec<IdleShare>,
    /// From the peak to what is used of it, in the mean of its steps.
    pub waterfall: Vec<WaterfallRow>,
}

fields!(CountedTime {
    rank,
    windows,
    partition,
    kernel_count,
    breakdown,
    families,
    recomputation_ns,
    idle;
    waterfall
});

impl CountedTime {
    /// The mean of a part of the time, of one window.
    pub fn mean(&self, part: impl Fn(&Partition) -> i64) -> i64 {
        part(&self.partition) / self.windows.max(1) as i64
    }
}
