//! What fills a rank's memory.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_plan::MemoryPlan;
use stepscope_traces::{Layer, MemoryCategory, Phase, Rank, Step};

use super::{
    call_sites::{CallSite, CallersOverTime},
    memory_point::MemoryPoint,
};
use crate::stored::{fields, one_of};

/// The memory of one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankMemory {
    /// Which rank.
    pub rank: Rank,
    /// The most that was allocated at once.
    pub peak_bytes: u64,
    /// When that was reached first, in the rank's clock.
    pub peak_time_ns: i64,
    /// In which step.
    pub peak_step: Option<Step>,
    /// In which phase.
    pub peak_phase: Option<Phase>,
    /// What was allocated then.
    pub at_peak: BTreeMap<MemoryCategory, u64>,
    /// What is allocated after the last event; of chosen steps, at the end of the last one.
    pub at_end: BTreeMap<MemoryCategory, u64>,
    /// The most that was taken from the device at once; none where that was not recorded.
    pub reserved_peak_bytes: Option<u64>,
    /// Taken from the device and not allocated, at the peak; none where not all of that was recorded.
    pub fragmentation_bytes: Option<u64>,
    /// The largest blocks at the peak, the largest first.
    pub largest_at_peak: Vec<Block>,
    /// What was allocated at the peak, by who asked for it, the most first; nothing where nobody is known.
    pub sites_at_peak: Vec<CallSite>,
    /// What was allocated at the peak, by layer; of none, what belongs to no layer.
    pub layers_at_peak: Vec<LayerMemory>,
    /// What is allocated at the end of a step more than at the end of the one before: the median over the steps; none
    /// with fewer than four of them.
    pub growth_bytes_per_step: Option<f64>,
    /// What was predicted for it, where the model and the layout are known.
    pub predicted: Option<MemoryPlan>,
    /// What the device itself says is used, in parts that add up; none where it says nothing.
    pub ledger: Option<Ledger>,
    /// Where memory ran out, if it did.
    pub out_of_memory: Option<MemoryShortage>,
    /// Whether only one moment is known, as in a memory snapshot without a history: then the peak is not, and what is said of
    /// it is of that moment, which is the end.
    pub one_moment: bool,
    /// Whether categories were told from something else than what the program said.
    pub inferred: bool,
    /// Frees of what was not allocated, and allocations of what was not freed: their other half was not recorded.
    pub unmatched_events: u64,
    /// How often events of it were lost while it was recorded, where that can be: what happened then is not known.
    pub gaps: Option<u64>,
    /// What was allocated over time, thinned out without losing peaks.
    #[serde(skip)]
    pub timeline: Vec<MemoryPoint>,
    /// The same by who asked for it; none where nobody is known, and of a run that was followed while it grew.
    #[serde(skip)]
    pub callers_over_time: Option<CallersOverTime>,
}

fields!(RankMemory {
    rank,
    peak_bytes,
    peak_time_ns,
    peak_step,
    peak_phase,
    at_peak,
    at_end,
    reserved_peak_bytes,
    fragmentation_bytes,
    largest_at_peak,
    sites_at_peak,
    layers_at_peak,
    growth_bytes_per_step,
    predicted,
    ledger,
    out_of_memory,
    one_moment,
    inferred,
    unmatched_events,
    gaps,
    timeline,
    callers_over_time,
});

impl RankMemory {
    /// The rank that has most allocated at once; of several, the first.
    pub fn fullest<'a>(ranks: impl DoubleEndedIterator<Item = &'a RankMemory>) -> Option<&'a RankMemory> {
        ranks.rev().max_by_key(|memory| memory.peak_bytes)
    }

    /// What the rank used of its device at once: by what the device says of its process; where it says nothing, by what was
    /// taken from it, or else allocated.
    pub(super) fn device_used_bytes(&self) -> u64 {
        let said = self.ledger.as_ref().map(|ledger| ledger.device_used_bytes);
        said.or(self.reserved_peak_bytes).unwrap_or(self.peak_bytes)
    }
}

/// What there was when memory ran out, the last time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryShortage {
    /// How often it did.
    pub times: u64,
    /// When, in the rank's clock.
    pub time_ns: i64,
    /// What was asked for.
    pub requested_bytes: u64,
    /// What the device had left; none where that was not recorded.
    pub free_bytes: Option<u64>,
    /// Taken from the device and not allocated; none where that was not recorded.
    pub reserved_unused_bytes: Option<u64>,
    /// Who asked, the innermost call first; none where that is not known.
    pub stack: Vec<String>,
    /// What was allocated.
    pub at: BTreeMap<MemoryCategory, u64>,
    /// The same by who asked for it, the most first; nothing where nobody is known.
    pub sites: Vec<CallSite>,
    /// Whether there would have been room with PyTorch's expandable segments; none where that cannot be told.
    pub expandable_segments_would_do: Option<bool>,
}

