//! Where a history ends in the next one that was taken of the same allocator.
//!
//! A training does the same in every step, so the end of a history may be found in the next one at many places. But whoever
//! takes a history leaves a mark of it in there, before or after the last event that it has: so it ends near that mark.

use crate::import::torch_snapshot::records::{Action, Event};

/// As many events are compared.
const LENGTH: usize = 64;

/// The end of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tail(Vec<Key>);

/// What stays the same of an event from one history to the next: its time does not quite.
type Key = (Action, Option<u64>, u64);

fn key(event: &Event) -> Key {
    (event.action, event.address, event.bytes)
}

impl Tail {
    pub(super) fn of(events: &[Event]) -> Tail {
        Tail(events[events.len().saturating_sub(LENGTH)..].iter().map(key).collect())
    }

    /// Where the events begin in a later history that came after this one; none if some of them are lost.
    pub(super) fn end_in(&self, events: &[Event]) -> Option<usize> {
        if self.0.is_empty() {
            return (events.first().is_none_or(|first| first.action == Action::Snapshot)).then_some(0);
        }
        let last_mark = events.iter().rposition(|event| event.action == Action::Snapshot)?;
        (self.0.len()..=last_mark).rev().find(|end| self.ends_at(&events[..*end]))
    }

    fn ends_at(&self, events: &[Event]) -> bool {
        events.iter().rev().zip(self.0.iter().rev()).all(|(event, known)| key(event) == *known)
    }
}
