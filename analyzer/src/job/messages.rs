//! Which send belongs to which receive. A span names its group and its number there, and not the other rank.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use stepscope_traces::{Group, GroupInfo, Rank, Sequence, SpanKind};

use crate::rank::{communication::CommunicationSpan, result::RankResult};

/// A send or a receive: the place of its rank in the list, and its own among the rank's communication.
pub(crate) type SpanIndex = (usize, usize);

/// A message, from both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) send: SpanIndex,
    pub(crate) receive: SpanIndex,
}

impl Message {
    /// The spans of both sides.
    pub(crate) fn spans<'a>(&self, ranks: &'a [RankResult]) -> [&'a CommunicationSpan; 2] {
        [self.send, self.receive].map(|(rank, span)| &ranks[rank].communication[span])
    }
}

/// The sends or the receives of a group: rank, number and place among the rank's communication, sorted.
type Side = Vec<(usize, Sequence, usize)>;

/// Sends or receives by a number that no two of them share, sorted.
type Numbered = Vec<(Sequence, SpanIndex)>;

/// The messages of a run of which both sides are known.
///
/// Numbers are those of a group where no two sends of it share one. Else they are those of two ranks, and the group is
/// a ring: each rank sends to the next one, or each to the one before, whichever the counts allow. A group of which a
/// rank is missing has no messages that are certain.
pub(crate) fn messages(ranks: &[RankResult], groups: &[GroupInfo]) -> Vec<Message> {
    let mut sides: BTreeMap<Group, [Side; 2]> = BTreeMap::new();
    for (rank, result) in ranks.iter().enumerate() {
        for (index, span) in result.communication.iter().enumerate().filter(|(_, span)| span.is_message()) {
            let (Some(group), Some(sequence)) = (span.group, span.sequence) else { continue };
            let side = usize::from(span.operation == SpanKind::Receive);
            sides.entry(group).or_default()[side].push((rank, sequence, index));
        }
    }
    let places: HashMap<Rank, usize> = ranks.iter().enumerate().map(|(place, rank)| (rank.info.rank, place)).collect();
    let described: HashMap<Group, &GroupInfo> = groups.iter().map(|group| (group.group, group)).collect();
    let mut messages = Vec::new();
    for (group, [mut sends, mut receives]) in sides {
        let members = described.get(&group).map(|group| group.ranks.iter().map(|rank| places.get(rank).copied()));
        let members: Option<Option<Vec<usize>>> = members.map(Iterator::collect);
        sends.sort();
        receives.sort();
        // A number that a rank used twice tells nothing.
        let used_twice = |side: &Side| side.windows(2).any(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1));
        if members == Some(None) || used_twice(&sends) || used_twice(&receives) {
            continue;
        }
        match (by_number(&sends), by_number(&receives), members.flatten()) {
            (Some(sends), Some(receives), _) => messages.extend(pairs(&sends, &receives)),
            (_, _, Some(members)) => messages.extend(ring(&members, &sends, &receives)),
            _ => {}
        }
    }
    messages
}

/// Some of one side of a group by number, if no two share one.
fn by_number(side: &[(usize, Sequence, usize)]) -> Option<Numbered> {
    let mut numbered: Numbered = side.iter().map(|(rank, sequence, index)| (*sequence, (*rank, *index))).collect();
    numbered.sort();
    numbered.windows(2).all(|pair| pair[0].0 != pair[1].0).then_some(numbered)
}

fn pairs(sends: &Numbered, receives: &Numbered) -> impl Iterator<Item = Message> {
    let pair = |(sequence, send): &(Sequence, SpanIndex)| {
        let found = receives.binary_search_by_key(sequence, |(sequence, _)| *sequence).ok()?;
        Some(Message { send: *send, receive: receives[found].1 })
    };
    // Nobody sends to itself.
    sends.iter().filter_map(pair).filter(|message| message.send.0 != message.receive.0)
}

