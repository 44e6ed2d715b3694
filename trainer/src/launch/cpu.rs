//! Ranks as threads of this process, on its cores.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
    thread::{self, available_parallelism},
};

use stepscope_plan::{Attention, MemoryPlan, text};
use stepscope_traces::Rank;

use super::cpu_rank::CpuRank;
use crate::{
    backend::cpu::{self, measured_peak},
    comm::local::{LocalCommunicator, LocalWorld},
    config::TrainConfig,
    data::Dataset,
    error::TrainError,
    rank::StepReport,
};

/// So many ranks take four times as many threads; more would only take turns.
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
        let ranks = config.layout.world_size();
        if ranks > MOST_RANKS {
            let why = format!("{ranks} ranks are too many; at most {MOST_RANKS} can run as threads");
            return Err(TrainError::Settings(why));
        }
        check_memory(config, ranks)?;
        Ok(CpuTraining { config: config.clone(), data })
    }

    /// Trains, and records into the run at `run`, if there is one. Every step is reported once.
    pub fn run(self, run: Option<&Path>, report: &(dyn Fn(StepReport) + Sync)) -> Result<(), TrainError> {
        let CpuTraining { config, data } = &self;
        let world = &Arc::new(LocalWorld::default());
        let ranks = config.layout.world_size();
        let peak = share_of_peak(measured_peak(config.numbers.compute), ranks);
        thread::scope(|scope| {
            let spawn = |rank: u64| {
                let rank = Rank(rank as u32);
                let thread = thread::Builder::new().name(format!("rank {}", rank.0)).spawn_scoped(scope, move || {
                    let leave = |error: &TrainError| world.leave(rank, error.to_string());
                    let this = CpuRank { config, rank, run, data, report, leave: &leave };
                    let connect = |backend| Arc::new(LocalCommunicator::new(world.clone(), rank, backend)) as _;
                    let body = AssertUnwindSafe(|| this.train(peak, connect));
                    let result = catch_unwind(body).unwrap_or_else(|panic| Err(TrainError::panicked(&*panic)));
                    result.inspect_err(leave)
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

/// What one rank computes at most: a core, or its share of the cores when there are more ranks than those.
pub(super) fn share_of_peak(peak: f64, ranks_here: u64) -> f64 {
    let cores = available_parallelism().map_or(1, usize::from) as f64;
    peak * (cores / ranks_here as f64).min(1.0)
}

/// Refuses what this machine has no memory for, before it tries.
pub(super) fn check_memory(config: &TrainConfig, ranks_here: u64) -> Result<(), TrainError> {
    let (model, layout) = (&config.model, &config.layout);
    let needed = ranks_here.saturating_mul(MemoryPlan::fullest(model, layout, Attention::Flash)?.total());
    match cpu::available_memory() {
        Some(there) if needed > there => {
            let (needed, there) = (text::bytes(needed), text::bytes(there));
            Err(TrainError::Settings(format!(
                "{} would need {needed} of memory, but this machine has only {there} available",
                model.name
            )))
        }
        _ => Ok(()),
    }
}
