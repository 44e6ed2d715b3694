//! What recording costs a training step, and how fast the default one is: `cargo bench --bench training`.
//!
//! Machines are noisy, so two trainings take turns, step by step: one recorded and one not. A figure is the median of
//! the ratios of neighbors.

mod figures;

use std::{error::Error, path::Path, sync::Arc, time::Instant};

use stepscope_collector::Recorder;
use stepscope_plan::{ModelShape, ParallelLayout};
use stepscope_traces::{Rank, RankInfo, Run, RunInfo};
use stepscope_trainer::{
    CpuTraining, Dataset, RankParts, TrainConfig, TrainingRank,
    backend::cpu::CpuBackend,
    comm::local::{LocalCommunicator, LocalWorld},
};

use crate::figures::{Estimate, Table};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Pairs of steps that are compared.
const PAIRS: usize = 60;
/// Of the ratios, this share at each end is noise.
const TAIL: usize = 10;

fn main() -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let layout = ParallelLayout { micro_batch: 4, micro_batches: 4, sequence_length: 128, ..ParallelLayout::default() };
    let config = TrainConfig::new(ModelShape::preset("tiny")?, layout);
    let mut table = Table::default();
    let (ratio, same, spans) = cost_of_recording(&config, &scratch.path().join("cost"))?;
    table.at_most("a recorded step over one that is not", "x", 1.02, ratio);
    table.at_most("20 steps of tiny, recorded", "s", 20.0, whole_run(&config, &scratch.path().join("run"))?);
    println!("{table}\n");
    println!("{PAIRS} pairs of steps, {spans} spans in each recorded one; the spread is without {TAIL}% at each end");
    println!(
        "two that are not recorded, compared in the same way: {:.3}x ({:.3}..{:.3})",
        same.value, same.low, same.high
    );
    table.end()
}

fn start(config: &TrainConfig, recorder: Recorder) -> Outcome<TrainingRank> {
    let backend = Arc::new(CpuBackend::start(recorder.clone())?);
    let communicator = Arc::new(LocalCommunicator::new(Arc::new(LocalWorld::default()), Rank(0), backend.clone()));
    Ok(TrainingRank::new(config, Rank(0), RankParts { backend, communicator, recorder })?)
}

/// The ratio of recorded to other steps, that of others to others, and the spans of a step.
fn cost_of_recording(config: &TrainConfig, run: &Path) -> Outcome<(Estimate, Estimate, u64)> {
    RunInfo::of_this_process("cost").create(run)?;
    let recorder = Recorder::start(run, RankInfo::of_this_process(Rank(0)))?;
    let data = Dataset::built_in();
    let mut recorded = start(config, recorder.clone())?;
    let mut plain = [start(config, Recorder::disabled())?, start(config, Recorder::disabled())?];
    let (mut ratios, mut same) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS + 3 {
        // Each goes first as often as the others.
        let [mut on, mut off, mut other] = [0.0; 3];
        for turn in 0..3 {
            match (pair + turn) % 3 {
                0 => on = recorded.step(&data)?.duration.as_secs_f64(),
                1 => off = plain[0].step(&data)?.duration.as_secs_f64(),
                _ => other = plain[1].step(&data)?.duration.as_secs_f64(),
            }
        }
        // The first ones warm up.
        if pair >= 3 {
            ratios.push(on / off);
            same.push(other / off);
        }
    }
    drop(recorded);
    recorder.finish()?;
    let spans = Run::open(run)?.ranks[0].survey()?.spans.rows / (PAIRS as u64 + 3);
    Ok((median(ratios), median(same), spans))
}

fn median(mut ratios: Vec<f64>) -> Estimate {
    ratios.sort_by(f64::total_cmp);
    let tail = ratios.len() * TAIL / 100;
    Estimate::of(ratios[tail..ratios.len() - tail].to_vec(), |sorted| sorted[sorted.len() / 2])
}

/// Seconds of the run that `stepscope train` makes.
fn whole_run(config: &TrainConfig, run: &Path) -> Outcome<Estimate> {
    RunInfo::of_this_process("whole").create(run)?;
    let began = Instant::now();
    CpuTraining::prepare(config)?.run(Some(run), &|_| {})?;
    Ok(Estimate::exact(began.elapsed().as_secs_f64()))
}
