//! Values over time: counters in groups, all of a rank in one sequence.

use std::collections::HashMap;

use super::{
    schema::{EventType, TrackEvent},
    sequence::Sequence,
    tracks::Unit,
    writing::Writing,
};

/// The counters of a process, in the order of time.
pub(super) struct Counters {
    process: u64,
    sequence: Option<Sequence>,
    groups: HashMap<String, u64>,
    event: TrackEvent,
}

/// A value of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reading {
    Bytes(u64),
    Number(f64),
}

impl Counters {
    pub(super) fn of(process: u64) -> Counters {
        let event = TrackEvent { r#type: Some(EventType::Counter as i32), ..Default::default() };
        Counters { process, sequence: None, groups: HashMap::new(), event }
    }

    /// A new counter of a group; its track.
    pub(super) fn counter(
        &mut self,
        (group, name): (&str, &str),
        unit: &Unit,
        order: i32,
        into: &mut Writing<'_>,
    ) -> u64 {
        let process = self.process;
        let group = *self.groups.entry(group.into()).or_insert_with(|| into.group(process, group));
        into.counter(group, name, unit, order)
    }

    /// Appends a value, unless it is none.
    pub(super) fn push(&mut self, track: u64, time: u64, reading: Reading, into: &mut Writing<'_>) {
        self.event.track_uuid = Some(track);
        (self.event.counter_value, self.event.double_counter_value) = match reading {
            Reading::Bytes(bytes) => (Some(i64::try_from(bytes).unwrap_or(i64::MAX)), None),
            Reading::Number(number) if number.is_finite() => (None, Some(number)),
            Reading::Number(_) => return,
        };
        let sequence = self.sequence.get_or_insert_with(|| into.sequence(None));
        sequence.push(&mut into.packets, time, &self.event);
        into.written.values += 1;
    }
}
