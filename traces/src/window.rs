//! A stretch of time.

use crate::ids::Nanos;

/// What lies between two times of a rank's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first nanosecond in it.
    pub from: Nanos,
    /// The first nanosecond after it.
    pub to: Nanos,
}

impl Window {
    /// All of time.
    pub const ALL: Window = Window { from: Nanos(i64::MIN), to: Nanos(i64::MAX) };

    /// No time at all.
    pub const NONE: Window = Window { from: Nanos(i64::MIN), to: Nanos(i64::MIN) };

    /// Whether an interval has a part in this window; an interval without length, whether it lies in it.
    pub fn touches(self, (start, end): (Nanos, Nanos)) -> bool {
        start < self.to && (end > self.from || start >= self.from)
    }

    /// Whether some intervals can have a part in this window, if all begin and end in this range.
    pub(crate) fn may_touch(self, (first, last): (Nanos, Nanos)) -> bool {
        first < self.to && last >= self.from
    }

    /// Whether all intervals have a part in this window that begin and end in this range.
    pub(crate) fn surely_touches(self, (first, last): (Nanos, Nanos)) -> bool {
        first >= self.from && last < self.to
    }
}
