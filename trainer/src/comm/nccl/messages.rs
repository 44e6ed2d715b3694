//! An all-to-all, which NCCL does not have: messages to each member and from each, which are done as one.
//!
//! A message lies together. So what does not is put together before it is sent, or taken apart after it has come. What a rank
//! has for itself never leaves it.

use std::{ops::Range, slice};

use super::call::Call;
use crate::{
    backend::cuda::{Array, Part},
    comm::Exchange,
    error::TrainError,
};

/// What an all-to-all comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Messages {
    /// Copies before it.
    pub(super) before: Vec<Part>,
    /// To other members and from them, all at once.
    pub(super) calls: Vec<Call>,
    /// Copies after it.
    pub(super) after: Vec<Part>,
}

/// How many elements are put together before they are sent, and how many are taken apart after they have come.
pub(super) fn rooms(exchange: &Exchange, index: usize) -> [usize; 2] {
    [&exchange.sent, &exchange.received].map(|side| {
        let others = side.iter().enumerate().filter(|(member, _)| *member != index);
        let scattered = others.map(|(_, parts)| together(parts)).filter(|parts| parts.len() > 1);
        scattered.flatten().map(|part| part.len()).sum()
    })
}

impl Messages {
    /// Between two tensors of a member, with room for what does not lie together: as much as [`rooms`] says.
    pub(super) fn of(
        (from, to): (Array, Array),
        rooms: [Array; 2],
        exchange: &Exchange,
        index: usize,
    ) -> Result<Messages, TrainError> {
        check((from, to), exchange, index)?;
        let mut messages = Messages::default();
        let (mut sending, mut receiving) = (Rest(rooms[0]), Rest(rooms[1]));
        for (member, (sent, received)) in exchange.sent.iter().zip(&exchange.received).enumerate() {
            let (sent, received) = (together(sent), together(received));
            if member == index {
                messages.after.extend(copies((from, &sent), (to, &received)));
                continue;
            }
            let message = match &sent[..] {
                [] => None,
                [part] => Some(part_of(from, part)),
                parts => {
                    let message = sending.take(parts)?;
                    messages.before.extend(copies((from, parts), (message, slice::from_ref(&(0..message.elements)))));
                    Some(message)
                }
            };
            messages.calls.extend(message.map(|message| Call::send(message, member)));
            let message = match &received[..] {
                [] => None,
                [part] => Some(part_of(to, part)),
                parts => {
                    let message = receiving.take(parts)?;
                    messages.after.extend(copies((message, slice::from_ref(&(0..message.elements))), (to, parts)));
                    Some(message)
                }
            };
            messages.calls.extend(message.map(|message| Call::receive(message, member)));
        }
        Ok(messages)
    }
}

/// Parts that follow each other as one; those without an element are none.
fn together(parts: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut together: Vec<Range<usize>> = Vec::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        match together.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => together.push(part.clone()),
        }
    }
    together
}

fn part_of(array: Array, part: &Range<usize>) -> Array {
    let address = array.address + (part.start * array.dtype.bytes()) as u64;
    Array { address, elements: part.len(), ..array }
}

/// Copies of parts that are equally long together, in their order: cut wherever one of either side ends.
fn copies((from, sources): (Array, &[Range<usize>]), (to, targets): (Array, &[Range<usize>])) -> Vec<Part> {
    let bytes = from.dtype.bytes();
    let (mut sources, mut targets) = (sources.iter().cloned(), targets.iter().cloned());
    let (mut source, mut target) = (0..0, 0..0);
    let mut copies = Vec::new();
    loop {
        if source.is_empty() {
            let Some(next) = sources.next() else { return copies };
            source = next;
        }
        if target.is_empty() {
            let Some(next) = targets.next() else { return copies };
            target = next;
        }
        let count = source.len().min(target.len());
        copies.push(Part {
            from: from.address + (source.start * bytes) as u64,
            to: to.address + (target.start * bytes) as u64,
            bytes: (count * bytes) as u64,
        });
        source.start += count;
        target.start += count;
    }
}

/// What is left of a room.
struct Rest(Array);

impl Rest {
    /// Room for parts, one after the other.
    fn take(&mut self, parts: &[Range<usize>]) -> Result<Array, TrainError> {
        let (elements, rest) = (length(parts), self.0);
        if elements > rest.elements {
            let why = format!("a message of {elements} elements in a room of {}", rest.elements);
            return Err(TrainError::Disagreement(why));
        }
        self.0 = part_of(rest, &(elements..rest.elements));
        Ok(part_of(rest, &(0..elements)))
    }
}

