//! Ranks that are processes on GPUs: they talk through NCCL.
//!
//! A thread of its own follows what the device has done, so that an operation which never ends is noticed and named, and
//! lets go of NCCL as soon as a rank is known to be in trouble: kernels that wait for it end then.

mod call;
mod connect;
mod flights;
mod library;
mod members;
mod messages;
pub(crate) mod sharing;

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
};

use stepscope_collector::{
    LaunchInfo, Recorder,
    libraries::{self, Library},
};
use stepscope_traces::{MemoryCategory, Sequence, SpanKind};

use self::{
    call::Call,
    connect::{RECEIVER, SENDER},
    members::Members,
    messages::Messages,
};
use super::{Communicator, Exchange, Groups, ProcessGroup, Reduction, numbering::Numbering};
use crate::{
    backend::{
        Backend, DType, Stream, Tensor,
        cuda::{CudaBackend, array},
    },
    error::TrainError,
    rendezvous::{Channel, Link, Operation},
};

/// One rank's way to other GPUs.
pub(crate) struct NcclCommunicator {
    backend: Arc<CudaBackend>,
    members: Arc<Members>,
    numbering: Numbering,
    recorder: Recorder,
    /// What a barrier sums, and what is sent to see whether it arrives.
    token: Tensor,
    watcher: Option<JoinHandle<()>>,
}

/// An operation that is about to be queued.
struct Asked<'a> {
    group: &'a ProcessGroup,
    stream: Stream,
    channel: Channel,
    sequence: Sequence,
    kind: SpanKind,
    /// Of the message.
    bytes: u64,
}

impl NcclCommunicator {
    /// Connects to the other ranks of all groups: comes back when all of them are there.
    pub(crate) fn connect(
        link: &Arc<Link>,
        groups: &Groups,
        backend: &Arc<CudaBackend>,
        recorder: &Recorder,
    ) -> Result<NcclCommunicator, TrainError> {
        libraries::open(Library::Nccl)?;
        let lines = connect::lines(groups);
        let numbers = backend.allocate(connect::numbers_to_connect(&lines), DType::F32, MemoryCategory::Communication);
        backend.zero(&numbers);
        backend.synchronize()?;
        let token = numbers.slice(0..1);
        let ids = connect::exchange_ids(link, &lines)?;
        let channel = Channel::Exchange("NCCL's connections".into());
        let operation = Operation { channel, number: 0, kind: SpanKind::Communication };
        let (connecting, place) = (backend.clone(), array(&numbers));
        let members = link.progress.during(&operation, || {
            connect::patiently(link, move || connect::connect_all(&connecting, &lines, &ids, place))
        })?;
        let members = Arc::new(Members::new(link, backend, members));
        let watched = members.clone();
        let watcher = thread::Builder::new().name("nccl".into()).spawn(move || watched.watch());
        let watcher = Some(watcher.map_err(|error| connect::not_connected(error.to_string()))?);
        let (backend, recorder) = (backend.clone(), recorder.clone());
        Ok(NcclCommunicator { backend, members, numbering: Numbering::default(), recorder, token, watcher })
    }

    fn collective(
        &self,
        group: &ProcessGroup,
        stream: Stream,
        what: (SpanKind, &Tensor),
        call: Result<Call, TrainError>,
    ) {
        self.collective_of(group, stream, what, call.map(|call| vec![call]));
    }

    /// As [`NcclCommunicator::collective`], of calls that are done as one.
    fn collective_of(
        &self,
        group: &ProcessGroup,
        stream: Stream,
        (kind, whole): (SpanKind, &Tensor),
        calls: Result<Vec<Call>, TrainError>,
    ) {
        let (channel, sequence) = (Channel::Collective(group.group), self.numbering.collective(group));
        self.queue(&Asked { group, stream, channel, sequence, kind, bytes: whole.bytes() }, calls);
    }

