//! Every layout gets through a step where a sender waits until its message is taken, as it does over NCCL.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use stepscope_collector::Recorder;
use stepscope_plan::{ModelShape, ParallelLayout, Schedule, Zero};
use stepscope_traces::{Group, MemoryCategory, Rank};

use crate::{
    backend::{Backend, DType, Stream, Tensor, cpu::CpuBackend},
    comm::{
        Communicator, Exchange, ProcessGroup, Reduction,
        local::{LocalCommunicator, LocalWorld},
    },
    config::TrainConfig,
    data::Dataset,
    error::TrainError,
    parts::RankParts,
    rank::TrainingRank,
};

/// Where the answer to a message of a group goes.
const ANSWERS: u32 = 1000;
/// A step of a model this small takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A rank of one process whose messages are answered, and who waits for that.
struct Answered {
    communicator: LocalCommunicator,
    given: Tensor,
    taken: Tensor,
}

impl Answered {
    fn new(world: &Arc<LocalWorld>, rank: Rank, backend: &Arc<CpuBackend>) -> Answered {
        let [given, taken] = [(); 2].map(|()| backend.allocate(1, DType::F32, MemoryCategory::Communication));
        backend.zero(&given);
        Answered { communicator: LocalCommunicator::new(world.clone(), rank, backend.clone()), given, taken }
    }
}

/// The group in which messages of a group are answered.
fn answers(group: &ProcessGroup) -> ProcessGroup {
    ProcessGroup { group: Group(group.group.0 + ANSWERS), ..group.clone() }
}

impl Communicator for Answered {
    fn all_reduce(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, reduction: Reduction) {
        self.communicator.all_reduce(group, stream, tensor, reduction);
    }

    fn reduce_scatter(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor) {
        self.communicator.reduce_scatter(group, stream, from, to);
    }

    fn all_gather(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor) {
        self.communicator.all_gather(group, stream, from, to);
    }

    fn broadcast(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, root: usize) {
        self.communicator.broadcast(group, stream, tensor, root);
    }

    fn all_to_all(&self, group: &ProcessGroup, stream: Stream, from: &Tensor, to: &Tensor, exchange: &Exchange) {
        self.communicator.all_to_all(group, stream, from, to, exchange);
    }

    fn send(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, to: usize) {
        self.communicator.send(group, stream, tensor, to);
        self.communicator.receive(&answers(group), stream, &self.taken, to);
    }

    fn receive(&self, group: &ProcessGroup, stream: Stream, tensor: &Tensor, from: usize) {
        self.communicator.send(&answers(group), stream, &self.given, from);
        self.communicator.receive(group, stream, tensor, from);
    }

    fn barrier(&self, group: &ProcessGroup, stream: Stream) {
        self.communicator.barrier(group, stream);
    }
}

/// Takes two steps on every rank; the losses of rank 0.
fn losses(config: &TrainConfig) -> Result<Vec<f64>, TrainError> {
    let world = Arc::new(LocalWorld::default());
    let (tell, hear) = mpsc::channel();
    let ranks = config.layout.world_size() as u32;
    thread::scope(|scope| {
        for rank in (0..ranks).map(Rank) {
            let (world, tell) = (&world, tell.clone());
            scope.spawn(move || {
                let recorder = Recorder::disabled();
                let backend = Arc::new(CpuBackend::start(recorder.clone())?);
                let communicator = Arc::new(Answered::new(world, rank, &backend));
                let parts = RankParts { backend, communicator, recorder };
                let mut training = TrainingRank::new(config, rank, parts)?;
                let data = Dataset::built_in();
                let steps = (0..2).map(|_| Ok(training.step(&data)?.loss)).collect::<Result<Vec<f64>, TrainError>>();
                drop(tell.send((rank, steps)));
                Ok::<(), TrainError>(())
            });
        }
        drop(tell);
        let mut first = Ok(Vec::new());
        for _ in 0..ranks {
            match hear.recv_timeout(PATIENCE) {
                Ok((Rank(0), steps)) => first = steps,
                Ok(_) => {}
                Err(_) => world.leave(Rank(0), "ranks wait for each other in a circle".into()),
            }
        }
        first
    })
}

#[test]
fn no_schedule_waits_in_a_circle_when_senders_wait() {
    let model = ModelShape {
        layers: 8,
        hidden: 16,
        heads: 4,
        kv_heads: 4,
        head_dim: 4,
        ffn: 24,
        vocabulary: 256,
        ..ModelShape::preset("tiny").unwrap()
    };
    let base = ParallelLayout { sequence_length: 8, ..ParallelLayout::default() };
    for (dp, pp, micro_batches) in [(1, 2, 1), (1, 2, 4), (1, 4, 3), (1, 4, 8), (2, 2, 4), (2, 4, 4)] {
        for schedule in Schedule::ONE_WAY {
            if schedule == Schedule::Interleaved && micro_batches < pp {
                continue;
            }
            let chunks = if schedule == Schedule::Interleaved { 2 } else { 1 };
            for zero in if dp == 1 { &Zero::ALL[..1] } else { &Zero::ALL[..] } {
                let layout = ParallelLayout { dp, pp, micro_batches, schedule, chunks, zero: *zero, ..base };
                let losses = losses(&TrainConfig::new(model.clone(), layout));
                assert!(losses.as_ref().is_ok_and(|losses| losses.len() == 2), "{layout:?}: {losses:?}");
            }
        }
    }
}
