//! Why communication did not end: who waits in what, for whom, and who is at the end of that chain.
//!
//! A rank waits in the first operation that it asked for and that is not over; what it asked for later waits for that. It waits
//! for the ranks of the operation's group that have not asked for it, and for those that have, and wait in something else
//! before it. Whoever is waited for and waits for nobody is the cause. But where ranks do not do the same in a collective, that
//! is the cause, also where it is over: the first such collective is.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_traces::{AskedOperation, Group, GroupInfo, GroupProgress, InFlight, OperationState, Rank, RankInfo};

use super::asked::asked;
use crate::figures::{Hang, HangCause, PendingOperation, RankElsewhere, RankOperation, WaitingRank};

/// Collectives whose ranks all give as much as each other.
const GIVE_ALIKE: [&str; 8] = [
    "all_reduce",
    "all_reduce_barrier",
    "barrier",
    "broadcast",
    "reduce",
    "all_gather",
    "_all_gather_base",
    "all_gather_single",
];
/// Collectives whose ranks all get as much as each other.
const GET_ALIKE: [&str; 3] = ["reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single"];

/// What the ranks waited in, if any did.
pub(crate) fn hang<'a>(ranks: impl Iterator<Item = &'a RankInfo> + Clone, groups: &[GroupInfo]) -> Option<Hang> {
    let mut hang = Dumps(asked(ranks.clone(), groups)).hang()?;
    for elsewhere in &mut hang.elsewhere {
        let info = ranks.clone().find(|info| info.rank == elsewhere.rank);
        let main = info.and_then(|info| info.collector.stack_dump.as_ref()?.python.first());
        elsewhere.stack = main.map_or_else(Vec::new, |main| main.calls.clone());
    }
    Some(hang)
}

/// What each rank says.
struct Dumps(BTreeMap<Rank, InFlight>);

/// A rank that waits, and for whom.
struct Waiter<'a> {
    rank: Rank,
    operation: &'a AskedOperation,
    waits_for: BTreeSet<Rank>,
}

/// What somebody waits for in the end: whose fault it is, and a rank that shows it.
struct Blame<'a> {
    cause: HangCause,
    ranks: Vec<Rank>,
    rank: Rank,
    operation: &'a AskedOperation,
    /// What ranks called as that operation, where that is not the same.
    differing: Vec<(Rank, &'a AskedOperation)>,
}

impl<'a> Blame<'a> {
    fn at(cause: HangCause, ranks: Vec<Rank>, waiter: &Waiter<'a>) -> Blame<'a> {
        Blame { cause, ranks, rank: waiter.rank, operation: waiter.operation, differing: Vec::new() }
    }
}

impl Dumps {
    fn hang(&self) -> Option<Hang> {
        let waiters: Vec<Waiter<'_>> = self.0.iter().filter_map(|(rank, dump)| self.waiter(*rank, dump)).collect();
        let Blame { cause, mut ranks, rank, operation, differing } = self.blame(&waiters)?;
        ranks.sort_unstable();
        ranks.dedup();
        let pending = |dump: &InFlight| dump.waiting.len() as u64 + dump.more;
        let waiting = waiters.iter().map(|waiter| WaitingRank {
            rank: waiter.rank,
            operation: self.told(waiter.rank, waiter.operation),
            waits_for: waiter.waits_for.iter().copied().collect(),
            pending: pending(&self.0[&waiter.rank]),
        });
        let elsewhere = self.0.iter().filter(|(_, dump)| dump.waiting.is_empty()).map(|(rank, dump)| RankElsewhere {
            rank: *rank,
            last: dump.last_completed.as_ref().map(|last| self.told(*rank, last)),
            stack: Vec::new(),
        });
        let others = waiters.iter().flat_map(|waiter| &waiter.waits_for).filter(|rank| !self.0.contains_key(rank));
        Some(Hang {
            cause,
            ranks,
            operation: self.told(rank, operation),
            differing: differing
                .into_iter()
                .map(|(rank, operation)| RankOperation { rank, operation: self.told(rank, operation) })
                .collect(),
            without_dump: others.copied().collect::<BTreeSet<Rank>>().into_iter().collect(),
            waiting: waiting.collect(),
            elsewhere: elsewhere.collect(),
        })
    }

