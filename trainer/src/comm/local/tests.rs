//! Collectives against their definitions, and ranks that go.

use std::thread;

use proptest::prelude::*;
use stepscope_collector::Recorder;

use super::*;

/// What a rank has in its two tensors at the end.
pub(crate) type Ended = Result<(Vec<f64>, Vec<f64>), TrainError>;

/// Does the same on every rank of a group, each with its own numbers, and returns what each ends up with.
pub(crate) fn together(
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

pub(crate) fn numbers() -> impl Strategy<Value = Vec<Vec<f32>>> {
    (1..5_usize, 0..40_usize).prop_flat_map(|(ranks, elements)| {
        let whole = (-1000..1000_i32).prop_map(|number| number as f32);
        prop::collection::vec(prop::collection::vec(whole, elements), ranks)
    })
}

pub(crate) fn wide(numbers: &[f32]) -> Vec<f64> {
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

/// How much the first of two members has for the second; nothing, for some.
pub(crate) fn for_member(from: usize, to: usize) -> usize {
    (3 * from + 2 * to) % 5
}

/// What a member sends and receives: what it sends in its order, of what it receives the first half of everyone, then the second.
pub(crate) fn some_exchange(ranks: usize, index: usize) -> Exchange {
    let mut exchange = Exchange::default();
    let (mut sent, mut received) = (0, 0);
    for member in 0..ranks {
        let length = for_member(index, member);
        let part = sent..sent + length;
        exchange.sent.push(vec![part]);
        sent += length;
        let length = for_member(member, index) / 2;
        let part = received..received + length;
        exchange.received.push(vec![part]);
        received += length;
    }
    for member in 0..ranks {
        let length = for_member(member, index).div_ceil(2);
        exchange.received[member].push(received..received + length);
        received += length;
    }
    exchange
}

#[test]
fn all_get_what_each_has_for_them() {
    for ranks in 1..5 {
        let number = |from: usize, to: usize, index: usize| (100 * from + 10 * to + index) as f32;
        let inputs =
            |from| (0..ranks).flat_map(move |to| (0..for_member(from, to)).map(move |at| number(from, to, at)));
        let inputs: Vec<Vec<f32>> = (0..ranks).map(|from| inputs(from).collect()).collect();
        let results = together(&inputs, 5 * ranks, |communicator, group, from, to| {
            let exchange = some_exchange(ranks, group.index);
            let back = communicator.backend.allocate(from.elements(), DType::F32, MemoryCategory::Other);
            communicator.all_to_all(group, Stream::Compute, from, to, &exchange);
            communicator.all_to_all(group, Stream::Compute, to, &back, &exchange.reversed());
            communicator.backend.zero(from);
            communicator.backend.add(from, &back);
        });
        for (rank, result) in results.into_iter().enumerate() {
            let (back, received) = result.unwrap();
            assert_eq!(back, wide(&inputs[rank]), "the way back undoes it");
            let halves = |half: fn(usize) -> std::ops::Range<usize>| {
                (0..ranks).flat_map(move |from| half(for_member(from, rank)).map(move |at| number(from, rank, at)))
            };
            let mut expected: Vec<f32> =
                halves(|length| 0..length / 2).chain(halves(|length| length / 2..length)).collect();
            expected.resize(5 * ranks, 0.0);
            assert_eq!(received, wide(&expected), "rank {rank} of {ranks}");
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
