//! Ranks as threads of this process, on its cores.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
    thread::{self, available_parallelism},
};

use stepscope_collector::Recorder;
use stepscope_plan::{Attention, MemoryPlan};
use stepscope_traces::Rank;

use crate::{
    backend::{
        Backend,
        cpu::{self, CpuBackend, measured_peak},
    },
    comm::local::{LocalCommunicator, LocalWorld},
    config::TrainConfig,
    data::Dataset,
    error::TrainError,
    parts::RankParts,
    rank::{StepReport, TrainingRank},
};

/// So many ranks take three times as many threads; more would only take turns.
const MOST_RANKS: u64 = 128;

/// A training run on the cores of this machine, with a thread for each rank: everything that can be refused has been
/// looked at.
pub struct CpuTraining {
    config: TrainConfig,
    data: Dataset,
}

impl CpuTraining {
    /// Looks at the settings, the data, the checkpoint to go on from, and the memory of the machine.
    pub fn prepare(config: &TrainConfig) -> Result<CpuTraining, TrainError> {
        let data = super::prepare(config)?;
        check_memory(config)?;
        Ok(CpuTraining { config: config.clone(), data })
    }

    /// Trains, and records into the run at `run`, if there is one. Every step is reported once.
    pub fn run(self, run: Option<&Path>, report: &(dyn Fn(StepReport) + Sync)) -> Result<(), TrainError> {
        let CpuTraining { config, data } = &self;
        let world = &Arc::new(LocalWorld::default());
        let ranks = config.layout.world_size();
        let peak = share_of_peak(config, ranks);
        thread::scope(|scope| {
            let spawn = |rank: u64| {
                let rank = Rank(rank as u32);
                let thread = thread::Builder::new().name(format!("rank {}", rank.0)).spawn_scoped(scope, move || {
                    let body = AssertUnwindSafe(|| train_rank(config, rank, run, world, peak, data, report));
                    let result = catch_unwind(body).unwrap_or_else(|panic| Err(TrainError::panicked(&*panic)));
                    result.inspect_err(|error| world.leave(rank, error.to_string()))
                });
                // Others may be waiting for it already.
                thread.inspect_err(|error| world.leave(rank, format!("its thread cannot start: {error}")))
            };
            let threads: Vec<_> = (0..ranks).map(spawn).collect();
            let results = threads.into_iter().map(|thread| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| Err(TrainError::panicked(&*panic))),
                Err(error) => Err(TrainError::Settings(format!("cannot start a thread: {error}"))),
            });
            // That another rank is gone says less than why it went.
            let failures = results.filter_map(Result::err).collect::<Vec<_>>();
            let own = failures.iter().position(|error| !matches!(error, TrainError::RankGone { .. })).unwrap_or(0);
            failures.into_iter().nth(own).map_or(Ok(()), Err)
        })
    }
}

fn train_rank(
    config: &TrainConfig,
    rank: Rank,
    run: Option<&Path>,
    world: &Arc<LocalWorld>,
    peak: f64,
    data: &Dataset,
    report: &(dyn Fn(StepReport) + Sync),
) -> Result<(), TrainError> {
    let recorder = super::record(config, rank, CpuBackend::describe(peak), run)?;
    let trained = train_recorded(config, rank, world, data, report, &recorder);
    trained.inspect_err(|error| recorder.fail(&error.to_string()))?;
    Ok(recorder.finish()?)
}

fn train_recorded(
    config: &TrainConfig,
    rank: Rank,
    world: &Arc<LocalWorld>,
    data: &Dataset,
    report: &(dyn Fn(StepReport) + Sync),
    recorder: &Recorder,
) -> Result<(), TrainError> {
    let backend = Arc::new(CpuBackend::start(recorder.clone())?);
    let communicator = Arc::new(LocalCommunicator::new(world.clone(), rank, backend.clone()));
    let parts = RankParts { backend: backend.clone(), communicator, recorder: recorder.clone() };
    let mut training = TrainingRank::new(config, rank, parts)?;
    // Dropped before what waits for its streams, which may be waiting for the others.
    let _leaving = Leaving { world, rank };
    while training.next_step() < config.steps {
        let done = training.step(data).inspect_err(|error| world.leave(rank, error.to_string()))?;
        if rank == Rank(0) {
            report(done);
        }
    }
    drop(training);
    backend.synchronize()
}

/// Tells the others when a rank ends in a panic.
struct Leaving<'a> {
    world: &'a LocalWorld,
    rank: Rank,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.world.leave(self.rank, "it panicked".into());
        }
    }
}

/// What one rank computes at most: a core, or its share of the cores when there are more ranks than those.
fn share_of_peak(config: &TrainConfig, ranks: u64) -> f64 {
    let cores = available_parallelism().map_or(1, usize::from) as f64;
    measured_peak(config.numbers.compute) * (cores / ranks as f64).min(1.0)
}

/// Refuses what this machine has no memory for, before it tries.
fn check_memory(config: &TrainConfig) -> Result<(), TrainError> {
    let (model, layout) = (&config.model, &config.layout);
    let ranks = layout.world_size();
    if ranks > MOST_RANKS {
        return Err(TrainError::Settings(format!("{ranks} ranks are more than the {MOST_RANKS} that run as threads")));
    }
    let needed = ranks.saturating_mul(MemoryPlan::fullest(model, layout, Attention::Flash)?.total());
    match cpu::available_memory() {
        Some(there) if needed > there => {
            let gigabytes = |bytes: u64| bytes as f64 / 1e9;
            let (needed, there) = (gigabytes(needed), gigabytes(there));
            Err(TrainError::Settings(format!(
                "{} would take {needed:.1} GB of memory, of which this machine has {there:.1} GB to spare",
                model.name
            )))
        }
        _ => Ok(()),
    }
}
