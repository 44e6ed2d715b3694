//! Ranks, started: as threads or processes on the cores of this machine, or on a GPU.

mod cpu;
mod cpu_rank;
mod cuda;
#[cfg(test)]
mod cuda_check;
mod cuda_parts;
mod job;
mod last_resort;
mod launcher;
mod neighbours;
mod process;
mod watch;

use std::path::Path;

use stepscope_collector::Recorder;
use stepscope_traces::{Device, Rank, RankInfo, Stage};

pub use self::{
    cpu::CpuTraining,
    cuda::{CudaRank, CudaTraining, look_for_gpu, variables_for_ranks},
    job::Job,
    launcher::launch_processes,
    process::RankProcess,
};
use crate::{checkpoint, config::TrainConfig, data::Dataset, error::TrainError};

/// Looks at the settings, the checkpoint to go on from, the place for new ones, and the data.
fn prepare(config: &TrainConfig) -> Result<Dataset, TrainError> {
    config.check()?;
    if let Some(path) = &config.resume {
        checkpoint::check_files(path, config)?;
    }
    if let Some(save) = &config.save {
        checkpoint::check_room(&save.directory)?;
    }
    Dataset::open(&config.data, config.layout.sequence_length, config.evaluate_every.is_some())
}

/// Ends a recording. Why it is not whole, if it is not, the recorder has said on stderr: what was trained is trained.
fn end_recording(recorder: Recorder) {
    drop(recorder.finish());
}

/// Begins to record a rank, if there is a run to record into.
fn record(config: &TrainConfig, rank: Rank, device: Device, run: Option<&Path>) -> Result<Recorder, TrainError> {
    let Some(run) = run else { return Ok(Recorder::disabled()) };
    let at = config.layout.coordinates(rank.0.into());
    let mut info = RankInfo::of_this_process(rank);
    info.stage = Some(Stage(at.stage as i16));
    info.device = Some(device);
    Ok(Recorder::start(run, info)?)
}
