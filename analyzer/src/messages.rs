//! Which send belongs to which receive. A span names its group and its number there, and not the other rank.

use std::collections::{BTreeMap, HashMap};

use stepscope_traces::{Group, GroupInfo, Rank, Sequence, SpanKind};

use crate::{communication::CommunicationSpan, rank::RankResult};

/// A send or a receive: the place of its rank in the list, and its own among the rank's communication.
pub(crate) type Place = (usize, usize);

/// A message, from both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) send: Place,
    pub(crate) receive: Place,
}

impl Message {
    /// The spans of both sides.
    pub(crate) fn spans<'a>(&self, ranks: &'a [RankResult]) -> [&'a CommunicationSpan; 2] {
        [self.send, self.receive].map(|(rank, span)| &ranks[rank].communication[span])
    }
}

/// The sends or the receives of a group, by rank and number.
type Side = BTreeMap<(usize, Sequence), Vec<Place>>;

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
            let side = &mut sides.entry(group).or_default()[usize::from(span.operation == SpanKind::Receive)];
            side.entry((rank, sequence)).or_default().push((rank, index));
        }
    }
    let places: HashMap<Rank, usize> = ranks.iter().enumerate().map(|(place, rank)| (rank.info.rank, place)).collect();
    let described: HashMap<Group, &GroupInfo> = groups.iter().map(|group| (group.group, group)).collect();
    let mut messages = Vec::new();
    for (group, [sends, receives]) in &sides {
        let members = described.get(group).map(|group| group.ranks.iter().map(|rank| places.get(rank).copied()));
        let members: Option<Option<Vec<usize>>> = members.map(Iterator::collect);
        // A number that a rank used twice tells nothing.
        let used_twice = |side: &Side| side.values().any(|places| places.len() > 1);
        if members == Some(None) || used_twice(sends) || used_twice(receives) {
            continue;
        }
        match (by_number(sends), by_number(receives), members.flatten()) {
            (Some(sends), Some(receives), _) => messages.extend(pairs(&sends, &receives)),
            (_, _, Some(members)) => messages.extend(ring(&members, sends, receives)),
            _ => {}
        }
    }
    messages
}

/// One side of a group by number, if no two ranks use the same one.
fn by_number(side: &Side) -> Option<BTreeMap<Sequence, Place>> {
    let numbers: BTreeMap<Sequence, Place> =
        side.iter().map(|((_, sequence), places)| (*sequence, places[0])).collect();
    (numbers.len() == side.len()).then_some(numbers)
}

fn pairs<'a>(
    sends: &'a BTreeMap<Sequence, Place>,
    receives: &'a BTreeMap<Sequence, Place>,
) -> impl Iterator<Item = Message> + 'a {
    let pair = |(sequence, send): (&Sequence, &Place)| Some(Message { send: *send, receive: *receives.get(sequence)? });
    // Nobody sends to itself.
    sends.iter().filter_map(pair).filter(|message| message.send.0 != message.receive.0)
}

/// The messages of ranks that each send to the next one, or each to the one before.
fn ring(members: &[usize], sends: &Side, receives: &Side) -> Vec<Message> {
    let of = |side: &Side, member: usize| -> BTreeMap<Sequence, Place> {
        let numbers = side.range((member, Sequence(0))..=(member, Sequence(u64::MAX)));
        numbers.map(|((_, sequence), places)| (*sequence, places[0])).collect()
    };
    let count = members.len();
    // Of each member the one it sends to.
    let next = (0..count).map(|index| (members[index], members[(index + 1) % count]));
    let before = (0..count).map(|index| (members[index], members[(index + count - 1) % count]));
    let attempt = |links: Vec<(usize, usize)>| -> Option<Vec<Message>> {
        let mut messages = Vec::new();
        for (from, to) in links {
            let (sends, receives) = (of(sends, from), of(receives, to));
            if sends.len() != receives.len() {
                return None;
            }
            messages.extend(pairs(&sends, &receives));
        }
        Some(messages)
    };
    match (attempt(next.collect()), attempt(before.collect())) {
        (Some(messages), None) | (None, Some(messages)) => messages,
        // Between two ranks both ways are the same.
        (Some(messages), Some(_)) if count == 2 => messages,
        _ => Vec::new(),
    }
}
