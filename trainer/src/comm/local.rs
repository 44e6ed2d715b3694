//! Ranks that are threads of one process: they read each other's memory.
//!
//! A collective is a meeting. Every rank brings the view of its tensor; when all are there, each reads what it needs
//! of the others, in the order of the ranks, so that sums are the same every time; and nobody leaves, and so changes
//! its tensor, before all have read.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use half::bf16;
use stepscope_plan::shard;
use stepscope_traces::{Group, MemoryCategory, Rank, Sequence, SpanKind};

use super::{Communicator, ProcessGroup, Reduction};
use crate::{
    backend::{
        Backend, DType, Stream, Tensor,
        cpu::{CpuBackend, Element, View, view, with_element},
    },
    error::TrainError,
    lock::lock,
};

/// How often a waiting rank looks whether another one is gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Messages on their way, by group, sender and receiver.
type Mail = HashMap<(Group, Rank, Rank), VecDeque<Vec<u8>>>;

/// What the ranks of a process share.
#[derive(Default)]
pub struct LocalWorld {
    meetings: Mutex<HashMap<(Group, Sequence), Arc<Meeting>>>,
    mail: Mutex<Mail>,
    mail_came: Condvar,
    gone: AtomicBool,
    first_gone: Mutex<Option<(Rank, String)>>,
}

impl LocalWorld {
    /// Says that a rank will never come to a meeting again: everyone else fails instead of waiting for it.
    pub fn leave(&self, rank: Rank, why: String) {
        lock(&self.first_gone).get_or_insert((rank, why));
        self.gone.store(true, Ordering::Release);
    }

    /// Waits until there is something, or somebody is gone.
    fn wait<T, R>(
        &self,
        mutex: &Mutex<T>,
        changed: &Condvar,
        mut ready: impl FnMut(&mut T) -> Option<R>,
    ) -> Result<R, TrainError> {
        let mut state = lock(mutex);
        loop {
            if let Some(result) = ready(&mut state) {
                return Ok(result);
            }
            if self.gone.load(Ordering::Acquire) {
                let gone = lock(&self.first_gone).clone();
                let (rank, why) = gone.unwrap_or((Rank(0), "it did not say why".into()));
                return Err(TrainError::RankGone { rank, why });
            }
            let waited = changed.wait_timeout(state, LOOK_EVERY);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
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
    operation: SpanKind,
    /// What a reduction makes, or from whom a broadcast comes.
    how: Option<How>,
    elements: usize,
    dtype: DType,
    view: View,
}

/// What members of a collective have to agree on besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Reduce(Reduction),
    From(usize),
}

impl Offer {
    fn differs(&self, other: &Offer) -> bool {
        let terms = |offer: &Offer| (offer.operation, offer.how, offer.elements, offer.dtype);
        terms(self) != terms(other)
    }
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
        let offers = self.world.wait(&meeting.state, &meeting.changed, all_here)?;
        if let Some(member) = offers.iter().position(|offer| offer.differs(&offers[0])) {
            let say = |member: usize| {
                let Offer { operation, elements, dtype, .. } = &offers[member];
                format!("rank {} has an {operation} of {elements} {dtype:?}", self.ranks[member].0)
            };
            return Err(TrainError::Disagreement(format!("{}, {}", say(0), say(member))));
        }
        Ok((meeting, offers))
    }

    /// Shows everyone a result, and waits for theirs.
    fn exchange(&self, meeting: &Meeting, result: Vec<u8>) -> Result<Vec<Arc<Vec<u8>>>, TrainError> {
        lock(&meeting.state).results[self.index] = Some(Arc::new(result));
        meeting.changed.notify_all();
        let all = |state: &mut MeetingState| state.results.iter().cloned().collect::<Option<Vec<_>>>();
        self.world.wait(&meeting.state, &meeting.changed, all)
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
        self.world.wait(&meeting.state, &meeting.changed, |state| (state.done == all).then_some(()))
    }

    fn shard(&self, elements: usize) -> Range<usize> {
        part(elements, self.ranks.len(), self.index)
    }
}

fn part(elements: usize, parts: usize, index: usize) -> Range<usize> {
    let range = shard(elements as u64, parts as u64, index as u64);
    range.start as usize..range.end as usize
}

/// One rank's way to the others of its process.
pub struct LocalCommunicator {
    world: Arc<LocalWorld>,
    backend: Arc<CpuBackend>,
    /// How many operations each group has had; how many messages went each way.
    collectives: Mutex<HashMap<Group, u64>>,
    messages: Mutex<HashMap<(Group, Rank, Rank), u64>>,
}

impl LocalCommunicator {
    /// Joins the others.
    pub fn new(world: Arc<LocalWorld>, rank: Rank, backend: Arc<CpuBackend>) -> LocalCommunicator {
        let told = world.clone();
        backend.on_failure(move |error| told.leave(rank, error.to_string()));
        LocalCommunicator { world, backend, collectives: Mutex::default(), messages: Mutex::default() }
    }

