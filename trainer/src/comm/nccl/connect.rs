//! How ranks that talk through NCCL find each other, and see that they do.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex},
    thread,
};

use cudarc::driver::sys::CUstream;

use super::{
    call::Call,
    library::{Id, Member},
};
use crate::{
    backend::{
        Stream,
        cuda::{Array, CudaBackend},
    },
    comm::{Groups, ProcessGroup, Reduction},
    error::TrainError,
    lock::lock,
    rendezvous::{Channel, Link},
};

/// What goes over one of NCCL's communicators, and which of its members this rank is.
///
/// NCCL does the operations of a communicator in the order in which they were asked for, whatever their streams. A stage
/// that sends and receives over one would not receive before what it has sent is taken, and stages of an interleaved
/// schedule would wait for each other in a circle. So messages have one for each sender and receiver.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) channel: Channel,
    pub(super) size: usize,
    pub(super) index: usize,
    /// Whether members send each other messages beside what they do together.
    pub(super) exchanges: bool,
}

/// Where the two ends of a message stand.
pub(super) const SENDER: usize = 0;
pub(super) const RECEIVER: usize = 1;

/// The lines of a rank, in the order that all ranks have them in.
pub(super) fn lines(groups: &Groups) -> Vec<Line> {
    let Groups { world, tensor, context, data, replicate, forward, backward, ends, expert, expert_data } = groups;
    // Where nobody shares experts, who holds the same ones holds the same of all the rest.
    let expert_data = expert_data.as_ref().filter(|group| data.as_ref().is_none_or(|data| data.group != group.group));
    let collective = |group: &ProcessGroup| Line {
        channel: Channel::Collective(group.group),
        size: group.size(),
        index: group.index,
        exchanges: expert.as_ref().is_some_and(|expert| expert.group == group.group),
    };
    let collectives = [world, tensor, context, data, replicate, ends, expert];
    let mut lines: Vec<Line> = collectives.into_iter().flatten().chain(expert_data).map(collective).collect();
    // Activations go to the next stage, gradients to the one before; of an interleaved schedule also around, as keys and values do.
    for (group, step) in [(forward, 1), (backward, -1), (context, 1)] {
        let Some(group) = group else { continue };
        let size = group.size();
        for from in 0..size {
            let to = (from + size).wrapping_add_signed(step) % size;
            let ends = [(from, SENDER), (to, RECEIVER)];
            if let Some((_, index)) = ends.into_iter().find(|(member, _)| *member == group.index) {
                let channel = Channel::Message { group: group.group, from: group.ranks[from], to: group.ranks[to] };
                lines.push(Line { channel, size: 2, index, exchanges: false });
            }
        }
    }
    lines
}

/// The first member of each makes its name, and everyone hears of all.
pub(super) fn exchange_ids(link: &Link, lines: &[Line]) -> Result<HashMap<Channel, Id>, TrainError> {
    let mut made = Vec::new();
    for line in lines.iter().filter(|line| line.index == 0) {
        made.push((&line.channel, Id::new().map_err(not_connected)?.bytes()));
    }
    let garbled = |why: String| TrainError::Disagreement(format!("the names of NCCL's communicators: {why}"));
    let made = serde_json::to_vec(&made).map_err(|error| garbled(error.to_string()))?;
    let mut ids = HashMap::new();
    for made in link.exchange("the names of NCCL's communicators", made)? {
        let made: Vec<(Channel, Vec<u8>)> =
            serde_json::from_slice(&made).map_err(|error| garbled(error.to_string()))?;
        for (channel, bytes) in made {
            ids.insert(channel, Id::from_bytes(&bytes).ok_or_else(|| garbled(format!("{} bytes", bytes.len())))?);
        }
    }
    Ok(ids)
}

/// How many numbers [`connect_all`] needs.
pub(super) fn numbers_to_connect(lines: &[Line]) -> usize {
    1 + lines.iter().filter(|line| line.exchanges).map(|line| line.size).max().unwrap_or(0)
}

/// Connects to the other members of every line, and uses each once: NCCL takes its memory at the first use, and waits for
/// the others.
pub(super) fn connect_all(
    backend: &CudaBackend,
    lines: &[Line],
    ids: &HashMap<Channel, Id>,
    numbers: Array,
) -> Result<Vec<(Channel, Member)>, TrainError> {
    let device = backend.device();
    device.enter()?;
    let mut members = Vec::new();
    for line in lines {
        let Line { channel, size, index, .. } = line;
        let id = ids.get(channel).ok_or_else(|| not_connected(format!("nobody named {channel:?}")))?;
        let member = Member::connect(*size, *id, *index).map_err(not_connected)?;
        for calls in first_uses(line, numbers) {
            use_first(&member, &calls, device.stream(Stream::Communication).cu_stream()).map_err(not_connected)?;
            device.synchronize()?;
        }
        members.push((channel.clone(), member));
    }
    Ok(members)
}

