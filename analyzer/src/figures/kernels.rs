//! Kernels by name and by family.

use serde::Serialize;
use stepscope_plan::NumberType;
use stepscope_traces::Family;

use super::rates::KernelRates;
use crate::stored::fields;

/// All activity of one name, over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelFigures {
    /// Its name.
    pub name: String,
    /// What kind of work it is.
    pub family: Family,
    /// Whose it is, where its name tells.
    pub library: Option<&'static str>,
    /// Of a matrix product, the numbers that it multiplies, where its name tells.
    pub precision: Option<NumberType>,
    /// Of a matrix product, the rows and columns that one block of threads computes, where its name tells.
    pub tile: Option<[u32; 2]>,
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
    /// How fast it is.
    #[serde(flatten)]
    pub rates: KernelRates,
}

fields!(KernelFigures {
    name,
    family,
    library,
    precision,
    tile,
    count,
    total_ns,
    mean_ns,
    share,
    least_rank_ns,
    most_rank_ns,
    rates,
});

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

fields!(FamilyFigures { family, count, total_ns, share, flops_per_second, peak_share });
