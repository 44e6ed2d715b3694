//! The reference trainer: a Llama-style model under every parallelism the field uses, as a job whose truth is known.
//!
//! ```no_run
//! use stepscope_plan::{ModelShape, ParallelLayout};
//! use stepscope_trainer::{CpuTraining, TrainConfig};
//!
//! let layout = ParallelLayout { dp: 2, micro_batch: 4, micro_batches: 2, sequence_length: 128, ..Default::default() };
//! let config = TrainConfig::new(ModelShape::preset("tiny")?, layout);
//! CpuTraining::prepare(&config)?.run(None, &|step| println!("step {}: loss {:.3}", step.step, step.loss))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod backend;
mod checkpoint;
pub mod comm;
mod config;
mod data;
mod error;
#[cfg(test)]
#[path = "../../tests/support/fuzz.rs"]
mod fuzz;
mod launch;
mod lazy_tensor;
mod lock;
mod model;
mod noise_scale;
mod numbers;
mod optimizer_settings;
mod parallel;
mod parts;
mod rank;
mod rendezvous;
mod seed;
#[cfg(test)]
#[path = "../../tests/support/skipped.rs"]
mod skipped;
mod state;

pub use checkpoint::{changed_settings, newest_checkpoint};
pub use config::{GradientReduction, SaveEvery, TrainConfig};
pub use data::{Dataset, Use};
pub use error::TrainError;
pub use launch::{
    CpuTraining, CudaRank, CudaTraining, Job, RankProcess, launch_processes, look_for_gpu, variables_for_ranks,
};
pub use numbers::Numbers;
pub use optimizer_settings::{LearningRateSchedule, OptimizerSettings};
pub use parts::RankParts;
pub use rank::{StepReport, TrainingRank};
pub use rendezvous::{Patience, RankAssignment, Secret, SlurmStep};
