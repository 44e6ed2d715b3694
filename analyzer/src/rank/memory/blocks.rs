//! What was live at a moment: the largest blocks, and all of them by layer and by who asked for them.

use std::{cmp::Reverse, collections::BTreeMap};

use stepscope_traces::{Layer, MemoryCategory, NameId, Names};

use super::state::{AllocationPlace, AllocatorState, Event, LiveBlock};
use crate::figures::{Block, CallSite, LayerMemory};

/// How many of the largest blocks are shown.
const MOST_BLOCKS: usize = 10;

/// What was live at a moment.
#[derive(Clone, Default)]
pub(super) struct Blocks {
    /// The largest, the largest first.
    largest: Vec<LiveBlock>,
    /// All of them, by layer.
    pub(super) layers: Vec<LayerMemory>,
    /// All of them, by who asked for them, and what for: how many, and their bytes.
    sites: BTreeMap<(MemoryCategory, Option<NameId>), (u64, u64)>,
}

impl Blocks {
    /// What is live after some events.
    pub(super) fn after(mut state: AllocatorState, events: &[Event], places: &[AllocationPlace]) -> Blocks {
        for event in events {
            state.apply(event, places);
        }
        Blocks::of(&state, places)
    }

    /// What is live.
    pub(super) fn of(state: &AllocatorState, places: &[AllocationPlace]) -> Blocks {
        let mut blocks: Vec<LiveBlock> = state.blocks(places).filter(|block| block.bytes > 0).collect();
        let mut layers: BTreeMap<Option<Layer>, u64> = BTreeMap::new();
        let mut sites: BTreeMap<(MemoryCategory, Option<NameId>), (u64, u64)> = BTreeMap::new();
        for LiveBlock { bytes, place, .. } in &blocks {
            *layers.entry(place.layer).or_default() += bytes;
            let (count, sum) = sites.entry((place.category, place.site)).or_default();
            *count += 1;
            *sum += bytes;
        }
        // Equal ones in the order of their addresses, so that the answer is always the same.
        blocks.sort_unstable_by_key(|block| (Reverse(block.bytes), block.address));
        blocks.truncate(MOST_BLOCKS);
        let layers = layers.into_iter().map(|(layer, bytes)| LayerMemory { layer, bytes }).collect();
        Blocks { largest: blocks, layers, sites }
    }

    /// The largest blocks, with who asked for each.
    pub(super) fn largest(&self, names: &Names) -> Vec<Block> {
        let block = |LiveBlock { bytes, place, .. }: &LiveBlock| {
            let AllocationPlace { category, step, phase, layer, site } = *place;
            Block { bytes: *bytes, category, layer, phase, step, stack: stack(site, names) }
        };
        self.largest.iter().map(block).collect()
    }

    /// Who asked for it, the most first; nothing where nobody is known.
    pub(super) fn sites(&self, names: &Names) -> Vec<CallSite> {
        if self.sites.keys().all(|(_, site)| site.is_none()) {
            return Vec::new();
        }
        let site = |(&(category, site), &(blocks, bytes)): (&(MemoryCategory, Option<NameId>), &(u64, u64))| CallSite {
            category,
            blocks,
            bytes,
            stack: stack(site, names),
        };
        let mut sites: Vec<CallSite> = self.sites.iter().map(site).collect();
        sites.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.stack.cmp(&other.stack)));
        sites
    }
}

/// The calls of a stack, the innermost first.
pub(super) fn stack(site: Option<NameId>, names: &Names) -> Vec<String> {
    let text = site.and_then(|site| names.get(site)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
