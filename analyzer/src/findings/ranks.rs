//! Ranks that others wait for.

use std::collections::BTreeMap;

use stepscope_plan::text;
use stepscope_traces::{Rank, Step};

use super::{
    Check, Found,
    lateness::{Lateness, Why},
    slow_place,
    time::{windows, worth},
};
use crate::figures::{Analysis, Cause, Partition, StepSummary, Straggler};

/// One rank that the others wait for.
pub(super) struct SlowRank;

impl Check for SlowRank {
    const KIND: &'static str = "slow-rank";

    fn find(analysis: &Analysis) -> Option<Found> {
        let replayed = analysis.what_if.iter().flat_map(|what_if| &what_if.without);
        let rank = match replayed.map(|without| without.cause).find(|cause| matches!(cause, Cause::SlowRank { .. })) {
            Some(cause) => by_replay(analysis, cause),
            None => by_waiting(analysis),
        };
        let slow = rank.as_ref().and_then(|found| found.ranks.first().copied());
        slow_place::find(analysis, slow).or(rank)
    }
}

/// The rank that has more to do than others, where a step would be shorter without that.
fn by_replay(analysis: &Analysis, cause: Cause) -> Option<Found> {
    let Cause::SlowRank { rank } = cause else { return None };
    let waits = analysis.stragglers.iter().find(|straggler| straggler.rank == rank);
    let lost = waits.map_or(0, |waits| waits.caused_wait_ns) / windows(analysis);
    worth(analysis, &[cause], lost)?;
    let share = lost as f64 / analysis.step_ns()?.max(lost) as f64;
    Some(Found { share, causes: vec![cause], lost_ns: Some(lost), ..said(analysis, waits?) })
}

/// The rank that causes most waiting, where no rank has more to do than others: it comes late all the same.
fn by_waiting(analysis: &Analysis) -> Option<Found> {
    const LEAST_BLAME: f64 = 0.6;
    let worst = analysis.stragglers.iter().max_by_key(|rank| rank.caused_wait_ns)?;
    let lateness = Lateness::of(analysis, 1, worst.caused_wait_ns, worst.wait_ns)?;
    let is_it = analysis.stragglers.len() > 1 && lateness.matters(LEAST_BLAME);
    is_it.then(|| Found { share: lateness.share, lost_ns: Some(lateness.lost_ns), ..said(analysis, worst) })
}

/// In which steps a rank has more to do itself than the others have in the mean.
fn slow_steps(analysis: &Analysis, rank: Rank) -> (Vec<Step>, usize) {
    const MORE: f64 = 1.03;
    let own = |partition: &Partition| partition.span_ns - partition.exposed_communication_ns;
    let of_rank = analysis.counted_steps().filter(|step| step.rank == rank);
    let of_rank: BTreeMap<Step, i64> = of_rank.map(|step| (step.step, own(&step.partition))).collect();
    let counted = analysis.counted_job_steps();
    let is_slow = |step: &&StepSummary| {
        let Some(it) = of_rank.get(&step.step) else { return false };
        let (others, count) = (own(&step.all_ranks) - it, step.ranks - 1);
        *it as f64 > MORE * others as f64 / f64::from(count.max(1))
    };
    (counted.clone().filter(is_slow).map(|step| step.step).collect(), counted.count())
}

/// What is said of a slow rank, and why it may be slow.
fn said(analysis: &Analysis, slow: &Straggler) -> Found {
    let rank = slow.rank;
    let (why, advice) = match Why::of(analysis, &[rank]) {
        Why::NoMoreWork => ("it computes no more than the others".to_owned(), "its link, and when it starts its steps"),
        Why::Kernels(share) => (
            format!("its kernels take {} longer", text::rough_percent(share)),
            "its clock speed and temperature, or work that only it does",
        ),
        Why::Idle(more) => (
            format!("it is idle {} more per step", text::duration(more)),
            "its host, its input data, and other processes there",
        ),
    };
    let all: i64 = analysis.stragglers.iter().map(|rank| rank.caused_wait_ns).sum();
    let blame = slow.caused_wait_ns as f64 / all.max(1) as f64;
    let (steps, of) = slow_steps(analysis, rank);
    // One that is slow at times has something else wrong than one that always is.
    let at_times = 2 * steps.len() < of && !steps.is_empty();
    let when = if at_times { format!(", in {} of {of} steps", steps.len()) } else { String::new() };
    Found {
        summary: format!("rank {rank} is a straggler: the other ranks wait for it"),
        evidence: format!("it causes {} of all waiting in collectives; {why}{when}", text::rough_percent(blame)),
        advice: format!("check rank {rank}: {advice}"),
        ranks: vec![rank],
        steps: if at_times { steps } else { Vec::new() },
        ..Found::default()
    }
}
