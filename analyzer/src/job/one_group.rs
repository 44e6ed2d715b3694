//! The group of collectives that name none, as older versions of PyTorch recorded them.
//!
//! For users, it is defined in `docs/src/metrics.md#collectives`.
//!
//! They are of one group of all ranks where everything speaks for it: all ranks of the job are there; none names a group of
//! other ranks; each makes the same collectives in the same order, and sends no messages; nearly always none is over on a
//! rank before all have begun it; and those that ranks begin far apart they end close together, having waited for each other, as
//! ranks of smaller groups that keep step do not. Clocks may differ by a constant, which is told from when collectives end.

use std::collections::BTreeMap;

use stepscope_traces::{Group, RunInfo, Sequence, SpanKind};

use crate::rank::{axes::is_hand_over, communication::CommunicationSpan, result::RankResult};

/// That group. No other one has this number.
const ALL: Group = Group(u32::MAX);

/// Fewer collectives tell nothing of when they are.
const FEWEST: usize = 4;
/// Ends of one collective are so far apart, in nanoseconds.
const APART_NS: i64 = 20_000;
/// The share of collectives that all ranks are to be in at one time: some may have nothing to give or to get.
const TOGETHER: f64 = 0.95;
/// So many times closer together than they begin do ranks end a collective in which they wait for each other, in this share of
/// those that they begin far apart.
const CLOSER: i64 = 5;
const MET: f64 = 0.9;

/// The collectives of a rank, by number.
type Numbered<'a> = BTreeMap<Sequence, &'a CommunicationSpan>;

/// Puts all collectives into one group, if they are of one; says whether they are. The run has so many ranks.
pub(crate) fn put_into_one(run: &RunInfo, all: usize, ranks: &mut [RankResult]) -> bool {
    let is_one = all == ranks.len() && are_of_one(run, ranks);
    if is_one {
        ranks.iter_mut().for_each(put);
    }
    is_one
}

/// Puts the collectives of a rank into the group of all.
pub(crate) fn put(rank: &mut RankResult) {
    for span in rank.communication.iter_mut().filter(|span| span.sequence.is_some()) {
        span.group = Some(ALL);
    }
    for activity in rank.sample.iter_mut().flat_map(|sample| &mut sample.activities) {
        activity.group = activity.sequence.map(|_| ALL).or(activity.group);
    }
}

/// Whether collectives were put into the group of all.
pub(crate) fn is_inferred(ranks: &[RankResult]) -> bool {
    ranks.iter().flat_map(|rank| &rank.communication).any(|span| span.group == Some(ALL))
}

fn are_of_one(run: &RunInfo, ranks: &[RankResult]) -> bool {
    let all = run.world_size.map_or(ranks.len(), |ranks| ranks as usize);
    let names_others = run.layout.is_some()
        || run.groups.iter().any(|group| group.ranks.len() != all)
        || ranks.iter().flat_map(|rank| &rank.info.groups).any(|group| group.size as usize != all);
    if all != ranks.len() || all < 2 || names_others {
        return false;
    }
    let Some(numbered) = ranks.iter().map(numbered).collect::<Option<Vec<_>>>() else { return false };
    let (first, others) = numbered.split_at(1);
    first[0].len() >= FEWEST
        && others.iter().all(|other| are_alike(&first[0], other))
        && are_together(&numbered)
        && wait_for_each_other(&numbered)
}

/// The collectives of a rank, if it makes nothing else. Those before its first step have no number.
fn numbered(rank: &RankResult) -> Option<Numbered<'_>> {
    let mut numbered = BTreeMap::new();
    for span in &rank.communication {
        if span.group.is_some() || is_hand_over(span.operation) {
            return None;
        }
        if let Some(number) = span.sequence
            && numbered.insert(number, span).is_some()
        {
            return None;
        }
    }
    Some(numbered)
}

/// Whether two ranks make the same collectives. Of others than sums, ranks may give different amounts.
fn are_alike(one: &Numbered<'_>, other: &Numbered<'_>) -> bool {
    let is_same = |(one, other): (&CommunicationSpan, &CommunicationSpan)| {
        let is_sum = one.operation == SpanKind::AllReduce;
        one.operation == other.operation && (!is_sum || one.bytes == other.bytes)
    };
    one.keys().eq(other.keys()) && one.values().copied().zip(other.values().copied()).all(is_same)
}

