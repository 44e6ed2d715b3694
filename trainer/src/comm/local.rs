//! Ranks that are threads of one process: they read each other's memory.
//!
//! A collective is a meeting. Every rank brings the view of its tensor; when all are there, each reads what it needs
//! of the others, in the order of the ranks, so that sums are the same every time; and nobody leaves, and so changes
//! its tensor, before all have read.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::{Arc, Condvar, Mutex},
};

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use half::bf16;
use stepscope_traces::{Group, MemoryCategory, Rank, Sequence, SpanKind};

use super::{
    Communicator, Exchange, ProcessGroup, Reason, Reduction, Trouble,
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
    lock::lock,
};

/// Messages on their way, by group, sender and receiver.
type Mail = HashMap<(Group, Rank, Rank), VecDeque<Vec<u8>>>;

/// What members of a group have for each other in an all-to-all, by sender and receiver.
type Parcels = HashMap<((Group, Sequence), Rank, Rank), Vec<u8>>;

/// What the ranks of a process share.
#[derive(Default)]
pub struct LocalWorld {
    meetings: Mutex<HashMap<(Group, Sequence), Arc<Meeting>>>,
    mail: Mutex<Mail>,
    mail_came: Condvar,
    parcels: Mutex<Parcels>,
    parcel_came: Condvar,
    trouble: Trouble,
}

impl LocalWorld {
    /// Says that a rank will never come to a meeting again: everyone else fails instead of waiting for it.
    pub fn leave(&self, rank: Rank, why: String) {
        self.trouble.tell(Reason::Gone { rank, why });
    }
}

/// One collective, from the first rank that comes to the last that leaves.
struct Meeting {
    state: Mutex<MeetingState>,
    changed: Condvar,
}

#[derive(Default)]
struct MeetingState {
    offers: Vec<Option<Offer>>,
    /// Results that all may copy, by member.
    results: Vec<Option<Arc<Vec<u8>>>>,
    done: usize,
}

/// What a rank brings.
#[derive(Clone)]
struct Offer {
    terms: Terms,
    view: View,
}

/// A rank's seat in a meeting.
struct Seat {
    world: Arc<LocalWorld>,
    key: (Group, Sequence),
    ranks: Vec<Rank>,
    index: usize,
}

impl Seat {
    /// Comes to the meeting, and waits for everyone: their offers, by member.
    fn meet(&self, offer: Offer) -> Result<(Arc<Meeting>, Vec<Offer>), TrainError> {
        let size = self.ranks.len();
        let meeting = lock(&self.world.meetings)
            .entry(self.key)
            .or_insert_with(|| {
                let state = MeetingState { offers: vec![None; size], results: vec![None; size], done: 0 };
                Arc::new(Meeting { state: Mutex::new(state), changed: Condvar::new() })
            })
            .clone();
        lock(&meeting.state).offers[self.index] = Some(offer);
        meeting.changed.notify_all();
        let all_here = |state: &mut MeetingState| state.offers.iter().cloned().collect::<Option<Vec<Offer>>>();
        let offers = self.world.trouble.wait(&meeting.state, &meeting.changed, all_here)?;
        for (member, offer) in offers.iter().enumerate() {
            Terms::agree((self.ranks[0], &offers[0].terms), (self.ranks[member], &offer.terms))?;
        }
        Ok((meeting, offers))
    }

    /// Shows everyone a result, and waits for theirs.
    fn exchange(&self, meeting: &Meeting, result: Vec<u8>) -> Result<Vec<Arc<Vec<u8>>>, TrainError> {
        lock(&meeting.state).results[self.index] = Some(Arc::new(result));
        meeting.changed.notify_all();
        let all = |state: &mut MeetingState| state.results.iter().cloned().collect::<Option<Vec<_>>>();
        self.world.trouble.wait(&meeting.state, &meeting.changed, all)
    }

    /// Leaves; the last one ends the meeting.
    fn leave(&self, meeting: &Meeting) {
        let mut state = lock(&meeting.state);
        state.done += 1;
        if state.done == self.ranks.len() {
            // Views of others' memory go as soon as nobody needs them.
            state.offers.clear();
            lock(&self.world.meetings).remove(&self.key);
        }
    }

