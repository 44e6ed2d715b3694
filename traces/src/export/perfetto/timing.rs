//! Times of a rank as times of the trace.

use crate::ids::Nanos;

/// Times beyond this are damaged; a trace processor adds to them.
const LATEST: i64 = 1 << 62;

/// Brings a rank's times into the one clock of the trace, which begins near zero.
#[derive(Clone, Copy)]
pub(super) struct Timing<'a> {
    /// From the rank's clock to the one that all ranks share.
    pub(super) align: &'a dyn Fn(i64) -> i64,
    /// What to add to that one.
    pub(super) shift: i64,
}

impl Timing<'_> {
    /// When something in the rank's clock was.
    pub(super) fn at(&self, time: Nanos) -> u64 {
        shifted((self.align)(time.0), self.shift)
    }

    /// When something began and when it ended.
    pub(super) fn interval(&self, start: Nanos, duration: Nanos) -> (u64, u64) {
        let from = self.at(start);
        // A recording that says otherwise is damaged.
        (from, self.at(start + Nanos(duration.0.max(0))).max(from))
    }
}

/// A time of the clock that all ranks share, in the trace.
pub(super) fn shifted(time: i64, shift: i64) -> u64 {
    time.saturating_add(shift).clamp(0, LATEST).unsigned_abs()
}
