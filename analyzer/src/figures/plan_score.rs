//! What was predicted for a run, beside what was measured.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_plan::Assumptions;
use stepscope_traces::MemoryCategory;

/// What was predicted for a run of our trainer, beside what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanScore {
    /// A step, the median of those that count; none where times are not compared.
    pub step_time_ns: Option<ScoredFigure>,
    /// The shortest step of the predicted range.
    pub step_time_low_ns: Option<f64>,
    /// The longest step of the predicted range.
    pub step_time_high_ns: Option<f64>,
    /// Tokens a second of the whole job.
    pub tokens_per_second: Option<ScoredFigure>,
    /// By the default convention.
    pub mfu: Option<ScoredFigure>,
    /// Why times are not compared, if they are not.
    pub times_why_not: Option<String>,
    /// The peak of the fullest rank; none where memory was not recorded.
    pub memory_bytes: Option<ScoredFigure>,
    /// What was allocated then, by category.
    pub memory: BTreeMap<MemoryCategory, ScoredFigure>,
    /// What the times take for granted; none where they are not compared.
    pub assumptions: Option<Assumptions>,
}

/// A figure, predicted and measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScoredFigure {
    /// Predicted.
    pub predicted: f64,
    /// Measured.
    pub measured: f64,
    /// How much too large the prediction is, as a share of what was measured; none where that is nothing.
    pub error: Option<f64>,
}

impl ScoredFigure {
    pub(crate) fn of(predicted: f64, measured: f64) -> ScoredFigure {
        ScoredFigure { predicted, measured, error: (measured > 0.0).then(|| predicted / measured - 1.0) }
    }
}
