//! Where time goes: the contract's figures of a window, which add up to its length.
//!
//! Over one rank's activity in a window, with C, N and M the unions of its compute kernels, its communication, and its
//! copies and fills: compute is |C|, exposed communication |N \ C|, exposed copies |M \ (C ∪ N)|, and idle is what no
//! activity covers. Together they are the window.

use serde::Serialize;

use crate::sweep::Slice;

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

impl Partition {
    /// Adds a stretch of time.
    pub(crate) fn add(&mut self, slice: &Slice<'_>) {
        let length = slice.length();
        let [compute, communication, copy] = slice.active.map(|spans| !spans.is_empty());
        self.span_ns += length;
        if compute {
            self.compute_ns += length;
        }
        if communication {
            self.communication_ns += length;
            *(if compute { &mut self.overlapped_communication_ns } else { &mut self.exposed_communication_ns }) +=
                length;
        }
        if copy {
            self.copy_ns += length;
        }
        match (compute || communication, copy) {
            (false, true) => self.exposed_copy_ns += length,
            (false, false) => self.idle_ns += length,
            _ => {}
        }
    }

    /// Fills in what follows from the rest.
    pub(crate) fn finished(mut self) -> Partition {
        let share = self.overlapped_communication_ns as f64 / self.communication_ns as f64;
        self.overlap = (self.communication_ns > 0).then_some(share);
        self
    }

    /// Whether it adds up.
    pub fn adds_up(&self) -> bool {
        let parts = self.compute_ns + self.exposed_communication_ns + self.exposed_copy_ns + self.idle_ns;
        let communication = self.overlapped_communication_ns + self.exposed_communication_ns;
        parts == self.span_ns && communication == self.communication_ns && self.exposed_copy_ns <= self.copy_ns
    }
}
