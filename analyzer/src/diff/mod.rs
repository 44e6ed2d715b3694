//! What changed between runs, in causes that add up.
//!
//! Each run is read once (`profile`); two are compared by time (`time`), by memory (`memory`) and figure by figure
//! (`metrics`), and whether that can be done at all is said first (`comparable`). Every definition stands on top of its
//! file.

mod alignment;
mod cause;
mod comparable;
mod kernel;
mod launches;
mod leaves;
mod memory;
mod metrics;
mod notes;
mod profile;
mod resample;
mod several;
mod steady;
mod time;

use serde::Serialize;

use crate::error::AnalysisError;
use steady::Steady;

pub use cause::CauseKind;
pub use comparable::SettingDiff;
pub use kernel::{KernelDiff, KernelStatus};
pub use memory::{BytesDiff, MemoryCause, MemoryDiff, MemoryPart, Setting};
pub use metrics::{BUS_BANDWIDTH, DIFF_METRICS, MetricDiff, Unit};
pub use profile::{Profile, profile};
pub use resample::Interval;
pub use several::{MetricRow, ScalingPoint, SettingRow, Several, several};
pub use time::{TimeCause, TimeDiff};

/// The version of what `diff` says.
const SCHEMA: u32 = 1;

/// What changed between two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// The version of this form.
    pub schema: u32,
    /// What the base is called.
    pub base: String,
    /// What the other is called.
    pub other: String,
    /// Whether they can be compared.
    pub comparable: bool,
    /// Why not.
    pub why_not: Vec<String>,
    /// What else is to be known of the figures.
    pub notes: Vec<String>,
    /// Settings that differ.
    pub settings: Vec<SettingDiff>,
    /// How the mean step changes; none where a run has no activity.
    pub step_time: Option<TimeDiff>,
    /// How the peak of memory changes; none where a run has no memory.
    pub peak_memory: Option<MemoryDiff>,
    /// Figures side by side.
    pub metrics: Vec<MetricDiff>,
    /// How kernels change, the largest change first.
    pub kernels: Vec<KernelDiff>,
}

/// Compares two runs.
pub fn compare(base: &Profile<'_>, other: &Profile<'_>) -> Result<Diff, AnalysisError> {
    let steady = Steady::of(base, other);
    let why_not = comparable::why_not(base, other);
    let (step_time, kernels) = time::compare(base, other, &steady)?.unzip();
    let peak_memory = memory::compare(base, other);
    Ok(Diff {
        schema: SCHEMA,
        base: base.name.clone(),
        other: other.name.clone(),
        comparable: why_not.is_empty(),
        why_not,
        notes: notes::notes(base, other, &steady),
        settings: comparable::differences(base, other),
        metrics: metrics::compare(base, other, &steady, peak_memory.as_ref()),
        step_time,
        peak_memory,
        kernels: kernels.unwrap_or_default(),
    })
}