    /// What a rank waits in, if it does.
    fn waiter<'b>(&'b self, rank: Rank, dump: &'b InFlight) -> Option<Waiter<'b>> {
        let operation = dump.waiting.first()?;
        let others = self.members(rank, operation).into_iter().filter(|member| *member != rank);
        let waits_for = others.filter(|member| self.is_behind(*member, rank, operation)).collect();
        Some(Waiter { rank, operation, waits_for })
    }

    /// Whether a rank has not come to the operation of another, or is held up before it.
    fn is_behind(&self, member: Rank, rank: Rank, operation: &AskedOperation) -> bool {
        let Some(dump) = self.0.get(&member) else { return true };
        if operation.peer.is_some() {
            let Some(other) = self.other_side(rank, operation) else { return true };
            // Messages of one batch go at once.
            return dump.waiting.first().is_some_and(|first| first.peer.is_none() || first.group != other.group);
        }
        let asked = self.group(member, operation.group).and_then(|group| group.last_asked);
        if asked.is_none_or(|asked| asked < operation.sequence) {
            return true;
        }
        // One that is over there is none that it waits in.
        let is_pending = dump.waiting.iter().any(|other| is_same(other, operation));
        is_pending && !dump.waiting.first().is_some_and(|first| is_same(first, operation))
    }

    /// What the other side of a rank's send or receive has asked for, if it has: to receive it, or to send it.
    fn other_side(&self, rank: Rank, operation: &AskedOperation) -> Option<&AskedOperation> {
        let dump = self.0.get(&operation.peer?)?;
        let is_it = |other: &&AskedOperation| {
            other.group == operation.group && other.peer == Some(rank) && other.name != operation.name
        };
        dump.waiting.iter().find(is_it)
    }

