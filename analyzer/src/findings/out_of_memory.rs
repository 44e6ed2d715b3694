//! Memory ran out.

use stepscope_plan::text;
use stepscope_traces::MemoryCategory;

use super::{Check, Found};
use crate::figures::{Analysis, CallerMemory, MemoryShortage, caller};

/// How many of what filled the device are told.
const MOST_TOLD: usize = 3;

/// A rank that had no memory left; of several, the one that came first.
pub(super) struct OutOfMemory;

impl Check for OutOfMemory {
    const KIND: &'static str = "out-of-memory";

    fn find(analysis: &Analysis) -> Option<Found> {
        let short = analysis.memory.iter().filter_map(|memory| Some((memory.rank, memory.out_of_memory.as_ref()?)));
        let short: Vec<_> = short.collect();
        let (rank, shortage) = short.first()?;
        let others = match short.len() {
            1 => String::new(),
            ranks => format!(", as did {}", text::counted(ranks as u64 - 1, "other rank")),
        };
        let free = shortage.free_bytes.map_or_else(String::new, |free| format!(", {} were free", exact(free)));
        let asked = exact(shortage.requested_bytes);
        Some(Found {
            share: 1.0,
            summary: format!("rank {} ran out of memory{others}: it asked for {asked}{free}", rank.0),
            evidence: evidence(shortage),
            advice: advice(shortage),
            ranks: short.iter().map(|(rank, _)| *rank).collect(),
            ..Found::default()
        })
    }
}

/// A size, to the byte: it is what people compare with what PyTorch says.
fn exact(bytes: u64) -> String {
    format!("{} ({} bytes)", text::bytes(bytes), text::count(bytes))
}

fn evidence(shortage: &MemoryShortage) -> String {
    let mut parts = Vec::new();
    if let Some(caller) = caller(&shortage.stack) {
        let within = shortage.stack.first().filter(|inner| inner.as_str() != caller);
        let within = within.map_or_else(String::new, |inner| format!(", in {inner}"));
        parts.push(format!("asked for at {caller}{within}"));
    }
    if let Some(unused) = shortage.reserved_unused_bytes {
        parts.push(format!("{} were fragmentation: reserved but unused", exact(unused)));
    }
    let total: u64 = shortage.at.values().sum();
    let mut categories: Vec<(&MemoryCategory, &u64)> = shortage.at.iter().collect();
    categories.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    let share = |(category, bytes): &(&MemoryCategory, &u64)| {
        format!(
            "{} {} ({})",
            category.spelled(),
            text::bytes(**bytes),
            text::rough_percent(**bytes as f64 / total as f64)
        )
    };
    let filled: Vec<String> = categories.iter().take(MOST_TOLD).map(share).collect();
    if total > 0 {
        parts.push(format!("{} were allocated: {}", text::bytes(total), filled.join(", ")));
    }
    let callers = CallerMemory::of(&shortage.sites);
    let most = callers.iter().filter_map(|memory| Some(format!("{} at {}", text::bytes(memory.bytes), memory.caller?)));
    let most: Vec<String> = most.take(MOST_TOLD).collect();
    if !most.is_empty() {
        parts.push(format!("most of it {}", most.join(", ")));
    }
    parts.join("; ")
}

fn advice(shortage: &MemoryShortage) -> String {
    match (shortage.expandable_segments_would_do, shortage.at.iter().max_by_key(|(_, bytes)| **bytes)) {
        (Some(true), _) => "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True would have made room: a replay of the \
                            allocations says so"
            .into(),
        (_, Some((MemoryCategory::Activations | MemoryCategory::Workspace, _))) => {
            "use smaller micro-batches, recompute activations, or compute the loss in chunks".into()
        }
        (_, Some((MemoryCategory::OptimizerState | MemoryCategory::Gradients | MemoryCategory::Parameters, _))) => {
            "shard parameters, gradients and optimizer state over more ranks".into()
        }
        _ => "use smaller micro-batches, or shard over more ranks".into(),
    }
}
