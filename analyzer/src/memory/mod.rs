//! Memory: what is allocated over time, by category; its peak, what fills it then, and whether it grows.
//!
//! Events are collected as they come, brought into the order of time, and played again (`replay`). Everything happens,
//! and what lies in the chosen steps' windows is looked at: what was allocated when a window began, and after each of its
//! events. A window has the events from its beginning to before its end; the last step's has those at its end too.

mod growth;
mod ledger;
mod replay;
mod stretch;
mod timeline;
mod watch;

#[cfg(test)]
mod tests;

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use stepscope_plan::{Attention, MemoryPlan};
use stepscope_traces::{Layer, MemoryCategory, Phase, Rank, RankInfo, RunInfo, RunSource, Step, TorchNotes};

use crate::{devices::DeviceSamples, selection::StepRange, steps::StepWindow};

use growth::growth_per_step;
use replay::State;
use stretch::stretches;
use timeline::Timeline;
use watch::Watch;

pub use ledger::Ledger;
pub(crate) use replay::MemoryReplay;

/// How many of the largest blocks are shown.
const MOST_BLOCKS: usize = 10;

/// Bytes of each category, in the order of [`MemoryCategory::ALL`].
type CategoryBytes = [u64; MemoryCategory::ALL.len()];

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
    /// What was allocated at the peak, by layer; of none, what belongs to no layer.
    pub layers_at_peak: Vec<LayerMemory>,
    /// What is allocated at the end of a step more than at the end of the one before: the median over the steps; none
    /// with fewer than four of them.
    pub growth_bytes_per_step: Option<f64>,
    /// What was predicted for it, where the model and the layout are known.
    pub predicted: Option<MemoryPlan>,
    /// What the device itself says is used, in parts that add up; none where it says nothing.
    pub ledger: Option<Ledger>,
    /// Whether categories were told from something else than what the program said.
    pub inferred: bool,
    /// Frees of what was not allocated, and allocations of what was not freed: their other half was not recorded.
    pub unmatched_events: u64,
    /// How often events of it were lost while it was recorded, where that can be: what happened then is not known.
    pub gaps: Option<u64>,
    /// What was allocated over time, thinned out without losing peaks.
    #[serde(skip)]
    pub timeline: Vec<MemoryPoint>,
}

/// A block of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
}

/// What a layer has allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LayerMemory {
    /// Which layer.
    pub layer: Option<Layer>,
    /// How much.
    pub bytes: u64,
}

/// What was allocated at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPoint {
    /// When, in the rank's clock.
    pub time_ns: i64,
    /// How much, in the order of [`MemoryCategory::ALL`].
    pub bytes: [u64; MemoryCategory::ALL.len()],
}

impl MemoryPoint {
    /// All categories together.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

impl MemoryReplay {
    /// What the events come to; nothing where none happened before the chosen steps ended.
    pub(crate) fn finish(
        mut self,
        run: &RunInfo,
        info: &RankInfo,
        every_step: &[StepWindow],
        steps: StepRange,
        device: &DeviceSamples,
    ) -> Option<RankMemory> {
        self.sort();
        let began = self.events.first()?.time;
        let stretches = stretches(&self.events, every_step, steps);
        let mut watch = Watch::new(Timeline::over(&stretches));
        let mut state = State::default();
        let mut step_ends = Vec::new();
        let mut played = 0;
        for stretch in &stretches {
            self.events[played..stretch.events.start].iter().for_each(|event| state.apply(event, &self.places));
            played = stretch.events.start;
            if played > 0 {
                watch.look(played, stretch.from, stretch.step, None, &state);
            }
            for event in &self.events[stretch.events.clone()] {
                state.apply(event, &self.places);
                played += 1;
                watch.look(played, event.time, stretch.step, self.place(event), &state);
            }
            if stretch.step.is_some() && played > 0 {
                step_ends.push(state.allocated);
            }
        }
        let (peak, reserved_peak, timeline) = watch.finish()?;
        let (largest_at_peak, layers_at_peak) = self.blocks_after(peak.after);
        Some(RankMemory {
            rank: info.rank,
            peak_bytes: peak.allocated,
            peak_time_ns: peak.time,
            peak_step: peak.step,
            peak_phase: peak.phase,
            at_peak: by_category(&peak.bytes),
            at_end: by_category(&state.bytes),
            reserved_peak_bytes: reserved_peak,
            fragmentation_bytes: peak.reserved.and_then(|reserved| reserved.checked_sub(peak.allocated)),
            largest_at_peak,
            layers_at_peak,
            growth_bytes_per_step: growth_per_step(&step_ends),
            predicted: predicted(run, info.rank),
            ledger: peak.reserved.and_then(|reserved| device.ledger(began, peak.time, peak.allocated, reserved)),
            inferred: is_inferred(run, info),
            unmatched_events: state.unmatched,
            gaps: TorchNotes::of(info).and_then(|notes| notes.gaps),
            timeline,
        })
    }

    /// The largest blocks after some of the events, and what each layer has.
    fn blocks_after(&self, events: usize) -> (Vec<Block>, Vec<LayerMemory>) {
        let mut state = State::default();
        self.events[..events].iter().for_each(|event| state.apply(event, &self.places));
        let mut blocks: Vec<(u64, Block)> = state.blocks(&self.places).filter(|(_, block)| block.bytes > 0).collect();
        let mut layers: BTreeMap<Option<Layer>, u64> = BTreeMap::new();
        for (_, block) in &blocks {
            *layers.entry(block.layer).or_default() += block.bytes;
        }
        // Equal ones in the order of their addresses, so that the answer is always the same.
        blocks.sort_unstable_by_key(|(address, block)| (Reverse(block.bytes), *address));
        let largest = blocks.into_iter().map(|(_, block)| block).take(MOST_BLOCKS).collect();
        (largest, layers.into_iter().map(|(layer, bytes)| LayerMemory { layer, bytes }).collect())
    }
}

/// The categories that have something.
fn by_category(bytes: &CategoryBytes) -> BTreeMap<MemoryCategory, u64> {
    MemoryCategory::ALL.iter().copied().zip(*bytes).filter(|(_, bytes)| *bytes > 0).collect()
}

/// Whether categories are somebody else's guess: only our own recorder is told them, and it may say that it was not.
fn is_inferred(run: &RunInfo, rank: &RankInfo) -> bool {
    let says = rank.collector.get("memory_categories").and_then(|categories| categories.as_str());
    run.source != RunSource::Stepscope || says == Some("inferred")
}

/// What the plan says of a rank.
fn predicted(run: &RunInfo, rank: Rank) -> Option<MemoryPlan> {
    let (model, layout) = (run.model.as_ref()?, run.layout?);
    // A layout that does not check out may have no ranks to find this one among.
    layout.check(model).ok()?;
    MemoryPlan::of_stage(model, &layout, Attention::Flash, layout.coordinates(rank.0.into()).stage).ok()
}
