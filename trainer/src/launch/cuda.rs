//! A rank on a GPU: alone, or a process among others.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use stepscope_collector::libraries::{self, Library};
use stepscope_plan::{Attention, MemoryPlan, text};
use stepscope_traces::{CollectorNote, Rank};

use super::{cuda_parts::CudaParts, job::Job, last_resort::LastResort, neighbours::Neighbours};
use crate::{
    backend::{Backend, cuda::Device},
    comm::nccl::sharing,
    config::TrainConfig,
    data::Dataset,
    error::TrainError,
    rank::{StepReport, TrainingRank},
    rendezvous::Link,
};

/// Why this many ranks cannot train on GPUs here, if they cannot.
pub fn look_for_gpu(ranks: u64) -> Result<(), TrainError> {
    if Device::count()? == 0 {
        return Err(TrainError::NoGpu { why: None });
    }
    let alone = [Library::Nvrtc, Library::CublasLt];
    let among_others = (ranks > 1).then_some(Library::Nccl);
    alone.into_iter().chain(among_others).try_for_each(|library| Ok(libraries::open(library).map(drop)?))
}

/// What so many ranks have to find in their environment to train on the GPUs of this machine: something, if they share
/// them.
pub fn variables_for_ranks(ranks: u64) -> Result<Vec<(&'static str, u64)>, TrainError> {
    look_for_gpu(ranks)?;
    let ranks_on_one = ranks.div_ceil(Device::count()?.max(1) as u64);
    if ranks_on_one == 1 {
        return Ok(Vec::new());
    }
    sharing::check_version(ranks_on_one)?;
    Ok(sharing::variables(ranks_on_one).to_vec())
}

/// A rank that can begin to train on a GPU: everything that can be refused has been looked at.
pub struct CudaTraining {
    config: TrainConfig,
    data: Dataset,
    pub(super) device: Device,
    pub(super) seat: Seat,
}

/// Where a rank is.
pub(super) struct Seat {
    pub(super) rank: Rank,
    /// To the others, if there are any.
    pub(super) link: Option<Arc<Link>>,
    /// The ranks on its device, itself too.
    pub(super) sharing: u64,
    /// What ends its recording, if it hangs.
    pub(super) last_resort: Option<LastResort>,
}

impl CudaTraining {
    /// Looks at the settings, the data, the checkpoint to go on from, and the device. Ranks of a job come together here.
    pub fn prepare(config: &TrainConfig, job: Option<&Job>) -> Result<CudaTraining, TrainError> {
        let data = super::prepare(config)?;
        let ranks = config.layout.world_size();
        if ranks > 1 && job.is_none() {
            let why = format!("{ranks} ranks on GPUs need {ranks} processes; --processes starts them");
            return Err(TrainError::Settings(why));
        }
        look_for_gpu(ranks)?;
        let (device, seat) = match job {
            Some(job) => take_seat(job)?,
            None => (Device::open(0)?, Seat { rank: Rank(0), link: None, sharing: 1, last_resort: None }),
        };
        check_memory(config, device.total_memory()?, seat.sharing)?;
        Ok(CudaTraining { config: config.clone(), data, device, seat })
    }

    /// What the device is called.
    pub fn device_name(&self) -> String {
        self.device.name().unwrap_or_else(|_| "a GPU".into())
    }

    /// What there is to say of the device before a person takes figures for more than they are.
    pub fn warning(&self) -> Option<String> {
        (self.seat.sharing > 1).then(|| sharing::warning(self.seat.sharing))
    }

    /// Trains, and records into the run at `run`, if there is one. Rank 0 reports every step.
    pub fn run(self, run: Option<&Path>, report: &(dyn Fn(StepReport) + Sync)) -> Result<(), TrainError> {
        let (steps, speaks) = (self.config.steps, self.seat.rank == Rank(0));
        let mut rank = self.start(run)?;
        while rank.training.next_step() < steps {
            let done = rank.step()?;
            if speaks {
                report(done);
            }
        }
        rank.finish()
    }

