//! The memory that is in use: what of its events still holds.

use std::collections::HashMap;

use crate::{ids::Nanos, tables::MemoryEvent, vocabulary::MemoryOperation};

/// What is told late is told within this time.
const LATEST: Nanos = Nanos(60 * Nanos::SECOND.0);

/// So many that are given back before it is told that they were taken are remembered.
const MOST_EARLY: usize = 4096;

/// The blocks that are allocated, and what the allocator has taken from the device, by their addresses.
#[derive(Default)]
pub(crate) struct StandingMemory {
    allocated: HashMap<u64, MemoryEvent>,
    reserved: HashMap<u64, MemoryEvent>,
    /// When something was given back of which it was not known that it was taken: that may be told yet.
    early: HashMap<(MemoryOperation, u64), Nanos>,
}

impl StandingMemory {
    /// Hears of an event. Those of several threads may come in another order than they happened.
    pub(crate) fn hear(&mut self, event: &MemoryEvent) {
        let blocks = match event.op {
            MemoryOperation::Alloc | MemoryOperation::Free => &mut self.allocated,
            MemoryOperation::Reserve | MemoryOperation::Release => &mut self.reserved,
        };
        let is_newer = |held: &MemoryEvent| held.time_ns <= event.time_ns;
        match event.op {
            MemoryOperation::Alloc | MemoryOperation::Reserve => {
                let end =
                    if event.op == MemoryOperation::Alloc { MemoryOperation::Free } else { MemoryOperation::Release };
                let is_over = self.early.remove(&(end, event.address)).is_some_and(|ended| ended >= event.time_ns);
                if !is_over && blocks.get(&event.address).is_none_or(is_newer) {
                    blocks.insert(event.address, *event);
                }
            }
            MemoryOperation::Free | MemoryOperation::Release => {
                if blocks.get(&event.address).is_some_and(is_newer) {
                    blocks.remove(&event.address);
                } else {
                    if self.early.len() >= MOST_EARLY {
                        self.early.clear();
                    }
                    self.early.insert((event.op, event.address), event.time_ns);
                }
            }
        }
    }

    /// The events that made it, as if they were of late: what frees any of it comes after them, however late that is told.
    pub(crate) fn told_at(&self, now: Nanos) -> Vec<MemoryEvent> {
        let mut events: Vec<MemoryEvent> = self.reserved.values().chain(self.allocated.values()).copied().collect();
        events.sort_by_key(|event| event.time_ns);
        let earliest = Nanos(now.0.saturating_sub(LATEST.0));
        events.iter_mut().for_each(|event| event.time_ns = event.time_ns.max(earliest));
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_is_not_told_whatever_the_order() {
        let event = |time: i64, op, address| MemoryEvent::new(Nanos(time), op, address, Some(8));
        let mut memory = StandingMemory::default();
        use MemoryOperation::{Alloc, Free, Release, Reserve};
        for (time, op, address) in [
            (1, Reserve, 1),
            (2, Alloc, 1),
            (3, Alloc, 2),
            (9, Alloc, 3),
            (4, Free, 1),
            // It was freed before it was allocated again, and that is told late.
            (8, Free, 3),
            (5, Reserve, 9),
            (6, Release, 9),
            // So is that this one was allocated at all.
            (8, Free, 4),
            (7, Alloc, 4),
        ] {
            memory.hear(&event(time, op, address));
        }
        let told = |now: i64| memory.told_at(Nanos(now)).iter().map(|event| (event.time_ns.0, event.address)).collect();
        let expected: Vec<(i64, u64)> = vec![(1, 1), (3, 2), (9, 3)];
        assert_eq!((told(10), told(LATEST.0 + 5)), (expected, vec![(5, 1), (5, 2), (9, 3)]));
    }
}
