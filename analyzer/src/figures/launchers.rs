//! Kernels by who launched them: operators, modules, lines of the program.

use serde::Serialize;
use stepscope_plan::NumberType;
use stepscope_traces::Transposes;

use super::rates::KernelRates;
use crate::stored::fields;

/// What some kernels come to, over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LaunchedKernels {
    /// How many there are; copies, fills and communication count too.
    pub count: u64,
    /// The sum of their durations: not a union.
    pub total_ns: i64,
    /// Of the sum of all.
    pub share: f64,
    /// How many of them compute for less than 10 µs.
    pub small_count: u64,
    /// How long nothing ran before them: idle time by what ends it.
    pub idle_before_ns: i64,
    /// How fast they are.
    #[serde(flatten)]
    pub rates: KernelRates,
}

fields!(LaunchedKernels { count, total_ns, share, small_count, idle_before_ns, rates });

/// Everything that one operator launched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorFigures {
    /// The operator, as PyTorch calls it; none, of what no operator launched.
    pub operator: Option<String>,
    /// What it launched.
    #[serde(flatten)]
    pub kernels: LaunchedKernels,
    /// The same by what it was given, the most time first.
    pub shapes: Vec<ShapeFigures>,
}

fields!(OperatorFigures { operator, kernels, shapes });

/// Everything that an operator launched for arguments of the same shapes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShapeFigures {
    /// The shapes; none, where they were not recorded.
    pub shapes: Option<String>,
    /// What it launched.
    #[serde(flatten)]
    pub kernels: LaunchedKernels,
    /// The names of its kernels, the most time first.
    pub names: Vec<String>,
}

fields!(ShapeFigures { shapes, kernels, names });

/// Everything that one module launched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModuleFigures {
    /// The module, and those around it with `/` between them; none, of what none launched.
    pub module: Option<String>,
    /// How many are around it.
    pub depth: usize,
    /// What it launched itself, in nanoseconds.
    pub own_ns: i64,
    /// That, and what the modules in it launched.
    #[serde(flatten)]
    pub kernels: LaunchedKernels,
}

fields!(ModuleFigures { module, depth, own_ns, kernels });

/// Everything that one function of the program launched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceFigures {
    /// Its file, its line and its name; none, of what none launched.
    pub source: Option<String>,
    /// What it launched.
    #[serde(flatten)]
    pub kernels: LaunchedKernels,
}

fields!(SourceFigures { source, kernels });

/// Matrix products of one shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GemmFigures {
    /// How many products one kernel does.
    pub batch: u64,
    /// The rows of the result.
    pub m: u64,
    /// Its columns.
    pub n: u64,
    /// What is summed over.
    pub k: u64,
    /// The numbers that are multiplied, where they are known.
    pub precision: Option<NumberType>,
    /// How the matrices lie, as BLAS has it, where the kernel's name says so.
    pub layout: Option<Transposes>,
    /// The kernels, and how fast they are.
    #[serde(flatten)]
    pub kernels: LaunchedKernels,
    /// The kernel that took most of the time.
    pub kernel: String,
    /// The rows and columns that one block of threads computes, where that name says so.
    pub tile: Option<[u32; 2]>,
    /// How many times the device is filled with blocks; the last time only in part.
    pub waves: Option<f64>,
    /// How much of the device the blocks fill, over all waves.
    pub wave_efficiency: Option<f64>,
    /// The sides that tensor cores cannot take in whole pieces of 16 bytes.
    pub misaligned: Vec<&'static str>,
    /// Whether it multiplies numbers of 32 bits without tensor cores.
    pub without_tensor_cores: bool,
}

fields!(GemmFigures {
    batch,
    m,
    n,
    k,
    precision,
    layout,
    kernels,
    kernel,
    tile,
    waves,
    wave_efficiency,
    misaligned,
    without_tensor_cores,
});

/// How long compute kernels take, and how many are small.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelDurations {
    /// How many compute kernels there are.
    pub count: u64,
    /// The sum of their durations.
    pub total_ns: i64,
    /// How many take less than 10 µs, as a share of them.
    pub small_share: f64,
    /// The time of those, as a share of all of it.
    pub small_time_share: f64,
    /// All of them by how long they take.
    pub histogram: Vec<DurationBin>,
}

fields!(KernelDurations { count, total_ns, small_share, small_time_share, histogram });

/// Kernels that take about as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DurationBin {
    /// They take less than this; none of the longest.
    pub below_ns: Option<i64>,
    /// How many there are.
    pub count: u64,
    /// The sum of their durations.
    pub total_ns: i64,
}

fields!(DurationBin { below_ns, count, total_ns });
