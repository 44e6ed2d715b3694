//! How far some ranks are what the others wait for, and why they come late.

use stepscope_traces::Rank;

use super::time::{all_time, share, windows};
use crate::figures::{Analysis, CountedTime};

/// Others wait for them for at least this share of the time, or nobody is told.
const LEAST_SHARE: f64 = 0.05;

/// How far some ranks are what the others wait for.
#[derive(Clone, Copy)]
pub(super) struct Lateness {
    /// The share of all ranks' time that it costs.
    pub(super) share: f64,
    /// Of all waiting in collectives, what they cause.
    pub(super) blame: f64,
    /// The mean of what each of the others waits for them in a step.
    pub(super) lost_ns: i64,
}

impl Lateness {
    /// Of so many ranks that cause some waiting, and wait themselves; none, where nobody waits.
    pub(super) fn of(analysis: &Analysis, ranks: usize, caused_wait_ns: i64, wait_ns: i64) -> Option<Lateness> {
        let all: i64 = analysis.stragglers.iter().map(|rank| rank.caused_wait_ns).sum();
        let whole = all_time(analysis);
        let others = analysis.counted.len().saturating_sub(ranks);
        if all == 0 || whole == 0 || others == 0 {
            return None;
        }
        // What they waited themselves they did not cause, and waiting that compute hides costs nothing.
        let net = (caused_wait_ns - wait_ns).max(0) as f64 / whole as f64;
        let share = net.min(share(analysis, |partition| partition.exposed_communication_ns)?);
        let lost = share * whole as f64 / windows(analysis) as f64 * analysis.counted.len() as f64 / others as f64;
        Some(Lateness { share, blame: caused_wait_ns as f64 / all as f64, lost_ns: lost as i64 })
    }

    /// Whether they are worth telling, if they cause so much of all waiting.
    pub(super) fn matters(self, least_blame: f64) -> bool {
        self.share >= LEAST_SHARE && self.blame >= least_blame
    }
}

/// Why ranks come late.
pub(super) enum Why {
    /// They have no more to do than the others.
    NoMoreWork,
    /// Their kernels take longer, by a share of what the others' take.
    Kernels(f64),
    /// They are idle so much longer in a step.
    Idle(i64),
}

impl Why {
    /// In what some ranks differ most from the others.
    pub(super) fn of(analysis: &Analysis, late: &[Rank]) -> Why {
        let mean = |of: fn(&CountedTime) -> i64, is_late: bool| {
            let ranks = analysis.counted.iter().filter(|time| late.contains(&time.rank) == is_late);
            let (sum, windows) =
                ranks.fold((0, 0), |(sum, windows), time| (sum + of(time), windows + time.windows as i64));
            sum as f64 / windows.max(1) as f64
        };
        let more = |of: fn(&CountedTime) -> i64| mean(of, true) - mean(of, false);
        let (compute, idle) = (more(|time| time.partition.compute_ns), more(|time| time.partition.idle_ns));
        if compute <= 0.0 && idle <= 0.0 {
            Why::NoMoreWork
        } else if compute >= idle {
            Why::Kernels(compute / mean(|time| time.partition.compute_ns, false).max(1.0))
        } else {
            Why::Idle(idle as i64)
        }
    }
}
