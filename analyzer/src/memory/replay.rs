//! A rank's memory events, played again: what is live after each of them.

use std::collections::HashMap;

use polars::prelude::PlHashMap;
use stepscope_traces::{Layer, MemoryCategory, MemoryEvents, MemoryOperation, Phase, Step};

use super::{Block, CategoryBytes};

/// Collects a rank's memory events, in as few bytes as the questions need.
#[derive(Default)]
pub(crate) struct MemoryReplay {
    /// By time, once they are sorted.
    pub(super) events: Vec<Event>,
    pub(super) places: Vec<Place>,
    numbers: HashMap<Place, u32>,
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
pub(super) struct Place {
    pub(super) category: MemoryCategory,
    pub(super) step: Option<Step>,
    pub(super) phase: Option<Phase>,
    pub(super) layer: Option<Layer>,
}

impl MemoryReplay {
    /// Takes some events.
    pub(crate) fn take(&mut self, events: &MemoryEvents) {
        self.events.reserve(events.len());
        // Neighbours of one category are of one place, mostly.
        let mut last: [Option<(Place, u32)>; MemoryCategory::ALL.len()] = Default::default();
        for row in 0..events.len() {
            // A block of no known size counts for nothing, and is known when it is freed.
            let bytes = || events.bytes.get(row).unwrap_or(0);
            let what = match events.op.get(row) {
                MemoryOperation::Alloc => {
                    let place = Place {
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

    fn number(&mut self, place: Place) -> u32 {
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

    /// Where in the training an allocation was made.
    pub(super) fn place(&self, event: &Event) -> Option<&Place> {
        match event.what {
            What::Alloc { place, .. } => Some(&self.places[place as usize]),
            _ => None,
        }
    }
}

/// What there is after some events.
#[derive(Default)]
pub(super) struct State {
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

impl State {
    /// Plays one event.
    pub(super) fn apply(&mut self, event: &Event, places: &[Place]) {
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

    fn subtract(&mut self, held: Held, places: &[Place]) {
        self.bytes[places[held.place as usize].category as usize] -= held.bytes;
        self.allocated -= held.bytes;
    }

    /// What is live, with its address, in no order.
    pub(super) fn blocks(&self, places: &[Place]) -> impl Iterator<Item = (u64, Block)> {
        self.live.iter().map(|(&address, held)| {
            let Place { category, step, phase, layer } = places[held.place as usize];
            (address, Block { bytes: held.bytes, category, layer, phase, step })
        })
    }
}
