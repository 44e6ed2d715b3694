//! What ties spans of several ranks together: one collective on all its ranks, and both sides of a message.

use stepscope_traces::{Group, GroupInfo, Sequence, SpanKind};

use crate::{
    job::{collectives::GroupSizes, messages::messages},
    rank::result::RankResult,
};

/// What the other ranks say of a rank's part in a collective, or of one side of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// The number of the collective or message, from 1, the same on all sides; none where no other side is known.
    pub number: Option<u64>,
    /// Its own time: the least over its ranks, where all of them recorded it.
    pub own_ns: Option<i64>,
    /// What crosses a rank's link, as a share of the message.
    pub bus_factor: Option<f32>,
}

/// A rank's part in a numbered collective; equal but for rank and place, they are of the same one.
type CollectivePart = (Group, Sequence, SpanKind, usize, usize);

/// The links of every rank's communication, in its order, and how many numbers there are.
pub(crate) fn links(ranks: &[RankResult], groups: &[GroupInfo], sizes: &GroupSizes) -> (Vec<Vec<Link>>, u64) {
    let mut links: Vec<Vec<Link>> = Vec::new();
    let mut parts: Vec<CollectivePart> = Vec::new();
    for (rank, result) in ranks.iter().enumerate() {
        let bus_factor = |span| sizes.kind(span).bus_factor().map(|factor| factor as f32);
        let of = |span| Link { bus_factor: bus_factor(span), ..Link::default() };
        links.push(result.communication.iter().map(of).collect());
        for (place, span) in result.communication.iter().enumerate().filter(|(_, span)| !span.is_message()) {
            parts.extend(
                span.group.zip(span.sequence).map(|(group, number)| (group, number, span.operation, rank, place)),
            );
        }
    }
    parts.sort_unstable();
    let mut count = 0;
    for parts in parts.chunk_by(|one, other| (one.0, one.1, one.2) == (other.0, other.1, other.2)) {
        // Numbers that a rank used twice are none.
        if parts.windows(2).any(|pair| pair[0].3 == pair[1].3) {
            continue;
        }
        let span = |part: &CollectivePart| &ranks[part.3].communication[part.4];
        let size = sizes.kind(span(&parts[0])).group_size;
        let is_whole = size.is_none_or(|size| size == parts.len() as u64);
        let own_ns = parts.iter().map(|part| span(part).duration()).min().filter(|_| is_whole);
        let number = (parts.len() > 1).then(|| {
            count += 1;
            count
        });
        for (.., rank, place) in parts {
            let link = &mut links[*rank][*place];
            *link = Link { number, own_ns, ..*link };
        }
    }
    for message in messages(ranks, groups) {
        count += 1;
        let own_ns = message.spans(ranks).map(|span| span.duration()).into_iter().min();
        for (rank, place) in [message.send, message.receive] {
            let link = &mut links[rank][place];
            *link = Link { number: Some(count), own_ns, ..*link };
        }
    }
    (links, count)
}

#[cfg(test)]
mod tests {
    use stepscope_plan::Axis;

    use super::*;
    use crate::test_runs::{TestRun, ranks, talk};

    fn linked(made: &TestRun) -> (Vec<Vec<Link>>, u64) {
        let (ranks, groups) = (made.results(), &made.run.info.groups);
        links(&ranks, groups, &GroupSizes::of(&ranks, groups, ranks.len() as u32))
    }

    #[test]
    fn a_collective_is_one_on_all_its_ranks() {
        let first = [talk(SpanKind::AllReduce, 0, 0, 0, 50), talk(SpanKind::AllReduce, 0, 1, 60, 70)];
        let second = [talk(SpanKind::AllReduce, 0, 1, 55, 70), talk(SpanKind::AllReduce, 0, 0, 20, 50)];
        let made = TestRun::of(&[(0, Axis::Data, &[0, 1])], &ranks(&[&first, &second]));
        let (links, count) = linked(&made);
        assert_eq!(count, 2);
        assert_eq!(links[0][0].number, links[1][1].number);
        assert_eq!(links[0][1].number, links[1][0].number);
        assert_ne!(links[0][0].number, links[0][1].number);
        assert_eq!([links[0][0].own_ns, links[1][1].own_ns], [Some(30), Some(30)], "the one that came last");
        assert_eq!([links[0][1].own_ns, links[1][0].own_ns], [Some(10), Some(10)]);
        assert_eq!(links[0][0].bus_factor, Some(1.0), "twice a half");
    }

    #[test]
    fn where_a_rank_is_missing_nobody_knows_its_time() {
        let spans = [talk(SpanKind::AllGather, 0, 0, 0, 50)];
        let made = TestRun::of(&[(0, Axis::Data, &[0, 1, 2])], &ranks(&[&spans, &spans]));
        let (links, _) = linked(&made);
        assert_eq!((links[0][0].number, links[0][0].own_ns), (Some(1), None));
        let alone = TestRun::of(&[(0, Axis::Data, &[0, 1])], &ranks(&[&spans]));
        let (links, _) = linked(&alone);
        assert_eq!((links[0][0].number, links[0][0].own_ns), (None, None));
    }

    #[test]
    fn both_sides_of_a_message_are_tied_together() {
        let sends = [talk(SpanKind::Send, 0, 0, 0, 10)];
        let receives = [talk(SpanKind::Receive, 0, 0, 0, 15)];
        let made = TestRun::of(&[(0, Axis::Pipeline, &[0, 1])], &ranks(&[&sends, &receives]));
        let (links, count) = linked(&made);
        assert_eq!((count, links[0][0], links[1][0]), (1, links[1][0], links[0][0]));
        assert_eq!((links[0][0].number, links[0][0].own_ns), (Some(1), Some(10)));
    }
}
