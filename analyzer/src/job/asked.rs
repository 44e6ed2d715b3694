//! What each rank waits in, from what each says: groups by their names and ranks, messages by their ends, and what is over
//! where only others can tell.

use std::collections::BTreeMap;

use stepscope_traces::{
    AskedOperation, Group, GroupInfo, GroupProgress, InFlight, MessageNumber, Rank, RankInfo, Sequence,
};

/// What each rank that says something waits in. Where PyTorch tells it on all of them, that is more; else it is in other words,
/// and of other groups, than what the others say.
pub(super) fn asked<'a>(
    ranks: impl Iterator<Item = &'a RankInfo> + Clone,
    groups: &[GroupInfo],
) -> BTreeMap<Rank, InFlight> {
    let said = |told: fn(&RankInfo) -> Option<&InFlight>| -> BTreeMap<Rank, InFlight> {
        ranks.clone().filter_map(|info| Some((info.rank, told(info)?.clone()))).collect()
    };
    let by_torch = said(|info| info.collector.flight_recorder.as_ref());
    let by_others = said(|info| info.collector.in_flight.as_ref());
    let mut said = if by_torch.len() >= by_others.len() { by_torch } else { by_others };
    for in_flight in said.values_mut() {
        in_flight.groups.iter_mut().for_each(|group| name(group, groups));
        let members: BTreeMap<Group, Vec<Rank>> =
            in_flight.groups.iter().map(|group| (group.group, group.ranks.clone())).collect();
        for operation in in_flight.waiting.iter_mut().chain(&mut in_flight.last_completed) {
            let member = |place: u16| members.get(&operation.group)?.get(usize::from(place)).copied();
            operation.peer = operation.peer.or_else(|| member(operation.peer_place?));
        }
    }
    let all = said.clone();
    for (rank, in_flight) in said.iter_mut().filter(|(_, in_flight)| in_flight.are_ends_unknown) {
        in_flight.waiting.retain(|operation| !is_over(&all, *rank, operation));
    }
    said
}

/// Says what a group is called and who is in it, where its ranks do not.
fn name(group: &mut GroupProgress, known: &[GroupInfo]) {
    let Some(info) = known.iter().find(|info| info.group == group.group) else { return };
    if group.ranks.is_empty() {
        group.ranks.clone_from(&info.ranks);
    }
    if group.name.is_empty() {
        group.name = info.axis.name().to_owned();
    }
}

/// Whether an operation of a rank is over, or will be: all others have asked for it, too.
fn is_over(all: &BTreeMap<Rank, InFlight>, rank: Rank, operation: &AskedOperation) -> bool {
    if operation.peer_place.is_some() {
        let Some(other) = operation.peer.and_then(|peer| all.get(&peer)) else { return false };
        let number = |operation: &AskedOperation| MessageNumber::from(Sequence(operation.sequence));
        let MessageNumber { count, from, to } = number(operation);
        let is_later = |other: &AskedOperation| {
            let it = number(other);
            other.group == operation.group && (it.from, it.to) == (from, to) && it.count >= count
        };
        let is_other_side = |other: &&AskedOperation| other.peer_place.is_some() && other.name != operation.name;
        return other.waiting.iter().filter(is_other_side).any(is_later);
    }
    let of_group = |in_flight: &InFlight| {
        in_flight.groups.iter().find(|group| group.group == operation.group).map(|group| group.last_asked)
    };
    let own = all.get(&rank).and_then(|own| own.groups.iter().find(|group| group.group == operation.group));
    let is_after = |asked: Option<u64>| asked.is_some_and(|asked| asked >= operation.sequence);
    match own {
        Some(GroupProgress { ranks, .. }) if !ranks.is_empty() => {
            ranks.iter().all(|member| all.get(member).and_then(of_group).is_some_and(is_after))
        }
        _ => all.values().filter_map(of_group).all(is_after),
    }
}

#[cfg(test)]
mod tests {
    use stepscope_plan::Axis;
    use stepscope_traces::{Nanos, SpanKind};

    use super::*;

    const GROUP: Group = Group(7);

    fn operation(kind: SpanKind, sequence: impl Into<Sequence>) -> AskedOperation {
        AskedOperation::new(kind, GROUP, sequence.into(), Nanos(0))
    }

    /// A rank that has asked for these, and nobody knows what is over.
    fn rank(rank: u32, waiting: Vec<AskedOperation>) -> RankInfo {
        let last_asked = waiting.iter().filter(|one| one.peer_place.is_none()).map(|one| one.sequence).max();
        let group = GroupProgress { group: GROUP, name: String::new(), ranks: Vec::new(), last_asked };
        let mut info = RankInfo::of_this_process(Rank(rank));
        info.collector.in_flight =
            Some(InFlight { groups: vec![group], waiting, are_ends_unknown: true, ..InFlight::default() });
        info
    }

    fn left(ranks: &[RankInfo]) -> Vec<Vec<(u64, Option<u32>)>> {
        let groups = [GroupInfo { group: GROUP, axis: Axis::Data, ranks: vec![Rank(0), Rank(1)] }];
        let told = |in_flight: &InFlight| {
            assert_eq!((in_flight.groups[0].name.as_str(), in_flight.groups[0].ranks.len()), ("data", 2));
            in_flight.waiting.iter().map(|one| (one.sequence, one.peer.map(|peer| peer.0))).collect()
        };
        asked(ranks.iter(), &groups).values().map(told).collect()
    }

    #[test]
    fn what_all_members_have_asked_for_is_over() {
        let reduce = |number| operation(SpanKind::AllReduce, Sequence(number));
        let ranks = [rank(0, vec![reduce(3), reduce(4), reduce(5)]), rank(1, vec![reduce(3), reduce(4)])];
        assert_eq!(left(&ranks), [vec![(5, None)], vec![]]);
        // Of a member that says nothing nobody knows what it asked for.
        assert_eq!(left(&ranks[..1]), [[3, 4, 5].map(|number| (number, None))]);
    }

    #[test]
    fn a_message_is_over_that_both_ends_have_asked_for() {
        let number = |count| MessageNumber { count, from: 0, to: 1 };
        let sends = vec![operation(SpanKind::Send, number(8)), operation(SpanKind::Send, number(9))];
        let ranks = [rank(0, sends), rank(1, vec![operation(SpanKind::Receive, number(8))])];
        assert_eq!(left(&ranks), [vec![(Sequence::from(number(9)).0, Some(1))], vec![]]);
    }
}
