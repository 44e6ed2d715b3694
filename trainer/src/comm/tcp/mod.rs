//! Ranks that are processes, on the CPU: they send each other their tensors.
//!
//! In a collective every rank sends to every other what that one needs and what it takes the collective for, and then
//! waits for the same from all. What is summed is summed as the ranks of one process sum it, to the last bit.

mod peers;

use std::sync::Arc;

use bytemuck::{cast_slice, cast_slice_mut, pod_read_unaligned};
use half::bf16;
use stepscope_traces::{MemoryCategory, Rank, SpanKind};

pub(crate) use self::peers::Peers;
use self::peers::{Address, Letter};
use super::{
    Communicator, Exchange, ProcessGroup, Reduction,
    numbering::Numbering,
    parcel::{pack, unpack},
    reduce::{Reducer, part},
    terms::{self, How, Terms},
};
use crate::{
    backend::{
        Backend, DType, Stream, Tensor,
        cpu::{CpuBackend, Element, View, view, with_element},
    },
    error::TrainError,
    rendezvous::{Channel, Operation},
};

/// One rank's way to other processes.
pub struct TcpCommunicator {
    peers: Arc<Peers>,
    backend: Arc<CpuBackend>,
    numbering: Numbering,
}

/// A rank's part in one collective.
struct Seat {
    peers: Arc<Peers>,
    operation: Operation,
    terms: Terms,
    ranks: Vec<Rank>,
    index: usize,
}

impl Seat {
    /// Sends each member what it is to have, and waits for what all have sent: by member, nothing for this one.
    fn trade(
        &self,
        round: u8,
        for_member: impl Fn(usize) -> Result<Vec<u8>, TrainError>,
    ) -> Result<Vec<Vec<u8>>, TrainError> {
        let others = || (0..self.ranks.len()).filter(|member| *member != self.index);
        let address =
            |from| Address { channel: self.operation.channel.clone(), number: self.operation.number, round, from };
        for member in others() {
            let letter = Letter { terms: Some(self.terms.clone()), bytes: for_member(member)? };
            self.peers.post(self.ranks[member], &address(self.peers.rank()), &letter)?;
        }
        let mut received = vec![Vec::new(); self.ranks.len()];
        for member in others() {
            let from = self.ranks[member];
            let letter = self.peers.collect(&address(from))?;
            if let Some(terms) = &letter.terms {
                Terms::agree((self.ranks[self.index], &self.terms), (from, terms))?;
            }
            received[member] = letter.bytes;
        }
        Ok(received)
    }

    fn part(&self, elements: usize, member: usize) -> std::ops::Range<usize> {
        part(elements, self.ranks.len(), member)
    }

    /// This rank's part of all tensors together.
    fn reduce<E: Element>(&self, mine: &View, reduction: Reduction) -> Result<Vec<E>, TrainError> {
        let elements = mine.range.len();
        let received = self.trade(0, |member| bytes::<E>(&mine.slice(self.part(elements, member))))?;
        let mut reducer = Reducer::<E>::new(reduction);
        for (member, bytes) in received.iter().enumerate() {
            if member == self.index {
                reducer.add(&mine.slice(self.part(elements, member)).read::<E>()?);
            } else {
                let values: Vec<E> = bytes.chunks_exact(size_of::<E>()).map(pod_read_unaligned).collect();
                reducer.add(&values);
            }
        }
        Ok(reducer.finish())
    }
}

fn bytes<E: Element>(view: &View) -> Result<Vec<u8>, TrainError> {
    Ok(cast_slice::<E, u8>(&view.read::<E>()?).to_vec())
}

impl TcpCommunicator {
    /// Talks through these connections.
    pub(crate) fn new(peers: Arc<Peers>, backend: Arc<CpuBackend>) -> TcpCommunicator {
        let link = peers.link().clone();
        backend.on_failure(move |error| link.fail(error));
        TcpCommunicator { peers, backend, numbering: Numbering::default() }
    }

    fn collective(
        &self,
        group: &ProcessGroup,
        stream: Stream,
        (kind, how, whole): (SpanKind, Option<How>, &Tensor),
        offered: &Tensor,
        work: impl FnOnce(&Seat) -> Result<(), TrainError> + Send + 'static,
    ) {
        let sequence = self.numbering.collective(group);
        let operation = Operation { channel: Channel::Collective(group.group), number: sequence.0, kind };
        let terms = Terms::of(kind, how, offered);
        let seat = Seat { peers: self.peers.clone(), operation, terms, ranks: group.ranks.clone(), index: group.index };
        self.backend.communicate(stream, (kind, whole.bytes()), (group.group, sequence), move || {
            seat.peers.link().progress.during(&seat.operation, || work(&seat))
        });
    }

