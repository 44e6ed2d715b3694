//! What to train on, and the run that can begin there.

use std::path::Path;

use stepscope_trainer::{
    CpuTraining, CudaTraining, Job, RankProcess, StepReport, TrainConfig, TrainError, look_for_gpu, variables_for_ranks,
};

use super::settings::BackendName;

/// What to train on.
pub(super) enum ChosenBackend {
    /// Cores; and why, where nobody asked for that and there is something to remark on.
    Cpu(Option<String>),
    /// GPUs.
    Cuda,
}

/// What ranks that are started from here need to know.
pub(super) type Variables = Vec<(&'static str, u64)>;

impl ChosenBackend {
    /// For a rank that is there.
    pub(super) fn of(backend: BackendName, ranks: u64) -> ChosenBackend {
        match backend {
            BackendName::Cuda => ChosenBackend::Cuda,
            BackendName::Cpu => ChosenBackend::Cpu(None),
            BackendName::Auto => look_for_gpu(ranks).map_or_else(ChosenBackend::without, |()| ChosenBackend::Cuda),
        }
    }

    /// For so many ranks that are yet to be started on this machine, and what they are to find in their environment.
    pub(super) fn for_launch(backend: BackendName, ranks: u64) -> Result<(ChosenBackend, Variables), TrainError> {
        match (ChosenBackend::of(backend, ranks), backend) {
            (ChosenBackend::Cuda, BackendName::Auto) => Ok(match variables_for_ranks(ranks) {
                Ok(variables) => (ChosenBackend::Cuda, variables),
                Err(error) => (ChosenBackend::without(error), Variables::new()),
            }),
            (ChosenBackend::Cuda, _) => Ok((ChosenBackend::Cuda, variables_for_ranks(ranks)?)),
            (cpu, _) => Ok((cpu, Variables::new())),
        }
    }

    fn without(why: TrainError) -> ChosenBackend {
        match why {
            // Nothing to remark on.
            TrainError::NoGpu { .. } => ChosenBackend::Cpu(None),
            error => ChosenBackend::Cpu(Some(error.to_string())),
        }
    }

    /// As it is said on the command line.
    pub(super) fn name(&self) -> &'static str {
        match self {
            ChosenBackend::Cpu(_) => "cpu",
            ChosenBackend::Cuda => "cuda",
        }
    }
}

/// A training run that can begin.
pub(super) enum Training {
    Cpu(CpuTraining),
    Cuda(CudaTraining),
    Process(RankProcess),
}

impl Training {
    pub(super) fn prepare(
        choice: &ChosenBackend,
        config: &TrainConfig,
        job: Option<&Job>,
    ) -> Result<Training, TrainError> {
        Ok(match (choice, job) {
            (ChosenBackend::Cuda, job) => Training::Cuda(CudaTraining::prepare(config, job)?),
            (ChosenBackend::Cpu(_), Some(job)) => Training::Process(RankProcess::prepare(config, job)?),
            (ChosenBackend::Cpu(_), None) => Training::Cpu(CpuTraining::prepare(config)?),
        })
    }

    /// What it trains on.
    pub(super) fn device(&self) -> String {
        match self {
            Training::Cpu(_) | Training::Process(_) => "the CPU".into(),
            Training::Cuda(training) => training.device_name(),
        }
    }

    /// What to know before figures are taken for more than they are.
    pub(super) fn warning(&self) -> Option<String> {
        match self {
            Training::Cpu(_) | Training::Process(_) => None,
            Training::Cuda(training) => training.warning(),
        }
    }

    pub(super) fn run(self, run: Option<&Path>, report: &(dyn Fn(StepReport) + Sync)) -> Result<(), TrainError> {
        match self {
            Training::Cpu(training) => training.run(run, report),
            Training::Cuda(training) => training.run(run, report),
            Training::Process(training) => training.run(run, report),
        }
    }
}
