//! What NCCL is asked to do, done by its definition, against what ranks of one process do.

use proptest::prelude::*;

use super::call::{Call, Verb};
use crate::{
    backend::{DType, Stream, Tensor, cuda::Array},
    comm::{
        Communicator, ProcessGroup, Reduction,
        local::tests::{numbers, together, wide},
    },
};

const BYTES: usize = size_of::<f32>();

/// The numbers of a rank's two tensors, one after the other; an address is a place among them, in bytes.
type Memory = Vec<f32>;

/// Does the calls of all ranks as NCCL's manual says.
fn obey(calls: &[Call], memories: &[Memory]) -> Vec<Memory> {
    let given = |rank: usize| &memories[rank][calls[rank].from as usize / BYTES..][..calls[rank].count];
    let reduced = |place: usize, reduction: Reduction, of: &dyn Fn(usize) -> f32| {
        let numbers = (0..calls.len()).map(of);
        match reduction {
            Reduction::Sum => numbers.sum::<f32>(),
            Reduction::Maximum => numbers.reduce(f32::max).unwrap_or(place as f32),
        }
    };
    let mut after = memories.to_vec();
    for (rank, call) in calls.iter().enumerate() {
        let received: Vec<f32> = match call.verb {
            Verb::AllReduce(reduction) => {
                (0..call.count).map(|place| reduced(place, reduction, &|other| given(other)[place])).collect()
            }
            // A rank gives as many parts as there are ranks.
            Verb::ReduceScatter => {
                let part = |other: usize| calls[other].from as usize / BYTES + rank * call.count;
                let column = |place: usize| move |other: usize| memories[other][part(other) + place];
                (0..call.count).map(|place| reduced(place, Reduction::Sum, &column(place))).collect()
            }
            Verb::AllGather => (0..calls.len()).flat_map(|other| given(other).to_vec()).collect(),
            Verb::Broadcast { root } => given(root).to_vec(),
            Verb::Send { .. } | Verb::Receive { .. } => unreachable!("a message is tested with its other end"),
        };
        after[rank][call.to as usize / BYTES..][..received.len()].copy_from_slice(&received);
    }
    after
}

/// Where a rank's tensors are in its memory.
fn arrays(elements: usize, outputs: usize) -> (Array, Array) {
    let array = |place: usize, elements| Array { address: (place * BYTES) as u64, elements, dtype: DType::F32 };
    (array(0, elements), array(elements, outputs))
}

fn part(whole: Array, members: usize, index: usize) -> Array {
    let elements = whole.elements / members;
    Array { address: whole.address + (index * elements * BYTES) as u64, elements, ..whole }
}

/// The same by both ways.
fn assert_same(
    inputs: &[Vec<f32>],
    outputs: usize,
    call: impl Fn(usize, Array, Array) -> Call,
    operation: impl Fn(&dyn Communicator, &ProcessGroup, &Tensor, &Tensor) + Sync,
) {
    let memories: Vec<Memory> = inputs.iter().map(|input| [input.clone(), vec![0.0; outputs]].concat()).collect();
    let (from, to) = arrays(inputs[0].len(), outputs);
    let calls: Vec<Call> = (0..inputs.len()).map(|rank| call(rank, from, to)).collect();
    let expected = together(inputs, outputs, |communicator, group, from, to| operation(communicator, group, from, to));
    for (memory, expected) in obey(&calls, &memories).iter().zip(expected) {
        let (from, to) = expected.unwrap();
        assert_eq!(wide(memory), [from, to].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn calls_do_what_ranks_of_one_process_do(mut inputs in numbers(), root in 0..5_usize) {
        let ranks = inputs.len();
        let elements = inputs[0].len() / ranks * ranks;
        inputs.iter_mut().for_each(|input| input.truncate(elements));
        for reduction in [Reduction::Sum, Reduction::Maximum] {
            assert_same(&inputs, 0, |_, from, _| Call::all_reduce(from, reduction), |communicator, group, from, _| {
                communicator.all_reduce(group, Stream::Compute, from, reduction);
            });
        }
        let root = root % ranks;
        assert_same(&inputs, 0, |_, from, _| Call::broadcast(from, root), |communicator, group, from, _| {
            communicator.broadcast(group, Stream::Compute, from, root);
        });
        assert_same(
            &inputs,
            ranks * elements,
            |_, from, to| Call::all_gather(from, to, ranks).unwrap(),
            |communicator, group, from, to| communicator.all_gather(group, Stream::Compute, from, to),
        );
        // In its place.
        assert_same(
            &inputs,
            0,
            |rank, all, _| Call::all_gather(part(all, ranks, rank), all, ranks).unwrap(),
            |communicator, group, all, _| {
                let length = elements / ranks;
                let mine = all.slice(group.index * length..(group.index + 1) * length);
                communicator.all_gather(group, Stream::Compute, &mine, all);
            },
        );
        assert_same(
            &inputs,
            elements / ranks,
            |_, from, to| Call::reduce_scatter(from, to, ranks).unwrap(),
            |communicator, group, from, to| communicator.reduce_scatter(group, Stream::Compute, from, to),
        );
        // In its place.
        assert_same(
            &inputs,
            0,
            |rank, all, _| Call::reduce_scatter(all, part(all, ranks, rank), ranks).unwrap(),
            |communicator, group, all, _| {
                let length = elements / ranks;
                let mine = all.slice(group.index * length..(group.index + 1) * length);
                communicator.reduce_scatter(group, Stream::Compute, all, &mine);
            },
        );
    }
}

#[test]
fn a_message_is_given_or_taken() {
    let (tensor, _) = arrays(3, 0);
    let tensor = Array { address: 64, ..tensor };
    let send = Call { verb: Verb::Send { to: 1 }, from: 64, to: 0, count: 3, dtype: DType::F32 };
    assert_eq!(Call::send(tensor, 1), send);
    assert_eq!(Call::receive(tensor, 0), Call { verb: Verb::Receive { from: 0 }, from: 0, to: 64, ..send });
}

#[test]
fn parts_that_are_not_equal_are_refused() {
    let (from, to) = arrays(7, 3);
    for refused in [Call::reduce_scatter(from, to, 2), Call::all_gather(to, from, 2)] {
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("7 F32 are not 2 parts of 3 F32"), "{why}");
    }
    let half = Array { elements: 6, dtype: DType::Bf16, ..from };
    assert!(Call::reduce_scatter(half, to, 2).is_err());
}
