//! Whether PyTorch's expandable segments would have had room where memory ran out.
//!
//! The history is played on a model of them: each stream has two ranges of addresses that grow, one for small blocks and
//! one for large ones; a block goes where it fits best. Memory is mapped into a range page by page, and pages that no block
//! is on go back to the device when it runs short. So there would have been room if all pages with a block on them, and as
//! many as were asked for, are no more than what there was.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    document::DeviceHistory,
    lives::Lives,
    ranges::{Ranges, range_change},
    records::{Action, Event},
    sizes::{GRAIN, LARGEST_SMALL},
};

const SMALL_PAGE: u64 = 2 << 20;
const LARGE_PAGE: u64 = 20 << 20;
/// Blocks that are not smaller have segments of their own.
const LEAST_OWN_SEGMENT: u64 = 10 << 20;

/// Whether what was asked for at an event would have been there. Nobody knows where it is not told what the device had left, or
/// where that was enough: then the program limits itself. And there is nothing to be had where the segments were of this kind
/// already.
pub(super) fn would_do(history: &DeviceHistory, place: usize) -> Option<bool> {
    let asked = &history.events[place];
    let free = asked.device_free.filter(|free| *free < segment_for(asked.bytes) && !history.has_expandable_segments)?;
    let held = history.end.as_ref().map_or(&[][..], |end| end.segments.as_slice());
    let mut ranges = Ranges::before(history.events.iter().filter_map(range_change), held);
    let changes = history.events[..place].iter().filter_map(range_change);
    changes.for_each(|change| ranges.change(change, &mut Vec::new()));
    let reserved: u64 = ranges.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(bytes));
    let mut model = Model::default();
    for life in Lives::of(history).there_from_the_beginning() {
        model.allocate(life.address, life.bytes, 0);
    }
    history.events[..place].iter().for_each(|event| model.play(event));
    let needed = model.mapped().saturating_add(page_of(asked.bytes).pages(asked.bytes));
    Some(needed <= reserved.saturating_add(free))
}

/// How large the segment is that PyTorch takes from the device for a block.
fn segment_for(bytes: u64) -> u64 {
    if bytes <= LARGEST_SMALL {
        SMALL_PAGE
    } else if bytes < LEAST_OWN_SEGMENT {
        LARGE_PAGE
    } else {
        bytes.div_ceil(SMALL_PAGE).saturating_mul(SMALL_PAGE)
    }
}

/// The ranges of all streams, and where in them the block of each address is.
#[derive(Default)]
struct Model {
    ranges: HashMap<(u64, PageSize), Range>,
    blocks: HashMap<u64, ((u64, PageSize), u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PageSize(u64);

fn page_of(bytes: u64) -> PageSize {
    PageSize(if bytes <= LARGEST_SMALL { SMALL_PAGE } else { LARGE_PAGE })
}

impl PageSize {
    /// The bytes of the pages that so many bytes take.
    fn pages(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.0).saturating_mul(self.0)
    }
}

impl Model {
    fn play(&mut self, event: &Event) {
        match (event.action, event.address) {
            (Action::Alloc, Some(address)) => self.allocate(address, event.bytes, event.stream),
            (Action::FreeCompleted, Some(address)) => self.free(address),
            _ => {}
        }
    }

    fn allocate(&mut self, address: u64, bytes: u64, stream: u64) {
        self.free(address);
        let key = (stream, page_of(bytes));
        // Sizes that no device has would not add up.
        let bytes = bytes.clamp(1, 1 << 50).div_ceil(GRAIN) * GRAIN;
        let begin = self.ranges.entry(key).or_default().take(bytes);
        self.blocks.insert(address, (key, begin, bytes));
    }

    fn free(&mut self, address: u64) {
        if let Some((key, begin, bytes)) = self.blocks.remove(&address) {
            self.ranges.entry(key).or_default().give_back(begin, bytes);
        }
    }

    /// The bytes of the pages with a block on them.
    fn mapped(&self) -> u64 {
        let mut blocks: Vec<(u64, PageSize, u64, u64)> =
            self.blocks.values().map(|((stream, page), begin, bytes)| (*stream, *page, *begin, *bytes)).collect();
        blocks.sort_unstable_by_key(|(stream, page, begin, _)| (*stream, page.0, *begin));
        let (mut mapped, mut last) = (0_u64, None);
        for (stream, page, begin, bytes) in blocks {
            let (first, end) = (begin / page.0, (begin + bytes).div_ceil(page.0));
            let from = match last {
                Some((same, end)) if same == (stream, page) => first.max(end),
                _ => first,
            };
            mapped = mapped.saturating_add((end.saturating_sub(from)).saturating_mul(page.0));
            last = Some(((stream, page), end.max(from)));
        }
        mapped
    }
}

/// A range of addresses that grows.
#[derive(Default)]
struct Range {
    end: u64,
    /// What is free, by where it begins, and by how long it is.
    free: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
}

impl Range {
    fn take(&mut self, bytes: u64) -> u64 {
        let fits = self.by_length.range((bytes, 0)..).next().copied();
        let Some((length, begin)) = fits else {
            // What is free at the end grows.
            let last = self.free.iter().next_back().map(|(begin, length)| (*begin, *length));
            let begin = last.filter(|(begin, length)| begin + length == self.end).map_or(self.end, |(begin, _)| begin);
            self.remove(begin);
            self.end = begin + bytes;
            return begin;
        };
        self.remove(begin);
        if length > bytes {
            self.insert(begin + bytes, length - bytes);
        }
        begin
    }

