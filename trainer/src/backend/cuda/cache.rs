//! A caching allocator: takes segments of memory, hands out blocks of them, and keeps what comes back for the next.

use std::collections::{BTreeMap, BTreeSet};

/// Blocks begin and end at multiples of this.
const GRAIN: u64 = 512;
/// Smaller blocks have segments of their own, so that they do not break up large ones.
const LARGE: u64 = 1 << 20;
const SMALL_SEGMENT: u64 = 2 << 20;
/// Larger blocks have a segment each.
const LARGE_SEGMENT: u64 = 32 << 20;
/// Segments are whole pages of the device.
const PAGE: u64 = 2 << 20;

/// Where segments come from.
pub(crate) trait Source {
    /// Allocates this many bytes, if they are available.
    fn take(&mut self, bytes: u64) -> Option<u64>;
    /// Waits until what was given back is there to be taken.
    fn settle(&mut self);
    /// Gives a segment back.
    fn give_back(&mut self, address: u64, bytes: u64);
}

/// The allocator. Work that uses a block is ordered by a stream, so a block that came back can be handed out at once.
#[derive(Default)]
pub(crate) struct Cache {
    /// Every block of every segment, by address.
    blocks: BTreeMap<u64, Block>,
    /// Free ones of small and large segments, by size and address: the first that fits fits best.
    free: [BTreeSet<(u64, u64)>; 2],
}

#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u64,
    free: bool,
    class: Class,
    /// Whether a segment begins here.
    begins_segment: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Small,
    Large,
}

impl Class {
    fn of(bytes: u64) -> Class {
        if bytes < LARGE { Class::Small } else { Class::Large }
    }

    fn segment(self, bytes: u64) -> u64 {
        match self {
            Class::Small => SMALL_SEGMENT,
            Class::Large => bytes.next_multiple_of(PAGE).max(LARGE_SEGMENT),
        }
    }
}

