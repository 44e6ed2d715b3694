//! Where the time of a window goes.

use serde::Serialize;

use crate::stored::fields;

/// Where the time of a window goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Partition {
    /// From the first start to the last end of any activity.
    pub span_ns: i64,
    /// Covered by compute kernels.
    pub compute_ns: i64,
    /// Covered by communication.
    pub communication_ns: i64,
    /// Covered by both.
    pub overlapped_communication_ns: i64,
    /// Covered by communication, and not by compute.
    pub exposed_communication_ns: i64,
    /// Covered by copies and fills.
    pub copy_ns: i64,
    /// Covered by copies and fills, and by nothing else.
    pub exposed_copy_ns: i64,
    /// Covered by nothing.
    pub idle_ns: i64,
    /// The share of communication that compute hides; none without communication.
    pub overlap: Option<f64>,
}

fields!(Partition {
    span_ns,
    compute_ns,
    communication_ns,
    overlapped_communication_ns,
    exposed_communication_ns,
    copy_ns,
    exposed_copy_ns,
    idle_ns;
    overlap
} then Partition::finished);

impl Partition {
    /// The time of some windows, added up.
    pub fn sum<'a>(windows: impl IntoIterator<Item = &'a Partition>) -> Partition {
        windows.into_iter().fold(Partition::default(), |mut sum, window| {
            sum.add_window(window);
            sum
        })
    }

    /// Adds another window's time.
    pub(crate) fn add_window(&mut self, other: &Partition) {
        for (sum, more) in [
            (&mut self.span_ns, other.span_ns),
            (&mut self.compute_ns, other.compute_ns),
            (&mut self.communication_ns, other.communication_ns),
            (&mut self.overlapped_communication_ns, other.overlapped_communication_ns),
            (&mut self.exposed_communication_ns, other.exposed_communication_ns),
            (&mut self.copy_ns, other.copy_ns),
            (&mut self.exposed_copy_ns, other.exposed_copy_ns),
            (&mut self.idle_ns, other.idle_ns),
        ] {
            *sum = sum.saturating_add(more);
        }
        *self = self.finished();
    }

    /// Fills in what follows from the rest.
    pub(crate) fn finished(mut self) -> Partition {
        let share = self.overlapped_communication_ns as f64 / self.communication_ns as f64;
        self.overlap = (self.communication_ns > 0).then_some(share);
        self
    }

    /// Its parts, which add up to the whole, by name.
    pub fn parts(&self) -> [(&'static str, i64); 4] {
        [
            ("compute", self.compute_ns),
            ("exposed_communication", self.exposed_communication_ns),
            ("exposed_copy", self.exposed_copy_ns),
            ("idle", self.idle_ns),
        ]
    }

    /// Whether it adds up.
    pub fn adds_up(&self) -> bool {
        let parts = self.compute_ns + self.exposed_communication_ns + self.exposed_copy_ns + self.idle_ns;
        let communication = self.overlapped_communication_ns + self.exposed_communication_ns;
        parts == self.span_ns && communication == self.communication_ns && self.exposed_copy_ns <= self.copy_ns
    }
}