    fn give_back(&mut self, mut begin: u64, mut bytes: u64) {
        if let Some((before, length)) = self.free.range(..begin).next_back().map(|(before, length)| (*before, *length))
            && before + length == begin
        {
            self.remove(before);
            (begin, bytes) = (before, bytes + length);
        }
        if let Some(length) = self.remove(begin + bytes) {
            bytes += length;
        }
        self.insert(begin, bytes);
    }

    fn insert(&mut self, begin: u64, length: u64) {
        self.free.insert(begin, length);
        self.by_length.insert((length, begin));
    }

    fn remove(&mut self, begin: u64) -> Option<u64> {
        let length = self.free.remove(&begin)?;
        self.by_length.remove(&(length, begin));
        Some(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn event(action: Action, address: u64, bytes: u64) -> Event {
        let (address, device_free) = (Some(address), Some(bytes).filter(|_| action == Action::OutOfMemory).map(|_| 0));
        Event { action, address, bytes, time_us: None, stack: None, stream: 0, device_free }
    }

    fn history(events: Vec<Event>) -> DeviceHistory {
        DeviceHistory { events, ..DeviceHistory::default() }
    }

    /// Segments of 30 MiB with three blocks each, of which some go; then the device has nothing left.
    fn asked(is_freed: impl Fn(u64) -> bool, bytes: u64) -> Option<bool> {
        let mut events = Vec::new();
        for block in 0..30 {
            if block % 3 == 0 {
                events.push(event(Action::Reserve, block * 10 * MIB, 30 * MIB));
            }
            events.push(event(Action::Alloc, block * 10 * MIB, 10 * MIB));
        }
        let freed = (0..30).filter(|block| is_freed(*block));
        events.extend(freed.map(|block| event(Action::FreeCompleted, block * 10 * MIB, 10 * MIB)));
        events.push(event(Action::OutOfMemory, 0, bytes));
        let place = events.len() - 1;
        would_do(&history(events), place)
    }

    #[test]
    fn whole_pages_can_be_used_for_something_else() {
        // Every segment keeps one block, so that none of them goes back; 200 of 300 MiB are unused.
        assert_eq!(asked(|block| block % 3 != 0, 100 * MIB), Some(true));
        assert_eq!(
            asked(|block| block % 3 != 0, 120 * MIB),
            Some(false),
            "the blocks that stay are on 10 pages of 20 MiB"
        );
        assert_eq!(asked(|_| false, MIB), Some(false));
        assert_eq!(asked(|_| true, 300 * MIB), Some(true));
    }

    #[test]
    fn nothing_is_said_where_nothing_is_known() {
        let unknown = Event { device_free: None, ..event(Action::OutOfMemory, 0, 1) };
        assert_eq!(would_do(&history(vec![unknown]), 0), None);
        let already =
            DeviceHistory { has_expandable_segments: true, ..history(vec![event(Action::OutOfMemory, 0, 1)]) };
        assert_eq!(would_do(&already, 0), None);
        for (asked, segment) in [(1, 2 * MIB), (6 * MIB, 20 * MIB), (11 * MIB + 1, 12 * MIB)] {
            let left = |free| Event { device_free: Some(free), ..event(Action::OutOfMemory, 0, asked) };
            assert_eq!(would_do(&history(vec![left(segment)]), 0), None, "the program limits itself");
            assert!(would_do(&history(vec![left(segment - 1)]), 0).is_some());
        }
    }

    proptest! {
        #[test]
        fn blocks_never_lie_on_each_other(steps in prop::collection::vec((0..40_u64, 1..3 * MIB), 0..300)) {
            let mut model = Model::default();
            for (address, bytes) in steps {
                if address % 3 == 0 { model.free(address / 3) } else { model.allocate(address / 3, bytes, address % 2) }
                let mut blocks: Vec<_> =
                    model.blocks.values().map(|((stream, page), begin, bytes)| ((*stream, page.0), *begin, *bytes)).collect();
                blocks.sort_unstable();
                for pair in blocks.windows(2) {
                    prop_assert!(pair[0].0 != pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1);
                }
                let mut pages = BTreeSet::new();
                for ((stream, page), begin, bytes) in blocks {
                    pages.extend((begin / page..(begin + bytes).div_ceil(page)).map(|number| (stream, page, number)));
                }
                prop_assert_eq!(model.mapped(), pages.iter().map(|(_, page, _)| page).sum::<u64>());
            }
        }
    }
}
