//! Ranks that others wait for.

use std::collections::BTreeMap;

use stepscope_plan::text;
use stepscope_traces::{Rank, Step};

use super::{
    Check, Found,
    time::{all_time, share, windows, worth},
};
use crate::figures::{Analysis, Cause, CountedTime, StepFigures, Straggler};

/// One rank that the others wait for.
pub(super) struct SlowRank;

impl Check for SlowRank {
    const KIND: &'static str = "slow-rank";

    fn find(analysis: &Analysis) -> Option<Found> {
        let worst = analysis.stragglers.iter().max_by_key(|rank| rank.caused_wait_ns);
        let replayed = analysis.what_if.iter().flat_map(|what_if| &what_if.without);
        let replayed = replayed.filter_map(|without| match without.cause {
            Cause::SlowRank { rank } => Some(rank),
            _ => None,
        });
        match replayed.into_iter().next() {
            Some(rank) => {
                let cause = Cause::SlowRank { rank };
                let waits = analysis.stragglers.iter().find(|straggler| straggler.rank == rank);
                let lost = waits.map_or(0, |waits| waits.caused_wait_ns) / windows(analysis);
                worth(analysis, &[cause], lost)?;
                let share = lost as f64 / analysis.step_ns()?.max(lost) as f64;
                Some(Found { share, causes: vec![cause], lost_ns: Some(lost), ..said(analysis, waits?) })
            }
            None => by_waiting(analysis, worst?).or_else(|| slow_host(analysis)),
        }
    }
}

/// The rank that causes most waiting, where no rank has more to do than others: it comes late all the same.
fn by_waiting(analysis: &Analysis, worst: &Straggler) -> Option<Found> {
    const LEAST_SHARE: f64 = 0.05;
    const LEAST_BLAME: f64 = 0.6;
    let all: i64 = analysis.stragglers.iter().map(|rank| rank.caused_wait_ns).sum();
    let whole = all_time(analysis);
    if all == 0 || whole == 0 || analysis.stragglers.len() < 2 {
        return None;
    }
    // What it waited itself it did not cause, and waiting that compute hides costs nothing.
    let net = (worst.caused_wait_ns - worst.wait_ns).max(0) as f64 / whole as f64;
    let share = net.min(share(analysis, |partition| partition.exposed_communication_ns)?);
    let blame = worst.caused_wait_ns as f64 / all as f64;
    let lost = (share * whole as f64) as i64 / windows(analysis);
    let is_it = share >= LEAST_SHARE && blame >= LEAST_BLAME;
    is_it.then(|| Found { share, lost_ns: Some(lost), ..said(analysis, worst) })
}

/// The host whose ranks cause most waiting, where no single one does.
fn slow_host(analysis: &Analysis) -> Option<Found> {
    const LEAST_SHARE: f64 = 0.05;
    const LEAST_BLAME: f64 = 0.8;
    let host_of = |rank: Rank| analysis.ranks.iter().find(|figures| figures.rank == rank)?.host.as_deref();
    let mut hosts: BTreeMap<&str, Vec<&Straggler>> = BTreeMap::new();
    for straggler in &analysis.stragglers {
        hosts.entry(host_of(straggler.rank)?).or_default().push(straggler);
    }
    let caused = |ranks: &[&Straggler]| ranks.iter().map(|rank| rank.caused_wait_ns).sum::<i64>();
    let waited = |ranks: &[&Straggler]| ranks.iter().map(|rank| rank.wait_ns).sum::<i64>();
    let all: i64 = analysis.stragglers.iter().map(|rank| rank.caused_wait_ns).sum();
    let (host, ranks) = hosts.iter().max_by_key(|(_, ranks)| caused(ranks))?;
    let blame = caused(ranks) as f64 / all.max(1) as f64;
    let net = (caused(ranks) - waited(ranks)).max(0) as f64 / all_time(analysis).max(1) as f64;
    let share = net.min(share(analysis, |partition| partition.exposed_communication_ns)?);
    let is_it = hosts.len() > 1 && ranks.len() > 1 && blame >= LEAST_BLAME && share >= LEAST_SHARE;
    is_it.then(|| Found {
        share,
        summary: format!("the {} ranks of {host} are stragglers: the others wait for them", ranks.len()),
        evidence: format!("they cause {} of all waiting in collectives", text::rough_percent(blame)),
        advice: format!("check {host}: its clock speeds and temperature, its network, its input data, other processes"),
        ranks: ranks.iter().map(|rank| rank.rank).collect(),
        lost_ns: Some((share * all_time(analysis) as f64) as i64 / windows(analysis)),
        ..Found::default()
    })
}

/// In which steps a rank has more to do itself than the others have in the mean.
fn slow_steps(analysis: &Analysis, rank: Rank) -> (Vec<Step>, usize) {
    const MORE: f64 = 1.03;
    let own = |step: &StepFigures| (step.partition.span_ns - step.partition.exposed_communication_ns) as f64;
    let mut steps: BTreeMap<Step, (f64, f64, u32)> = BTreeMap::new();
    for step in analysis.counted_steps() {
        let (it, others, count) = steps.entry(step.step).or_default();
        match step.rank == rank {
            true => *it += own(step),
            false => (*others, *count) = (*others + own(step), *count + 1),
        }
    }
    let is_slow = |(it, others, count): &(f64, f64, u32)| *it > MORE * others / f64::from((*count).max(1));
    (steps.iter().filter(|(_, times)| is_slow(times)).map(|(step, _)| *step).collect(), steps.len())
}

/// What is said of a slow rank, and why it may be slow.
fn said(analysis: &Analysis, slow: &Straggler) -> Found {
    let rank = slow.rank;
    let mean = |of: fn(&CountedTime) -> i64, is_it: bool| {
        let ranks = analysis.counted.iter().filter(|time| (time.rank == rank) == is_it);
        let (sum, windows) = ranks.fold((0, 0), |(sum, windows), time| (sum + of(time), windows + time.windows as i64));
        sum as f64 / windows.max(1) as f64
    };
    let more = |of: fn(&CountedTime) -> i64| mean(of, true) - mean(of, false);
    let (compute, idle) = (more(|time| time.partition.compute_ns), more(|time| time.partition.idle_ns));
    let others = mean(|time| time.partition.compute_ns, false);
    let (why, advice) = if compute <= 0.0 && idle <= 0.0 {
        ("it computes no more than the others".to_owned(), "its link, and when it starts its steps")
    } else if compute >= idle {
        let share = text::rough_percent(compute / others.max(1.0));
        (format!("its kernels take {share} longer"), "its clock speed and temperature, or work that only it does")
    } else {
        let more = text::duration(idle as i64);
        (format!("it is idle {more} more per step"), "its host, its input data, and other processes there")
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
