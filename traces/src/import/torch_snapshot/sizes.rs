//! How large blocks are, as PyTorch counts them: what was asked for, rounded up, and what is left of a free block where that
//! is not worth a block of its own.
//!
//! A history has what was asked for. But a block is cut from the beginning of a free one, which reaches to the next block or
//! to the end of its segment. So its size follows from its address, its neighbour and PyTorch's rule for cutting.

use std::collections::{BTreeMap, HashMap};

use super::{
    document::DeviceHistory,
    lives::Lives,
    records::{Action, Event},
};

/// Sizes are multiples of this.
pub(super) const GRAIN: u64 = 512;
/// Larger blocks are in the pool of the large ones.
pub(super) const LARGEST_SMALL: u64 = 1 << 20;

/// What was asked for, rounded up.
fn rounded(bytes: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(GRAIN).unwrap_or(bytes)
}

impl Lives {
    /// Gives every block the size that PyTorch counts it with.
    pub(super) fn round_up(&mut self, history: &DeviceHistory) {
        let mut heap = Heap::before(history);
        let ends = history.end.iter().flat_map(|end| &end.blocks);
        let in_the_end: HashMap<u64, u64> = ends.map(|(address, block)| (*address, block.bytes)).collect();
        for life in self.lives.iter_mut().filter(|life| life.from.is_none()) {
            let known = in_the_end.get(&life.address).filter(|_| life.to.is_none());
            life.bytes = known.copied().unwrap_or_else(|| rounded(life.bytes));
            heap.blocks.insert(life.address, life.bytes);
        }
        let mut handed_out = self.lives.iter_mut().filter(|life| life.from.is_some());
        for event in &history.events {
            let size = heap.play(event);
            if let (Some(size), Some(life)) = (size, size.and_then(|_| handed_out.next())) {
                life.bytes = size;
            }
        }
    }
}

/// Segments and the blocks in them.
#[derive(Default)]
struct Heap {
    segments: BTreeMap<u64, u64>,
    blocks: BTreeMap<u64, u64>,
    /// Segments are mapped in parts, which together are one.
    is_expandable: bool,
}

impl Heap {
    /// What must have been taken before a history began.
    fn before(history: &DeviceHistory) -> Heap {
        let mut heap = Heap { is_expandable: history.has_expandable_segments, ..Heap::default() };
        let mut taken: HashMap<u64, bool> = HashMap::new();
        for event in &history.events {
            match (event.action, event.address) {
                (Action::Reserve, Some(address)) => _ = taken.insert(address, true),
                (Action::Release, Some(address)) if !taken.insert(address, false).unwrap_or(false) => {
                    heap.segments.insert(address, event.bytes);
                }
                _ => {}
            }
        }
        let ends = history.end.iter().flat_map(|end| &end.segments);
        heap.segments.extend(ends.copied().filter(|(address, _)| !taken.contains_key(address)));
        heap
    }

    /// Plays an event; how large the block is that it hands out, if it does.
    fn play(&mut self, event: &Event) -> Option<u64> {
        let address = event.address?;
        match event.action {
            Action::Reserve => _ = self.segments.insert(address, event.bytes),
            Action::Release => _ = self.segments.remove(&address),
            Action::FreeCompleted => _ = self.blocks.remove(&address),
            Action::Alloc => {
                let size = self.size(address, event.bytes);
                self.blocks.insert(address, size);
                return Some(size);
            }
            _ => {}
        }
        None
    }

    fn size(&self, address: u64, asked: u64) -> u64 {
        let size = rounded(asked);
        let Some(free) = self.free_from(address).filter(|free| *free > size) else { return size };
        let is_cut = match size <= LARGEST_SMALL || self.is_expandable {
            true => free - size >= GRAIN,
            false => free - size > LARGEST_SMALL,
        };
        if is_cut { size } else { free }
    }

    /// How much is free from an address on.
    fn free_from(&self, address: u64) -> Option<u64> {
        let (begin, bytes) = self.segments.range(..=address).next_back()?;
        let mut end = begin.checked_add(*bytes).filter(|end| *end > address)?;
        while let Some(more) = self.segments.get(&end).filter(|more| self.is_expandable && **more > 0) {
            end = end.checked_add(*more)?;
        }
        let next = self.blocks.range(address.checked_add(1)?..end).next();
        Some(next.map_or(end, |(next, _)| *next) - address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sizes(is_expandable: bool, events: &[(Action, u64, u64)]) -> Vec<u64> {
        let event = |&(action, address, bytes): &(Action, u64, u64)| Event {
            action,
            address: Some(address),
            bytes,
            time_us: None,
            stack: None,
            stream: 0,
            device_free: None,
        };
        let events: Vec<Event> = events.iter().map(event).collect();
        let history = DeviceHistory { events, has_expandable_segments: is_expandable, ..DeviceHistory::default() };
        let mut lives = Lives::of(&history);
        lives.round_up(&history);
        lives.lives.iter().map(|life| life.bytes).collect()
    }

    #[test]
    fn a_block_is_what_is_cut_off() {
        use Action::{Alloc, FreeCompleted, Release, Reserve};
        let small = [(Reserve, 0, 2 * MIB), (Alloc, 0, 1), (Alloc, 512, 1000), (FreeCompleted, 0, 1), (Alloc, 0, 100)];
        assert_eq!(sizes(false, &small), [512, 1024, 512]);
        let large = [
            (Reserve, 0, 20 * MIB),
            (Alloc, 0, 10 * MIB),
            (Alloc, 10 * MIB, 9 * MIB + MIB / 2),
            (FreeCompleted, 0, 10 * MIB),
            // Half a mebibyte less than the free block before the other one: not worth a block of its own.
            (Alloc, 0, 10 * MIB - MIB / 2),
        ];
        assert_eq!(sizes(false, &large), [10 * MIB, 10 * MIB, 10 * MIB]);
        assert_eq!(sizes(true, &large), [10 * MIB, 9 * MIB + MIB / 2, 10 * MIB - MIB / 2]);
        let from_before = [(Alloc, 3 * MIB, 1 + MIB), (Release, 2 * MIB, 20 * MIB), (Alloc, 3 * MIB, 2 * MIB)];
        assert_eq!(sizes(false, &from_before), [MIB + 512, 2 * MIB]);
    }

    #[test]
    fn absurd_sizes_do_no_harm() {
        use Action::{Alloc, Reserve};
        let events = [(Reserve, 1, u64::MAX), (Alloc, u64::MAX, u64::MAX), (Alloc, 5, u64::MAX), (Alloc, 0, 0)];
        assert_eq!(sizes(true, &events), [u64::MAX, u64::MAX, 512]);
    }
}