    fn message(
        &self,
        group: &ProcessGroup,
        stream: Stream,
        (kind, tensor): (SpanKind, &Tensor),
        (from, to): (usize, usize),
        call: Call,
    ) {
        let channel = Channel::Message { group: group.group, from: group.ranks[from], to: group.ranks[to] };
        let sequence = self.numbering.message(group, from, to);
        self.queue(&Asked { group, stream, channel, sequence, kind, bytes: tensor.bytes() }, Ok(vec![call]));
    }

    /// Queues calls that are done as one, and describes them for the recording of their kernel.
    fn queue(&self, asked: &Asked<'_>, calls: Result<Vec<Call>, TrainError>) {
        let Asked { group, stream, channel, sequence, kind, bytes } = asked;
        let operation = Operation { channel: channel.clone(), number: sequence.0, kind: *kind };
        let _launching = self.recorder.launching(LaunchInfo {
            kind: Some(*kind),
            bytes: Some(*bytes),
            collective: Some((group.group, Some(*sequence))),
            ..LaunchInfo::default()
        });
        self.backend.attempt(|| {
            let (calls, device) = (calls?, self.backend.device());
            let before = device.record(*stream)?;
            let called = self.members.call(channel, &calls, device.stream(*stream).cu_stream());
            called.map_err(|why| TrainError::Device { action: format!("do {operation}"), why })?;
            self.members.flights.add(*stream, operation, (before, device.record(*stream)?));
            Ok(())
        });
    }

    /// Lets go of NCCL, whatever is queued.
    pub(crate) fn abort(&self) {
        self.members.abort();
    }
}

impl Communicator for NcclCommunicator {
    fn all_reduce(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, reduction: Reduction) {
        let call = Call::all_reduce(array(tensor), reduction);
        self.collective(group, stream, (SpanKind::AllReduce, tensor), Ok(call));
    }

    fn reduce_scatter(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor) {
        let call = Call::reduce_scatter(array(from), array(to), group.size());
        self.collective(group, stream, (SpanKind::ReduceScatter, from), call);
    }

    fn all_gather(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor) {
        let call = Call::all_gather(array(from), array(to), group.size());
        self.collective(group, stream, (SpanKind::AllGather, to), call);
    }

    fn broadcast(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, root: usize) {
        self.collective(group, stream, (SpanKind::Broadcast, tensor), Ok(Call::broadcast(array(tensor), root)));
    }

    fn all_to_all(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor, exchange: &Exchange) {
        let rooms = messages::rooms(exchange, group.index)
            .map(|elements| self.backend.allocate(elements, from.dtype(), MemoryCategory::Communication));
        if stream != Stream::Compute {
            // The rooms' memory is there in order of the compute stream.
            self.backend.wait(stream, &self.backend.record(Stream::Compute));
        }
        let arrays = rooms.each_ref().map(array);
        let (before, calls, after) = match Messages::of((array(from), array(to)), arrays, exchange, group.index) {
            Ok(Messages { before, calls, after }) => (before, Ok(calls), after),
            Err(error) => (Vec::new(), Err(error), Vec::new()),
        };
        self.backend.copy_parts(stream, &before);
        self.collective_of(group, stream, (SpanKind::AllToAll, from), calls);
        self.backend.copy_parts(stream, &after);
        if stream != Stream::Compute {
            self.backend.wait(Stream::Compute, &self.backend.record(stream));
        }
    }

    fn send(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, to: usize) {
        let call = Call::send(array(tensor), RECEIVER);
        self.message(group, stream, (SpanKind::Send, tensor), (group.index, to), call);
    }

    fn receive(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, from: usize) {
        let call = Call::receive(array(tensor), SENDER);
        self.message(group, stream, (SpanKind::Receive, tensor), (from, group.index), call);
    }

    fn barrier(&self, group: &ProcessGroup, stream: Stream) {
        let call = Call::all_reduce(array(&self.token), Reduction::Maximum);
        self.collective(group, stream, (SpanKind::Barrier, &self.token.slice(0..0)), Ok(call));
    }
}

impl Drop for NcclCommunicator {
    fn drop(&mut self) {
        self.members.end();
        if let Some(watcher) = self.watcher.take() {
            // It has nothing left to tell.
            drop(watcher.join());
        }
        self.members.abort();
    }
}

#[cfg(test)]
mod tests;
