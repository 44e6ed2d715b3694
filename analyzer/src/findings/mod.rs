//! What stands out in a run: plain sentences with their evidence, and what to try.
//!
//! A finding is a small type that looks at the whole analysis, and finds something or nothing. None says anything
//! without a figure, and a healthy run has none.

mod cut_off;
mod hang;
mod memory;
mod out_of_memory;
mod pipeline;
mod time;

use crate::figures::{Analysis, Finding};

/// A kind of finding.
trait Check {
    /// Its name.
    const KIND: &'static str;

    /// What it finds in a run.
    fn find(analysis: &Analysis) -> Option<Found>;
}

/// What a check finds.
struct Found {
    share: f64,
    what: String,
    evidence: String,
    advice: String,
}

fn check<C: Check>(analysis: &Analysis) -> Option<Finding> {
    let Found { share, what, evidence, advice } = C::find(analysis)?;
    Some(Finding { kind: C::KIND, share, what, evidence, advice })
}

/// What stands out in a run, the most important first.
pub(crate) fn findings(analysis: &Analysis) -> Vec<Finding> {
    // What is not there may be what everything else seems to be due to.
    if let Some(cut_off) = check::<cut_off::CutOff>(analysis) {
        return vec![cut_off];
    }
    let hang = check::<hang::HangingJob>(analysis);
    let shortage = check::<out_of_memory::OutOfMemory>(analysis);
    let checks = [
        check::<time::ExposedCommunication>,
        check::<time::LongStep>,
        check::<time::SlowRank>,
        check::<time::HostBound>,
        check::<time::LowUtilisation>,
        check::<pipeline::LargeBubble>,
        check::<pipeline::FewMicroBatches>,
        check::<memory::Activations>,
        check::<memory::ReplicatedOptimizer>,
        check::<memory::Growth>,
    ];
    let mut found: Vec<Finding> = checks.into_iter().filter_map(|check| check(analysis)).collect();
    found.sort_by(|one, other| other.share.total_cmp(&one.share));
    // What ended the run comes first.
    shortage.into_iter().chain(hang).chain(found).collect()
}
