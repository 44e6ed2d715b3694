//! Values over time: counters in groups, each a sequence of its own.

use std::collections::HashMap;

use super::{
    schema::{EventType, TrackEvent},
    sequence::{Content, Sequence},
    tracks::{Group, Unit},
    writing::Writing,
};

/// The counters of a process.
pub(super) struct Counters {
    process: u64,
    groups: HashMap<Group, u64>,
}

/// A counter, whose values are in the order of time.
pub(super) struct Counter {
    sequence: Sequence,
}

/// A value of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reading {
    Bytes(u64),
    Number(f64),
}

impl Counters {
    pub(super) fn of(process: u64) -> Counters {
        Counters { process, groups: HashMap::new() }
    }

    /// A new counter of a group.
    pub(super) fn counter(
        &mut self,
        (group, name): (Group, &str),
        unit: &Unit,
        order: i32,
        into: &mut Writing<'_>,
    ) -> Counter {
        let process = self.process;
        let content = if group == Group::Memory { Content::Values } else { Content::Few };
        let group = *self.groups.entry(group).or_insert_with(|| into.group(process, group));
        let track = into.counter(group, name, unit, order);
        Counter { sequence: into.sequence(track, content) }
    }
}

impl Counter {
    /// Appends a value, unless it is none.
    pub(super) fn push(&mut self, time: u64, reading: Reading, into: &mut Writing<'_>) {
        let (counter_value, double_counter_value) = match reading {
            Reading::Bytes(bytes) => (Some(i64::try_from(bytes).unwrap_or(i64::MAX)), None),
            Reading::Number(number) if number.is_finite() => (None, Some(number)),
            Reading::Number(_) => return,
        };
        let r#type = Some(EventType::Counter as i32);
        let event = TrackEvent { r#type, counter_value, double_counter_value, ..Default::default() };
        self.sequence.push(&mut into.packets, time, &event);
        into.written.values += 1;
    }
}
