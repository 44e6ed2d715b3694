//! What stands out in a run: plain sentences with their evidence, what it costs, and what to try.
//!
//! A finding is a small type that looks at the whole analysis, and finds something or nothing. None says anything
//! without a figure, and a healthy run has none. What costs time is sorted by what it would win.

mod communication;
mod cut_off;
mod device;
mod experts;
mod hang;
mod host;
#[cfg(test)]
mod injected;
mod kernels;
mod lateness;
mod loss;
mod memory;
mod out_of_memory;
mod pipeline;
mod ranks;
mod recomputation;
mod slow_place;
mod steps;
mod time;

use stepscope_traces::{Rank, Step};

use crate::figures::{Analysis, Cause, Evidence, Finding};

pub(crate) use hang::HangWords;

/// A kind of finding.
trait Check {
    /// Its name.
    const KIND: &'static str;

    /// What it finds in a run.
    fn find(analysis: &Analysis) -> Option<Found>;

    /// The same, of a kind that can be found more than once.
    fn find_all(analysis: &Analysis) -> Vec<Found> {
        Self::find(analysis).into_iter().collect()
    }
}

/// What a check finds.
#[derive(Default)]
struct Found {
    /// How much of the time, or of memory, it concerns.
    share: f64,
    summary: String,
    evidence: String,
    advice: String,
    ranks: Vec<Rank>,
    steps: Vec<Step>,
    /// The time that it takes, of a step.
    lost_ns: Option<i64>,
    /// What of the replays are without it.
    causes: Vec<Cause>,
}

fn check<C: Check>(analysis: &Analysis) -> Vec<Finding> {
    C::find_all(analysis).into_iter().map(|found| finding(C::KIND, found, analysis)).collect()
}

fn finding(kind: &'static str, found: Found, analysis: &Analysis) -> Finding {
    let Found { share, summary, evidence, advice, ranks, steps, lost_ns, causes } = found;
    let win = time::win(analysis, &causes);
    let spans = causes.iter().filter_map(|cause| Some(&analysis.what_if.as_ref()?.without(*cause)?.spans));
    let spans: Vec<_> = spans.flatten().copied().collect();
    let replayed = analysis.what_if.as_ref().and_then(|what_if| what_if.step).filter(|_| !spans.is_empty());
    Finding {
        kind,
        share,
        summary,
        evidence: Evidence {
            text: evidence,
            ranks,
            steps: if steps.is_empty() { replayed.into_iter().collect() } else { steps },
            spans,
        },
        lost_ns,
        step_without_ns: win.zip(analysis.step_ns()).map(|(win, step)| step - win),
        advice,
    }
}

/// What stands out in a run, the most important first.
pub(crate) fn findings(analysis: &Analysis) -> Vec<Finding> {
    // What is not there may be what everything else seems to be due to.
    let cut_off = check::<cut_off::CutOff>(analysis);
    if !cut_off.is_empty() {
        return cut_off;
    }
    // What ended the run, or makes it worthless, comes first.
    let fatal = [check::<out_of_memory::OutOfMemory>, check::<hang::HangingJob>, check::<loss::NotFinite>];
    let about_time = [
        check::<communication::ExposedCommunication>,
        check::<host::SharedDevice>,
        check::<host::HostBound>,
        check::<host::SyncPoints>,
        check::<host::DataLoading>,
        check::<host::Allocation>,
        check::<host::SlowLaunches>,
        check::<host::LateStarts>,
        check::<host::Checkpointing>,
        check::<host::RecordingCost>,
        check::<host::ExposedCopies>,
        check::<kernels::SlowAttention>,
        check::<kernels::UnfusedAttention>,
        check::<kernels::SlowMatmul>,
        check::<kernels::WithoutTensorCores>,
        check::<kernels::UnfusedOptimizer>,
        check::<kernels::SmallKernels>,
        check::<recomputation::Recomputation>,
        check::<ranks::SlowRank>,
        check::<experts::UnevenExperts>,
        check::<device::Throttled>,
        check::<pipeline::UnevenStages>,
        check::<pipeline::LargeBubble>,
        check::<pipeline::FewMicroBatches>,
        check::<steps::LongStep>,
        check::<steps::LongWarmUp>,
    ];
    let others = [
        check::<loss::Rising>,
        check::<memory::NearlyFull>,
        check::<memory::Fragmentation>,
        check::<memory::Activations>,
        check::<memory::ReplicatedOptimizer>,
        check::<memory::Growth>,
    ];
    let all = |checks: &[fn(&Analysis) -> Vec<Finding>]| -> Vec<Finding> {
        checks.iter().flat_map(|check| check(analysis)).collect()
    };
    let (mut about_time, mut others) = (all(&about_time), all(&others));
    let step = analysis.step_ns();
    let win = |finding: &Finding| {
        let replayed = step.zip(finding.step_without_ns).map(|(step, without)| step - without);
        replayed.or(finding.lost_ns).unwrap_or(0)
    };
    about_time.sort_by_key(|finding| -win(finding));
    others.sort_by(|one, other| other.share.total_cmp(&one.share));
    all(&fatal).into_iter().chain(about_time).chain(others).collect()
}