    /// Sends or receives the next message between two members.
    fn message(
        &self,
        group: &ProcessGroup,
        stream: Stream,
        (kind, tensor): (SpanKind, &Tensor),
        (from, to): (usize, usize),
        work: impl FnOnce(&Peers, &Address, &View) -> Result<(), TrainError> + Send + 'static,
    ) {
        let sequence = self.numbering.message(group, from, to);
        let channel = Channel::Message { group: group.group, from: group.ranks[from], to: group.ranks[to] };
        let address = Address { channel: channel.clone(), number: sequence.0, round: 0, from: group.ranks[from] };
        let operation = Operation { channel, number: sequence.0, kind };
        let (peers, view) = (self.peers.clone(), view(tensor));
        self.backend.communicate(stream, (kind, tensor.bytes()), (group.group, sequence), move || {
            peers.link().progress.during(&operation, || work(&peers, &address, &view))
        });
    }
}

impl Communicator for TcpCommunicator {
    fn all_reduce(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, reduction: Reduction) {
        let (dtype, mine) = (tensor.dtype(), view(tensor));
        let what = (SpanKind::AllReduce, Some(How::Reduce(reduction)), tensor);
        self.collective(group, stream, what, tensor, move |seat| {
            with_element!(dtype, E => {
                let reduced = cast_slice::<E, u8>(&seat.reduce::<E>(&mine, reduction)?).to_vec();
                let mut results = seat.trade(1, |_| Ok(reduced.clone()))?;
                results[seat.index] = reduced;
                cast_slice_mut::<E, u8>(&mut mine.write::<E>()?).copy_from_slice(&results.concat());
                Ok(())
            })
        });
    }

    fn reduce_scatter(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor) {
        let (dtype, mine, target) = (from.dtype(), view(from), view(to));
        self.collective(group, stream, (SpanKind::ReduceScatter, None, from), from, move |seat| {
            with_element!(dtype, E => {
                let reduced = seat.reduce::<E>(&mine, Reduction::Sum)?;
                target.write::<E>()?.copy_from_slice(&reduced);
                Ok(())
            })
        });
    }

    fn all_gather(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor) {
        let (dtype, mine, target) = (from.dtype(), view(from), view(to));
        self.collective(group, stream, (SpanKind::AllGather, None, to), from, move |seat| {
            with_element!(dtype, E => {
                let own = bytes::<E>(&mine)?;
                let mut received = seat.trade(0, |_| Ok(own.clone()))?;
                received[seat.index] = own;
                cast_slice_mut::<E, u8>(&mut target.write::<E>()?).copy_from_slice(&received.concat());
                Ok(())
            })
        });
    }

    fn broadcast(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, root: usize) {
        let (dtype, mine) = (tensor.dtype(), view(tensor));
        self.collective(group, stream, (SpanKind::Broadcast, Some(How::From(root)), tensor), tensor, move |seat| {
            with_element!(dtype, E => {
                let is_root = seat.index == root;
                let received = seat.trade(0, |_| if is_root { bytes::<E>(&mine) } else { Ok(Vec::new()) })?;
                if !is_root {
                    cast_slice_mut::<E, u8>(&mut mine.write::<E>()?).copy_from_slice(&received[root]);
                }
                Ok(())
            })
        });
    }

    fn all_to_all(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor, exchange: &Exchange) {
        let (dtype, mine, target, exchange) = (from.dtype(), view(from), view(to), exchange.clone());
        // Members need not have equally much.
        let offered = from.slice(0..0);
        self.collective(group, stream, (SpanKind::AllToAll, None, from), &offered, move |seat| {
            with_element!(dtype, E => {
                let for_member = |member: usize| pack::<E>(&mine, &exchange.sent[member]);
                let mut received = seat.trade(0, for_member)?;
                received[seat.index] = for_member(seat.index)?;
                for (member, message) in received.iter().enumerate() {
                    unpack::<E>(message, &target, &exchange.received[member], seat.ranks[member])?;
                }
                Ok(())
            })
        });
    }

    fn send(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, to: usize) {
        let (dtype, receiver) = (tensor.dtype(), group.ranks[to]);
        self.message(group, stream, (SpanKind::Send, tensor), (group.index, to), move |peers, address, view| {
            with_element!(dtype, E => {
                peers.post(receiver, address, &Letter { terms: None, bytes: bytes::<E>(view)? })
            })
        });
    }

    fn receive(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, from: usize) {
        let (dtype, expected) = (tensor.dtype(), tensor.bytes());
        self.message(group, stream, (SpanKind::Receive, tensor), (from, group.index), move |peers, address, view| {
            let letter = peers.collect(address)?;
            terms::check_length(address.from, letter.bytes.len(), expected)?;
            with_element!(dtype, E => {
                cast_slice_mut::<E, u8>(&mut view.write()?).copy_from_slice(&letter.bytes);
                Ok(())
            })
        });
    }

    fn barrier(&self, group: &ProcessGroup, stream: Stream) {
        let nothing = self.backend.allocate(0, DType::F32, MemoryCategory::Communication);
        self.collective(group, stream, (SpanKind::Barrier, None, &nothing), &nothing, |seat| {
            seat.trade(0, |_| Ok(Vec::new())).map(drop)
        });
    }
}

#[cfg(test)]
mod tests;