    /// What everybody waits for in the end.
    fn blame<'b>(&'b self, waiters: &'b [Waiter<'b>]) -> Option<Blame<'b>> {
        let first_asked =
            |waiters: Vec<&'b Waiter<'b>>| waiters.into_iter().min_by_key(|waiter| waiter.operation.asked_ns);
        let waits_for = |is_cause: &dyn Fn(&Rank) -> bool| -> (Vec<Rank>, Option<&'b Waiter<'b>>) {
            let waiting = waiters.iter().filter(|waiter| waiter.waits_for.iter().any(is_cause)).collect::<Vec<_>>();
            let ranks = waiting.iter().flat_map(|waiter| waiter.waits_for.iter().copied()).filter(is_cause).collect();
            (ranks, first_asked(waiting))
        };
        if let Some(blame) = self.first_mismatch() {
            return Some(blame);
        }
        if let Some((ranks, at)) = waiters.iter().find_map(|waiter| Some((self.unlike_ends(waiter)?, waiter))) {
            return Some(Blame::at(HangCause::Mismatch, ranks, at));
        }
        let is_idle = |rank: &Rank| self.0.get(rank).is_some_and(|dump| dump.waiting.is_empty());
        if let (ranks, Some(at)) = waits_for(&is_idle) {
            return Some(Blame::at(HangCause::Absent, ranks, at));
        }
        if let (ranks, Some(at)) = waits_for(&|rank| !self.0.contains_key(rank)) {
            return Some(Blame::at(HangCause::NoDump, ranks, at));
        }
        let free: Vec<&Waiter<'_>> = waiters.iter().filter(|waiter| waiter.waits_for.is_empty()).collect();
        if let Some(at) = first_asked(free) {
            return Some(Blame::at(HangCause::AllCame, self.members(at.rank, at.operation), at));
        }
        let at = first_asked(waiters.iter().collect())?;
        Some(Blame::at(HangCause::Deadlock, circle(at, waiters), at))
    }

    /// The two ends of a message, if they do not send what they receive.
    fn unlike_ends(&self, waiter: &Waiter<'_>) -> Option<Vec<Rank>> {
        let (peer, other) = (waiter.operation.peer?, self.other_side(waiter.rank, waiter.operation)?);
        let given = [waiter.operation, other].map(|one| elements(&one.input_sizes).max(elements(&one.output_sizes)));
        (given[0] != given[1] || waiter.operation.types != other.types).then(|| vec![waiter.rank, peer])
    }

    /// The first collective in which ranks do not do the same, whether it is over or not.
    fn first_mismatch(&self) -> Option<Blame<'_>> {
        let mut collectives: BTreeMap<(Group, u64), Vec<(Rank, &AskedOperation)>> = BTreeMap::new();
        for (rank, dump) in &self.0 {
            for operation in dump.completed.iter().chain(&dump.waiting).filter(|one| one.peer.is_none()) {
                collectives.entry((operation.group, operation.sequence)).or_default().push((*rank, operation));
            }
        }
        let first_asked = |called: &[(Rank, &AskedOperation)]| called.iter().map(|(_, one)| one.asked_ns).min();
        let differing = collectives.into_values().filter_map(|called| Some((unlike(&called)?, called)));
        let (ranks, called) = differing.min_by_key(|(_, called)| first_asked(called))?;
        let (rank, operation) = *called.first()?;
        Some(Blame { cause: HangCause::Mismatch, ranks, rank, operation, differing: called })
    }

    /// The ranks of an operation: of a group that does not say its ranks, those that know it.
    fn members(&self, rank: Rank, operation: &AskedOperation) -> Vec<Rank> {
        if let Some(peer) = operation.peer {
            return vec![rank, peer];
        }
        match self.group(rank, operation.group) {
            Some(group) if !group.ranks.is_empty() => group.ranks.clone(),
            _ => self.0.keys().copied().filter(|rank| self.group(*rank, operation.group).is_some()).collect(),
        }
    }

    fn group(&self, rank: Rank, group: Group) -> Option<&GroupProgress> {
        self.0.get(&rank)?.groups.iter().find(|known| known.group == group)
    }

    /// How far an operation was, where that is known.
    fn state(&self, rank: Rank, operation: &AskedOperation) -> Option<OperationState> {
        let are_starts_known = self.0.get(&rank).is_some_and(|dump| dump.are_starts_known);
        Some(operation.state).filter(|state| *state != OperationState::Scheduled || are_starts_known)
    }

    fn told(&self, rank: Rank, operation: &AskedOperation) -> PendingOperation {
        let group = self.group(rank, operation.group);
        PendingOperation {
            operation: operation.name.clone(),
            group: group.map_or_else(String::new, |group| group.name.clone()),
            group_ranks: self.members(rank, &AskedOperation { peer: None, ..operation.clone() }),
            sequence: operation.sequence,
            peer: operation.peer,
            input_sizes: operation.input_sizes.clone(),
            output_sizes: operation.output_sizes.clone(),
            types: operation.types.clone(),
            state: self.state(rank, operation),
            asked_ns: operation.asked_ns.0,
            stack: operation.stack.clone(),
        }
    }
}

/// Whether two ranks' operations are one collective, by its place in the group's order.
fn is_same(one: &AskedOperation, other: &AskedOperation) -> bool {
    one.peer.is_none() && other.peer.is_none() && (one.group, one.sequence) == (other.group, other.sequence)
}

