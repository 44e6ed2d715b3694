//! The numbers of operations: the same on every rank that takes part.

use std::{collections::HashMap, hash::Hash, sync::Mutex};

use stepscope_traces::{Group, MessageNumber, Rank, Sequence};

use super::ProcessGroup;
use crate::lock::lock;

/// How many operations each group has had, and how many messages went each way.
#[derive(Default)]
pub(crate) struct Numbering {
    collectives: Mutex<HashMap<Group, u64>>,
    messages: Mutex<HashMap<(Group, Rank, Rank), u64>>,
}

impl Numbering {
    /// The number of the next collective of a group.
    pub(crate) fn collective(&self, group: &ProcessGroup) -> Sequence {
        Sequence(next(&self.collectives, group.group))
    }

    /// The number of the next message between two members: the same at both ends, and no other message's.
    pub(crate) fn message(&self, group: &ProcessGroup, from: usize, to: usize) -> Sequence {
        let number = next(&self.messages, (group.group, group.ranks[from], group.ranks[to]));
        MessageNumber { count: number as u32, from: from as u16, to: to as u16 }.into()
    }
}

/// Counts up, from zero.
fn next<K: Hash + Eq>(counts: &Mutex<HashMap<K, u64>>, key: K) -> u64 {
    let mut counts = lock(counts);
    let count = counts.entry(key).or_default();
    *count += 1;
    *count - 1
}
