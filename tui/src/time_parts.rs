//! What time goes to, in the order and the colors in which it is shown everywhere.

use stepscope_analyzer::{Class, Partition};

use crate::theme::{Mark, Theme};

/// A part of time.
pub(crate) struct TimePart {
    pub(crate) name: &'static str,
    pub(crate) mark: Mark,
    of: fn(&Partition) -> i64,
}

impl TimePart {
    /// How much of some time it has.
    pub(crate) fn of(&self, time: &Partition) -> i64 {
        (self.of)(time)
    }
}

/// The parts, which add up; all but the first are what one would like to have less of.
pub(crate) fn time_parts(theme: &Theme) -> [TimePart; 4] {
    [
        TimePart { name: "compute", mark: theme.class(Class::Compute), of: |time| time.compute_ns },
        TimePart {
            name: "exposed comm",
            mark: theme.class(Class::Communication),
            of: |time| time.exposed_communication_ns,
        },
        TimePart { name: "exposed copies", mark: theme.class(Class::Copy), of: |time| time.exposed_copy_ns },
        TimePart { name: "idle", mark: theme.idle(), of: |time| time.idle_ns },
    ]
}