/// The messages of ranks that each send to the next one, or each to the one before.
fn ring(members: &[usize], sends: &Side, receives: &Side) -> Vec<Message> {
    let of = |side: &Side, member: usize| {
        let from = side.partition_point(|(rank, ..)| *rank < member);
        let to = side.partition_point(|(rank, ..)| *rank <= member);
        by_number(&side[from..to])
    };
    // Each rank sends to the one so many places further on.
    let attempt = |further: usize| -> Option<Vec<Message>> {
        let mut messages = Vec::new();
        for (index, member) in members.iter().enumerate() {
            let sends = of(sends, *member)?;
            let receives = of(receives, members[(index + further) % members.len()])?;
            if sends.len() != receives.len() {
                return None;
            }
            messages.extend(pairs(&sends, &receives));
        }
        Some(messages)
    };
    let count = members.len();
    match (attempt(1), attempt(count.saturating_sub(1))) {
        (Some(messages), None) | (None, Some(messages)) => messages,
        // Between two ranks both ways are the same.
        (Some(messages), Some(_)) if count == 2 => messages,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use stepscope_plan::{Axis, ParallelLayout, Pass, Schedule, Work};
    use stepscope_traces::Span;

    use super::*;
    use crate::test_runs::{TestRun, ranks, talk};

    /// What each stage of a pipeline sends and receives in a step, as the trainer numbers it: by sender and receiver, in
    /// a group for each direction. The bytes tell which message it is.
    fn stages(layout: &ParallelLayout) -> Vec<Vec<Span>> {
        let ParallelLayout { pp, micro_batches, chunks, schedule, .. } = *layout;
        let mut spans: Vec<Vec<Span>> = vec![Vec::new(); pp as usize];
        let mut numbers: HashMap<(SpanKind, u32, u64, u64), u64> = HashMap::new();
        let mut next = |kind, group, from, to| {
            let number = numbers.entry((kind, group, from, to)).or_default();
            *number += 1;
            *number - 1
        };
        for to in 0..pp {
            for work in schedule.order(to, pp, micro_batches, chunks) {
                let input = schedule.input(work, to, pp, chunks).filter(|(from, _)| *from != to);
                let Some((from, input)) = input else { continue };
                let group = u32::from(input.pass == Pass::Backward);
                let number = next(SpanKind::Receive, group, from, to);
                let label = |work: Work| 1 + work.micro_batch * 100 + work.chunk * 10 + u64::from(group);
                let span = talk(SpanKind::Receive, group, number, 0, 100);
                spans[to as usize].push(Span { bytes: Some(label(input)), ..span });
                // Every schedule sends in the order in which the other side wants it.
                let number = next(SpanKind::Send, group, from, to);
                let span = talk(SpanKind::Send, group, number, 0, 10);
                spans[from as usize].push(Span { bytes: Some(label(input)), ..span });
            }
        }
        spans
    }

    #[test]
    fn every_message_of_a_pipeline_has_two_sides() {
        for schedule in Schedule::ONE_WAY {
            let chunks = if schedule == Schedule::Interleaved { 2 } else { 1 };
            for pp in [2, 3, 4] {
                let layout =
                    ParallelLayout { pp, micro_batches: 2 * pp, chunks, schedule, ..ParallelLayout::default() };
                let stages = stages(&layout);
                let stages: Vec<&[Span]> = stages.iter().map(Vec::as_slice).collect();
                let members: Vec<u32> = (0..pp as u32).collect();
                let groups: [(u32, Axis, &[u32]); 2] = [(0, Axis::Pipeline, &members), (1, Axis::Pipeline, &members)];
                let made = TestRun::of(&groups, &ranks(&stages));
                let results = made.results();
                let found = messages(&results, &made.run.info.groups);
                assert_eq!(found.len() as u64, 2 * (pp * chunks - 1) * layout.micro_batches, "{schedule:?} {pp}");
                for message in found {
                    let [send, receive] = message.spans(&results);
                    assert_eq!((send.group, send.bytes), (receive.group, receive.bytes));
                }
                // Without a rank nothing is certain; where nobody says who is in a group, nobody says who is missing.
                let fewer = TestRun::of(&groups, &ranks(&stages[1..]));
                assert!(messages(&fewer.results(), &fewer.run.info.groups).is_empty());
            }
        }
    }
}
