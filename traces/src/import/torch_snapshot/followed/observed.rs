//! Blocks that are known for what they are, since the program was asked which are its parameters, gradients and so on.

use std::collections::{HashMap, HashSet};

use crate::{ids::Nanos, import::torch_snapshot::lives::Life, vocabulary::MemoryCategory};

/// What a program knows about its blocks at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// When, on the rank's clock.
    pub time_ns: Nanos,
    /// What the blocks are for.
    pub category: MemoryCategory,
    /// Where they are: all that were for that.
    pub addresses: Vec<u64>,
}

/// When a block lived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lived {
    pub(super) from: i64,
    pub(super) to: i64,
    /// Whether it was given back in the first backward pass after it was handed out.
    pub(super) until_backward: bool,
    /// Whether it was handed out after a backward pass, and two more began while it was there.
    pub(super) for_steps: bool,
}

/// All observations that are still needed.
#[derive(Debug, Default)]
pub(super) struct Observed {
    seen: HashMap<u64, Vec<(i64, MemoryCategory)>>,
    /// When all blocks of a category were seen.
    times: Vec<(i64, MemoryCategory)>,
    buffers: HashSet<u64>,
}

impl Observed {
    pub(super) fn add(&mut self, observation: &Observation) {
        let &Observation { time_ns: Nanos(time), category, .. } = observation;
        self.times.push((time, category));
        for address in &observation.addresses {
            self.seen.entry(*address).or_default().push((time, category));
        }
    }

    pub(super) fn expect_buffers(&mut self, sizes: impl IntoIterator<Item = u64>) {
        self.buffers.extend(sizes);
    }

    /// Whether the block at an address was seen to be a parameter after a time.
    pub(super) fn is_parameter(&self, address: u64, from: i64) -> bool {
        let is_it = |(time, category): &(i64, MemoryCategory)| *time >= from && *category == MemoryCategory::Parameters;
        self.seen.get(&address).is_some_and(|seen| seen.iter().any(is_it))
    }

    /// What a block is for that lived between two times and is inferred to be for something. What was seen is true. What
    /// would have been seen if it were for that, and was not, is for something else.
    pub(super) fn category(&self, life: &Life, lived: Lived, inferred: MemoryCategory) -> MemoryCategory {
        let Lived { from, to, until_backward, for_steps } = lived;
        let meanwhile = |time: i64| (from..=to).contains(&time);
        let seen = self.seen.get(&life.address).into_iter().flatten();
        // A gradient may lie in the memory of something else; parameters and state come first.
        let seen = seen.filter(|(time, _)| meanwhile(*time)).map(|(_, category)| *category).min_by_key(|category| {
            let order = [MemoryCategory::Parameters, MemoryCategory::OptimizerState, MemoryCategory::Gradients];
            order.iter().position(|other| other == category).unwrap_or(order.len())
        });
        if let Some(category) = seen {
            return category;
        }
        // Activations of the same size, by chance, go in the backward pass, and scratch in the pass that it is of.
        let may_be_buffer = !until_backward && inferred != MemoryCategory::Workspace;
        // Buffers are laid out anew after the first step, and their sizes are not known for a while. Batches come and go.
        let is_rebuilt = for_steps && inferred == MemoryCategory::Inputs && !self.buffers.is_empty();
        if may_be_buffer && (self.buffers.contains(&life.bytes) || is_rebuilt) {
            return MemoryCategory::Communication;
        }
        let is_denied = self.times.iter().any(|(time, category)| *category == inferred && meanwhile(*time));
        match inferred {
            MemoryCategory::Gradients | MemoryCategory::OptimizerState if is_denied => MemoryCategory::Workspace,
            MemoryCategory::Parameters if is_denied => MemoryCategory::Other,
            inferred => inferred,
        }
    }

    /// Forgets what was seen up to a time: blocks from then are told.
    pub(super) fn forget_before(&mut self, end: i64) {
        self.times.retain(|(time, _)| *time > end);
        self.seen.retain(|_, seen| {
            seen.retain(|(time, _)| *time > end);
            !seen.is_empty()
        });
    }
}
