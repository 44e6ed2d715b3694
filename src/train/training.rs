//! What to train on, and the run that can begin there.

use std::path::Path;

use stepscope_trainer::{
    CpuTraining, CudaTraining, Job, RankProcess, StepReport, TrainConfig, TrainError, look_for_gpu, variables_for_ranks,
};

use super::settings::BackendName;

/// What to train on.
pub(super) enum Choice {
    /// Cores; and why, where nobody asked for that and there is something to remark on.
    Cpu(Option<String>),
    /// GPUs.
    Cuda,
}

/// What ranks that are started from here need to know.
pub(super) type Variables = Vec<(&'static str, u64)>;

impl Choice {
    /// For a rank that is there.
    pub(super) fn of(backend: BackendName, ranks: u64) -> Choice {
        match backend {
            BackendName::Cuda => Choice::Cuda,
            BackendName::Cpu => Choice::Cpu(None),
            BackendName::Auto => look_for_gpu(ranks).map_or_else(Choice::without, |()| Choice::Cuda),
        }
    }

    /// For so many ranks that are yet to be started on this machine, and what they are to find in their environment.
    pub(super) fn for_launch(backend: BackendName, ranks: u64) -> Result<(Choice, Variables), TrainError> {
        match (Choice::of(backend, ranks), backend) {
            (Choice::Cuda, BackendName::Auto) => Ok(match variables_for_ranks(ranks) {
                Ok(variables) => (Choice::Cuda, variables),
                Err(error) => (Choice::without(error), Variables::new()),
            }),
            (Choice::Cuda, _) => Ok((Choice::Cuda, variables_for_ranks(ranks)?)),
            (cpu, _) => Ok((cpu, Variables::new())),
        }
    }

    fn without(why: TrainError) -> Choice {
        match why {
            // Nothing to remark on.
            TrainError::NoGpu { .. } => Choice::Cpu(None),
            error => Choice::Cpu(Some(error.to_string())),
        }
    }

    /// As it is said on the command line.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Choice::Cpu(_) => "cpu",
            Choice::Cuda => "cuda",
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
    pub(super) fn prepare(choice: &Choice, config: &TrainConfig, job: Option<&Job>) -> Result<Training, TrainError> {
        Ok(match (choice, job) {
            (Choice::Cuda, job) => Training::Cuda(CudaTraining::prepare(config, job)?),
            (Choice::Cpu(_), Some(job)) => Training::Process(RankProcess::prepare(config, job)?),
            (Choice::Cpu(_), None) => Training::Cpu(CpuTraining::prepare(config)?),
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