/// What to ask of a line first. Of these numbers the first one is sent, and others come behind it.
fn first_uses(line: &Line, numbers: Array) -> Vec<Vec<Call>> {
    let number = |place: usize| Array {
        address: numbers.address + (place * numbers.dtype.bytes()) as u64,
        elements: 1,
        dtype: numbers.dtype,
    };
    let first = match (&line.channel, line.index) {
        (Channel::Message { .. }, SENDER) => Call::send(number(0), RECEIVER),
        (Channel::Message { .. }, _) => Call::receive(number(0), SENDER),
        _ => Call::all_reduce(number(0), Reduction::Maximum),
    };
    let others = (0..line.size).filter(|member| line.exchanges && *member != line.index);
    let messages: Vec<Call> =
        others.flat_map(|other| [Call::send(number(0), other), Call::receive(number(1 + other), other)]).collect();
    [vec![first], messages].into_iter().filter(|calls| !calls.is_empty()).collect()
}

#[allow(unsafe_code, reason = "NCCL takes addresses")]
fn use_first(member: &Member, calls: &[Call], stream: CUstream) -> Result<(), String> {
    // SAFETY: the calls are of numbers that are there for as long as the communicator.
    unsafe { member.call_together(calls, stream) }
}

/// Does what may never end, on a thread that is left behind when there is trouble.
pub(super) fn patiently<T: Send + 'static>(
    link: &Link,
    work: impl FnOnce() -> Result<T, TrainError> + Send + 'static,
) -> Result<T, TrainError> {
    let done = Arc::new((Mutex::new(None), Condvar::new()));
    let doing = done.clone();
    let thread = thread::Builder::new().name("connecting".into());
    let spawned = thread.spawn(move || {
        *lock(&doing.0) = Some(work());
        doing.1.notify_all();
    });
    spawned.map_err(|error| not_connected(error.to_string()))?;
    link.trouble.wait(&done.0, &done.1, Option::take)?
}

pub(super) fn not_connected(why: String) -> TrainError {
    TrainError::Device { action: "connect to other ranks".into(), why }
}

#[cfg(test)]
mod tests {
    use stepscope_plan::ParallelLayout;
    use stepscope_traces::Rank;

    use super::*;
    use crate::backend::DType;

    #[test]
    fn nobody_sends_and_receives_over_one_line() {
        for pp in [2, 3, 4] {
            let layout = ParallelLayout { dp: 2, pp, ..ParallelLayout::default() };
            let of = |rank| lines(&Groups::of(&layout, Rank(rank)));
            let all: Vec<Vec<Line>> = (0..layout.world_size() as u32).map(of).collect();
            for lines in &all {
                // To and from both neighbors, in both passes: each a line of its own.
                let messages: Vec<&Line> = lines.iter().filter(|line| line.size == 2 && is_message(line)).collect();
                assert_eq!(messages.len(), 4);
                assert_eq!(messages.iter().filter(|line| line.index == SENDER).count(), 2);
            }
            // Both ends of a message have it, once each.
            for line in all.iter().flatten().filter(|line| is_message(line)) {
                let same = all.iter().flatten().filter(|other| other.channel == line.channel);
                let mut ends: Vec<usize> = same.map(|line| line.index).collect();
                ends.sort_unstable();
                assert_eq!(ends, [SENDER, RECEIVER]);
            }
        }
    }

    #[test]
    fn ranks_with_experts_have_a_line_to_share_them_and_one_for_their_gradients() {
        let of = |ep, rank| lines(&Groups::of(&ParallelLayout { dp: 4, ep, ..ParallelLayout::default() }, Rank(rank)));
        let numbers = Array { address: 64, elements: 3, dtype: DType::F32 };
        for rank in 0..4 {
            // Everyone, replicas, those with other experts, and those with the same.
            let lines = of(2, rank);
            let sizes: Vec<usize> = lines.iter().map(|line| line.size).collect();
            assert_eq!((sizes, numbers_to_connect(&lines)), (vec![4, 4, 2, 2], 3));
            let exchanging: Vec<&Line> = lines.iter().filter(|line| line.exchanges).collect();
            assert_eq!(exchanging.len(), 1);
            let (own, other) = (exchanging[0].index, 1 - exchanging[0].index);
            assert_eq!(own, rank as usize % 2);
            let [number, mine] = [0, 1 + other].map(|place| Array {
                address: numbers.address + 4 * place as u64,
                elements: 1,
                dtype: DType::F32,
            });
            let messages = vec![Call::send(number, other), Call::receive(mine, other)];
            let together = vec![Call::all_reduce(number, Reduction::Maximum)];
            assert_eq!(first_uses(exchanging[0], numbers), [together, messages]);
            // Where nobody shares any, each line is there once.
            let alone = of(1, rank);
            assert_eq!((alone.len(), numbers_to_connect(&alone)), (2, 1));
            let everyone = of(4, rank);
            assert_eq!((everyone.len(), numbers_to_connect(&everyone)), (3, 5));
        }
    }

    fn is_message(line: &Line) -> bool {
        matches!(line.channel, Channel::Message { .. })
    }
}
