//! The same as ranks of one process do, to the last bit; and what goes wrong.

use std::{thread, time::Duration};

use stepscope_collector::Recorder;
use stepscope_plan::Axis;
use stepscope_traces::{Group, GroupInfo};

use super::*;
use crate::{
    comm::local::{LocalCommunicator, LocalWorld, tests::some_exchange},
    rendezvous::{Hub, Link, Patience, RankAssignment, Secret},
};

/// A program that every rank runs: what it has at the end.
type Program = fn(&CpuBackend, &dyn Communicator, &ProcessGroup) -> Result<Vec<f64>, TrainError>;

fn group(ranks: u32, index: u32) -> ProcessGroup {
    ProcessGroup { group: Group(4), ranks: (0..ranks).map(Rank).collect(), index: index as usize }
}

fn on_each<T: Send>(ranks: u32, body: impl Fn(u32) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks)
            .map(|rank| {
                scope.spawn({
                    let body = &body;
                    move || body(rank)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn local(ranks: u32, program: Program) -> Vec<Result<Vec<f64>, String>> {
    let world = Arc::new(LocalWorld::default());
    on_each(ranks, |rank| {
        let backend = Arc::new(CpuBackend::start(Recorder::disabled()).unwrap());
        let communicator = LocalCommunicator::new(world.clone(), Rank(rank), backend.clone());
        program(&backend, &communicator, &group(ranks, rank)).map_err(|error| error.to_string())
    })
}

fn tcp(ranks: u32, program: Program) -> Vec<Result<Vec<f64>, String>> {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let patience = Patience::of(Duration::from_secs(20));
    let groups = [GroupInfo { group: Group(4), axis: Axis::World, ranks: group(ranks, 0).ranks }];
    on_each(ranks, |rank| {
        let assignment = RankAssignment {
            rank: Rank(rank),
            world: ranks,
            local_rank: None,
            address: "127.0.0.1".into(),
            port,
            secret: Secret::default(),
            slurm: None,
        };
        let settings = serde_json::Map::new();
        let hub = (rank == 0).then(|| Hub::start(&assignment, &settings, patience).unwrap());
        let link = Link::join(&assignment, &settings, groups.to_vec(), patience).unwrap();
        let backend = Arc::new(CpuBackend::start(Recorder::disabled()).unwrap());
        let communicator = TcpCommunicator::new(Arc::new(Peers::connect(&link).unwrap()), backend.clone());
        let result = program(&backend, &communicator, &group(ranks, rank)).inspect_err(|error| link.fail(error));
        drop(link.part());
        drop((communicator, backend));
        link.close();
        hub.into_iter().for_each(Hub::close);
        result.map_err(|error| error.to_string())
    })
}

/// Numbers that round differently in every order.
fn numbers(backend: &CpuBackend, elements: usize, dtype: DType, index: usize) -> Tensor {
    let tensor = backend.allocate(elements, dtype, MemoryCategory::Other);
    let mut random = fastrand::Rng::with_seed(index as u64);
    let values = (0..elements).map(|_| (random.f32() - 0.5) * 10_f32.powi(random.i32(-4..4)));
    backend.upload(values.collect(), &tensor);
    tensor
}

fn everything(
    backend: &CpuBackend,
    communicator: &dyn Communicator,
    group: &ProcessGroup,
) -> Result<Vec<f64>, TrainError> {
    let (size, index) = (group.size(), group.index);
    let mut found = Vec::new();
    for dtype in [DType::F32, DType::Bf16, DType::F64] {
        for elements in [0, 1, 7, 1200] {
            let take = |elements| backend.allocate(elements, dtype, MemoryCategory::Other);
            let fresh = || numbers(backend, elements, dtype, index);
            for reduction in [Reduction::Sum, Reduction::Maximum] {
                let tensor = fresh();
                communicator.all_reduce(group, Stream::Compute, &tensor, reduction);
                found.extend(backend.download(&tensor)?);
            }
            let (from, to) = (fresh(), take(part(elements, size, index).len()));
            communicator.reduce_scatter(group, Stream::Compute, &from, &to);
            found.extend(backend.download(&to)?);
            let in_place = fresh();
            communicator.reduce_scatter(
                group,
                Stream::Compute,
                &in_place,
                &in_place.slice(part(elements, size, index)),
            );
            // Where all parts are equally long.
            if elements.is_multiple_of(size) {
                communicator.all_gather(
                    group,
                    Stream::Compute,
                    &in_place.slice(part(elements, size, index)),
                    &in_place,
                );
            }
            found.extend(backend.download(&in_place)?);
            if elements == 1200 {
                let (from, to) = (fresh(), take(5 * size));
                backend.zero(&to);
                communicator.all_to_all(group, Stream::Compute, &from, &to, &some_exchange(size, index));
                found.extend(backend.download(&to)?);
            }
            let root = elements % size;
            let tensor = fresh();
            communicator.broadcast(group, Stream::Compute, &tensor, root);
            communicator.barrier(group, Stream::Compute);
            let (around, given) = (take(elements), fresh());
            let ready = backend.record(Stream::Compute);
            backend.wait(Stream::Communication, &ready);
            communicator.send(group, Stream::Communication, &given, (index + 1) % size);
            communicator.receive(group, Stream::Compute, &around, (index + size - 1) % size);
            found.extend(backend.download(&tensor)?);
            found.extend(backend.download(&around)?);
            backend.synchronize()?;
        }
    }
    Ok(found)
}

#[test]
fn processes_compute_what_threads_do_to_the_last_bit() {
    for ranks in [2, 3] {
        let (found, expected) = (tcp(ranks, everything), local(ranks, everything));
        assert!(expected.iter().all(Result::is_ok), "{expected:?}");
        assert_eq!(found, expected);
    }
}

#[test]
fn ranks_that_disagree_are_told() {
    let results = tcp(2, |backend, communicator, group| {
        let tensor = numbers(backend, 3 + group.index, DType::F32, 0);
        communicator.all_reduce(group, Stream::Compute, &tensor, Reduction::Sum);
        backend.download(&tensor)
    });
    for error in results.into_iter().map(Result::unwrap_err) {
        assert!(error.contains("rank 0 has an all_reduce of 3 F32, rank 1 has an all_reduce of 4 F32"), "{error}");
    }
    let results = tcp(2, |backend, communicator, group| {
        let tensor = numbers(backend, 3 + group.index, DType::F32, 0);
        match group.index {
            0 => communicator.send(group, Stream::Compute, &tensor, 1),
            _ => communicator.receive(group, Stream::Compute, &tensor, 0),
        }
        backend.download(&tensor)
    });
    let error = results[1].as_ref().unwrap_err();
    assert!(error.contains("rank 0 sent 12 bytes instead of 16"), "{error}");
}
