use std::collections::{BTreeMap, HashMap};

use stepscope_traces::{MemoryCategory, MemoryEvents, MemoryOperation};

/// What memory events come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    pub(crate) peak: u64,
    pub(crate) at_peak: BTreeMap<MemoryCategory, u64>,
    pub(crate) end: u64,
    pub(crate) at_end: BTreeMap<MemoryCategory, u64>,
    pub(crate) reserved: u64,
    pub(crate) reserved_peak: u64,
}

/// Plays events again: what is freed was allocated, what is released was reserved, and every block has a category.
pub(crate) fn replay(events: &MemoryEvents) -> Replay {
    let mut replay = Replay::default();
    let (mut blocks, mut segments) = (HashMap::new(), HashMap::new());
    let mut by_category: BTreeMap<MemoryCategory, u64> = BTreeMap::new();
    let mut latest = None;
    for event in events.rows() {
        assert!(latest <= Some(event.time_ns), "events are in order");
        latest = Some(event.time_ns);
        let bytes = event.bytes.unwrap();
        match event.op {
            MemoryOperation::Alloc => {
                let category = event.category.unwrap();
                assert_eq!(blocks.insert(event.address, (bytes, category)), None);
                *by_category.entry(category).or_default() += bytes;
                replay.end += bytes;
            }
            MemoryOperation::Free => {
                let (held, category) = blocks.remove(&event.address).unwrap();
                assert_eq!(held, bytes);
                *by_category.get_mut(&category).unwrap() -= bytes;
                replay.end -= bytes;
            }
            MemoryOperation::Reserve => {
                assert_eq!(segments.insert(event.address, bytes), None);
                replay.reserved += bytes;
            }
            MemoryOperation::Release => {
                assert_eq!(segments.remove(&event.address), Some(bytes));
                replay.reserved -= bytes;
            }
        }
        assert_eq!(by_category.values().sum::<u64>(), replay.end);
        replay.reserved_peak = replay.reserved_peak.max(replay.reserved);
        if replay.end > replay.peak {
            replay.peak = replay.end;
            replay.at_peak = by_category.clone();
        }
    }
    replay.at_end = by_category.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    replay.at_peak.retain(|_, bytes| *bytes > 0);
    replay
}

/// The category of the first block at each address.
pub(crate) fn categories(events: &MemoryEvents) -> BTreeMap<u64, MemoryCategory> {
    let mut categories = BTreeMap::new();
    for event in events.rows().filter(|event| event.op == MemoryOperation::Alloc) {
        categories.entry(event.address).or_insert(event.category.unwrap());
    }
    categories
}
