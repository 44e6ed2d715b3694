//! Seeded runs with known answers: real run directories, written by the real writer, and the truth beside them.
//!
//! A run is made in true time first: each pipeline stage gets a timeline, its replicas share it, and the chosen
//! overlap, waiting and bubble are there by construction. Then each rank's clock bends it, with an offset and a
//! drift, and the answers are taken in the clock the files are in.
//!
//! ```
//! use stepscope_traces::synthetic::Recipe;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("run");
//! let truth = Recipe { replicas: 2, steps: 3, overlap: 0.75, ..Recipe::default() }.write(&path)?;
//! let step = &truth.ranks[1].steps[2];
//! assert!((step.figures.overlap().unwrap() - 0.75).abs() < 1e-3);
//! # Ok(())
//! # }
//! ```

mod cluster;
mod kineto;
mod memory;
mod rank;
mod timeline;
mod truth;

use std::path::Path;

use stepscope_plan::{Axis, ParallelLayout};

use crate::{
    error::TraceError,
    ids::{Group, Nanos, Rank},
    run_info::{GroupInfo, RunInfo},
};

pub use kineto::repeat_kineto;
pub use stepscope_plan::Schedule;
pub use truth::{Figures, MemoryTruth, PipelineTruth, RankTruth, StepTruth, Truth};

/// Tokens of a sequence, of which a micro-batch has one.
const SEQUENCE_LENGTH: u32 = 2048;

/// What to make.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Equal recipes make equal runs.
    pub seed: u64,
    /// Data-parallel ranks of each pipeline stage.
    pub replicas: u32,
    /// Optimizer steps.
    pub steps: u32,
    /// Micro-batches of a step.
    pub micro_batches: u32,
    /// Layers of a stage; each chunk has an equal share of them.
    pub layers: u32,
    /// Kernels of a layer in one pass.
    pub kernels_per_layer: u32,
    /// Streams with kernels. The first one carries the work; the others run beside it.
    pub compute_streams: u32,
    /// The share of gradient communication that is hidden behind compute.
    pub overlap: f64,
    /// How long the ranks of a collective wait for the last one, at most: a share of the kernel it hides behind.
    pub waiting: f64,
    /// Standard deviation of a kernel's duration, as a share of it.
    pub jitter: f64,
    /// How long the host lets a stream idle between two kernels, at most.
    pub largest_gap: Nanos,
    /// Pipeline stages, if there are any.
    pub pipeline: Option<Pipeline>,
    /// Where ranks run; on this machine, unless it is said.
    pub cluster: Option<Cluster>,
    /// How the ranks' clocks differ.
    pub clocks: Clocks,
    /// How much of the run goes into one batch of the files.
    pub flush_every: Nanos,
}

/// A pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Pipeline {
    /// How many stages.
    pub stages: u32,
    /// In which order a stage works.
    pub schedule: Schedule,
    /// Chunks of layers on a stage: one, unless the schedule is interleaved.
    pub chunks: u32,
    /// How long a send to the next stage takes.
    pub transfer: Nanos,
}

/// Machines with the same number of GPUs each, below switches that have one above them all.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    /// GPUs of a machine; neighbors share one.
    pub ranks_per_host: u32,
    /// Machines below a switch.
    pub hosts_per_switch: u32,
    /// The switch below which ranks come last to every collective, if there is one: the others wait for all of them.
    pub slow_switch: Option<u32>,
}

/// How the ranks' clocks differ from true time, each drawn evenly between plus and minus the largest value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    /// Of a rank's clock.
    pub largest_offset: Nanos,
    /// Of a rank's clock, in nanoseconds gained per second.
    pub largest_drift: i64,
    /// Of the time of day a rank ties its clock to.
    pub largest_wall_error: Nanos,
}

impl Default for Recipe {
    /// A small run on one rank, with a bit of everything.
    fn default() -> Recipe {
        Recipe {
            seed: 1,
            replicas: 1,
            steps: 4,
            micro_batches: 2,
            layers: 4,
            kernels_per_layer: 12,
            compute_streams: 2,
            overlap: 0.6,
            waiting: 0.0,
            jitter: 0.02,
            largest_gap: Nanos(3_000),
            pipeline: None,
            cluster: None,
            clocks: Clocks::default(),
            flush_every: Nanos(250_000_000),
        }
    }
}

impl Recipe {
    /// Writes the run and tells the truth about it.
    pub fn write(&self, path: &Path) -> Result<Truth, TraceError> {
        let mut info = RunInfo::of_this_process("synthetic");
        info.world_size = Some(self.world_size());
        info.configuration.insert("seed".into(), self.seed.into());
        info.layout = Some(self.layout());
        info.groups = self.groups();
        info.create(path)?;
        let ranks = (0..self.world_size()).map(|rank| self.write_rank(path, Rank(rank))).collect::<Result<_, _>>()?;
        Ok(Truth { ranks, pipeline: self.pipeline.map(|pipeline| self.pipeline_truth(pipeline)) })
    }

    /// How many ranks the run has: stage by stage, the replicas of each.
    pub fn world_size(&self) -> u32 {
        self.stages() * self.replicas
    }

    /// The layout of the run. Its kernels are those of no model in particular.
    pub fn layout(&self) -> ParallelLayout {
        ParallelLayout {
            dp: self.replicas.into(),
            pp: self.stages().into(),
            schedule: self.pipeline.map_or(Schedule::default(), |pipeline| pipeline.schedule),
            chunks: self.chunks().into(),
            micro_batches: self.micro_batches.into(),
            sequence_length: SEQUENCE_LENGTH.into(),
            ..ParallelLayout::default()
        }
    }

    /// The replicas of each stage, then the pipeline of each replica.
    fn groups(&self) -> Vec<GroupInfo> {
        let layout = self.layout();
        let group = |axis, rank: u32, ranks: Vec<u64>| {
            let ranks = ranks.into_iter().map(|rank| Rank(rank as u32)).collect();
            GroupInfo { group: self.group(axis, Rank(rank)), axis, ranks }
        };
        let firsts = (0..self.stages()).map(|stage| stage * self.replicas);
        let replicas = firsts.map(|rank| group(Axis::Data, rank, layout.data_group(rank.into())));
        let pipelines = (0..self.replicas).filter(|_| self.pipeline.is_some());
        let pipelines = pipelines.map(|rank| group(Axis::Pipeline, rank, layout.pipeline_group(rank.into())));
        replicas.chain(pipelines).collect()
    }

    /// The group in which a rank talks along an axis.
    fn group(&self, axis: Axis, rank: Rank) -> Group {
        match axis {
            Axis::Pipeline => Group(self.stages() + rank.0 % self.replicas),
            _ => Group(rank.0 / self.replicas),
        }
    }

    fn stages(&self) -> u32 {
        self.pipeline.map_or(1, |pipeline| pipeline.stages)
    }

    fn chunks(&self) -> u32 {
        self.pipeline.map_or(1, |pipeline| pipeline.chunks)
    }

    /// Whether gradients of weights have a pass of their own.
    fn splits_backward(&self) -> bool {
        self.pipeline.is_some_and(|pipeline| pipeline.schedule == Schedule::ZeroBubble)
    }
}
