//! A communicator of the program: who is in it, and how many operations it has had.
//!
//! Counting goes on when nothing is recorded, so that all ranks come to the same numbers whenever their windows open.

use std::{
    array,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use stepscope_traces::{Group, Membership, MessageNumber, Sequence, SpanKind};

use super::{event::Asked, operations::Operation, recent::Recent};

/// Collectives that NCCL has numbered have numbers without this bit.
const COUNTED_BY_CALL: u64 = 1 << 63;
/// The bits that the number of a rank has, of those whose messages are counted.
const RANK_BITS: u32 = 16;
/// Ranks are counted in blocks of this size, allocated on first write.
const BLOCK: usize = 1 << 8;

/// A communicator.
#[derive(Default)]
pub(super) struct Communicator {
    /// Who is in it, if it said so when it began.
    pub(super) identity: Option<Identity>,
    /// This rank's place in it, if that was said.
    pub(super) membership: Option<Membership>,
    pub(super) recent: Recent,
    sent: PeerCounts,
    received: PeerCounts,
    calls: [AtomicU64; SpanKind::ALL.len()],
    /// Whether a graph has messages of it. NCCL tells one rank of each time it is launched and another one of none, so that
    /// their counts mean nothing from then on.
    captured: AtomicBool,
}

/// Which communicator it is.
#[derive(Clone, Copy)]
pub(super) struct Identity {
    /// The same on all its ranks.
    pub(super) hash: u64,
    pub(super) size: u32,
}

impl Communicator {
    /// One that says who is in it.
    pub(super) fn of(identity: Identity, membership: Membership) -> Communicator {
        Communicator { identity: Some(identity), membership: Some(membership), ..Communicator::default() }
    }

    /// A collective with the number that NCCL gave it among those of its function.
    pub(super) fn collective(&self, asked: Asked, sequence: u64) -> Operation {
        self.recent.collective(asked.operation);
        self.operation(asked, Some(Sequence(sequence)))
    }

    /// A collective that was called for: it has the number of that call among those of its function.
    pub(super) fn call(&self, asked: Asked) -> Operation {
        self.recent.call(asked.operation);
        let number = self.calls[asked.operation as usize].fetch_add(1, Relaxed);
        self.operation(asked, Some(Sequence(COUNTED_BY_CALL | number)))
    }

    /// A message from this rank to a peer, or from there. The messages from one rank to another come in the order in which
    /// they were sent, so both have the same number of it; with the ranks' own it is no other message's.
    pub(super) fn message(&self, asked: Asked, own: i32, peer: i32) -> Operation {
        let (counts, from, to) = match asked.operation {
            SpanKind::Receive => (&self.received, peer, own),
            _ => (&self.sent, own, peer),
        };
        let number = |count: u32| {
            Some(MessageNumber { count, from: u16::try_from(from).ok()?, to: u16::try_from(to).ok()? }.into())
        };
        let count = counts.next(peer).filter(|_| !self.captured.load(Relaxed));
        let sequence = count.and_then(number);
        sequence.into_iter().for_each(|sequence| self.recent.message(asked.operation, sequence));
        Operation { is_to_itself: own == peer, ..self.operation(asked, sequence) }
    }

    /// Says that messages go into a graph.
    pub(super) fn capture(&self) {
        self.captured.store(true, Relaxed);
    }

    fn operation(&self, asked: Asked, sequence: Option<Sequence>) -> Operation {
        let Asked { operation: kind, part_bytes, whole_bytes, hash } = asked;
        let size = self.identity.map(|identity| identity.size);
        let bytes = match kind {
            SpanKind::AllGather | SpanKind::ReduceScatter => {
                let whole = part_bytes.zip(size).and_then(|(part, size)| part.checked_mul(size.into()));
                whole_bytes.or(whole)
            }
            _ => part_bytes,
        };
        let hash = self.identity.map(|identity| identity.hash).or(hash);
        Operation { kind, bytes, group: hash.map(group), sequence, size, is_to_itself: false }
    }
}

/// The number of a group, by its hash.
pub(super) fn group(hash: u64) -> Group {
    Group::hashed((hash ^ hash >> 32) as u32)
}

/// A count for each other rank.
struct PeerCounts([OnceLock<Box<[AtomicU32; BLOCK]>>; (1 << RANK_BITS) / BLOCK]);

impl Default for PeerCounts {
    fn default() -> PeerCounts {
        PeerCounts(array::from_fn(|_| OnceLock::new()))
    }
}

impl PeerCounts {
    /// How many there were before; none of a rank beyond those that are counted.
    fn next(&self, peer: i32) -> Option<u32> {
        let peer = usize::try_from(peer).ok()?;
        let block = self.0.get(peer / BLOCK)?.get_or_init(|| Box::new(array::from_fn(|_| AtomicU32::new(0))));
        Some(block[peer % BLOCK].fetch_add(1, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(size: u32) -> Communicator {
        let membership = Membership { group: group(9), index: Some(0), size, name: None, ranks: Vec::new() };
        Communicator::of(Identity { hash: 9, size }, membership)
    }

    fn asked(operation: SpanKind) -> Asked {
        Asked { operation, part_bytes: Some(100), whole_bytes: None, hash: Some(5) }
    }

    #[test]
    fn bytes_are_the_whole_messages_where_ranks_have_parts() {
        let known = of(4);
        let unknown = Communicator::default();
        for (kind, of_known, of_unknown) in [
            (SpanKind::AllReduce, Some(100), Some(100)),
            (SpanKind::Broadcast, Some(100), Some(100)),
            (SpanKind::AllGather, Some(400), None),
            (SpanKind::ReduceScatter, Some(400), None),
        ] {
            assert_eq!(known.collective(asked(kind), 3).bytes, of_known);
            assert_eq!(unknown.collective(asked(kind), 3).bytes, of_unknown);
            let told = Asked { whole_bytes: Some(300), ..asked(kind) };
            assert_eq!(unknown.collective(told, 3).bytes, of_unknown.or(Some(300)));
        }
        assert_eq!((known.collective(asked(SpanKind::Reduce), 3).group, group(9)), (Some(group(9)), Group::hashed(9)));
        assert_eq!(unknown.collective(asked(SpanKind::Reduce), 3).group, Some(group(5)));
        assert_ne!(group(1 << 40), group(1 << 41));
        let endless = Asked { part_bytes: Some(u64::MAX), ..asked(SpanKind::AllGather) };
        assert_eq!(known.collective(endless, 3).bytes, None);
    }

    #[test]
    fn both_ends_of_a_message_come_to_the_same_number_and_no_other_does() {
        let ranks = [(); 3].map(|()| of(3));
        let mut seen = Vec::new();
        for (from, to) in [(0, 1), (0, 1), (1, 0), (0, 2), (2, 1), (0, 1), (1, 1)] {
            let sent = ranks[from].message(asked(SpanKind::Send), from as i32, to as i32);
            let received = ranks[to].message(asked(SpanKind::Receive), to as i32, from as i32);
            assert_eq!((sent.sequence, sent.is_to_itself), (received.sequence, from == to));
            assert!(!seen.contains(&sent.sequence.unwrap()));
            seen.extend(sent.sequence);
        }
        for (own, peer) in [(0, -1), (-1, 0), (0, 1 << 16), (1 << 16, 0)] {
            assert_eq!(ranks[0].message(asked(SpanKind::Send), own, peer).sequence, None, "{own} {peer}");
        }
        ranks[0].capture();
        assert_eq!(ranks[0].message(asked(SpanKind::Send), 0, 1).sequence, None);
    }

    #[test]
    fn calls_are_counted_by_function_and_apart_from_what_nccl_counts() {
        let communicator = Communicator::default();
        let numbers = [SpanKind::Broadcast, SpanKind::Broadcast, SpanKind::AllReduce]
            .map(|kind| communicator.call(asked(kind)).sequence.unwrap().0);
        assert_eq!(numbers, [COUNTED_BY_CALL, COUNTED_BY_CALL | 1, COUNTED_BY_CALL]);
    }
}
