//! A rank's memory events, collected as they come, and played again.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use stepscope_traces::{MemoryCategory, MemoryEvents, MemoryOperation, Step};

use super::{
    player::Player,
    state::{AllocationPlace, Event, What},
    stretch::Stretch,
};
use crate::rank::{device_samples::LedgerMoments, step_windows::StepWindow};

/// How many places there may be, before those that nothing is at any more are forgotten.
const MANY_PLACES: usize = 4096;

/// Collects a rank's memory events, in as few bytes as the questions need.
#[derive(Default)]
pub(crate) struct MemoryReplay {
    /// What has not been played; by time, once it is sorted.
    pub(super) events: Vec<Event>,
    pub(super) places: Vec<AllocationPlace>,
    numbers: HashMap<AllocationPlace, u32>,
    /// What has been played, of a recording that goes on.
    pub(super) settled: Option<Player>,
    taken: TakenEvents,
}

/// How many events were taken, and when the first of them was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TakenEvents {
    pub(crate) count: u64,
    pub(crate) first: Option<i64>,
}

impl MemoryReplay {
    /// Takes some events.
    pub(crate) fn take(&mut self, events: &MemoryEvents) {
        self.taken.count += events.len() as u64;
        self.taken.first = events.time_ns.iter().map(|time| time.0).chain(self.taken.first).min();
        self.events.reserve(events.len());
        // Neighbours of one category are of one place, mostly.
        let mut last: [Option<(AllocationPlace, u32)>; MemoryCategory::ALL.len()] = Default::default();
        for row in 0..events.len() {
            // A block of no known size counts for nothing, and is known when it is freed.
            let bytes = || events.bytes.get(row).unwrap_or(0);
            let what = match events.op.get(row) {
                MemoryOperation::Alloc => {
                    let place = AllocationPlace {
                        category: events.category.get(row).unwrap_or(MemoryCategory::Other),
                        step: events.step.get(row),
                        phase: events.phase.get(row),
                        layer: events.layer.get(row),
                        site: events.site.get(row),
                    };
                    let last = &mut last[place.category as usize];
                    let number = match *last {
                        Some((same, number)) if same == place => number,
                        _ => self.number(place),
                    };
                    *last = Some((place, number));
                    What::Alloc { bytes: bytes(), place: number }
                }
                MemoryOperation::Free => What::Free,
                MemoryOperation::Reserve => What::Reserve { bytes: bytes() },
                MemoryOperation::Release => What::Release,
            };
            self.events.push(Event { time: events.time_ns.get(row).0, address: events.address.get(row), what });
        }
    }

    fn number(&mut self, place: AllocationPlace) -> u32 {
        let next = self.places.len() as u32;
        *self.numbers.entry(place).or_insert_with(|| {
            self.places.push(place);
            next
        })
    }

    /// Sorts by time. Those of one time stay in the order they came in, and the stable sort finds sorted runs.
    pub(super) fn sort(&mut self) {
        self.events.sort_by_key(|event| event.time);
    }

    /// How many events have not been played.
    pub(crate) fn pending(&self) -> usize {
        self.events.len()
    }

    /// What was taken so far.
    pub(crate) fn taken(&self) -> TakenEvents {
        self.taken
    }

    /// The beginning of the stretch that was played last for good.
    pub(crate) fn settled_to(&self) -> i64 {
        self.settled.as_ref().map_or(i64::MIN, |player| player.stretch.from)
    }

    /// What was allocated at the end of a step of late, of what has been played for good.
    pub(crate) fn at_end_of(&self, step: Step) -> Option<u64> {
        self.settled.as_ref()?.last_ends.get(&step).copied()
    }

    /// The moments that the ledger needs, of what has been played for good.
    pub(crate) fn moments(&self) -> LedgerMoments {
        self.settled.as_ref().map_or_else(LedgerMoments::default, |player| LedgerMoments {
            began: player.began,
            first_step_start: player.first_step_start,
            first_step_end: player.first_step_end,
            peak: player.watch.peak().map(|peak| peak.time),
        })
    }

    /// Plays for good what happened before a time, of a recording that goes on: no more of that is to come, and no step
    /// begins there that is not among these.
    pub(crate) fn settle(&mut self, before: i64, every_step: &[StepWindow]) {
        self.sort();
        let end = self.events.partition_point(|event| event.time < before);
        if end == 0 {
            return;
        }
        let player = self.settled.get_or_insert_default();
        let stretches: Vec<Stretch> = Stretch::of_steps(every_step)
            .into_iter()
            .filter(|stretch| stretch.step.is_some() && stretch.from > player.stretch.from && stretch.from < before)
            .collect();
        player.play(&self.events[..end], &stretches, &self.places);
        self.events.drain(..end);
        if self.places.len() > MANY_PLACES {
            self.forget_places();
        }
    }

    /// Keeps the places that something is still at: there are new ones with every step.
    fn forget_places(&mut self) {
        let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
        let held =
            self.settled.iter_mut().flat_map(|player| player.state.live.values_mut().map(|held| &mut held.place));
        let pending = self.events.iter_mut().filter_map(|event| match &mut event.what {
            What::Alloc { place, .. } => Some(place),
            _ => None,
        });
        let mut places = Vec::new();
        for place in held.chain(pending) {
            let kept = &self.places[*place as usize];
            *place = *numbers.entry(*place).or_insert_with(|| {
                places.push(*kept);
                places.len() as u32 - 1
            });
        }
        self.numbers = places.iter().copied().zip(0..).collect();
        self.places = places;
    }
}
