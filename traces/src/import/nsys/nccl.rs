//! What NCCL says of its operations, in a domain of NVTX of its own: the communicator, and the size of each message.
//!
//! A kernel does what the range around its launch says. Operations that go together are launched behind the last of them:
//! such a kernel does what its thread asked for since the last kernel of NCCL's.
//!
//! NCCL tells the bytes that one rank gives, or takes: what is gathered or scattered is that of all ranks together.

use std::collections::{HashMap, HashSet};

use super::{
    super::profile::{Activity, AskedMessage, Profile, Rows},
    activities::Place,
    payload::Payload,
};
use crate::{
    ids::{Group, Nanos, Sequence},
    membership::Membership,
    vocabulary::SpanKind,
};

/// What NCCL calls its domain.
pub(super) const DOMAIN: &str = "NCCL";

/// How many communicators a process may have.
const MOST_COMMUNICATORS: usize = 1 << 12;
/// How many operations of a process are kept.
const MOST_OPERATIONS: usize = 1 << 22;

/// What NCCL says in one process.
#[derive(Default)]
pub(super) struct NcclRanges {
    operations: Vec<Operation>,
    communicators: Vec<Communicator>,
    /// Groups whose every operation is there.
    from_the_start: HashSet<Group>,
}

/// Something that a thread asked NCCL for.
#[derive(Clone, Copy, Debug)]
struct Operation {
    thread: u32,
    start: Nanos,
    end: Nanos,
    kind: SpanKind,
    group: Option<Group>,
    bytes: Option<u64>,
    peer: Option<u16>,
    sequence: Option<Sequence>,
}

#[derive(Clone, Copy, Debug)]
struct Communicator {
    group: Group,
    index: u32,
    size: u32,
    device: Option<u32>,
}

impl NcclRanges {
    /// Takes a range, with what is said with it.
    pub(super) fn take(&mut self, name: &str, thread: u32, start: Nanos, end: Nanos, payload: Payload) {
        let group = payload.communicator.map(|id| Group::hashed(crc32fast::hash(id.to_string().as_bytes())));
        if let (Some(group), Some(size), Some(index)) = (group, payload.ranks, payload.rank) {
            let device = payload.device;
            let is_known = self.communicators.iter().any(|known| (known.group, known.device) == (group, device));
            if !is_known && self.communicators.len() < MOST_COMMUNICATORS {
                self.communicators.push(Communicator { group, index, size, device });
            }
        }
        if name.starts_with("ncclCommInit") || name.starts_with("ncclCommSplit") {
            self.from_the_start.extend(group);
        }
        if let Some(kind) = operation(name).filter(|_| self.operations.len() < MOST_OPERATIONS) {
            let (bytes, peer) = (payload.bytes, payload.peer);
            self.operations.push(Operation { thread, start, end, kind, group, bytes, peer, sequence: None });
        }
    }

    /// Puts operations in order. Those of a communicator that was made in the session are counted: all of its ranks do
    /// the same ones in the same order.
    pub(super) fn in_order(mut self) -> NcclRanges {
        self.operations.sort_by_key(|operation| operation.start);
        let sizes: HashMap<Group, u32> = self.communicators.iter().map(|known| (known.group, known.size)).collect();
        let mut counts: HashMap<Group, u64> = HashMap::new();
        for operation in &mut self.operations {
            let counted = operation.group.filter(|group| self.from_the_start.contains(group));
            if let Some(group) = counted.filter(|_| !is_message(operation.kind)) {
                let count = counts.entry(group).or_default();
                operation.sequence = Some(Sequence(*count));
                *count += 1;
            }
            operation.bytes =
                operation.bytes.zip(factor(operation, &sizes)).and_then(|(bytes, all)| bytes.checked_mul(all));
        }
        self.operations.sort_by_key(|operation| (operation.thread, operation.start));
        self
    }

    /// The groups that a rank is in.
    pub(super) fn memberships(&self, place: Place) -> Vec<Membership> {
        let own = self.communicators.iter().filter(|known| known.device.is_none_or(|device| device == place.device));
        let of_rank = |known: &Communicator| {
            let (group, index, size) = (known.group, Some(known.index), known.size);
            Membership { group, index, size, name: None, ranks: Vec::new() }
        };
        own.map(of_rank).collect()
    }

    /// How many ranks the largest communicator has.
    pub(super) fn most_ranks(&self) -> Option<u32> {
        self.communicators.iter().map(|known| known.size).max()
    }

