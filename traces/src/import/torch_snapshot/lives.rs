//! The blocks of a history: when each was handed out and when it came back.

use std::collections::{HashMap, HashSet};

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
    pub(super) lives: Vec<Life>,
    /// Of each event that begins a life, which.
    pub(super) of_event: HashMap<usize, usize>,
}

impl Lives {
    /// Goes through a history. A block that came back without having been handed out was there from the beginning, and
    /// so was one that is there in the end without having been handed out: PyTorch keeps the newest events only.
    pub(super) fn of(history: &DeviceHistory) -> Lives {
        let mut lives = Lives::default();
        let mut live: HashMap<u64, usize> = HashMap::new();
        let mut known: HashSet<u64> = HashSet::new();
        for (index, event) in history.events.iter().enumerate() {
            let Some(address) = event.address else { continue };
            match event.action {
                Action::Alloc => {
                    known.insert(address);
                    let life = lives.begin(address, event, Some(index));
                    // One whose end was not recorded ends here.
                    if let Some(lost) = live.insert(address, life) {
                        lives.lives[lost].to = Some(index);
                    }
                }
                Action::FreeRequested | Action::FreeCompleted => {
                    if known.insert(address) {
                        let life = lives.begin(address, &Event { stack: None, ..*event }, None);
                        live.insert(address, life);
                    }
                    if event.action == Action::FreeRequested {
                        if let Some(life) = live.get(&address) {
                            lives.lives[*life].returned = Some(index);
                        }
                    } else if let Some(life) = live.remove(&address) {
                        lives.lives[life].to = Some(index);
                    }
                }
                _ => {}
            }
        }
        for (address, block) in history.end.iter().flat_map(|end| &end.blocks) {
            match live.get(address) {
                // The block remembers who asked for it for longer than the history does.
                Some(life) => {
                    let life = &mut lives.lives[*life];
                    life.stack = life.stack.or(block.stack);
                }
                None if known.insert(*address) => {
                    let bytes = block.requested_bytes.unwrap_or(block.bytes);
                    let (address, stack) = (*address, block.stack);
                    lives.lives.push(Life { address, bytes, stack, from: None, returned: None, to: None });
                }
                None => {}
            }
        }
        lives
    }

    fn begin(&mut self, address: u64, event: &Event, from: Option<usize>) -> usize {
        let life = self.lives.len();
        let Event { bytes, stack, .. } = *event;
        self.lives.push(Life { address, bytes, stack, from, returned: None, to: None });
        if let Some(from) = from {
            self.of_event.insert(from, life);
        }
        life
    }

    /// The blocks that were there from the beginning.
    pub(super) fn there_from_the_beginning(&self) -> impl Iterator<Item = (usize, &Life)> {
        self.lives.iter().enumerate().filter(|(_, life)| life.from.is_none())
    }
}

impl Life {
    /// The event that tells who gave it back.
    pub(super) fn given_back(&self) -> Option<usize> {
        self.returned.or(self.to)
    }
}
