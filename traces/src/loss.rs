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
        let unreadable = (unreadable_bytes > 0 || unreadable_events > 0).then(|| {
            let events = match unreadable_events {
                0 => String::new(),
                events => format!(" ({})", counted(events, "event")),
            };
            format!("{} unreadable{events}", counted(unreadable_bytes, "byte"))
        });
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