fn length(parts: &[Range<usize>]) -> usize {
    parts.iter().map(ExactSizeIterator::len).sum()
}

/// Refuses parts that tensors do not have, and members that are not on both sides.
fn check((from, to): (Array, Array), exchange: &Exchange, index: usize) -> Result<(), TrainError> {
    let refuse = |why: String| Err(TrainError::Disagreement(format!("an all-to-all of {why}")));
    let Exchange { sent, received } = exchange;
    if from.dtype != to.dtype {
        return refuse(format!("{:?} into {:?}", from.dtype, to.dtype));
    }
    if sent.len() != received.len() || index >= sent.len() {
        return refuse(format!("{} members to send to and {} to receive from", sent.len(), received.len()));
    }
    for (array, side) in [(from, sent), (to, received)] {
        let outside = side.iter().flatten().find(|part| part.start > part.end || part.end > array.elements);
        if let Some(part) = outside {
            return refuse(format!("{part:?} in {} elements", array.elements));
        }
    }
    let (mine, kept) = (length(&sent[index]), length(&received[index]));
    if mine != kept {
        return refuse(format!("{mine} elements for a rank itself, which expects {kept}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::call::Verb, *};
    use crate::{
        backend::{DType, Stream},
        comm::{
            Communicator,
            local::tests::{together as all_ranks, wide},
        },
    };

    const BYTES: usize = size_of::<f32>();

    fn array(place: usize, elements: usize) -> Array {
        Array { address: (place * BYTES) as u64, elements, dtype: DType::F32 }
    }

    fn copy(parts: &[Part], memory: &mut [f32]) {
        for part in parts {
            let from = part.from as usize / BYTES;
            memory.copy_within(from..from + part.bytes as usize / BYTES, part.to as usize / BYTES);
        }
    }

    /// Does the messages of all ranks as NCCL's manual says: what one sends to another first, that one receives first.
    fn obey(messages: &[Messages], memories: &mut [Vec<f32>]) {
        for (messages, memory) in messages.iter().zip(&mut *memories) {
            copy(&messages.before, memory);
        }
        let sent: Vec<Vec<(usize, Vec<f32>)>> = messages
            .iter()
            .zip(&*memories)
            .map(|(messages, memory)| {
                let of_call = |call: &Call| match call.verb {
                    Verb::Send { to } => Some((to, memory[call.from as usize / BYTES..][..call.count].to_vec())),
                    _ => None,
                };
                messages.calls.iter().filter_map(of_call).collect()
            })
            .collect();
        for (rank, messages) in messages.iter().enumerate() {
            for call in &messages.calls {
                let Verb::Receive { from } = call.verb else { continue };
                let (_, numbers) = sent[from].iter().find(|(to, _)| *to == rank).unwrap();
                assert_eq!(numbers.len(), call.count, "what is sent is as long as what is received");
                memories[rank][call.to as usize / BYTES..][..call.count].copy_from_slice(numbers);
            }
            copy(&messages.after, &mut memories[rank]);
        }
    }

    /// The ways of rows, of which so many go from each rank to each of its and others' experts: there, sorted by expert, and
    /// back. Rows are of two numbers.
    fn ways(counts: &[Vec<usize>]) -> Vec<Exchange> {
        let (ranks, experts) = (counts.len(), counts[0].len() / counts.len());
        let of = |rank: usize| {
            let mut exchange = Exchange { sent: Vec::new(), received: vec![Vec::new(); ranks] };
            let mut sent = 0;
            for counts in counts[rank].chunks(experts) {
                let rows: usize = counts.iter().sum();
                let part = 2 * sent..2 * (sent + rows);
                exchange.sent.push(vec![part]);
                sent += rows;
            }
            let mut received = 0;
            for expert in rank * experts..(rank + 1) * experts {
                for (member, counts) in counts.iter().enumerate() {
                    exchange.received[member].push(2 * received..2 * (received + counts[expert]));
                    received += counts[expert];
                }
            }
            exchange
        };
        (0..ranks).map(of).collect()
    }

    fn size(side: &[Vec<Range<usize>>]) -> usize {
        side.iter().flatten().map(|part| part.end).max().unwrap_or(0)
    }

    fn assert_same(ways: &[Exchange]) {
        // All ranks have tensors of one size here, which the parts need not fill.
        let (inputs, outputs) = (
            ways.iter().map(|way| size(&way.sent)).max().unwrap(),
            ways.iter().map(|way| size(&way.received)).max().unwrap(),
        );
        let given: Vec<Vec<f32>> =
            (0..ways.len()).map(|rank| (0..inputs).map(|place| (1000 * rank + place) as f32).collect()).collect();
        let expected = all_ranks(&given, outputs, |communicator, group, from, to| {
            communicator.all_to_all(group, Stream::Compute, from, to, &ways[group.index]);
        });
        let (mut messages, mut memories) = (Vec::new(), Vec::new());
        for (rank, way) in ways.iter().enumerate() {
            let [sending, receiving] = rooms(way, rank);
            let places = [0, inputs, inputs + outputs, inputs + outputs + sending];
            let [from, to] = [array(places[0], inputs), array(places[1], outputs)];
            let rooms = [array(places[2], sending), array(places[3], receiving)];
            messages.push(Messages::of((from, to), rooms, way, rank).unwrap());
            memories.push([given[rank].clone(), vec![0.0; outputs + sending + receiving]].concat());
        }
        for messages in &messages {
            let others = |is_send: bool| {
                let members = messages.calls.iter().filter_map(move |call| match call.verb {
                    Verb::Send { to } if is_send => Some(to),
                    Verb::Receive { from } if !is_send => Some(from),
                    _ => None,
                });
                members.collect::<Vec<_>>()
            };
            for members in [others(true), others(false)] {
                assert!(members.windows(2).all(|pair| pair[0] < pair[1]), "one message to each: {members:?}");
            }
        }
        obey(&messages, &mut memories);
        for (memory, expected) in memories.iter().zip(expected) {
            let (from, to) = expected.unwrap();
            assert_eq!(wide(&memory[..inputs + outputs]), [from, to].concat());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

        #[test]
        fn messages_do_what_ranks_of_one_process_do(
            (ranks, experts) in (2..5_usize, 1..4_usize),
            counts in prop::collection::vec(0..4_usize, 48),
        ) {
            let counts: Vec<Vec<usize>> =
                counts.chunks(12).take(ranks).map(|counts| counts[..ranks * experts].to_vec()).collect();
            let there = ways(&counts);
            assert_same(&there);
            assert_same(&there.iter().map(Exchange::reversed).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_lies_together_goes_without_a_copy() {
        let [tensor, room] = [array(100, 10), array(0, 0)];
        let exchange = Exchange {
            sent: vec![vec![0..2, 2..2, 2..5], vec![5..8], vec![]],
            received: vec![vec![4..6, 6..7], vec![0..3], vec![9..9]],
        };
        assert_eq!(rooms(&exchange, 1), [0, 0]);
        let messages = Messages::of((tensor, array(200, 9)), [room; 2], &exchange, 1).unwrap();
        let [sent, received] = [array(100, 5), array(204, 3)];
        let own = Part { from: 105 * 4, to: 200 * 4, bytes: 12 };
        let calls = vec![Call::send(sent, 0), Call::receive(received, 0)];
        assert_eq!(messages, Messages { before: vec![], calls, after: vec![own] });
    }

    #[test]
    fn parts_that_are_not_there_are_refused() {
        let refused = |exchange: &Exchange, tensors| {
            Messages::of(tensors, [array(0, 0); 2], exchange, 0).unwrap_err().to_string()
        };
        let tensors = (array(0, 4), array(4, 4));
        let exchange = Exchange { sent: vec![vec![], vec![2..5]], received: vec![vec![], vec![]] };
        assert!(refused(&exchange, tensors).contains("an all-to-all of 2..5 in 4 elements"));
        let exchange = Exchange { sent: vec![vec![0..2], vec![]], received: vec![vec![0..3], vec![]] };
        assert!(refused(&exchange, tensors).contains("2 elements for a rank itself, which expects 3"));
        let exchange = Exchange { sent: vec![vec![]], received: vec![vec![], vec![]] };
        assert!(refused(&exchange, tensors).contains("1 members to send to and 2 to receive from"));
        let half = Array { dtype: DType::Bf16, ..tensors.1 };
        assert!(refused(&Exchange::default(), (tensors.0, half)).contains("F32 into Bf16"));
        let exchange = Exchange { sent: vec![vec![], vec![0..1, 2..3]], received: vec![vec![], vec![]] };
        assert!(refused(&exchange, tensors).contains("a message of 2 elements in a room of 0"));
    }
}