    /// Leaves once everyone has read what they need.
    fn leave_together(&self, meeting: &Meeting) -> Result<(), TrainError> {
        self.leave(meeting);
        meeting.changed.notify_all();
        let all = self.ranks.len();
        self.world.trouble.wait(&meeting.state, &meeting.changed, |state| (state.done == all).then_some(()))
    }

    fn shard(&self, elements: usize) -> Range<usize> {
        part(elements, self.ranks.len(), self.index)
    }
}

/// One rank's way to the others of its process.
pub struct LocalCommunicator {
    world: Arc<LocalWorld>,
    backend: Arc<CpuBackend>,
    numbering: Numbering,
}

impl LocalCommunicator {
    /// Joins the others.
    pub fn new(world: Arc<LocalWorld>, rank: Rank, backend: Arc<CpuBackend>) -> LocalCommunicator {
        let told = world.clone();
        backend.on_failure(move |error| told.leave(rank, error.to_string()));
        LocalCommunicator { world, backend, numbering: Numbering::default() }
    }

    fn collective(
        &self,
        group: &ProcessGroup,
        stream: Stream,
        (operation, how, whole): (SpanKind, Option<How>, &Tensor),
        offered: &Tensor,
        work: impl FnOnce(&Seat, Offer) -> Result<(), TrainError> + Send + 'static,
    ) {
        let key = (group.group, self.numbering.collective(group));
        let seat = Seat { world: self.world.clone(), key, ranks: group.ranks.clone(), index: group.index };
        let offer = Offer { terms: Terms::of(operation, how, offered), view: view(offered) };
        self.backend.communicate(stream, (operation, whole.bytes()), key, move || work(&seat, offer));
    }
}

impl Communicator for LocalCommunicator {
    fn all_reduce(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, reduction: Reduction) {
        let dtype = tensor.dtype();
        self.collective(
            group,
            stream,
            (SpanKind::AllReduce, Some(How::Reduce(reduction)), tensor),
            tensor,
            move |seat, offer| {
                with_element!(dtype, E => {
                    let mine = offer.view.clone();
                    let (meeting, offers) = seat.meet(offer)?;
                    let reduced = reduce::<E>(&offers, seat.shard(mine.range.len()), reduction)?;
                    // Everyone has read everything when all results are there.
                    let results = seat.exchange(&meeting, cast_slice(&reduced).to_vec())?;
                    let mut target = mine.write::<E>()?;
                    let mut place = 0;
                    for result in results {
                        let bytes: &mut [u8] = cast_slice_mut(&mut target);
                        bytes[place..place + result.len()].copy_from_slice(&result);
                        place += result.len();
                    }
                    seat.leave(&meeting);
                    Ok(())
                })
            },
        );
    }

    fn reduce_scatter(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor) {
        let (dtype, target) = (from.dtype(), view(to));
        self.collective(group, stream, (SpanKind::ReduceScatter, None, from), from, move |seat, offer| {
            with_element!(dtype, E => {
                let shard = seat.shard(offer.terms.elements);
                let (meeting, offers) = seat.meet(offer)?;
                let reduced = reduce::<E>(&offers, shard, Reduction::Sum)?;
                // Of this rank's tensor the others read only their own parts.
                target.write::<E>()?.copy_from_slice(&reduced);
                seat.leave_together(&meeting)
            })
        });
    }

    fn all_gather(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor) {
        let (dtype, target) = (from.dtype(), view(to));
        self.collective(group, stream, (SpanKind::AllGather, None, to), from, move |seat, offer| {
            with_element!(dtype, E => {
                let (meeting, offers) = seat.meet(offer)?;
                for (member, offer) in offers.iter().enumerate() {
                    let place = target.slice(part(target.range.len(), offers.len(), member));
                    if !place.is(&offer.view) {
                        copy::<E>(&offer.view, &place)?;
                    }
                }
                seat.leave_together(&meeting)
            })
        });
    }

