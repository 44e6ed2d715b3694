//! Experts that have more to do than others.

use stepscope_plan::{Axis, text};

use super::{
    Check, Found,
    ranks::SlowRank,
    time::{LEAST_WIN, all_time, per_step, windows},
};
use crate::figures::{Analysis, CountedTime};

/// Ranks that wait for each other where tokens go to experts and come back.
pub(super) struct UnevenExperts;

impl Check for UnevenExperts {
    const KIND: &'static str = "uneven-experts";

    fn find(analysis: &Analysis) -> Option<Found> {
        let of_experts = |axis: Option<Axis>| matches!(axis, Some(Axis::Expert | Axis::TensorExpert));
        let collectives = analysis.collectives.iter().filter(|collective| of_experts(collective.axis));
        // What is hidden costs nothing.
        let waits = collectives.filter_map(|collective| Some(collective.waiting_ns?.min(collective.exposed_ns)));
        let waiting: i64 = waits.sum();
        let share = waiting as f64 / all_time(analysis).max(1) as f64;
        if share < LEAST_WIN || SlowRank::find(analysis).is_some() {
            return None;
        }
        let compute = |time: &CountedTime| time.partition.compute_ns as f64 / time.windows.max(1) as f64;
        let most = analysis.counted.iter().max_by(|one, other| compute(one).total_cmp(&compute(other)))?;
        let mean = analysis.counted.iter().map(compute).sum::<f64>() / analysis.counted.len().max(1) as f64;
        let more = compute(most) / mean.max(1.0) - 1.0;
        let who = match more >= LEAST_WIN {
            true => format!("rank {} computes {} more than the mean", most.rank, text::rough_percent(more)),
            false => "over a step all ranks compute as much: another one is late each time".to_owned(),
        };
        let chosen = analysis.experts.as_ref().map_or_else(String::new, |experts| {
            format!("; the busiest rank has {:.2} times the mean of a layer's tokens", experts.rank_imbalance)
        });
        Some(Found {
            share,
            summary: format!("uneven experts: ranks wait for each other {} of the time", text::rough_percent(share)),
            evidence: format!(
                "{}{} in expert-parallel collectives before the last rank has come; {who}{chosen}",
                text::duration(waiting / windows(analysis)),
                per_step(analysis)
            ),
            advice: "balance the router (auxiliary loss, bias per expert), set a capacity, or place busy experts on different \
                     ranks"
                .into(),
            ranks: if more >= LEAST_WIN { vec![most.rank] } else { Vec::new() },
            lost_ns: Some(waiting / windows(analysis)),
            ..Found::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use stepscope_plan::Axis;
    use stepscope_traces::{Span, SpanKind};

    use crate::test_runs::{TestRun, ranks, span, talk};

    /// Ranks compute for so long, one after the other, and meet after each time.
    fn kinds(works: [[i64; 4]; 2]) -> Vec<&'static str> {
        let mut spans: [Vec<Span>; 2] = Default::default();
        let mut now = 0;
        for (number, layer) in (0..).zip(0..works[0].len()) {
            let last = works.iter().map(|work| work[layer]).max().unwrap();
            for (rank, work) in works.iter().enumerate() {
                spans[rank].push(span(SpanKind::Kernel, now, now + work[layer]));
                spans[rank].push(talk(SpanKind::AllToAll, 0, number, now + work[layer], now + last + 1));
            }
            now += last + 1;
        }
        let spans: Vec<&[Span]> = spans.iter().map(Vec::as_slice).collect();
        let analysis = TestRun::of(&[(0, Axis::Expert, &[0, 1])], &ranks(&spans)).analyze();
        analysis.findings.iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn experts_that_take_turns_in_being_late_are_uneven() {
        assert!(kinds([[100, 60, 100, 60], [60, 100, 60, 100]]).contains(&"uneven-experts"));
        assert!(!kinds([[100; 4]; 2]).contains(&"uneven-experts"));
        assert!(!kinds([[100; 4], [60; 4]]).contains(&"uneven-experts"), "that is a slow rank");
    }
}
