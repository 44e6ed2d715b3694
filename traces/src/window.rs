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

    /// Whether an interval lies wholly in this window.
    pub fn contains(self, (start, end): (Nanos, Nanos)) -> bool {
        start >= self.from && end <= self.to && start < self.to
    }
}
