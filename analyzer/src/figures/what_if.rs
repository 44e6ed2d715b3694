//! How long a step would be without something that costs time.

use serde::Serialize;
use stepscope_plan::Axis;
use stepscope_traces::{Family, Phase, Rank, Step};

use super::idle::IdleReason;
use crate::stored::{fields, told_as};

/// A step, replayed without this and without that.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// The step that was replayed; none, where it was the whole recording.
    pub step: Option<Step>,
    /// How long it is, from the first start to the last end of any rank.
    pub measured_ns: i64,
    /// How long it would be without each of these alone, the largest win first.
    pub without: Vec<Without>,
}

fields!(WhatIf { step, measured_ns, without });

/// A step without something.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Without {
    /// Without what.
    #[serde(flatten)]
    pub cause: Cause,
    /// How long the step would be.
    pub step_ns: i64,
    /// Where it costs most in that step, the longest first.
    pub spans: Vec<SpanPlace>,
    /// Of communication: which work waits longest for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingWork>,
}

fields!(Without { cause, step_ns, spans, waiting });

/// Work that waits for communication.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WaitingWork {
    /// In which phase it is, where that is known.
    pub phase: Option<Phase>,
    /// Of which family.
    pub family: Family,
    /// Its part of all the time that is waited.
    pub share: f64,
}

fields!(WaitingWork { phase, family, share });

/// A stretch of time on a rank, in the clock all ranks are aligned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SpanPlace {
    /// Which rank.
    pub rank: Rank,
    /// When it begins.
    pub start_ns: i64,
    /// When it ends.
    pub end_ns: i64,
}

fields!(SpanPlace { rank, start_ns, end_ns });

/// What costs time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum Cause {
    /// Communication along an axis: of replicas, nobody waits for it; along others, it takes no time once all are there.
    Communication {
        /// Which one; none, where that is not known.
        axis: Option<Axis>,
    },
    /// Copies and fills.
    Copies,
    /// Time in which nothing runs on a rank: the next activity begins at once.
    Idle {
        /// Why it does not.
        reason: IdleReason,
    },
    /// What is computed again.
    Recomputation,
    /// A rank that is slower than the others: as fast as their median.
    SlowRank {
        /// Which one.
        rank: Rank,
    },
    /// Clocks that power, heat or the hardware holds down: they are as high as the highest one.
    Clocks,
    /// Stages of a pipeline with more work than others: all have the mean of it.
    UnevenStages,
    /// Kernels of a family that are slower than their roof lets them be: they are not.
    Kernels {
        /// Which family.
        family: Family,
    },
}

told_as!(
    Cause as (u8, (Option<Family>, Option<Axis>), Option<IdleReason>, Option<Rank>),
    |cause| match *cause {
        Cause::Communication { axis } => (0, (None, axis), None, None),
        Cause::Copies => (1, (None, None), None, None),
        Cause::Idle { reason } => (2, (None, None), Some(reason), None),
        Cause::Recomputation => (3, (None, None), None, None),
        Cause::SlowRank { rank } => (4, (None, None), None, Some(rank)),
        Cause::Clocks => (5, (None, None), None, None),
        Cause::UnevenStages => (6, (None, None), None, None),
        Cause::Kernels { family } => (7, (Some(family), None), None, None),
    },
    |(cause, (family, axis), reason, rank)| Some(match cause {
        0 => Cause::Communication { axis },
        1 => Cause::Copies,
        2 => Cause::Idle { reason: reason? },
        3 => Cause::Recomputation,
        4 => Cause::SlowRank { rank: rank? },
        5 => Cause::Clocks,
        6 => Cause::UnevenStages,
        7 => Cause::Kernels { family: family? },
        _ => return None,
    })
);

impl WhatIf {
    /// The step without something, if that was replayed and makes a difference.
    pub fn without(&self, cause: Cause) -> Option<&Without> {
        self.without.iter().find(|without| without.cause == cause)
    }

    /// How much shorter a step of another length would be.
    pub fn win_of(&self, without: &Without, step_ns: i64) -> i64 {
        let share = 1.0 - without.step_ns as f64 / self.measured_ns.max(1) as f64;
        (share * step_ns as f64).round() as i64
    }
}
