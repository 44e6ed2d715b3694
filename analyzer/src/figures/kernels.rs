//! Kernels by name and by family.

use serde::Serialize;

use super::{family::Family, roofline::Bound};

/// All activity of one name, over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelFigures {
    /// Its name.
    pub name: String,
    /// What kind of work it is.
    pub family: Family,
    /// How often it ran.
    pub count: u64,
    /// The sum of its durations: not a union.
    pub total_ns: i64,
    /// Of one.
    pub mean_ns: f64,
    /// Of the sum of all.
    pub share: f64,
    /// The sum on the rank that spent least on it.
    pub least_rank_ns: i64,
    /// The sum on the rank that spent most on it.
    pub most_rank_ns: i64,
    /// FLOP/s while it ran, where FLOPs are known.
    pub flops_per_second: Option<f64>,
    /// Those, as a share of a device's peak.
    pub peak_share: Option<f64>,
    /// Bytes of memory it read and wrote a second, where those are known; not of communication.
    pub bytes_per_second: Option<f64>,
    /// FLOPs for each such byte, where both are known.
    pub arithmetic_intensity: Option<f64>,
    /// What it waits for when it runs as fast as it can; of what computes, where that is known.
    pub bound: Option<Bound>,
    /// How fast it is, as a share of what that lets through.
    pub roof_share: Option<f64>,
}

/// All activity of one family, over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilyFigures {
    /// Which family.
    pub family: Family,
    /// How many kernels.
    pub count: u64,
    /// The sum of their durations.
    pub total_ns: i64,
    /// Of the sum of all.
    pub share: f64,
    /// FLOP/s while they ran, of those whose FLOPs are known.
    pub flops_per_second: Option<f64>,
    /// Those, as a share of a device's peak.
    pub peak_share: Option<f64>,
}
