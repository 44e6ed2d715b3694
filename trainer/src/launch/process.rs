//! A rank that is a process, on the cores of its machine.

use std::{path::Path, sync::Arc};

use super::{
    cpu::{check_memory, share_of_peak},
    cpu_rank::CpuRank,
    job::Job,
    neighbours::Neighbours,
};
use crate::{
    backend::cpu::measured_peak,
    comm::tcp::{Peers, TcpCommunicator},
    config::TrainConfig,
    data::Dataset,
    error::TrainError,
    rank::StepReport,
    rendezvous::Link,
};

/// A rank that can begin: everything that can be refused has been looked at.
pub struct RankProcess {
    config: TrainConfig,
    data: Dataset,
    link: Arc<Link>,
    neighbours: Neighbours,
}

impl RankProcess {
    /// Looks at the settings, the data, the checkpoint to go on from, and the memory of the machine.
    pub fn prepare(config: &TrainConfig, job: &Job) -> Result<RankProcess, TrainError> {
        let data = super::prepare(config)?;
        let link = job.link().clone();
        let neighbours = Neighbours::ask(&link, "CPU")?;
        check_memory(config, neighbours.count)?;
        Ok(RankProcess { config: config.clone(), data, link, neighbours })
    }

    /// Trains, and records into the run at `run`, if there is one. Rank 0 reports every step.
    pub fn run(self, run: Option<&Path>, report: &(dyn Fn(StepReport) + Sync)) -> Result<(), TrainError> {
        let peak = self.peak()?;
        let RankProcess { config, data, link, .. } = &self;
        let peers = Arc::new(Peers::connect(link)?);
        let leave = |error: &TrainError| link.fail(error);
        let this = CpuRank { config, rank: link.rank, run, data, report, leave: &leave };
        this.train(peak, |backend| Arc::new(TcpCommunicator::new(peers, backend)))
    }

    /// This rank's share of what its machine computes at most. One rank of each machine measures, while the others wait.
    fn peak(&self) -> Result<f64, TrainError> {
        let measures = self.neighbours.first == self.link.rank;
        let measured = if measures { measured_peak(self.config.numbers.compute) } else { 0.0 };
        let peaks = self.link.exchange("peaks", measured.to_le_bytes().to_vec())?;
        let peak = peaks[self.neighbours.first.0 as usize].as_slice().try_into().map_or(0.0, f64::from_le_bytes);
        Ok(share_of_peak(peak, self.neighbours.count))
    }
}
