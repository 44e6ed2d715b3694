//! A rank's memory events, played again: what is live after each of them.

use std::collections::{BTreeMap, HashMap};

use polars::prelude::PlHashMap;
use stepscope_traces::{Layer, MemoryCategory, MemoryEvents, MemoryOperation, Phase, Step};

use super::{CategoryBytes, player::Player, stretch::Stretch};
use crate::{figures::Block, selection::StepRange, steps::StepWindow};

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

/// One event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) time: i64,
    address: u64,
    what: What,
}

/// What happened. Only what takes memory says how much, and what for.
#[derive(Clone, Copy, Debug)]
enum What {
    Alloc { bytes: u64, place: u32 },
    Free,
    Reserve { bytes: u64 },
    Release,
}

/// What a block is for, and where in the training it was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct AllocationPlace {
    pub(super) category: MemoryCategory,
    pub(super) step: Option<Step>,
    pub(super) phase: Option<Phase>,
    pub(super) layer: Option<Layer>,
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

    /// When the first event happened and when the peak was, of what has been played for good.
    pub(crate) fn began_and_peak(&self) -> (Option<i64>, Option<i64>) {
        let settled = self.settled.as_ref();
        (settled.and_then(|player| player.began), settled.and_then(|player| Some(player.watch.peak()?.time)))
    }

    /// Plays for good what happened before a time, of a recording that goes on: no more of that is to come, and no step
    /// begins there that is not among these.
    pub(crate) fn settle(&mut self, before: i64, every_step: &[StepWindow]) {
        self.sort();
        let end = self.events.partition_point(|event| event.time < before);
        if end == 0 {
            return;
        }
        let player = self.settled.get_or_insert_with(|| Player::new(Stretch::before_steps(StepRange::ALL)));
        let stretches: Vec<Stretch> = Stretch::of_steps(every_step, StepRange::ALL)
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

impl Event {
    /// Where in the training an allocation was made.
    pub(super) fn place<'a>(&self, places: &'a [AllocationPlace]) -> Option<&'a AllocationPlace> {
        match self.what {
            What::Alloc { place, .. } => Some(&places[place as usize]),
            _ => None,
        }
    }
}

/// What there is after some events.
#[derive(Clone, Default)]
pub(super) struct AllocatorState {
    /// By address, in polars' map: most of the time goes here, and it takes less than half of what std's does.
    live: PlHashMap<u64, Held>,
    segments: PlHashMap<u64, u64>,
    /// What is allocated.
    pub(super) bytes: CategoryBytes,
    /// All categories together.
    pub(super) allocated: u64,
    /// What is taken from the device; none before anything was.
    pub(super) reserved: Option<u64>,
    /// Events whose other half is missing.
    pub(super) unmatched: u64,
}

/// A live block.
#[derive(Clone, Copy)]
struct Held {
    bytes: u64,
    place: u32,
}

impl AllocatorState {
    /// Plays one event.
    pub(super) fn apply(&mut self, event: &Event, places: &[AllocationPlace]) {
        match event.what {
            What::Alloc { bytes, place } => {
                // Sizes in a file that somebody else made may add up to more than there are numbers for.
                let held = Held { bytes: bytes.min(u64::MAX - self.allocated), place };
                if let Some(lost) = self.live.insert(event.address, held) {
                    self.unmatched += u64::from(lost.bytes > 0);
                    self.subtract(lost, places);
                }
                self.bytes[places[place as usize].category as usize] += held.bytes;
                self.allocated += held.bytes;
            }
            What::Free => match self.live.remove(&event.address) {
                // Blocks of no bytes may all have one address, which the next of them to be freed names again.
                Some(held) if held.bytes == 0 => _ = self.live.insert(event.address, held),
                Some(held) => self.subtract(held, places),
                // Recording began after it was allocated.
                None => self.unmatched += 1,
            },
            What::Reserve { bytes } => {
                let reserved = self.reserved.unwrap_or(0);
                let bytes = bytes.min(u64::MAX - reserved);
                let lost = self.segments.insert(event.address, bytes);
                self.unmatched += u64::from(lost.is_some());
                self.reserved = Some(reserved + bytes - lost.unwrap_or(0));
            }
            What::Release => match self.segments.remove(&event.address) {
                Some(bytes) => self.reserved = self.reserved.map(|reserved| reserved - bytes),
                None => self.unmatched += 1,
            },
        }
    }

    fn subtract(&mut self, held: Held, places: &[AllocationPlace]) {
        self.bytes[places[held.place as usize].category as usize] -= held.bytes;
        self.allocated -= held.bytes;
    }

    /// What is live, with its address, in no order.
    pub(super) fn blocks(&self, places: &[AllocationPlace]) -> impl Iterator<Item = (u64, Block)> {
        self.live.iter().map(|(&address, held)| {
            let AllocationPlace { category, step, phase, layer } = places[held.place as usize];
            (address, Block { bytes: held.bytes, category, layer, phase, step })
        })
    }
}
