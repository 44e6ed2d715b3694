//! A rank on a GPU of this machine.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use stepscope_collector::{
    Recorder,
    libraries::{self, Library},
};
use stepscope_traces::Rank;

use super::watch::Watch;
use crate::{
    backend::{
        Backend,
        cuda::{CudaBackend, Device},
    },
    comm::alone::Alone,
    config::TrainConfig,
    data::Dataset,
    error::TrainError,
    parts::RankParts,
    rank::{StepReport, TrainingRank},
};

/// The only one, so far.
const RANK: Rank = Rank(0);

/// Says why there is no GPU to train on, or none with what it takes.
pub fn look_for_gpu() -> Result<(), TrainError> {
    if Device::count()? == 0 {
        return Err(TrainError::NoGpu { why: None });
    }
    for library in [Library::Nvrtc, Library::CublasLt] {
        libraries::open(library)?;
    }
    Ok(())
}

/// A training run on a GPU of this machine: everything that can be refused has been looked at.
pub struct CudaTraining {
    config: TrainConfig,
    data: Dataset,
    device: Device,
}

impl CudaTraining {
    /// Looks at the settings, the data, the checkpoint to go on from, and the device.
    pub fn prepare(config: &TrainConfig) -> Result<CudaTraining, TrainError> {
        let data = super::prepare(config)?;
        let ranks = config.layout.world_size();
        if ranks > 1 {
            let why = format!("{ranks} ranks train on the CPU only (--backend cpu); on a GPU it is one");
            return Err(TrainError::Settings(why));
        }
        look_for_gpu()?;
        Ok(CudaTraining { config: config.clone(), data, device: Device::open(0)? })
    }

    /// What the device is called.
    pub fn device_name(&self) -> String {
        self.device.name().unwrap_or_else(|_| "a GPU".into())
    }

    /// Trains, and records into the run at `run`, if there is one. Every step is reported.
    pub fn run(self, run: Option<&Path>, report: &(dyn Fn(StepReport) + Sync)) -> Result<(), TrainError> {
        let steps = self.config.steps;
        let mut rank = self.start(run)?;
        while rank.training.next_step() < steps {
            report(rank.step()?);
        }
        rank.finish()
    }

    /// Takes memory and makes the initial weights; the first step is next.
    pub fn start(self, run: Option<&Path>) -> Result<CudaRank, TrainError> {
        let CudaTraining { config, data, device } = self;
        let recorder = super::record(&config, RANK, device.describe(config.layout.precision)?, run)?;
        let started = CudaRank::start(config, data, device, run, &recorder);
        started.inspect_err(|error| recorder.fail(&error.to_string()))
    }
}

/// Ends it while the device is still there, which what it has not read yet is of.
fn end_watch(watch: &mut Option<Watch>, backend: &CudaBackend) {
    // Whatever it says, nothing runs after this.
    drop(backend.device().synchronize());
    watch.take().into_iter().for_each(Watch::finish);
}

/// A rank on a GPU, between steps.
pub struct CudaRank {
    training: TrainingRank,
    backend: Arc<CudaBackend>,
    watch: Option<Watch>,
    recorder: Recorder,
    data: Dataset,
    run: Option<PathBuf>,
}

impl CudaRank {
    fn start(
        config: TrainConfig,
        data: Dataset,
        device: Device,
        run: Option<&Path>,
        recorder: &Recorder,
    ) -> Result<CudaRank, TrainError> {
        // Before the libraries load, which takes a while: what they launch is recorded too.
        let mut watch = run.map(|_| Watch::start(recorder, &device));
        let backend = Arc::new(CudaBackend::start(device, recorder.clone(), config.deterministic)?);
        if let (Some(watch), Some(run)) = (&mut watch, run) {
            watch.sample(run, &backend.device().selector()?);
        }
        let communicator = Arc::new(Alone(backend.clone()));
        let parts = RankParts { backend: backend.clone(), communicator, recorder: recorder.clone() };
        let training = TrainingRank::new(&config, RANK, parts).inspect_err(|_| end_watch(&mut watch, &backend))?;
        Ok(CudaRank { training, backend, watch, recorder: recorder.clone(), data, run: run.map(Path::to_owned) })
    }

    /// Takes one step.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        let CudaRank { training, backend, watch, recorder, data, .. } = self;
        training.step(data).inspect_err(|error| {
            recorder.fail(&error.to_string());
            end_watch(watch, backend);
        })
    }

    #[cfg(test)]
    pub(super) fn backend(&self) -> &CudaBackend {
        &self.backend
    }

    /// Lets go of the device and records nothing, so that steps from now on are as if nobody had ever watched.
    pub fn unwatch(&mut self) -> Result<(), TrainError> {
        self.backend.synchronize()?;
        self.watch.take().into_iter().for_each(Watch::finish);
        self.recorder.pause();
        Ok(())
    }

    /// Watches again, if there is a run to record into.
    pub fn watch(&mut self) -> Result<(), TrainError> {
        if let (Some(run), None) = (&self.run, &self.watch) {
            self.recorder.resume();
            let device = self.backend.device();
            let mut watch = Watch::start(&self.recorder, device);
            watch.sample(run, &device.selector()?);
            self.watch = Some(watch);
        }
        Ok(())
    }

    /// Gives everything back, and ends the recording.
    pub fn finish(mut self) -> Result<(), TrainError> {
        let done = self.backend.synchronize().inspect_err(|error| self.recorder.fail(&error.to_string()));
        end_watch(&mut self.watch, &self.backend);
        done?;
        drop((self.training, self.backend));
        Ok(self.recorder.finish()?)
    }
}
