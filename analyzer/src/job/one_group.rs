//! The group of collectives that name none, as older versions of PyTorch recorded them.
//!
//! For users, it is defined in `docs/src/metrics.md#collectives`.
//!
//! They are of one group of all ranks where everything speaks for it: all ranks of the job are there; none names a group of
//! other ranks; each makes the same collectives in the same order, and sends no messages; nearly always none is over on a
//! rank before all have begun it; and no rank ends them much more together with some ranks than with others, as ranks of
//! smaller groups do that keep step. Clocks may differ by a constant, which is told from when collectives end.

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
/// So much more closely than with all others a rank ends collectives with those of a group of its own.
const CLOSER: i64 = 5;
/// Ranks that end collectives more closely than this are of one group.
const CLOSE_NS: i64 = 5_000;
/// Among so many ranks and collectives smaller groups are looked for.
const MOST_COMPARED: usize = 64;
const MOST_COLLECTIVES: usize = 1024;

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
        && !keep_step_in_parts(&numbered)
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

/// Whether most ranks end collectives with some ranks much more together than with others.
fn keep_step_in_parts(ranks: &[Numbered<'_>]) -> bool {
    let compared = &ranks[..ranks.len().min(MOST_COMPARED)];
    let is_in_part = |(place, rank): &(usize, &Numbered<'_>)| {
        let others = compared.iter().enumerate().filter(|(other, _)| other != place);
        let apart: Vec<i64> = others.map(|(_, other)| usually_apart(rank, other)).collect();
        let (nearest, farthest) = (apart.iter().min(), apart.iter().max());
        nearest.zip(farthest).is_some_and(|(near, far)| *far > CLOSE_NS && *far > near.saturating_mul(CLOSER))
    };
    2 * compared.iter().enumerate().filter(is_in_part).count() > compared.len()
}

/// How far the ends of collectives on two ranks are apart in a third of them, whatever their clocks say: those of one group
/// may be fewer than the others.
fn usually_apart(one: &Numbered<'_>, other: &Numbered<'_>) -> i64 {
    let ahead = ahead(one, other, MOST_COLLECTIVES);
    let third = (ahead.len() / 3).max(3);
    ahead.windows(third).map(|ends| ends[third - 1].saturating_sub(ends[0])).min().unwrap_or(0)
}

/// How far a rank's clock is ahead of that of another one, if collectives end together.
fn offset(one: &Numbered<'_>, other: &Numbered<'_>) -> i64 {
    let ahead = ahead(one, other, usize::MAX);
    ahead.get(ahead.len() / 2).copied().unwrap_or(0)
}

/// By how much collectives of a rank end later than those of another one, the least first.
fn ahead(one: &Numbered<'_>, other: &Numbered<'_>, most: usize) -> Vec<i64> {
    let ends = one.values().zip(other.values()).take(most);
    let mut ahead: Vec<i64> = ends.map(|(one, other)| other.end.saturating_sub(one.end)).collect();
    ahead.sort_unstable();
    ahead
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
        // Both pairs are in each of theirs at one time, and end it when theirs is over.
        let ends_later = |by: fn(i64) -> i64| -> Vec<Span> {
            let later = |(number, span): (i64, &Span)| {
                let duration_ns = Nanos(span.duration_ns.0 + by(number));
                Span { duration_ns, ..*span }
            };
            (0..).zip(&sums(0, 0)).map(later).collect()
        };
        let pair = |other: bool| match other {
            true => [
                ends_later(|number| 31_000 * (number * number % 7)),
                ends_later(|number| 31_000 * (number * number % 7) + 900),
            ],
            false => [ends_later(|_| 0), ends_later(|number| 700 * (number % 2))],
        };
        let ([a, b], [c, d]) = (pair(false), pair(true));
        assert!(!analyzed(&[&a, &b, &c, &d]).run.groups_inferred);
        assert!(analyzed(&[&a, &b, &a, &b]).run.groups_inferred);
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
