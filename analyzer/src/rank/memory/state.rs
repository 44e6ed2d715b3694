//! What is live after each event of a rank's memory.

use hashbrown::HashMap;
use stepscope_traces::{Layer, MemoryCategory, NameId, Phase, Step};

use super::CategoryBytes;

/// One event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) time: i64,
    pub(super) address: u64,
    pub(super) what: What,
}

/// What happened. Only what takes memory says how much, and what for.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
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
    pub(super) site: Option<NameId>,
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
    /// By address, in hashbrown's map: most of the time goes here, and it takes less than half of what std's does.
    pub(super) live: HashMap<u64, Held>,
    segments: HashMap<u64, u64>,
    /// What is allocated.
    pub(super) bytes: CategoryBytes,
    /// All categories together.
    pub(super) allocated: u64,
    /// What is taken from the device; none before anything was.
    pub(super) reserved: Option<u64>,
    /// Events whose other half is missing.
    pub(super) unmatched: u64,
}

/// A live block, with its address and its place.
#[derive(Clone, Copy)]
pub(super) struct LiveBlock {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) place: AllocationPlace,
}

/// A live block.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) bytes: u64,
    /// Which of the places.
    pub(super) place: u32,
}

/// What an event changed.
#[derive(Clone, Copy, Default)]
pub(super) struct Change {
    pub(super) gone: Option<Held>,
    pub(super) come: Option<Held>,
}

impl AllocatorState {
    /// Plays one event, and says which blocks that changed.
    pub(super) fn apply(&mut self, event: &Event, places: &[AllocationPlace]) -> Change {
        let mut change = Change::default();
        match event.what {
            What::Alloc { bytes, place } => {
                // Sizes in a file that somebody else made may add up to more than there are numbers for.
                let held = Held { bytes: bytes.min(u64::MAX - self.allocated), place };
                if let Some(lost) = self.live.insert(event.address, held) {
                    self.unmatched += u64::from(lost.bytes > 0);
                    self.subtract(lost, places);
                    change.gone = Some(lost);
                }
                self.bytes[places[place as usize].category as usize] += held.bytes;
                self.allocated += held.bytes;
                change.come = Some(held);
            }
            What::Free => match self.live.remove(&event.address) {
                // Blocks of no bytes may all have one address, which the next of them to be freed names again.
                Some(held) if held.bytes == 0 => _ = self.live.insert(event.address, held),
                Some(held) => {
                    self.subtract(held, places);
                    change.gone = Some(held);
                }
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
        change
    }

    fn subtract(&mut self, held: Held, places: &[AllocationPlace]) {
        self.bytes[places[held.place as usize].category as usize] -= held.bytes;
        self.allocated -= held.bytes;
    }

    /// What is live, in no order.
    pub(super) fn blocks(&self, places: &[AllocationPlace]) -> impl Iterator<Item = LiveBlock> {
        self.live.iter().map(|(&address, held)| LiveBlock {
            address,
            bytes: held.bytes,
            place: places[held.place as usize],
        })
    }
}
