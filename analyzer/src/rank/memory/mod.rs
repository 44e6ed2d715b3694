//! Memory: what is allocated over time, by category; its peak, what fills it then, and whether it grows.
//!
//! Events are collected as they come, brought into the order of time, and played again (`replay`): memory is looked at when a
//! step begins, and after each event. A step has the events from its beginning to before its end; the last step has those at
//! its end too. All of this is of the whole recording, whichever steps count.

mod blocks;
mod callers;
mod growth;
mod player;
mod replay;
mod reserved;
mod state;
mod stretch;
mod timeline;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use stepscope_plan::{Attention, MemoryPlan};
use stepscope_traces::{
    HeldMemory, MemoryCategories, MemoryCategory, Names, OutOfMemory, RankInfo, RunInfo, RunSource,
};

use crate::{
    figures::{MemoryShortage, RankMemory},
    rank::{
        device_samples::{DeviceSamples, Taken},
        step_windows::StepWindow,
    },
};

use blocks::Blocks;
use callers::callers_over_time;
use growth::growth_per_step;
use player::Player;
use state::AllocatorState;
use stretch::Stretch;

pub(crate) use replay::{MemoryReplay, TakenEvents};

/// Bytes of each category, in the order of [`MemoryCategory::ALL`].
type CategoryBytes = [u64; MemoryCategory::ALL.len()];

impl MemoryReplay {
    /// What the events come to, of a recording that has ended or goes on; nothing where none happened.
    pub(crate) fn figures(
        &mut self,
        run: &RunInfo,
        info: &RankInfo,
        every_step: &[StepWindow],
        device: &DeviceSamples,
        names: &Names,
    ) -> Option<RankMemory> {
        self.sort();
        let out_of_memory = info.collector.out_of_memory.as_ref().map(|note| self.out_of_memory(note, names));
        let mut player = self.settled.clone().unwrap_or_default();
        let mut stretches = Stretch::of_steps(every_step);
        stretches.retain(|stretch| stretch.from > player.stretch.from);
        player.play(&self.events, &stretches, &self.places);
        // What was played for good is gone.
        let is_whole = self.settled.is_none();
        let callers_over_time = is_whole.then(|| callers_over_time(&self.events, &self.places, names)).flatten();
        Some(RankMemory { out_of_memory, callers_over_time, ..rank_memory(player, run, info, device, names)? })
    }

    /// What there was when memory ran out.
    fn out_of_memory(&self, note: &OutOfMemory, names: &Names) -> MemoryShortage {
        if let Some(held) = &note.held {
            return shortage_of(note, held);
        }
        let mut state = self.settled.as_ref().map_or_else(AllocatorState::default, |player| player.state.clone());
        let until = self.events.partition_point(|event| event.time <= note.time_ns.0);
        for event in &self.events[..until] {
            state.apply(event, &self.places);
        }
        MemoryShortage {
            times: note.times,
            time_ns: note.time_ns.0,
            requested_bytes: note.requested_bytes,
            free_bytes: note.free_bytes,
            reserved_unused_bytes: state.reserved.and_then(|reserved| reserved.checked_sub(state.allocated)),
            stack: note.stack.clone(),
            at: by_category(&state.bytes),
            sites: Blocks::of(&state, &self.places).sites(names),
            expandable_segments_would_do: note.expandable_segments_would_do,
        }
    }
}

/// What there was when memory ran out, as whoever allocates has it.
fn shortage_of(note: &OutOfMemory, held: &HeldMemory) -> MemoryShortage {
    let allocated = held.allocated_bytes.values().fold(0_u64, |all, bytes| all.saturating_add(*bytes));
    MemoryShortage {
        times: note.times,
        time_ns: note.time_ns.0,
        requested_bytes: note.requested_bytes,
        free_bytes: note.free_bytes,
        reserved_unused_bytes: held.reserved_bytes.checked_sub(allocated),
        stack: note.stack.clone(),
        at: held.allocated_bytes.clone(),
        sites: Vec::new(),
        expandable_segments_would_do: note.expandable_segments_would_do,
    }
}

/// What was played, as figures.
fn rank_memory(
    player: Player,
    run: &RunInfo,
    info: &RankInfo,
    device: &DeviceSamples,
    names: &Names,
) -> Option<RankMemory> {
    let Player { state, watch, step_ends, began, first_step_start, first_step_end, reserved, at_peak, .. } = player;
    let (peak, reserved_peak, timeline) = watch.finish()?;
    let at_once = timeline.first().map(|point| point.time_ns) == timeline.last().map(|point| point.time_ns);
    let ledger = |at_peak| {
        let taken = Taken {
            first: began?,
            first_step_start,
            first_step_end,
            peak: peak.time,
            allocated: peak.allocated,
            at_peak,
        };
        device.ledger(&taken, |time| reserved.at(time))
    };
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
        largest_at_peak: at_peak.largest(names),
        sites_at_peak: at_peak.sites(names),
        layers_at_peak: at_peak.layers,
        growth_bytes_per_step: growth_per_step(Vec::from(step_ends).as_slice()),
        predicted: predicted(run, info),
        ledger: peak.reserved.and_then(ledger),
        one_moment: at_once && run.source != RunSource::Stepscope,
        inferred: is_inferred(run, info),
        unmatched_events: state.unmatched,
        out_of_memory: None,
        gaps: info.collector.torch_memory.as_ref().and_then(|notes| notes.gaps),
        timeline,
        callers_over_time: None,
    })
}

/// The categories that have something.
fn by_category(bytes: &CategoryBytes) -> BTreeMap<MemoryCategory, u64> {
    MemoryCategory::ALL.iter().copied().zip(*bytes).filter(|(_, bytes)| *bytes > 0).collect()
}

/// Whether categories are somebody else's guess: only our own recorder is told them, and it may say that it was not.
fn is_inferred(run: &RunInfo, rank: &RankInfo) -> bool {
    run.source != RunSource::Stepscope || rank.collector.memory_categories == Some(MemoryCategories::Inferred)
}

/// What the plan says of a rank.
fn predicted(run: &RunInfo, rank: &RankInfo) -> Option<MemoryPlan> {
    let (model, layout) = (run.model.as_ref()?, run.layout?);
    // A layout that does not check out may have no ranks to find this one among.
    layout.check(model).ok()?;
    let stage = layout.coordinates(rank.rank.0.into()).stage;
    let plan = MemoryPlan::of_stage(model, &layout, Attention::Flash, stage).ok()?;
    let is_gpu = rank.device.as_ref().is_some_and(|device| !device.is_core());
    Some(if is_gpu { plan.on_gpu() } else { plan })
}