/// Whether nearly all collectives that end on no rank before all have begun are so.
fn are_together(ranks: &[Numbered<'_>]) -> bool {
    let offsets: Vec<i64> = ranks.iter().map(|rank| offset(&ranks[0], rank)).collect();
    let meets = |span: &CommunicationSpan| !matches!(span.operation, SpanKind::Broadcast | SpanKind::Reduce);
    let numbers: Vec<Sequence> = ranks[0].iter().filter(|(_, span)| meets(span)).map(|(number, _)| *number).collect();
    let is_together = |number: &&Sequence| {
        let spans = || ranks.iter().zip(&offsets).map(|(rank, offset)| (rank[*number], offset));
        let begun = spans().map(|(span, offset)| span.start.saturating_sub(*offset)).max();
        let over = spans().map(|(span, offset)| span.end.saturating_sub(*offset)).min();
        begun.zip(over).is_some_and(|(begun, over)| begun <= over.saturating_add(APART_NS))
    };
    let together = numbers.iter().filter(is_together).count();
    numbers.len() >= FEWEST && together as f64 >= TOGETHER * numbers.len() as f64
}

/// Whether ranks wait for each other: where they begin far apart, they end close together. Ranks of smaller groups that keep
/// step are as far apart then as before.
fn wait_for_each_other(ranks: &[Numbered<'_>]) -> bool {
    let offsets: Vec<i64> = ranks.iter().map(|rank| offset(&ranks[0], rank)).collect();
    let spread = |number: &Sequence, time: fn(&CommunicationSpan) -> i64| {
        let times = || ranks.iter().zip(&offsets).map(|(rank, offset)| time(rank[number]).saturating_sub(*offset));
        times().max().zip(times().min()).map_or(0, |(last, first)| last.saturating_sub(first))
    };
    let spreads = ranks[0].keys().map(|number| (spread(number, |span| span.start), spread(number, |span| span.end)));
    let telling: Vec<(i64, i64)> = spreads.filter(|(begun, _)| *begun > APART_NS).collect();
    let met = telling.iter().filter(|(begun, over)| over.saturating_mul(CLOSER) <= *begun).count();
    telling.len() >= FEWEST && met as f64 >= MET * telling.len() as f64
}

/// How far a rank's clock is ahead of that of another one, if collectives end together.
fn offset(one: &Numbered<'_>, other: &Numbered<'_>) -> i64 {
    let ends = one.values().zip(other.values());
    let mut ahead: Vec<i64> = ends.map(|(one, other)| other.end.saturating_sub(one.end)).collect();
    ahead.sort_unstable();
    ahead.get(ahead.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use stepscope_plan::{Axis, Zero};
    use stepscope_traces::{Nanos, Phase, Span};

    use super::*;
    use crate::test_runs::{TestRun, ranks, span, talk};

    use SpanKind::{AllReduce, Kernel, Send};

    /// Sums of a backward pass that name no group, and that one rank comes to some time after the others.
    fn sums(late: i64, clock: i64) -> Vec<Span> {
        let sum = |number: i64| {
            let start = clock + 1_000_000 * number;
            let sum = talk(AllReduce, 0, number as u64, start + late, start + 500_000 + number);
            Span { group: None, phase: Some(Phase::Backward), bytes: None, ..sum }
        };
        (0..6).map(sum).chain([span(Kernel, clock, clock + 10)]).collect()
    }

    fn analyzed(spans: &[&[Span]]) -> crate::Analysis {
        TestRun::of(&[], &ranks(spans)).analyze()
    }

    #[test]
    fn collectives_without_a_group_are_of_all_ranks() {
        // Clocks are apart, but all the time by as much.
        let analysis = analyzed(&[&sums(0, 0), &sums(100_000, 7_000_000), &sums(0, 0)]);
        assert!(analysis.run.groups_inferred && analysis.run.axes_inferred);
        let figures = &analysis.collectives[0];
        assert_eq!((figures.axis, figures.group_size, figures.count), (Some(Axis::Data), Some(3), 6));
        assert_eq!(figures.waiting_ns, Some(2 * 6 * 100_000));
        let caused: Vec<i64> = analysis.stragglers.iter().map(|straggler| straggler.caused_wait_ns).collect();
        assert_eq!(caused, [0, 2 * 6 * 100_000, 0]);
        assert_eq!(analysis.run.layout.map(|layout| (layout.dp, layout.zero)), Some((3, Some(Zero::Off))));
    }

    #[test]
    fn pairs_that_keep_step_are_not_one_group() {
        let [one, other] = [sums(0, 0), sums(100_000, 0)];
        // Another pair makes the same ones at about the same time, and ends them when it is there.
        let later = |(number, span): (i64, &Span)| {
            let start_ns = Nanos(span.start_ns.0 + 90_000 * (number * number % 7));
            Span { start_ns, ..*span }
        };
        let [third, fourth] = [&one, &other].map(|spans| (0..).zip(spans).map(later).collect::<Vec<_>>());
        assert!(!analyzed(&[&one, &other, &third, &fourth]).run.groups_inferred);
        assert!(analyzed(&[&one, &other, &one, &other]).run.groups_inferred);
        assert!(!analyzed(&[&one, &one, &one, &one]).run.groups_inferred, "nobody waits: they may be of any");
    }

    #[test]
    fn collectives_of_several_groups_stay_unknown() {
        let (early, late) = (sums(0, 0), sums(300_000, 0));
        // Another pair of ranks makes the same ones, at other times each.
        let moved = |spans: &[Span]| -> Vec<Span> {
            let later = |place: i64, start: Nanos| Nanos(start.0 + 700_000 * (place % 2));
            let move_on = |(place, span): (i64, &Span)| Span { start_ns: later(place, span.start_ns), ..*span };
            (0..).zip(spans).map(move_on).collect()
        };
        let apart = analyzed(&[&early, &late, &moved(&early), &moved(&late)]);
        let other_order: Vec<Span> =
            early.iter().map(|span| Span { bytes: span.sequence.map(|number| number.0 + 1), ..*span }).collect();
        let with_message: Vec<Span> =
            early.iter().copied().chain([Span { group: None, ..talk(Send, 0, 9, 0, 5) }]).collect();
        let with_group: Vec<Span> = early.iter().copied().chain([talk(AllReduce, 4, 9, 0, 5)]).collect();
        let too_few = &early[..3];
        for (why, analysis) in [
            ("they are not at one time", apart),
            ("they are not the same", analyzed(&[&early, &other_order])),
            ("there are messages", analyzed(&[&with_message, &with_message])),
            ("a group is named", analyzed(&[&with_group, &with_group])),
            ("there are too few", analyzed(&[too_few, too_few])),
            ("there is one rank", analyzed(&[&early])),
        ] {
            assert!(!analysis.run.groups_inferred, "{why}");
            assert_eq!(analysis.collectives.iter().filter_map(|figures| figures.waiting_ns).sum::<i64>(), 0, "{why}");
            assert_eq!(analysis.run.layout, None, "{why}");
        }
    }
}
