//! How much memory of the device each holder has, as the process's calls say.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex},
};

use stepscope_traces::{MemoryHolder, Nanos};

use crate::lock::lock;

/// What is beyond this is not told apart, and nobody's.
const MOST_BLOCKS: usize = 1 << 16;
/// Of more changes than this, between two looks, only the last of each holder is told.
const MOST_CHANGES: usize = 1024;

/// What the process holds.
static HELD: LazyLock<Mutex<HeldMemory>> = LazyLock::new(Mutex::default);

/// A block of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Block {
    Address(u64),
    Handle(u64),
}

/// How much a holder has from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldChange {
    pub(crate) time: Nanos,
    pub(crate) holder: MemoryHolder,
    pub(crate) bytes: u64,
}

/// Blocks by whoever holds them, and changes that nobody has been told of.
#[derive(Default)]
pub(crate) struct HeldMemory {
    /// Whose, how large, and how often it is held.
    blocks: HashMap<Block, (MemoryHolder, u64, u32)>,
    sums: [u64; MemoryHolder::ALL.len()],
    changes: Vec<HeldChange>,
}

/// Works on what this process holds.
pub(crate) fn with<R>(action: impl FnOnce(&mut HeldMemory) -> R) -> R {
    action(&mut lock(&HELD))
}

impl HeldMemory {
    /// A block was handed out. If its place was taken, nobody saw that come back.
    pub(crate) fn take(&mut self, time: Nanos, block: Block, holder: MemoryHolder, bytes: u64) {
        if self.blocks.len() >= MOST_BLOCKS && !self.blocks.contains_key(&block) {
            return;
        }
        if let Some((before, bytes, _)) = self.blocks.insert(block, (holder, bytes, 1)) {
            self.change(time, before, |sum| sum.saturating_sub(bytes));
        }
        self.change(time, holder, |sum| sum.saturating_add(bytes));
    }

    /// A block is held once more.
    pub(crate) fn hold(&mut self, block: Block) {
        self.blocks.entry(block).and_modify(|(_, _, times)| *times = times.saturating_add(1));
    }

    /// A block came back, if it is held no more. One that is not known was handed out before anybody looked.
    pub(crate) fn give_back(&mut self, time: Nanos, block: Block) {
        let Some((holder, bytes, times)) = self.blocks.get_mut(&block) else { return };
        *times -= 1;
        if *times == 0 {
            let (holder, bytes) = (*holder, *bytes);
            self.blocks.remove(&block);
            self.change(time, holder, |sum| sum.saturating_sub(bytes));
        }
    }

    /// A holder has so much.
    pub(crate) fn set(&mut self, time: Nanos, holder: MemoryHolder, bytes: u64) {
        if self.sum(holder) != bytes {
            self.change(time, holder, |_| bytes);
        }
    }

    /// How much a holder has.
    pub(crate) fn sum(&self, holder: MemoryHolder) -> u64 {
        self.sums[holder as usize]
    }

    /// Tells everything anew. That modules are told, be it 0, says that somebody looked.
    pub(crate) fn tell_all(&mut self, time: Nanos) {
        let held =
            MemoryHolder::ALL.into_iter().map(|holder| HeldChange { time, holder, bytes: self.sums[holder as usize] });
        self.changes = held.filter(|change| change.bytes > 0 || change.holder == MemoryHolder::Modules).collect();
    }

    /// What changed since this was asked last.
    pub(crate) fn take_changes(&mut self) -> Vec<HeldChange> {
        std::mem::take(&mut self.changes)
    }

    fn change(&mut self, time: Nanos, holder: MemoryHolder, change: impl FnOnce(u64) -> u64) {
        let sum = &mut self.sums[holder as usize];
        *sum = change(*sum);
        let changed = HeldChange { time, holder, bytes: *sum };
        if self.changes.len() >= MOST_CHANGES
            && let Some(last) = self.changes.iter_mut().rfind(|change| change.holder == holder)
        {
            *last = changed;
        } else {
            self.changes.push(changed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Block = Block::Address(0x1000);

    #[test]
    fn sums_follow_what_is_taken_and_given_back() {
        let mut held = HeldMemory::default();
        held.take(Nanos(1), A, MemoryHolder::Nccl, 100);
        held.take(Nanos(2), Block::Handle(0x1000), MemoryHolder::Cublas, 50);
        held.give_back(Nanos(3), Block::Address(7));
        assert_eq!(
            (held.sum(MemoryHolder::Nccl), held.sum(MemoryHolder::Cublas)),
            (100, 50),
            "what is not known changes nothing"
        );
        held.give_back(Nanos(4), A);
        held.give_back(Nanos(5), A);
        assert_eq!((held.sum(MemoryHolder::Nccl), held.sum(MemoryHolder::Cublas)), (0, 50));
        let told: Vec<_> =
            held.take_changes().iter().map(|change| (change.time.0, change.holder, change.bytes)).collect();
        assert_eq!(told, [(1, MemoryHolder::Nccl, 100), (2, MemoryHolder::Cublas, 50), (4, MemoryHolder::Nccl, 0)]);
        assert_eq!(held.take_changes(), []);
    }

    #[test]
    fn a_block_whose_end_was_missed_is_counted_once() {
        let mut held = HeldMemory::default();
        held.take(Nanos(1), A, MemoryHolder::Nccl, 100);
        held.take(Nanos(2), A, MemoryHolder::Other, 30);
        assert_eq!((held.sum(MemoryHolder::Nccl), held.sum(MemoryHolder::Other)), (0, 30));
    }

    #[test]
    fn a_handle_is_held_until_it_is_released_as_often() {
        let mut held = HeldMemory::default();
        let handle = Block::Handle(9);
        held.take(Nanos(1), handle, MemoryHolder::SymmetricMemory, 64);
        held.hold(handle);
        held.hold(Block::Handle(8));
        held.give_back(Nanos(2), handle);
        assert_eq!(held.sum(MemoryHolder::SymmetricMemory), 64);
        held.give_back(Nanos(3), handle);
        assert_eq!(held.sum(MemoryHolder::SymmetricMemory), 0);
    }

    #[test]
    fn many_changes_are_thinned_and_sums_stay_right() {
        let mut held = HeldMemory::default();
        for block in 0..3 * MOST_CHANGES as u64 {
            held.take(Nanos(block as i64), Block::Address(block), MemoryHolder::Program, 1);
        }
        let changes = held.take_changes();
        assert_eq!(changes.len(), MOST_CHANGES);
        let last = changes.last().map(|change| (change.bytes, change.time.0));
        assert_eq!(last, Some((3 * MOST_CHANGES as u64, 3 * MOST_CHANGES as i64 - 1)));
    }

    #[test]
    fn whoever_comes_later_is_told_what_there_is() {
        let mut held = HeldMemory::default();
        held.set(Nanos(1), MemoryHolder::LocalMemory, 5);
        held.set(Nanos(2), MemoryHolder::LocalMemory, 5);
        held.tell_all(Nanos(9));
        let told: Vec<_> =
            held.take_changes().iter().map(|change| (change.time.0, change.holder, change.bytes)).collect();
        assert_eq!(told, [(9, MemoryHolder::Modules, 0), (9, MemoryHolder::LocalMemory, 5)]);
    }
}
