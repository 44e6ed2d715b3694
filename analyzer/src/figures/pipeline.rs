//! How the stages of a pipeline wait for each other.

use std::collections::BTreeMap;

use crate::stored::fields;
use serde::Serialize;
use stepscope_plan::Schedule;
use stepscope_traces::{Rank, Step};

/// The pipeline of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelineFigures {
    /// How many stages.
    pub stages: u64,
    /// Micro-batches of a step.
    pub micro_batches: u64,
    /// In which order they work.
    pub schedule: Schedule,
    /// How many parts of the model a stage has.
    #[serde(skip)]
    pub chunks: u64,
    /// The idle share of all stages, over the steps that count.
    pub bubble: Option<f64>,
    /// What the schedule leaves idle when all work takes the same time.
    pub ideal_bubble: f64,
    /// Whether stages were told from when ranks work, or work from kernels alone.
    pub inferred: bool,
    /// Each rank of each stage.
    pub per_stage: Vec<StageFigures>,
    /// Each step.
    pub per_step: Vec<StepBubble>,
    /// The stage whose work takes longest.
    pub slowest_stage: Option<u64>,
    /// What the bubble would be if all stages were as fast as their mean, and took no time to talk.
    pub balanced_bubble: Option<f64>,
}

fields!(PipelineFigures {
    stages,
    micro_batches,
    schedule,
    chunks,
    bubble,
    ideal_bubble,
    inferred,
    per_stage,
    per_step,
    slowest_stage,
    balanced_bubble,
});

/// One rank of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageFigures {
    /// Which stage.
    pub stage: u64,
    /// Which rank.
    pub rank: Rank,
    /// The ranks that work on the same micro-batches have the same number.
    #[serde(skip)]
    pub pipeline: Option<usize>,
    /// The share of the passes in which it has nothing to do.
    pub bubble: Option<f64>,
    /// Of that, before its first work: warm-up.
    pub warm_up_ns: Option<i64>,
    /// Of that, between its first and its last work.
    pub steady_ns: Option<i64>,
    /// Of that, after its last work: cool-down.
    pub cool_down_ns: Option<i64>,
    /// The time of its work, over the steps that count.
    pub work_ns: i64,
}

fields!(StageFigures { stage, rank, pipeline, bubble, warm_up_ns, steady_ns, cool_down_ns, work_ns });

/// One step of the pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepBubble {
    /// Which step.
    pub step: Step,
    /// The idle share of all stages.
    pub bubble: f64,
    /// Idle time of all stages.
    #[serde(skip)]
    pub idle_ns: i64,
    /// Of so much time of all stages.
    #[serde(skip)]
    pub window_ns: i64,
}

fields!(StepBubble { step, bubble, idle_ns, window_ns });

impl PipelineFigures {
    /// The first ranks that are a pipeline, by stage: as many stages as are there.
    pub fn first_ranks(&self) -> Vec<Rank> {
        let mut pipelines: BTreeMap<Option<usize>, BTreeMap<u64, Rank>> = BTreeMap::new();
        for stage in &self.per_stage {
            let rank = pipelines.entry(stage.pipeline).or_default().entry(stage.stage).or_insert(stage.rank);
            *rank = stage.rank.min(*rank);
        }
        let most = pipelines.values().map(BTreeMap::len).max();
        let first = pipelines.into_values().find(|stages| Some(stages.len()) == most);
        first.unwrap_or_default().into_values().collect()
    }
}