/// The ranks that do something else in a collective than most of its ranks do.
fn unlike(called: &[(Rank, &AskedOperation)]) -> Option<Vec<Rank>> {
    let mut kinds: Vec<(&AskedOperation, Vec<Rank>)> = Vec::new();
    for (rank, operation) in called {
        match kinds.iter_mut().find(|(kind, _)| are_alike(kind, operation)) {
            Some((_, ranks)) => ranks.push(*rank),
            None => kinds.push((operation, vec![*rank])),
        }
    }
    kinds.sort_by_key(|(_, ranks)| std::cmp::Reverse(ranks.len()));
    match kinds.as_slice() {
        [] | [_] => None,
        // Nobody knows which of as many is right.
        [(_, most), (_, next), ..] if most.len() == next.len() => {
            Some(kinds.iter().flat_map(|(_, ranks)| ranks.iter().copied()).collect())
        }
        [_, others @ ..] => Some(others.iter().flat_map(|(_, ranks)| ranks.iter().copied()).collect()),
    }
}

/// Whether two ranks do the same in a collective, as far as that can be told. Who is given nothing says no type.
fn are_alike(one: &AskedOperation, other: &AskedOperation) -> bool {
    let name = one.name.as_str();
    let give_alike = !GIVE_ALIKE.contains(&name) || elements(&one.input_sizes) == elements(&other.input_sizes);
    let get_alike = !GET_ALIKE.contains(&name) || elements(&one.output_sizes) == elements(&other.output_sizes);
    let type_alike = one.types.is_empty() || other.types.is_empty() || one.types == other.types;
    one.name == other.name && type_alike && give_alike && get_alike
}

/// How many elements tensors have together; none where that is no number.
fn elements(sizes: &[Vec<u64>]) -> Option<u64> {
    let of_tensor = |sizes: &Vec<u64>| sizes.iter().try_fold(1_u64, |all, size| all.checked_mul(*size));
    sizes.iter().map(of_tensor).try_fold(0_u64, |all, tensor| all.checked_add(tensor?))
}

