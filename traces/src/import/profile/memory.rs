//! Memory events out of PyTorch's: what is there when a trace begins, what is taken and given back, and the totals.
//!
//! A trace tells totals beside each change. What they say was there before the first change is written as allocations at
//! the beginning: blocks that are freed later by their own addresses, and the rest as one block at address zero. So what
//! the events add up to is what PyTorch said, at every one of them. What memory is for, PyTorch does not say.

use std::collections::{BTreeMap, HashSet};

use super::annotation::TrainingContext;
use crate::{
    ids::Nanos,
    tables::{MemoryEvent, MemoryEvents},
    vocabulary::MemoryOperation,
};

/// A change that PyTorch's allocator told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryChange {
    pub(crate) time: Nanos,
    pub(crate) thread: Option<u32>,
    pub(crate) device: u32,
    pub(crate) address: u64,
    /// Less than nothing where it is freed.
    pub(crate) size: i64,
    /// What is allocated from then on.
    pub(crate) allocated: Option<u64>,
    /// What is taken from the device from then on.
    pub(crate) reserved: Option<u64>,
}

/// The events that changes come to. Both are in order. `begin` is when the trace begins, and `place` says where a thread was.
pub(crate) fn memory_events(
    changes: &[MemoryChange],
    begin: Nanos,
    mut place: impl FnMut(Option<u32>, Nanos) -> TrainingContext,
) -> MemoryEvents {
    let mut events = MemoryEvents::default();
    let mut devices: BTreeMap<u32, Reserved> = BTreeMap::new();
    add_what_was_there(changes, begin, &mut events, &mut devices);
    for change in changes {
        let TrainingContext { step, phase, .. } = place(change.thread, change.time);
        let event = |op, address, bytes| MemoryEvent { step, phase, ..event(change.time, op, address, bytes) };
        let reserved = devices.entry(change.device).or_insert_with(|| Reserved::on(change.device));
        // What is allocated was taken from the device before, and is freed before it is given back.
        reserved.grow(change.reserved, &mut |address, bytes| {
            events.push(&event(MemoryOperation::Reserve, address, Some(bytes)));
        });
        let op = if change.size > 0 { MemoryOperation::Alloc } else { MemoryOperation::Free };
        events.push(&event(op, change.address, Some(change.size.unsigned_abs())));
        reserved.shrink(change.reserved, &mut |address, kept| {
            events.push(&match kept {
                None => event(MemoryOperation::Release, address, None),
                Some(bytes) => event(MemoryOperation::Reserve, address, Some(bytes)),
            });
        });
    }
    events
}

fn event(time_ns: Nanos, op: MemoryOperation, address: u64, bytes: Option<u64>) -> MemoryEvent {
    MemoryEvent::new(time_ns, op, address, bytes)
}

/// Adds what the first changes say was there before them.
fn add_what_was_there(
    changes: &[MemoryChange],
    begin: Nanos,
    events: &mut MemoryEvents,
    devices: &mut BTreeMap<u32, Reserved>,
) {
    let mut rest: BTreeMap<u32, u64> = BTreeMap::new();
    for change in changes {
        if let (None, Some(reserved)) = (devices.get(&change.device), change.reserved) {
            let mut taken = Reserved::on(change.device);
            taken.grow(Some(reserved), &mut |address, bytes| {
                events.push(&event(begin, MemoryOperation::Reserve, address, Some(bytes)));
            });
            devices.insert(change.device, taken);
        }
        if let Some(before) = change.allocated.and_then(|total| total.checked_add_signed(change.size.checked_neg()?)) {
            rest.entry(change.device).or_insert(before);
        }
    }
    let mut seen = HashSet::new();
    for change in changes {
        // What is freed first was allocated before.
        if seen.insert(change.address) && change.size < 0 {
            let bytes = change.size.unsigned_abs();
            events.push(&event(begin, MemoryOperation::Alloc, change.address, Some(bytes)));
            rest.entry(change.device).and_modify(|rest| *rest = rest.saturating_sub(bytes));
        }
    }
    let rest: u64 = rest.values().fold(0, |sum, rest| sum.saturating_add(*rest));
    if rest > 0 {
        events.push(&event(begin, MemoryOperation::Alloc, 0, Some(rest)));
    }
}

/// What is taken from a device, as blocks at addresses that we make up: only the total is known.
struct Reserved {
    first_address: u64,
    blocks: Vec<(u64, u64)>,
    total: u64,
}

impl Reserved {
    fn on(device: u32) -> Reserved {
        Reserved { first_address: u64::from(device) << 32, blocks: Vec::new(), total: 0 }
    }

