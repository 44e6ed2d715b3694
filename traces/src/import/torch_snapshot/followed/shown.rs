//! What was told of memory: what readers of the recording have allocated, and taken from the device, at its end.

use std::collections::HashMap;

use crate::{
    ids::{Nanos, Step},
    import::torch_snapshot::{
        ranges::{Change, Ranges},
        records::Block,
    },
    tables::MemoryEvent,
    vocabulary::{MemoryCategory, MemoryOperation, Phase},
};

/// When something happened, and where in the training.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) time: i64,
    pub(super) step: Option<Step>,
    pub(super) phase: Option<Phase>,
}

impl Moment {
    fn event(self, op: MemoryOperation, address: u64, bytes: u64) -> MemoryEvent {
        let Moment { time, step, phase } = self;
        let (time_ns, bytes) = (Nanos(time), Some(bytes));
        MemoryEvent { step, phase, ..MemoryEvent::new(time_ns, op, address, bytes) }
    }
}

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// How large the block at each address is.
    blocks: HashMap<u64, u64>,
    ranges: Ranges,
}

impl Shown {
    /// Whether a block is known to be at an address.
    pub(super) fn has(&self, address: u64) -> bool {
        self.blocks.contains_key(&address)
    }

    /// Tells of a block that was handed out. One that is still there has come back unseen.
    pub(super) fn allocate(
        &mut self,
        told: &mut Vec<MemoryEvent>,
        moment: Moment,
        address: u64,
        bytes: u64,
        category: MemoryCategory,
    ) {
        self.free(told, moment, address);
        self.blocks.insert(address, bytes);
        told.push(MemoryEvent { category: Some(category), ..moment.event(MemoryOperation::Alloc, address, bytes) });
    }

    /// Tells of a block that came back, if it was told that there is one.
    pub(super) fn free(&mut self, told: &mut Vec<MemoryEvent>, moment: Moment, address: u64) {
        if let Some(bytes) = self.blocks.remove(&address) {
            told.push(moment.event(MemoryOperation::Free, address, bytes));
        }
    }

    /// Tells of memory that was taken from the device, or went back.
    pub(super) fn change_range(&mut self, told: &mut Vec<MemoryEvent>, moment: Moment, change: Change) {
        let mut changes = Vec::new();
        match change {
            Change::Taken(address, bytes) => self.ranges.take(address, bytes, &mut changes),
            Change::GivenBack(address, bytes) => self.ranges.give_back(address, bytes, &mut changes),
        }
        told.extend(changes.into_iter().map(|change| range_event(moment, change)));
    }

    /// Tells what is gone of what there was, and what else is taken from the device.
    pub(super) fn resume(
        &mut self,
        told: &mut Vec<MemoryEvent>,
        moment: Moment,
        ranges: Ranges,
        blocks: &[(u64, Block)],
    ) {
        let there: HashMap<u64, u64> = blocks.iter().map(|(address, block)| (*address, block.bytes)).collect();
        let mut gone: Vec<u64> =
            self.blocks.iter().filter(|(at, bytes)| there.get(at) != Some(bytes)).map(|(at, _)| *at).collect();
        gone.sort_unstable();
        gone.into_iter().for_each(|address| self.free(told, moment, address));
        if ranges != self.ranges {
            let given_back = self.ranges.iter().map(|(address, bytes)| Change::GivenBack(address, bytes));
            let taken = ranges.iter().map(|(address, bytes)| Change::Taken(address, bytes));
            told.extend(given_back.chain(taken).map(|change| range_event(moment, change)));
            self.ranges = ranges;
        }
    }
}

fn range_event(moment: Moment, change: Change) -> MemoryEvent {
    match change {
        Change::Taken(address, bytes) => moment.event(MemoryOperation::Reserve, address, bytes),
        Change::GivenBack(address, bytes) => moment.event(MemoryOperation::Release, address, bytes),
    }
}