    fn broadcast(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, root: usize) {
        let dtype = tensor.dtype();
        self.collective(
            group,
            stream,
            (SpanKind::Broadcast, Some(How::From(root)), tensor),
            tensor,
            move |seat, offer| {
                with_element!(dtype, E => {
                    let mine = offer.view.clone();
                    let (meeting, offers) = seat.meet(offer)?;
                    if seat.index != root {
                        copy::<E>(&offers[root].view, &mine)?;
                    }
                    seat.leave_together(&meeting)
                })
            },
        );
    }

    fn all_to_all(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor, exchange: &Exchange) {
        let (dtype, mine, target, exchange) = (from.dtype(), view(from), view(to), exchange.clone());
        let (world, me, ranks) = (self.world.clone(), group.ranks[group.index], group.ranks.clone());
        let key = (group.group, self.numbering.collective(group));
        self.backend.communicate(stream, (SpanKind::AllToAll, from.bytes()), key, move || {
            with_element!(dtype, E => {
                for (rank, parts) in ranks.iter().zip(&exchange.sent) {
                    let parcel = pack::<E>(&mine, parts)?;
                    lock(&world.parcels).insert((key, me, *rank), parcel);
                }
                world.parcel_came.notify_all();
                for (rank, parts) in ranks.iter().zip(&exchange.received) {
                    let next = |parcels: &mut Parcels| parcels.remove(&(key, *rank, me));
                    let parcel = world.trouble.wait(&world.parcels, &world.parcel_came, next)?;
                    unpack::<E>(&parcel, &target, parts, *rank)?;
                }
                Ok(())
            })
        });
    }

    fn send(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, to: usize) {
        let key = (group.group, group.ranks[group.index], group.ranks[to]);
        let sequence = self.numbering.message(group, group.index, to);
        let (world, bytes, dtype, view) = (self.world.clone(), tensor.bytes(), tensor.dtype(), view(tensor));
        self.backend.communicate(stream, (SpanKind::Send, bytes), (group.group, sequence), move || {
            with_element!(dtype, E => {
                let message = cast_slice::<E, u8>(&view.read()?).to_vec();
                lock(&world.mail).entry(key).or_default().push_back(message);
                world.mail_came.notify_all();
                Ok(())
            })
        });
    }

    fn receive(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, from: usize) {
        let key = (group.group, group.ranks[from], group.ranks[group.index]);
        let sequence = self.numbering.message(group, from, group.index);
        let (world, bytes, dtype, view) = (self.world.clone(), tensor.bytes(), tensor.dtype(), view(tensor));
        self.backend.communicate(stream, (SpanKind::Receive, bytes), (group.group, sequence), move || {
            let next = |mail: &mut Mail| mail.get_mut(&key).and_then(VecDeque::pop_front);
            let message = world.trouble.wait(&world.mail, &world.mail_came, next)?;
            terms::check_length(key.1, message.len(), bytes)?;
            with_element!(dtype, E => {
                cast_slice_mut::<E, u8>(&mut view.write()?).copy_from_slice(&message);
                Ok(())
            })
        });
    }

    fn barrier(&self, group: &ProcessGroup, stream: Stream) {
        let nothing = self.nothing();
        self.collective(group, stream, (SpanKind::Barrier, None, &nothing), &nothing, move |seat, offer| {
            let (meeting, _) = seat.meet(offer)?;
            seat.leave_together(&meeting)
        });
    }
}

impl LocalCommunicator {
    /// What a barrier brings.
    fn nothing(&self) -> Tensor {
        self.backend.allocate(0, DType::F32, MemoryCategory::Communication)
    }
}

/// A part of all tensors together, summed in the order of the ranks and rounded once.
fn reduce<E: Element>(offers: &[Offer], part: Range<usize>, reduction: Reduction) -> Result<Vec<E>, TrainError> {
    let mut reducer = Reducer::new(reduction);
    for offer in offers {
        reducer.add(&offer.view.slice(part.clone()).read::<E>()?);
    }
    Ok(reducer.finish())
}

fn copy<E: Pod>(from: &View, to: &View) -> Result<(), TrainError> {
    to.write::<E>()?.copy_from_slice(&from.read::<E>()?);
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