    fn add(&mut self, bytes: u64) -> u64 {
        let address = self.first_address + self.blocks.len() as u64;
        self.blocks.push((address, bytes));
        self.total += bytes;
        address
    }

    fn grow(&mut self, total: Option<u64>, reserve: &mut impl FnMut(u64, u64)) {
        if let Some(more) = total.and_then(|total| total.checked_sub(self.total)).filter(|more| *more > 0) {
            let address = self.add(more);
            reserve(address, more);
        }
    }

    /// Gives blocks back until no more than the total is left, and takes again what was too much of the last one.
    fn shrink(&mut self, total: Option<u64>, change: &mut impl FnMut(u64, Option<u64>)) {
        let Some(total) = total else { return };
        while let Some((address, bytes)) = self.blocks.pop_if(|_| self.total > total) {
            self.total -= bytes;
            change(address, None);
        }
        if self.total < total {
            let bytes = total - self.total;
            let address = self.add(bytes);
            change(address, Some(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn change(time: i64, address: u64, size: i64, allocated: u64, reserved: u64) -> MemoryChange {
        let (allocated, reserved) = (Some(allocated), Some(reserved));
        MemoryChange { time: Nanos(time), thread: None, device: 0, address, size, allocated, reserved }
    }

    /// What is allocated and what is taken from the device after each event, played again by address.
    fn totals(events: &MemoryEvents) -> Vec<(Nanos, u64, u64)> {
        let (mut live, mut taken) = (HashMap::new(), HashMap::new());
        let after = |event: MemoryEvent| {
            let bytes = event.bytes.unwrap_or(0);
            match event.op {
                MemoryOperation::Alloc => assert_eq!(live.insert(event.address, bytes), None),
                MemoryOperation::Free => assert_eq!(live.remove(&event.address), Some(bytes)),
                MemoryOperation::Reserve => assert_eq!(taken.insert(event.address, bytes), None),
                MemoryOperation::Release => assert!(taken.remove(&event.address).is_some()),
            }
            (event.time_ns, live.values().sum(), taken.values().sum())
        };
        events.rows().map(after).collect()
    }

    #[test]
    fn totals_by_hand() {
        let changes = [
            // 100 were allocated, of 200 that were taken: 30 of them are freed later.
            change(10, 7, 40, 140, 200),
            change(20, 9, -30, 110, 200),
            change(30, 8, 100, 210, 320),
            change(40, 8, -100, 110, 150),
        ];
        let events = memory_events(&changes, Nanos(5), |_, _| TrainingContext::default());
        let expected = [
            (5, 0, 200),
            (5, 30, 200),
            (5, 100, 200),
            (10, 140, 200),
            (20, 110, 200),
            (30, 110, 320),
            (30, 210, 320),
            (40, 110, 320),
            (40, 110, 200),
            (40, 110, 0),
            (40, 110, 150),
        ];
        assert_eq!(totals(&events), expected.map(|(time, allocated, reserved)| (Nanos(time), allocated, reserved)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever was there before, the events add up to what PyTorch said.
        #[test]
        fn events_add_up_to_the_totals(
            first in 0..20_usize, choices in prop::collection::vec((0..8_u64, 1..100_i64, 0..1000_u64), 20..60),
        ) {
            let mut live: HashMap<u64, i64> = HashMap::new();
            let mut changes = Vec::new();
            for (time, (address, size, spare)) in choices.into_iter().enumerate() {
                let size = live.remove(&address).map_or(size, |held| -held);
                if size > 0 {
                    live.insert(address, size);
                }
                let allocated = live.values().sum::<i64>() as u64;
                changes.push(change(time as i64, address + 1, size, allocated, allocated + spare));
            }
            let kept = changes.split_off(first);
            let after = totals(&memory_events(&kept, Nanos(-1), |_, _| TrainingContext::default()));
            for change in kept {
                let last = after.iter().rfind(|(time, ..)| *time == change.time).unwrap();
                prop_assert_eq!((Some(last.1), Some(last.2)), (change.allocated, change.reserved));
            }
        }

        #[test]
        fn any_changes_come_to_something(
            changes in prop::collection::vec((any::<i64>(), 0..3_u64, any::<i64>(), any::<u64>(), any::<u64>()), 0..20),
        ) {
            let changes: Vec<_> = changes
                .into_iter()
                .map(|(time, address, size, allocated, reserved)| change(time, address, size, allocated, reserved))
                .collect();
            let events = memory_events(&changes, Nanos(0), |_, _| TrainingContext::default());
            prop_assert!(events.len() >= changes.len());
        }
    }
}