    /// Gives the kernels of a rank what NCCL says of them. Where a process has several ranks, their operations are one
    /// list, and are not counted.
    pub(super) fn tell(&self, place: Place, profile: &mut Profile, is_only_rank: bool) {
        if self.operations.is_empty() {
            return;
        }
        let messages = self.operations.iter().filter(|operation| is_only_rank && is_message(operation.kind));
        messages.for_each(|operation| profile.message(self.message(operation, place)));
        let kernels = launches(&profile.rows);
        let mut next = 0;
        for ((thread, launch), index) in kernels {
            let behind = self.operations.partition_point(|asked| (asked.thread, asked.start) <= (thread, launch));
            let first = next.max(self.operations.partition_point(|asked| asked.thread < thread)).min(behind);
            let asked = match self.operations[first..behind].last() {
                Some(last) if launch <= last.end => std::slice::from_ref(last),
                _ => &self.operations[first..behind],
            };
            next = behind;
            let span = &mut profile.rows.activities[index].span;
            let Some((one, others)) = asked.split_first() else { continue };
            span.group = one.group.filter(|_| others.iter().all(|other| other.group == one.group));
            span.bytes = asked.iter().try_fold(0_u64, |sum, operation| sum.checked_add(operation.bytes?));
            span.sequence = one.sequence.filter(|_| others.is_empty() && is_only_rank);
            // A kernel for anything has the name of none.
            if span.kind == SpanKind::Communication && others.iter().all(|other| other.kind == one.kind) {
                span.kind = one.kind;
            }
        }
    }

    fn message(&self, operation: &Operation, place: Place) -> AskedMessage {
        let Operation { thread, start, kind, group, bytes, peer, .. } = *operation;
        let is_own = |known: &&Communicator| {
            Some(known.group) == group && known.device.is_none_or(|device| device == place.device)
        };
        let own = self.communicators.iter().find(is_own).and_then(|known| u16::try_from(known.index).ok());
        let ends = own.zip(peer).map(|(own, peer)| if kind == SpanKind::Send { (own, peer) } else { (peer, own) });
        AskedMessage { thread: Some(thread), start, kind, group, bytes, ends }
    }
}

/// When and on which thread the kernels were launched that may be NCCL's, in that order; which of the activities they are.
fn launches(rows: &Rows) -> Vec<((u32, Nanos), usize)> {
    let kernels = || rows.activities.iter().zip(0..).filter(|(kernel, _)| kernel.span.kind.is_communication());
    let wanted: HashSet<u64> = kernels().filter_map(|(kernel, _)| Some(kernel.span.correlation?.0)).collect();
    let mut launches: HashMap<u64, (Nanos, u32)> = HashMap::new();
    for call in rows.calls.iter().filter(|call| wanted.contains(&call.correlation)) {
        let Some(thread) = call.thread else { continue };
        let first = launches.entry(call.correlation).or_insert((call.start, thread));
        *first = (*first).min((call.start, thread));
    }
    let launched = |(kernel, index): (&Activity, usize)| {
        let (start, thread) = launches.get(&kernel.span.correlation?.0)?;
        Some(((*thread, *start), index))
    };
    let mut launched: Vec<((u32, Nanos), usize)> = kernels().filter_map(launched).collect();
    launched.sort_unstable();
    launched
}

/// How many times the bytes that NCCL tells are the message's.
fn factor(operation: &Operation, sizes: &HashMap<Group, u32>) -> Option<u64> {
    match operation.kind {
        SpanKind::AllGather | SpanKind::ReduceScatter | SpanKind::AllToAll => {
            sizes.get(&operation.group?).copied().map(u64::from)
        }
        _ => Some(1),
    }
}

fn is_message(kind: SpanKind) -> bool {
    matches!(kind, SpanKind::Send | SpanKind::Receive)
}

/// Which operation a function of NCCL's asks for.
fn operation(name: &str) -> Option<SpanKind> {
    Some(match name {
        "ncclAllReduce" => SpanKind::AllReduce,
        "ncclBroadcast" | "ncclBcast" => SpanKind::Broadcast,
        "ncclReduce" => SpanKind::Reduce,
        "ncclAllGather" => SpanKind::AllGather,
        "ncclReduceScatter" => SpanKind::ReduceScatter,
        "ncclAlltoAll" | "ncclAllToAll" => SpanKind::AllToAll,
        "ncclSend" => SpanKind::Send,
        "ncclRecv" => SpanKind::Receive,
        _ => return None,
    })
}
