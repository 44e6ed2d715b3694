//! Where time goes, as it is shown: means of windows, and shares.

use stepscope_analyzer::{Analysis, CountedTime, Partition};
use stepscope_traces::Nanos;

/// What time is divided into, in the order in which it is shown.
pub(super) const PARTS: [&str; 4] = ["compute", "exposed communication", "exposed copies", "idle"];

/// Some windows of time together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    windows: i64,
    all: Partition,
}

impl Time {
    /// Of some windows.
    pub(super) fn of<'a>(windows: impl IntoIterator<Item = &'a Partition>) -> Time {
        let windows: Vec<&Partition> = windows.into_iter().collect();
        Time { windows: windows.len() as i64, all: Partition::sum(windows) }
    }

    /// Of the steps of some ranks that count.
    pub(super) fn counted<'a>(ranks: impl IntoIterator<Item = &'a CountedTime>) -> Time {
        let ranks: Vec<&CountedTime> = ranks.into_iter().collect();
        let windows = ranks.iter().map(|time| time.windows as i64).sum();
        Time { windows, all: Partition::sum(ranks.iter().map(|time| &time.partition)) }
    }

    /// The mean length of a window.
    pub(super) fn span(&self) -> Nanos {
        Nanos(self.all.span_ns / self.windows.max(1))
    }

    /// The mean of each part, in the order of [`PARTS`], and its share.
    pub(super) fn parts(&self) -> [(Nanos, f64); 4] {
        let Partition { compute_ns, exposed_communication_ns, exposed_copy_ns, idle_ns, .. } = self.all;
        [compute_ns, exposed_communication_ns, exposed_copy_ns, idle_ns]
            .map(|part| (Nanos(part / self.windows.max(1)), part as f64 / self.all.span_ns.max(1) as f64))
    }

    /// The share of communication that compute hides; none without communication.
    pub(super) fn overlap(&self) -> Option<f64> {
        self.all.overlap
    }
}

/// Where the time of all ranks goes, in the steps that count.
pub(super) fn of_all(analysis: &Analysis) -> Time {
    Time::counted(&analysis.counted)
}