impl Cache {
    /// Hands out a block, if the source has as much; before it says no, it gives back all that is kept for nothing.
    pub(crate) fn allocate(&mut self, bytes: u64, source: &mut impl Source) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(GRAIN)?;
        let class = Class::of(bytes);
        let fits = self.free[class as usize].range((bytes, 0)..).next().copied();
        let (there, address) = match fits {
            Some(block) => block,
            None => self.take_segment(class, bytes, source)?,
        };
        self.free[class as usize].remove(&(there, address));
        let block = self.blocks.get_mut(&address)?;
        (block.bytes, block.free) = (bytes, false);
        if there > bytes {
            self.add_free(address + bytes, Block { bytes: there - bytes, free: true, class, begins_segment: false });
        }
        Some(address)
    }

    fn take_segment(&mut self, class: Class, bytes: u64, source: &mut impl Source) -> Option<(u64, u64)> {
        let (usual, least) = (class.segment(bytes), bytes.next_multiple_of(PAGE));
        let taken = source.take(usual).map(|address| (usual, address)).or_else(|| {
            self.give_back_unused(source);
            source.settle();
            [usual, least].into_iter().find_map(|bytes| Some((bytes, source.take(bytes)?)))
        });
        let (bytes, address) = taken?;
        self.add_free(address, Block { bytes, free: true, class, begins_segment: true });
        Some((bytes, address))
    }

    /// Takes a block back. The address is one that was handed out.
    pub(crate) fn free(&mut self, mut address: u64) {
        let Some(mut block) = self.blocks.remove(&address) else { return };
        block.free = true;
        let next = self.blocks.get(&(address + block.bytes)).filter(|next| next.free && !next.begins_segment);
        if let Some(next) = next.copied() {
            self.remove_free(address + block.bytes, next);
            block.bytes += next.bytes;
        }
        let before = self.blocks.range(..address).next_back().map(|(address, before)| (*address, *before));
        if let Some((start, before)) = before
            && before.free
            && !block.begins_segment
        {
            self.remove_free(start, before);
            (address, block) = (start, Block { bytes: before.bytes + block.bytes, ..before });
        }
        self.add_free(address, block);
    }

    /// Gives back segments of which nothing is handed out.
    pub(crate) fn give_back_unused(&mut self, source: &mut impl Source) {
        let begins = |address: u64| self.blocks.get(&address).is_none_or(|block| block.begins_segment);
        let whole = |(address, block): (&u64, &Block)| {
            // A free segment is one block: what follows it, if anything, begins another.
            (block.free && block.begins_segment && begins(address + block.bytes)).then_some((*address, *block))
        };
        let unused: Vec<_> = self.blocks.iter().filter_map(whole).collect();
        for (address, block) in unused {
            self.remove_free(address, block);
            source.give_back(address, block.bytes);
        }
    }

    fn add_free(&mut self, address: u64, block: Block) {
        self.free[block.class as usize].insert((block.bytes, address));
        self.blocks.insert(address, block);
    }

    fn remove_free(&mut self, address: u64, block: Block) {
        self.free[block.class as usize].remove(&(block.bytes, address));
        self.blocks.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A device with so much memory left.
    struct Device {
        left: u64,
        next: u64,
        segments: BTreeMap<u64, u64>,
    }

    impl Device {
        fn new(left: u64) -> Device {
            Device { left, next: 1 << 32, segments: BTreeMap::new() }
        }
    }

    impl Source for Device {
        fn take(&mut self, bytes: u64) -> Option<u64> {
            self.left = self.left.checked_sub(bytes)?;
            let address = self.next;
            // Segments may or may not touch.
            self.next += bytes + if bytes == SMALL_SEGMENT { PAGE } else { 0 };
            self.segments.insert(address, bytes);
            Some(address)
        }

        fn settle(&mut self) {}

        fn give_back(&mut self, address: u64, bytes: u64) {
            assert_eq!(self.segments.remove(&address), Some(bytes), "a segment goes back as it came");
            self.left += bytes;
        }
    }

    #[test]
    fn what_came_back_is_handed_out_again() {
        let (mut cache, mut device) = (Cache::default(), Device::new(1 << 40));
        let first = cache.allocate(100 << 20, &mut device).unwrap();
        cache.free(first);
        assert_eq!(cache.allocate(100 << 20, &mut device), Some(first));
        assert_eq!(device.segments.len(), 1);
    }

    #[test]
    fn small_blocks_leave_large_segments_alone() {
        let (mut cache, mut device) = (Cache::default(), Device::new(1 << 40));
        let large = cache.allocate(64 << 20, &mut device).unwrap();
        cache.free(large);
        cache.allocate(1000, &mut device).unwrap();
        assert_eq!(cache.allocate(64 << 20, &mut device), Some(large));
    }

    #[test]
    fn what_is_kept_for_nothing_goes_back_before_it_says_no() {
        let (mut cache, mut device) = (Cache::default(), Device::new(100 << 20));
        let block = cache.allocate(60 << 20, &mut device).unwrap();
        cache.free(block);
        assert!(cache.allocate(80 << 20, &mut device).is_some(), "not both, but one after the other");
        assert_eq!(cache.allocate(80 << 20, &mut device), None);
        assert!(cache.allocate(18 << 20, &mut device).is_some(), "no whole segment, but enough");
        assert_eq!(cache.allocate(u64::MAX, &mut device), None);
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_of_it_goes_back(
            sizes in proptest::collection::vec((1_u64..100 << 20, any::<proptest::sample::Index>(), any::<bool>()), 1..200)
        ) {
            let (mut cache, mut device) = (Cache::default(), Device::new(1 << 40));
            let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
            for (bytes, which, free) in sizes {
                // Both classes, many sizes.
                let bytes = if bytes % 3 == 0 { bytes % 5000 + 1 } else { bytes };
                if free && !taken.is_empty() {
                    let address = *taken.keys().nth(which.index(taken.len())).unwrap();
                    taken.remove(&address);
                    cache.free(address);
                } else {
                    let address = cache.allocate(bytes, &mut device).unwrap();
                    let before = taken.range(..=address).next_back();
                    prop_assert!(before.is_none_or(|(start, bytes)| start + bytes <= address));
                    let after = taken.range(address..).next();
                    prop_assert!(after.is_none_or(|(start, _)| address + bytes <= *start));
                    let (segment, length) = device.segments.range(..=address).next_back().unwrap();
                    prop_assert!(address + bytes <= segment + length, "within a segment");
                    taken.insert(address, bytes);
                }
            }
            taken.into_keys().for_each(|address| cache.free(address));
            cache.give_back_unused(&mut device);
            prop_assert!(device.segments.is_empty(), "{:?}", cache.blocks);
        }
    }
}