    /// Takes memory and makes the initial weights; the first step is next.
    pub fn start(self, run: Option<&Path>) -> Result<CudaRank, TrainError> {
        let CudaTraining { config, data, device, seat } = self;
        let (rank, precision) = (seat.rank, config.layout.precision);
        let recorder = super::record(&config, rank, device.describe(precision, seat.sharing)?, run)?;
        if seat.sharing > 1 {
            recorder.note(CollectorNote::RanksOnDevice(seat.sharing));
        }
        if let Some(last_resort) = &seat.last_resort {
            last_resort.end_too(&recorder);
        }
        let started = CudaParts::start(&config, device, seat, run, &recorder);
        let mut parts = started.inspect_err(|error| recorder.clone().abandon(&error.to_string()))?;
        match TrainingRank::new(&config, rank, parts.for_training()) {
            Ok(training) => Ok(CudaRank { training, parts, data, run: run.map(Path::to_owned) }),
            Err(error) => Err(parts.fail(error)),
        }
    }
}

/// Refuses what a GPU has no memory to hold between steps, whatever else a step takes.
fn check_memory(config: &TrainConfig, total: u64, sharing: u64) -> Result<(), TrainError> {
    let plan = MemoryPlan::fullest(&config.model, &config.layout, Attention::Flash)?;
    let MemoryPlan { parameters, gradients, optimizer_state, .. } = plan;
    let held = parameters + gradients + optimizer_state;
    if held.saturating_mul(sharing) <= total {
        return Ok(());
    }
    let [held, parameters, gradients, optimizer_state, total] =
        [held, parameters, gradients, optimizer_state, total].map(text::bytes);
    let device = match sharing {
        1 => format!("the GPU has {total}"),
        _ => format!("{sharing} ranks share a GPU that has {total}"),
    };
    Err(TrainError::Settings(format!(
        "a rank of {} needs {held} (parameters {parameters}, gradients {gradients}, optimizer state {optimizer_state}), but {device}",
        config.model.name
    )))
}

/// Takes the GPU that is this rank's among those of its machine, and finds out who else has taken it.
fn take_seat(job: &Job) -> Result<(Device, Seat), TrainError> {
    let link = job.link();
    let neighbours = Neighbours::ask(link, "GPU")?;
    let local = link.local_rank().map_or(neighbours.index, |rank| rank as usize);
    let device = Device::open(local % Device::count()?.max(1))?;
    let mine = device.identity()?.to_vec();
    let sharing = link.exchange("GPUs", mine.clone())?.iter().filter(|other| **other == mine).count() as u64;
    if sharing > 1 {
        sharing::check_version(sharing)?;
        sharing::check_environment(sharing)?;
    }
    let last_resort = Some(job.last_resort().clone());
    Ok((device, Seat { rank: link.rank, link: Some(link.clone()), sharing, last_resort }))
}

/// A rank on a GPU, between steps.
pub struct CudaRank {
    training: TrainingRank,
    parts: CudaParts,
    data: Dataset,
    run: Option<PathBuf>,
}

impl CudaRank {
    /// Takes one step.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        self.training.step(&self.data).map_err(|error| self.parts.fail(error))
    }

    #[cfg(test)]
    pub(super) fn backend(&self) -> &crate::backend::cuda::CudaBackend {
        &self.parts.backend
    }

    /// Releases the profiler and records nothing, so that later steps run unobserved.
    pub fn unwatch(&mut self) -> Result<(), TrainError> {
        self.parts.backend.synchronize()?;
        self.parts.unwatch();
        Ok(())
    }

    /// Watches again, if there is a run to record into.
    pub fn watch(&mut self) -> Result<(), TrainError> {
        self.run.as_deref().map_or(Ok(()), |run| self.parts.watch(run))
    }

    /// Gives everything back, and ends the recording.
    pub fn finish(self) -> Result<(), TrainError> {
        let CudaRank { training, mut parts, .. } = self;
        if let Err(error) = parts.settle() {
            return Err(parts.fail(error));
        }
        drop(training);
        parts.finish();
        Ok(())
    }
}