fields!(MemoryShortage {
    times,
    time_ns,
    requested_bytes,
    free_bytes,
    reserved_unused_bytes,
    stack,
    at,
    sites,
    expandable_segments_would_do,
});

/// A block of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    /// How large it is.
    pub bytes: u64,
    /// What it is for.
    pub category: MemoryCategory,
    /// In which layer it was allocated.
    pub layer: Option<Layer>,
    /// In which phase.
    pub phase: Option<Phase>,
    /// In which step.
    pub step: Option<Step>,
    /// Who asked for it, the innermost call first; none where that is not known.
    pub stack: Vec<String>,
}

fields!(Block { bytes, category, layer, phase, step, stack });

/// What a layer has allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LayerMemory {
    /// Which layer.
    pub layer: Option<Layer>,
    /// How much.
    pub bytes: u64,
}

fields!(LayerMemory { layer, bytes });

/// What the device says is used at the peak, in lines that add up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Used, as the device says.
    pub device_used_bytes: u64,
    /// Allocated by the program.
    pub allocated_bytes: u64,
    /// Taken from the device and not allocated.
    pub fragmentation_bytes: u64,
    /// Used before the program had a context; where no context is told apart, before it allocated anything.
    pub driver_bytes: u64,
    /// The CUDA context; none where it is in `libraries_bytes`.
    pub context_bytes: Option<u64>,
    /// Data of the CUDA modules, and the kernels that ran; none where they are in `libraries_bytes`.
    pub modules_bytes: Option<u64>,
    /// What is set aside for the stacks of kernels; none where it is in `libraries_bytes`.
    pub local_memory_bytes: Option<u64>,
    /// What libraries took. Where they are not told apart, also the context and all that comes with it: what was taken up to
    /// the end of the first step, and not by the program's allocator.
    pub libraries_bytes: u64,
    /// The libraries that took something; none where they are not told apart.
    pub libraries: Vec<LibraryMemory>,
    /// What is left over; negative where the parts are more than the device says.
    pub residual_bytes: i64,
}

fields!(Ledger {
    device_used_bytes,
    allocated_bytes,
    fragmentation_bytes,
    driver_bytes,
    context_bytes,
    modules_bytes,
    local_memory_bytes,
    libraries_bytes,
    libraries,
    residual_bytes,
});

/// What a library took from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LibraryMemory {
    /// Which one.
    pub library: MemoryLibrary,
    /// How much.
    pub bytes: u64,
}

fields!(LibraryMemory { library, bytes });

/// A library that takes memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryLibrary {
    /// Communicators' buffers.
    Nccl,
    /// Workspaces.
    Cublas,
    /// Workspaces.
    Cudnn,
    /// The symmetric heap.
    Nvshmem,
    /// PyTorch's.
    SymmetricMemory,
    /// All others, and what the program took around its allocator.
    Other,
}

one_of!(MemoryLibrary: MemoryLibrary::ALL);

impl MemoryLibrary {
    /// All of them, in the order in which they are shown.
    pub const ALL: [MemoryLibrary; 6] = [
        MemoryLibrary::Nccl,
        MemoryLibrary::Cublas,
        MemoryLibrary::Cudnn,
        MemoryLibrary::Nvshmem,
        MemoryLibrary::SymmetricMemory,
        MemoryLibrary::Other,
    ];

    /// As people write it.
    pub fn spelled(self) -> &'static str {
        match self {
            MemoryLibrary::Nccl => "NCCL",
            MemoryLibrary::Cublas => "cuBLAS",
            MemoryLibrary::Cudnn => "cuDNN",
            MemoryLibrary::Nvshmem => "NVSHMEM",
            MemoryLibrary::SymmetricMemory => "symmetric memory",
            MemoryLibrary::Other => "other libraries",
        }
    }
}

impl Ledger {
    /// Whatever is used beside what is allocated: each line's name and bytes.
    pub fn lines(&self) -> Vec<(&'static str, i64)> {
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let mut lines = vec![("fragmentation", bytes(self.fragmentation_bytes)), ("driver", bytes(self.driver_bytes))];
        match self.context_bytes {
            Some(context) => {
                lines.push(("context", bytes(context)));
                let told = [("CUDA modules", self.modules_bytes), ("local memory", self.local_memory_bytes)];
                lines.extend(told.into_iter().filter_map(|(name, told)| Some((name, bytes(told?)))));
                lines.extend(self.libraries.iter().map(|told| (told.library.spelled(), bytes(told.bytes))));
            }
            None => lines.push(("context and libraries", bytes(self.libraries_bytes))),
        }
        lines.push(("residual", self.residual_bytes));
        lines
    }

    /// What is neither the program's nor left over.
    pub fn driver_and_libraries(&self) -> u64 {
        let told = [self.context_bytes, self.modules_bytes, self.local_memory_bytes];
        let told = told.into_iter().flatten().chain([self.driver_bytes, self.libraries_bytes]);
        told.fold(0, u64::saturating_add)
    }
}
