//! Findings about memory.

use stepscope_plan::{Recompute, Zero, text};
use stepscope_traces::MemoryCategory;

use super::{Check, Found};
use crate::figures::{Analysis, RankMemory};

/// A device that is less full than this has enough room.
const LEAST_FULL: f64 = 0.5;

/// The rank whose memory is fullest, unless its device has room enough.
fn fullest(analysis: &Analysis) -> Option<&RankMemory> {
    let fullest = RankMemory::fullest(analysis.memory.iter()).filter(|memory| memory.peak_bytes > 0)?;
    let device = analysis.run.device.as_ref().and_then(|device| device.memory_bytes);
    let has_room = device.is_some_and(|bytes| (fullest.peak_bytes as f64) < LEAST_FULL * bytes as f64);
    (!has_room).then_some(fullest)
}

/// A category's share of the peak.
fn share(memory: &RankMemory, category: MemoryCategory) -> f64 {
    memory.at_peak.get(&category).copied().unwrap_or(0) as f64 / memory.peak_bytes as f64
}

/// A device that is nearly full.
pub(super) struct NearlyFull;

impl Check for NearlyFull {
    const KIND: &'static str = "memory-nearly-full";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_FULL: f64 = 0.95;
        let device = analysis.run.device.as_ref()?.memory_bytes?;
        let used = |memory: &RankMemory| {
            let reserved = memory.reserved_peak_bytes.unwrap_or(0).max(memory.peak_bytes);
            memory.ledger.as_ref().map_or(reserved, |ledger| ledger.device_used_bytes.max(reserved))
        };
        let (most, bytes) =
            analysis.memory.iter().map(|memory| (memory, used(memory))).max_by_key(|(_, used)| *used)?;
        let share = bytes as f64 / device as f64;
        // A run that had no memory left says so itself.
        let is_over = analysis.memory.iter().any(|memory| memory.out_of_memory.is_some());
        (!is_over && share >= LEAST_FULL).then(|| Found {
            share,
            summary: format!("memory is nearly full: {} of the device", text::rough_percent(share)),
            evidence: format!("{} of {} are used on rank {}", text::bytes(bytes), text::bytes(device), most.rank),
            advice: "leave some room: the next longer sequence, or another communicator, ends the run".into(),
            ranks: vec![most.rank],
            ..Found::default()
        })
    }
}

/// Memory that is reserved, and cannot be used.
pub(super) struct Fragmentation;

impl Check for Fragmentation {
    const KIND: &'static str = "fragmentation";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_SHARE: f64 = 0.1;
        const LEAST_FULL: f64 = 0.8;
        let memory = fullest(analysis)?;
        let device = analysis.run.device.as_ref()?.memory_bytes?;
        let unused = memory.fragmentation_bytes?;
        let reserved = memory.reserved_peak_bytes?.max(memory.peak_bytes);
        let share = unused as f64 / reserved.max(1) as f64;
        (share >= LEAST_SHARE && reserved as f64 >= LEAST_FULL * device as f64).then(|| Found {
            share,
            summary: format!("{} of the reserved memory is unused at the peak", text::rough_percent(share)),
            evidence: format!("{} of {} on rank {}", text::bytes(unused), text::bytes(reserved), memory.rank),
            advice: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or sizes that do not change from step to step"
                .into(),
            ranks: vec![memory.rank],
            ..Found::default()
        })
    }
}

/// Activations that fill memory and are not recomputed.
pub(super) struct Activations;

impl Check for Activations {
    const KIND: &'static str = "activations";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_SHARE: f64 = 0.6;
        let layout = analysis.run.layout?.said.filter(|layout| layout.recompute == Recompute::None)?;
        let memory = fullest(analysis)?;
        let share = share(memory, MemoryCategory::Activations);
        (share >= LEAST_SHARE).then(|| Found {
            share,
            summary: format!("activations are {} of peak memory", text::rough_percent(share)),
            evidence: format!(
                "on rank {}, without recomputation, at a micro-batch size of {}",
                memory.rank.0, layout.micro_batch
            ),
            advice: "recompute attention or whole layers in the backward pass, or use smaller micro-batches".into(),
            ..Found::default()
        })
    }
}

/// Optimizer state that every replica holds.
pub(super) struct ReplicatedOptimizer;

impl Check for ReplicatedOptimizer {
    const KIND: &'static str = "replicated-optimizer";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_SHARE: f64 = 0.25;
        let layout = analysis.run.layout.filter(|layout| layout.dp > 1 && layout.zero == Some(Zero::Off))?;
        let memory = fullest(analysis)?;
        let share = share(memory, MemoryCategory::OptimizerState);
        let saved = share * (1.0 - 1.0 / layout.dp as f64);
        (share >= LEAST_SHARE).then(|| Found {
            share: saved,
            summary: format!("each of {} replicas holds the full optimizer state", layout.dp),
            evidence: format!(
                "it is {} of peak memory; sharded, it would shrink to {}",
                text::rough_percent(share),
                text::rough_percent(share - saved)
            ),
            advice: "shard it with ZeRO stage 1".into(),
            ..Found::default()
        })
    }
}

/// Memory that grows from step to step.
pub(super) struct Growth;

impl Check for Growth {
    const KIND: &'static str = "memory-growth";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_SHARE: f64 = 1e-3;
        let grows =
            |memory: &&RankMemory| memory.growth_bytes_per_step.unwrap_or(0.0) > LEAST_SHARE * memory.peak_bytes as f64;
        let memory = analysis.memory.iter().filter(grows).max_by(|one, other| {
            one.growth_bytes_per_step.unwrap_or(0.0).total_cmp(&other.growth_bytes_per_step.unwrap_or(0.0))
        })?;
        let (growth, peak) = (memory.growth_bytes_per_step?, memory.peak_bytes as f64);
        Some(Found {
            share: (100.0 * growth / peak).min(1.0),
            summary: format!("memory on rank {} grows by {} per step", memory.rank.0, text::bytes(growth as u64)),
            evidence: format!("that is {:.2}% of its peak every step", 100.0 * growth / peak),
            advice: "look for tensors kept from step to step: losses with their graph, lists of outputs".into(),
            ..Found::default()
        })
    }
}