/// The ranks that a rank comes back to itself by, each waiting for the next.
fn circle(from: &Waiter<'_>, waiters: &[Waiter<'_>]) -> Vec<Rank> {
    let mut way = vec![from.rank];
    let mut at = from;
    loop {
        let next = at.waits_for.iter().find_map(|rank| waiters.iter().find(|waiter| waiter.rank == *rank));
        let Some(next) = next else { return way };
        if let Some(begin) = way.iter().position(|rank| *rank == next.rank) {
            return way.split_off(begin);
        }
        way.push(next.rank);
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::Nanos;

    use super::*;

    /// Groups of all tests: data-parallel pairs and tensor-parallel pairs of four ranks.
    const GROUPS: [(u32, &str, [u32; 2]); 4] =
        [(1, "dp", [0, 2]), (2, "dp", [1, 3]), (3, "tp", [0, 1]), (4, "tp", [2, 3])];

    fn pending(group: u32, sequence: u64, asked: i64) -> AskedOperation {
        AskedOperation {
            group: Group(group),
            name: "all_reduce".into(),
            sequence,
            peer: None,
            peer_place: None,
            input_sizes: vec![vec![4, 8]],
            output_sizes: vec![vec![4, 8]],
            types: vec!["Float".into()],
            state: OperationState::Scheduled,
            asked_ns: Nanos(asked),
            stack: vec![format!("train.py:{sequence} step")],
        }
    }

    fn message(name: &str, peer: u32, asked: i64) -> AskedOperation {
        AskedOperation { name: name.into(), peer: Some(Rank(peer)), ..pending(1, 1, asked) }
    }

    /// A rank that has come to these numbers in its groups, and waits in these operations.
    fn dump(rank: u32, asked: [u64; 2], waiting: Vec<AskedOperation>) -> (Rank, InFlight) {
        let mine = GROUPS.iter().filter(|(.., ranks)| ranks.contains(&rank)).zip(asked);
        let groups = mine.map(|((group, name, ranks), asked)| GroupProgress {
            group: Group(*group),
            name: (*name).into(),
            ranks: ranks.map(Rank).to_vec(),
            last_asked: Some(asked),
        });
        let last_completed = Some(pending(1, 9, 0));
        (Rank(rank), InFlight { groups: groups.collect(), waiting, last_completed, ..InFlight::default() })
    }

    fn hang_of(dumps: &[(Rank, InFlight)]) -> Option<Hang> {
        Dumps(dumps.iter().cloned().collect()).hang()
    }

    fn cause(dumps: &[(Rank, InFlight)]) -> Option<(HangCause, Vec<u32>, String, u64)> {
        let hang = hang_of(dumps)?;
        let ranks = hang.ranks.iter().map(|rank| rank.0).collect();
        Some((hang.cause, ranks, hang.operation.group, hang.operation.sequence))
    }

    #[test]
    fn who_is_waited_for_and_waits_for_nobody_did_not_come() {
        // Rank 2 is elsewhere; 3 waits for it in tp, 0 in dp, and 1 for 3, which is held up before it comes to dp.
        let dumps = [
            dump(0, [5, 7], vec![pending(1, 5, 30)]),
            dump(1, [5, 7], vec![pending(2, 5, 40)]),
            dump(2, [4, 6], vec![]),
            dump(3, [5, 7], vec![pending(4, 7, 20), pending(2, 5, 25)]),
        ];
        assert_eq!(cause(&dumps), Some((HangCause::Absent, vec![2], "tp".into(), 7)));
        let hang = hang_of(&dumps).unwrap();
        let waits: Vec<_> = hang.waiting.iter().map(|one| (one.rank.0, one.waits_for[0].0, one.pending)).collect();
        assert_eq!(waits, [(0, 2, 1), (1, 3, 1), (3, 2, 2)]);
        assert_eq!(hang.elsewhere.len(), 1);
        // Without its dump nobody knows what it did.
        let without: Vec<_> = dumps.into_iter().filter(|(rank, _)| rank.0 != 2).collect();
        assert_eq!(cause(&without), Some((HangCause::NoDump, vec![2], "tp".into(), 7)));
        assert_eq!(hang_of(&without).unwrap().without_dump, [Rank(2)]);
    }

    #[test]
    fn ranks_that_do_not_do_the_same_are_told() {
        let other = |change: fn(&mut AskedOperation)| {
            let mut other = pending(1, 5, 20);
            change(&mut other);
            [dump(0, [5, 7], vec![pending(1, 5, 10)]), dump(2, [5, 7], vec![other])]
        };
        let differ = Some((HangCause::Mismatch, vec![0, 2], "dp".into(), 5));
        assert_eq!(cause(&other(|one| one.name = "broadcast".into())), differ);
        assert_eq!(cause(&other(|one| one.input_sizes = vec![vec![4, 9]])), differ);
        assert_eq!(cause(&other(|one| one.types = vec!["Half".into()])), differ);
        // The same number of elements is the same, whatever their shape.
        let all_came = Some((HangCause::AllCame, vec![0, 2], "dp".into(), 5));
        assert_eq!(cause(&other(|one| one.input_sizes = vec![vec![32]])), all_came);
    }

    #[test]
    fn the_one_that_differs_from_all_others_is_told() {
        let world = |rank| {
            let group = GroupProgress { group: Group(9), name: "world".into(), ranks: vec![], last_asked: Some(3) };
            let mut operation = pending(9, 3, 10);
            operation.input_sizes[0][0] = if rank == 1 { 7 } else { 4 };
            (Rank(rank), InFlight { groups: vec![group], waiting: vec![operation], ..InFlight::default() })
        };
        assert_eq!(cause(&[0, 1, 2, 3].map(world)), Some((HangCause::Mismatch, vec![1], "world".into(), 3)));
    }

    #[test]
    fn ranks_that_use_their_groups_in_another_order_wait_in_a_circle() {
        let dumps = [
            dump(0, [5, 7], vec![pending(3, 7, 10), pending(1, 5, 11)]),
            dump(1, [5, 7], vec![pending(2, 5, 10), pending(3, 7, 11)]),
            dump(2, [5, 7], vec![pending(1, 5, 10), pending(4, 7, 11)]),
            dump(3, [5, 7], vec![pending(4, 7, 10), pending(2, 5, 11)]),
        ];
        let (cause, ranks, ..) = cause(&dumps).unwrap();
        assert_eq!((cause, ranks), (HangCause::Deadlock, vec![0, 1, 2, 3]));
    }

    #[test]
    fn a_message_waits_for_its_other_side() {
        let sends = || dump(0, [5, 7], vec![message("send", 2, 10)]);
        let (absent, receives) = (dump(2, [5, 7], vec![]), dump(2, [5, 7], vec![message("recv", 0, 12)]));
        assert_eq!(
            cause(&[sends(), absent]).map(|(cause, ranks, ..)| (cause, ranks)),
            Some((HangCause::Absent, vec![2]))
        );
        let told = |dumps: &[_]| cause(dumps).map(|(cause, ranks, ..)| (cause, ranks));
        assert_eq!(told(&[sends(), receives]), Some((HangCause::AllCame, vec![0, 2])));
        let also_sends = dump(2, [5, 7], vec![message("send", 0, 12)]);
        assert_eq!(told(&[sends(), also_sends]), Some((HangCause::Deadlock, vec![0, 2])));
        let other_size =
            AskedOperation { input_sizes: vec![], output_sizes: vec![vec![4, 9]], ..message("recv", 0, 12) };
        assert_eq!(told(&[sends(), dump(2, [5, 7], vec![other_size])]), Some((HangCause::Mismatch, vec![0, 2])));
    }

    #[test]
    fn the_first_collective_that_differs_is_the_cause_also_where_it_is_over() {
        let over = |rank: u32, name: &str, sequence, asked| {
            let (rank, mut dump) = dump(rank, [5, 7], vec![pending(1, 5, 40)]);
            let operation =
                AskedOperation { name: name.into(), state: OperationState::Completed, ..pending(1, sequence, asked) };
            dump.completed = vec![pending(1, 1, 1), operation];
            (rank, dump)
        };
        let dumps = [over(0, "all_reduce", 3, 10), over(2, "broadcast", 3, 20)];
        assert_eq!(cause(&dumps), Some((HangCause::Mismatch, vec![0, 2], "dp".into(), 3)));
        let hang = hang_of(&dumps).unwrap();
        let differing: Vec<_> = hang.differing.iter().map(|one| one.operation.operation.as_str()).collect();
        assert_eq!((differing, hang.waiting.len()), (vec!["all_reduce", "broadcast"], 2));
        // Nobody has to wait for that to be told; and of one that only one rank remembers, nobody knows.
        let idle = dumps.clone().map(|(rank, dump)| (rank, InFlight { waiting: vec![], ..dump }));
        assert_eq!(cause(&idle), Some((HangCause::Mismatch, vec![0, 2], "dp".into(), 3)));
        let other_number = [over(0, "all_reduce", 3, 10), over(2, "broadcast", 4, 20)];
        assert_eq!(cause(&other_number), Some((HangCause::AllCame, vec![0, 2], "dp".into(), 5)));
    }

    #[test]
    fn whether_a_gpu_has_begun_is_said_where_it_is_recorded() {
        let state = |are_starts_known| {
            let (rank, dump) = dump(0, [5, 7], vec![pending(1, 5, 10)]);
            let hang = hang_of(&[(rank, InFlight { are_starts_known, ..dump })]).unwrap();
            hang.waiting[0].operation.state
        };
        assert_eq!((state(false), state(true)), (None, Some(OperationState::Scheduled)));
    }

    #[test]
    fn nobody_who_waits_is_no_hang() {
        assert_eq!(hang_of(&[dump(0, [5, 7], vec![]), dump(1, [5, 7], vec![])]), None);
    }
}
