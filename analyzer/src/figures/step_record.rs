//! What is kept of a step for long, when what it was told from is gone.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_traces::{Nanos, SpanKind};

use super::{FamilyTime, StepFigures};

/// What is kept of a step of one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepRecord {
    /// When it began, in nanoseconds since 1970, UTC; none, where the rank's clock does not tell.
    pub wall_ns: Option<Nanos>,
    /// Where its time goes, its loss, tokens and rates.
    #[serde(flatten)]
    pub figures: StepFigures,
    /// Compute by kind of work, the most first.
    pub families: Vec<FamilyTime>,
    /// Communication by operation.
    pub collectives: Vec<StepCollectives>,
    /// What was allocated at its end, if that is recorded.
    pub allocated_bytes: Option<u64>,
    /// What the device said meanwhile, by counter, in the mean.
    pub devices: BTreeMap<String, f64>,
}

/// What one operation of communication comes to in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StepCollectives {
    /// Which operation.
    pub operation: SpanKind,
    /// How often it ran.
    pub count: u64,
    /// The bytes of its messages, as far as they are known.
    pub bytes: u64,
    /// How long it took, each added up.
    pub time_ns: i64,
}
