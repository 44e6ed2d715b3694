//! A rank on a GPU of this machine, watched by CUPTI and NVML.

use std::{path::Path, sync::Arc, time::Duration};

use stepscope_collector::{
    Recorder,
    cupti::Activity,
    libraries::{self, Library},
    nvml::Sampler,
};
use stepscope_traces::Rank;

use crate::{
    backend::{
        Backend, Stream,
        cuda::{CudaBackend, Device},
    },
    comm::alone::Alone,
    config::TrainConfig,
    data::Dataset,
    error::TrainError,
    parts::RankParts,
    rank::{StepReport, TrainingRank},
};

/// How often the device is asked what it does.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Says why there is no GPU to train on, or none with what it takes.
pub fn look_for_gpu() -> Result<(), TrainError> {
    if Device::count()? == 0 {
        return Err(TrainError::NoGpu);
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
            return Err(TrainError::Settings(format!("{ranks} ranks train on the CPU only: one rank is what a GPU takes")));
        }
        look_for_gpu()?;
        Ok(CudaTraining { config: config.clone(), data, device: Device::open(0)? })
    }

    /// Trains, and records into the run at `run`, if there is one. Every step is reported.
    pub fn run(self, run: Option<&Path>, report: &(dyn Fn(StepReport) + Sync)) -> Result<(), TrainError> {
        let CudaTraining { config, data, device } = self;
        let (rank, described) = (Rank(0), device.describe(config.layout.precision)?);
        let recorder = super::record(&config, rank, described, run)?;
        let uuid = device.uuid()?;
        let watch = run.map(|run| Watch::start(&recorder, &device, run));
        let backend = Arc::new(CudaBackend::start(device, recorder.clone())?);
        let communicator = Arc::new(Alone(backend.clone()));
        let parts = RankParts { backend: backend.clone(), communicator, recorder: recorder.clone() };
        let mut training = TrainingRank::new(&config, rank, parts)?;
        while training.next_step() < config.steps {
            report(training.step(&data)?);
        }
        drop(training);
        backend.synchronize()?;
        drop(watch);
        drop(backend);
        Ok(recorder.finish()?)
    }
}
