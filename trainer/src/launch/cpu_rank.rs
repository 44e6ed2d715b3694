//! A rank on the cores of this machine, however it was started.

use std::{path::Path, sync::Arc, thread};

use stepscope_collector::Recorder;
use stepscope_traces::Rank;

use crate::{
    backend::{Backend, cpu::CpuBackend},
    comm::Communicator,
    config::TrainConfig,
    data::Dataset,
    error::TrainError,
    parts::RankParts,
    rank::{StepReport, TrainingRank},
};

/// What such a rank is given.
pub(super) struct CpuRank<'a> {
    pub(super) config: &'a TrainConfig,
    pub(super) rank: Rank,
    pub(super) run: Option<&'a Path>,
    pub(super) data: &'a Dataset,
    /// Hears of every step, from rank 0.
    pub(super) report: &'a (dyn Fn(StepReport) + Sync),
    /// Tells the other ranks why this one cannot go on.
    pub(super) leave: &'a dyn Fn(&TrainError),
}

impl CpuRank<'_> {
    /// Trains, and records it where there is a run to record into.
    pub(super) fn train(
        &self,
        peak: f64,
        connect: impl FnOnce(Arc<CpuBackend>) -> Arc<dyn Communicator>,
    ) -> Result<(), TrainError> {
        let recorder = super::record(self.config, self.rank, CpuBackend::describe(peak), self.run)?;
        let trained = self.train_recorded(&recorder, connect);
        trained.inspect_err(|error| recorder.fail(&error.to_string()))?;
        super::end_recording(recorder);
        Ok(())
    }

    fn train_recorded(
        &self,
        recorder: &Recorder,
        connect: impl FnOnce(Arc<CpuBackend>) -> Arc<dyn Communicator>,
    ) -> Result<(), TrainError> {
        let backend = Arc::new(CpuBackend::start(recorder.clone())?);
        let communicator = connect(backend.clone());
        let parts = RankParts { backend: backend.clone(), communicator, recorder: recorder.clone() };
        let mut training = TrainingRank::new(self.config, self.rank, parts)?;
        // Dropped before what waits for its streams, which may be waiting for the others.
        let _leaving = Leaving { leave: self.leave };
        while training.next_step() < self.config.steps {
            let done = training.step(self.data).inspect_err(self.leave)?;
            if self.rank == Rank(0) {
                (self.report)(done);
            }
        }
        drop(training);
        backend.synchronize()
    }
}

/// Tells the others when a rank ends in a panic.
struct Leaving<'a> {
    leave: &'a dyn Fn(&TrainError),
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.leave)(&TrainError::Panicked("on the host".into()));
        }
    }
}