    fn collective(
        &self,
        group: &ProcessGroup,
        stream: Stream,
        (operation, how, whole): (SpanKind, Option<How>, &Tensor),
        offered: &Tensor,
        work: impl FnOnce(&Seat, Offer) -> Result<(), TrainError> + Send + 'static,
    ) {
        let sequence = Sequence(next(&self.collectives, group.group));
        let key = (group.group, sequence);
        let seat = Seat { world: self.world.clone(), key, ranks: group.ranks.clone(), index: group.index };
        let view = view(offered);
        let offer = Offer { operation, how, elements: offered.elements(), dtype: offered.dtype(), view };
        self.backend.communicate(stream, (operation, whole.bytes()), key, move || work(&seat, offer));
    }
}

/// The number of a message in its group: the same at both ends, and no other message's, since a member sends to one
/// other in a group.
fn message_sequence(number: u64, group: &ProcessGroup, sender: usize) -> Sequence {
    Sequence(number * group.size() as u64 + sender as u64)
}

/// Counts up, from zero.
fn next<K: std::hash::Hash + Eq>(counts: &Mutex<HashMap<K, u64>>, key: K) -> u64 {
    let mut counts = lock(counts);
    let count = counts.entry(key).or_default();
    *count += 1;
    *count - 1
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
                let shard = seat.shard(offer.elements);
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

    fn send(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, to: usize) {
        let key = (group.group, group.ranks[group.index], group.ranks[to]);
        let sequence = message_sequence(next(&self.messages, key), group, group.index);
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
        let sequence = message_sequence(next(&self.messages, key), group, from);
        let (world, bytes, dtype, view) = (self.world.clone(), tensor.bytes(), tensor.dtype(), view(tensor));
        self.backend.communicate(stream, (SpanKind::Receive, bytes), (group.group, sequence), move || {
            let next = |mail: &mut Mail| mail.get_mut(&key).and_then(VecDeque::pop_front);
            let message = world.wait(&world.mail, &world.mail_came, next)?;
            if message.len() as u64 != bytes {
                let (from, sent) = (key.1.0, message.len());
                return Err(TrainError::Disagreement(format!("rank {from} sent {sent} bytes, not {bytes}")));
            }
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
    let first = offers[0].view.slice(part.clone()).read::<E>()?;
    let mut reduced: Vec<E::Sum> = first.iter().map(|value| value.widen()).collect();
    drop(first);
    for offer in &offers[1..] {
        let values = offer.view.slice(part.clone()).read::<E>()?;
        let pairs = reduced.iter_mut().zip(values.iter());
        match reduction {
            Reduction::Sum => pairs.for_each(|(sum, value)| *sum += value.widen()),
            Reduction::Maximum => pairs.for_each(|(most, value)| {
                if value.widen() > *most {
                    *most = value.widen();
                }
            }),
        }
    }
    Ok(reduced.into_iter().map(E::narrow).collect())
}

fn copy<E: Pod>(from: &View, to: &View) -> Result<(), TrainError> {
    to.write::<E>()?.copy_from_slice(&from.read::<E>()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Instant};

    use proptest::prelude::*;
    use stepscope_collector::Recorder;

    use super::*;

    /// What a rank has in its two tensors at the end.
    type Ended = Result<(Vec<f64>, Vec<f64>), TrainError>;

    /// Does the same on every rank of a group, each with its own numbers, and returns what each ends up with.
    fn together(
        inputs: &[Vec<f32>],
        outputs: usize,
        operation: impl Fn(&LocalCommunicator, &ProcessGroup, &Tensor, &Tensor) + Sync,
    ) -> Vec<Ended> {
        let world = Arc::new(LocalWorld::default());
        let ranks: Vec<Rank> = (0..inputs.len() as u32).map(Rank).collect();
        let rank = |index: usize| {
            let backend = Arc::new(CpuBackend::start(Recorder::disabled()).unwrap());
            let communicator = LocalCommunicator::new(world.clone(), ranks[index], backend.clone());
            let group = ProcessGroup { group: Group(0), ranks: ranks.clone(), index };
            let take = |elements| backend.allocate(elements, DType::F32, MemoryCategory::Other);
            let (from, to) = (take(inputs[index].len()), take(outputs));
            backend.upload(inputs[index].clone(), &from);
            backend.zero(&to);
            operation(&communicator, &group, &from, &to);
            let result = backend.download(&from).and_then(|from| Ok((from, backend.download(&to)?)));
            result.inspect_err(|error| world.leave(ranks[index], error.to_string()))
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..inputs.len()).map(|index| scope.spawn(move || rank(index))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn numbers() -> impl Strategy<Value = Vec<Vec<f32>>> {
        (1..5_usize, 0..40_usize).prop_flat_map(|(ranks, elements)| {
            let whole = (-1000..1000_i32).prop_map(|number| number as f32);
            prop::collection::vec(prop::collection::vec(whole, elements), ranks)
        })
    }

    fn wide(numbers: &[f32]) -> Vec<f64> {
        numbers.iter().map(|number| f64::from(*number)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn collectives_do_what_they_are_called(inputs in numbers(), root in 0..5_usize) {
            let (ranks, elements) = (inputs.len(), inputs[0].len());
            let column = |element: usize| inputs.iter().map(move |input| f64::from(input[element]));
            let sums: Vec<f64> = (0..elements).map(|element| column(element).sum()).collect();
            let most: Vec<f64> = (0..elements).map(|element| column(element).fold(f64::MIN, f64::max)).collect();
            for (reduction, expected) in [(Reduction::Sum, &sums), (Reduction::Maximum, &most)] {
                let results = together(&inputs, 0, |communicator, group, from, _| {
                    communicator.all_reduce(group, Stream::Compute, from, reduction);
                });
                for result in results {
                    prop_assert_eq!(&result.unwrap().0, expected);
                }
            }
            let all: Vec<f64> = inputs.iter().flat_map(|input| wide(input)).collect();
            let gathered = together(&inputs, ranks * elements, |communicator, group, from, to| {
                communicator.all_gather(group, Stream::Compute, from, to);
            });
            for result in gathered {
                prop_assert_eq!(&result.unwrap().1, &all);
            }
            let root = root % ranks;
            let received = together(&inputs, 0, |communicator, group, from, _| {
                communicator.broadcast(group, Stream::Compute, from, root);
                communicator.barrier(group, Stream::Compute);
            });
            for result in received {
                prop_assert_eq!(result.unwrap().0, wide(&inputs[root]));
            }
            // To the next rank, on the other stream.
            let passed = together(&inputs, elements, |communicator, group, from, to| {
                let computed = communicator.backend.record(Stream::Compute);
                communicator.backend.wait(Stream::Communication, &computed);
                communicator.send(group, Stream::Communication, from, (group.index + 1) % ranks);
                communicator.receive(group, Stream::Compute, to, (group.index + ranks - 1) % ranks);
            });
            for (rank, result) in passed.into_iter().enumerate() {
                prop_assert_eq!(result.unwrap().1, wide(&inputs[(rank + ranks - 1) % ranks]));
            }
            // Each its part, also where parts are not equally long.
            for rank in 0..ranks {
                let mine = part(elements, ranks, rank);
                let scattered = together(&inputs, 0, |communicator, group, from, _| {
                    let place = from.slice(part(elements, ranks, group.index));
                    communicator.reduce_scatter(group, Stream::Compute, from, &place);
                });
                prop_assert_eq!(&scattered[rank].as_ref().unwrap().0[mine.clone()], &sums[mine]);
            }
        }
    }

    #[test]
    fn ranks_that_disagree_are_told() {
        let results = together(&[vec![1.0; 3], vec![1.0; 4]], 0, |communicator, group, from, _| {
            communicator.all_reduce(group, Stream::Compute, from, Reduction::Sum);
        });
        let error = results[0].as_ref().unwrap_err().to_string();
        assert!(error.contains("rank 0 has an all_reduce of 3 F32, rank 1 has an all_reduce of 4 F32"), "{error}");
    }

    #[test]
    fn nobody_waits_for_a_rank_that_is_gone() {
        let began = Instant::now();
        let results = together(&[vec![1.0], vec![1.0], vec![1.0]], 1, |communicator, group, from, to| {
            match group.index {
                0 => communicator.world.leave(Rank(0), "the power went".into()),
                1 => communicator.barrier(group, Stream::Communication),
                _ => communicator.receive(group, Stream::Compute, to, 0),
            }
            communicator.all_reduce(group, Stream::Compute, from, Reduction::Sum);
        });
        for result in &results[1..] {
            let error = result.as_ref().unwrap_err().to_string();
            assert!(error.contains("rank 0 is gone: the power went"), "{error}");
        }
        assert!(began.elapsed().as_secs() < 5);
    }

    #[test]
    fn a_stream_that_fails_frees_the_other_one() {
        let backend = Arc::new(CpuBackend::start(Recorder::disabled()).unwrap());
        let communicator = LocalCommunicator::new(Arc::default(), Rank(0), backend.clone());
        let group = ProcessGroup { group: Group(0), ranks: vec![Rank(0), Rank(1)], index: 0 };
        let tensor = backend.allocate(1, DType::F32, MemoryCategory::Other);
        // The other rank never comes, and there is more to do than fits into a queue.
        backend.copy(&tensor, &communicator.nothing());
        (0..2000).for_each(|_| communicator.all_reduce(&group, Stream::Communication, &tensor, Reduction::Sum));
        assert!(backend.synchronize().unwrap_err().to_string().contains("panicked"));
    }

    #[test]
    fn a_forgotten_wait_is_found_out() {
        let backend = CpuBackend::start(Recorder::disabled()).unwrap();
        let tensor = backend.allocate(1 << 20, DType::F32, MemoryCategory::Other);
        backend.zero(&tensor);
        backend.synchronize().unwrap();
        let held = view(&tensor).read::<f32>().unwrap();
        backend.zero(&tensor);
        let error = backend.synchronize().unwrap_err().to_string();
        assert!(error.contains("two streams use the same memory at once"), "{error}");
        drop(held);
    }
}
