//! What a run should have and does not.

use std::ops::AddAssign;

use serde::Serialize;
use stepscope_plan::text::counted;

/// What was lost, and where. Loss is data: every view that shows figures shows a loss that is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Events the recorder had no room for.
    pub dropped_events: u64,
    /// Bytes of the files that could not be read: a torn tail, or damage.
    pub unreadable_bytes: u64,
    /// Events known to have stood in those bytes; a torn tail does not tell.
    pub unreadable_events: u64,
}

impl Loss {
    /// Whether nothing was lost.
    pub fn is_none(&self) -> bool {
        *self == Loss::default()
    }

    /// It, in words.
    pub fn words(&self) -> String {
        let Loss { dropped_events, unreadable_bytes, unreadable_events } = *self;
        let dropped = (dropped_events > 0).then(|| format!("{} dropped", counted(dropped_events, "event")));
        let (bytes, events) = (counted(unreadable_bytes, "byte"), counted(unreadable_events, "event"));
        let unreadable = match (unreadable_bytes, unreadable_events) {
            (0, 0) => None,
            (0, _) => Some(format!("{events} unreadable")),
            (_, 0) => Some(format!("{bytes} unreadable")),
            _ => Some(format!("{bytes} unreadable ({events})")),
        };
        dropped.into_iter().chain(unreadable).collect::<Vec<_>>().join(", ")
    }
}

impl AddAssign for Loss {
    fn add_assign(&mut self, other: Loss) {
        // What a damaged file says of itself may be anything.
        self.dropped_events = self.dropped_events.saturating_add(other.dropped_events);
        self.unreadable_bytes = self.unreadable_bytes.saturating_add(other.unreadable_bytes);
        self.unreadable_events = self.unreadable_events.saturating_add(other.unreadable_events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_what_is_not_zero() {
        let words = |dropped_events, unreadable_bytes, unreadable_events| {
            Loss { dropped_events, unreadable_bytes, unreadable_events }.words()
        };
        assert_eq!(words(0, 0, 0), "");
        assert_eq!(words(0, 0, 13_394), "13,394 events unreadable");
        assert_eq!(words(0, 5, 0), "5 bytes unreadable");
        assert_eq!(words(1, 5, 2), "1 event dropped, 5 bytes unreadable (2 events)");
    }
}
