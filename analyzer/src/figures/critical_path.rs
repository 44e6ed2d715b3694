//! What the end of a step really depends on.

use serde::Serialize;
use stepscope_plan::Axis;
use stepscope_traces::{Family, Rank, Step};

use super::idle::IdleReason;
use crate::stored::{fields, told_as};

/// The critical path of a step: what its end waited for, back to its beginning, from rank to rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CriticalPath {
    /// Of which step; none, where it is of the whole recording.
    pub step: Option<Step>,
    /// How long it is: from the first start to the last end of any rank.
    pub length_ns: i64,
    /// What it is spent on, the most first. They add up.
    pub parts: Vec<PathShare>,
    /// On which ranks it is, the most first. They add up.
    pub ranks: Vec<PathRank>,
    /// Where it goes, from the beginning of the step to its end, without holes.
    #[serde(skip)]
    pub stretches: Vec<PathStretch>,
}

fields!(CriticalPath { step, length_ns, parts, ranks, stretches });

/// A stretch of the critical path. Times are in the clock that all ranks are aligned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStretch {
    /// On which rank.
    pub rank: Rank,
    /// From when.
    pub start_ns: i64,
    /// Until when.
    pub end_ns: i64,
    /// What it is spent on.
    pub part: PathPart,
}

fields!(PathStretch { rank, start_ns, end_ns, part });

/// A part of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PathShare {
    /// What it is.
    #[serde(flatten)]
    pub part: PathPart,
    /// How long.
    pub time_ns: i64,
    /// Of the path.
    pub share: f64,
    /// How long activities of this kind take that could end later without the step doing so, all of them together.
    pub elsewhere_ns: i64,
    /// How much later, for half of that time; none, where there are no such activities.
    pub slack_ns: Option<i64>,
}

fields!(PathShare { part, time_ns, share, elsewhere_ns, slack_ns });

/// How much of the critical path is on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PathRank {
    /// Which rank.
    pub rank: Rank,
    /// How long.
    pub time_ns: i64,
    /// Of the path.
    pub share: f64,
}

fields!(PathRank { rank, time_ns, share });

/// What a stretch of the critical path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub enum PathPart {
    /// Compute kernels.
    Compute {
        /// Of which family.
        family: Family,
    },
    /// Communication, all ranks being there.
    Communication {
        /// Along which axis; none, where that is not known.
        axis: Option<Axis>,
    },
    /// Copies and fills.
    Copy,
    /// Nothing ran on the rank.
    Idle {
        /// Why.
        reason: IdleReason,
    },
    /// Nothing ran on the rank: it is a stage of a pipeline, and had nothing to do.
    Bubble,
    /// Something else ran on the rank, and nobody knows what this waited for.
    Lag,
}

told_as!(
    PathPart as (u8, Option<Family>, Option<Axis>, Option<IdleReason>),
    |part| match *part {
        PathPart::Compute { family } => (0, Some(family), None, None),
        PathPart::Communication { axis } => (1, None, axis, None),
        PathPart::Copy => (2, None, None, None),
        PathPart::Idle { reason } => (3, None, None, Some(reason)),
        PathPart::Bubble => (4, None, None, None),
        PathPart::Lag => (5, None, None, None),
    },
    |(part, family, axis, reason)| Some(match part {
        0 => PathPart::Compute { family: family? },
        1 => PathPart::Communication { axis },
        2 => PathPart::Copy,
        3 => PathPart::Idle { reason: reason? },
        4 => PathPart::Bubble,
        5 => PathPart::Lag,
        _ => return None,
    })
);

impl PathPart {
    /// What it is, in words.
    pub fn words(self) -> String {
        match self {
            PathPart::Compute { family } => family.word().into(),
            PathPart::Communication { axis: Some(axis) } => format!("{} communication", axis.name()),
            PathPart::Communication { axis: None } => "communication".into(),
            PathPart::Copy => "copies".into(),
            PathPart::Idle { reason } => format!("idle: {}", reason.words()),
            PathPart::Bubble => "pipeline bubble".into(),
            PathPart::Lag => "late starts".into(),
        }
    }
}
