//! The blocks of a history: when each was handed out and when it came back.

use std::collections::HashMap;

use super::{
    document::DeviceHistory,
    frame::Stack,
    records::{Action, Event},
};

/// The life of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Life {
    pub(super) address: u64,
    /// What was asked for: what the allocator rounds up is not counted, as in PyTorch's own replay of a history.
    pub(super) bytes: u64,
    /// Who asked for it, if that was recorded.
    pub(super) stack: Option<Stack>,
    /// The event that handed it out; none if it was there from the beginning.
    pub(super) from: Option<usize>,
    /// The event that asked for its return.
    pub(super) returned: Option<usize>,
    /// The event that ended it.
    pub(super) to: Option<usize>,
}

/// Every block of a history.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// Those that begin in the history are in its order.
    pub(super) lives: Vec<Life>,
}

impl Lives {
    /// Goes through a history. A block that came back without having been handed out was there from the beginning, and
    /// so was one that is there in the end without having been handed out: PyTorch keeps the newest events only.
    pub(super) fn of(history: &DeviceHistory) -> Lives {
        let mut lives = Lives::default();
        // Of each address that the history has spoken of, the block that is there, if there is one.
        let mut known: HashMap<u64, Option<usize>> = HashMap::new();
        for (index, event) in history.events.iter().enumerate() {
            let Some(address) = event.address else { continue };
            match event.action {
                Action::Alloc => {
                    let life = lives.begin(address, event, Some(index));
                    // One whose end was not recorded ends here.
                    if let Some(lost) = known.insert(address, Some(life)).flatten() {
                        lives.lives[lost].to = Some(index);
                    }
                }
                Action::FreeRequested | Action::FreeCompleted => {
                    let before = || Some(lives.begin(address, &Event { stack: None, ..*event }, None));
                    let there = known.entry(address).or_insert_with(before);
                    let Some(life) = *there else { continue };
                    if event.action == Action::FreeRequested {
                        lives.lives[life].returned = Some(index);
                    } else {
                        lives.lives[life].to = Some(index);
                        *there = None;
                    }
                }
                _ => {}
            }
        }
        for (address, block) in history.end.iter().flat_map(|end| &end.blocks) {
            match known.get(address) {
                // The block remembers who asked for it for longer than the history does.
                Some(Some(life)) => {
                    let life = &mut lives.lives[*life];
                    life.stack = life.stack.or(block.stack);
                }
                Some(None) => {}
                None => {
                    let bytes = block.requested_bytes.unwrap_or(block.bytes);
                    let (address, stack) = (*address, block.stack);
                    let life = lives.lives.len();
                    lives.lives.push(Life { address, bytes, stack, from: None, returned: None, to: None });
                    known.insert(address, Some(life));
                }
            }
        }
        lives
    }

    fn begin(&mut self, address: u64, event: &Event, from: Option<usize>) -> usize {
        let life = self.lives.len();
        let Event { bytes, stack, .. } = *event;
        self.lives.push(Life { address, bytes, stack, from, returned: None, to: None });
        life
    }

    /// The blocks that were there from the beginning.
    pub(super) fn there_from_the_beginning(&self) -> impl Iterator<Item = &Life> {
        self.lives.iter().filter(|life| life.from.is_none())
    }

    /// The blocks that the history handed out, in its order.
    pub(super) fn handed_out(&self) -> impl Iterator<Item = &Life> {
        self.lives.iter().filter(|life| life.from.is_some())
    }
}

impl Life {
    /// The event that tells who gave it back.
    pub(super) fn given_back(&self) -> Option<usize> {
        self.returned.or(self.to)
    }
}
