//! Values over time: counters in groups, each a sequence of its own.

use std::collections::HashMap;

use super::{
    schema::{EventType, TrackEvent},
    sequence::{Content, Sequence},
    tracks::{Group, TrackPlace, Unit},
    writing::Writing,
};

/// Where groups of counters stand: below everything else.
const GROUPS: i32 = 10_000;

/// The counters of a rank, or of all.
pub(super) struct Counters {
    parent: u64,
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
    pub(super) fn of(parent: u64) -> Counters {
        Counters { parent, groups: HashMap::new() }
    }

    /// A new counter of a group.
    pub(super) fn counter(
        &mut self,
        (group, name): (Group, &str),
        unit: &Unit,
        order: i32,
        into: &mut Writing<'_>,
    ) -> Counter {
        let content = if group == Group::Memory { Content::Values } else { Content::Few };
        let place = TrackPlace { parent: self.parent, order: GROUPS + group as i32, name: group.word().into() };
        let parent = *self.groups.entry(group).or_insert_with(|| into.track(&place));
        let track = into.counter(&TrackPlace { parent, order, name: name.into() }, unit);
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
