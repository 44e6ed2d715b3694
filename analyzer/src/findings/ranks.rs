//! Ranks that others wait for.

use stepscope_plan::text;

use super::{
    Check, Found,
    time::{all_time, share, windows, worth},
};
use crate::figures::{Analysis, Cause, CountedTime, Straggler};

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
                let share = worth(analysis, &[cause], lost)?;
                Some(Found { share, causes: vec![cause], lost_ns: Some(lost), ..said(analysis, waits?) })
            }
            None => by_waiting(analysis, worst?),
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
    Found {
        summary: format!("rank {rank} is a straggler: the other ranks wait for it"),
        evidence: format!("it causes {} of all waiting in collectives; {why}", text::rough_percent(blame)),
        advice: format!("check rank {rank}: {advice}"),
        ranks: vec![rank],
        ..Found::default()
    }
}
