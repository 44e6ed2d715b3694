//! Steps: where the time of each goes, and how long one takes.

use serde::Serialize;
use stepscope_traces::{Phase, Rank, Step};

use super::partition::Partition;
use crate::stored::fields;

/// One step of one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepFigures {
    /// Which step.
    pub step: Step,
    /// Of which rank.
    pub rank: Rank,
    /// When it begins, in the rank's clock.
    pub start_ns: i64,
    /// When it begins, in the clock all ranks are aligned to.
    pub aligned_start_ns: i64,
    /// How long it is.
    pub duration_ns: i64,
    /// Where its time goes.
    #[serde(flatten)]
    pub partition: Partition,
    /// How long it is on the host; none, where no annotation says so.
    pub host_ns: Option<i64>,
    /// How long the program waits for data in it; none, where no annotation ever says so.
    pub host_data_ns: Option<i64>,
    /// The loss that was recorded for it.
    pub loss: Option<f64>,
    /// The loss on data that is not trained on, if it was looked at after the step.
    pub evaluation_loss: Option<f64>,
    /// The gradient noise scale that was measured up to it, in tokens: about the critical batch size.
    pub gradient_noise_scale: Option<f64>,
    /// Tokens of the whole job.
    pub tokens: Option<f64>,
    /// Those, in its time.
    pub tokens_per_second: Option<f64>,
    /// Model FLOP/s, as a share of what all devices could do.
    pub mfu: Option<f64>,
    /// Executed FLOP/s, as a share of what all devices could do.
    pub hfu: Option<f64>,
    /// What it includes besides training: `evaluation`, `checkpoint`.
    pub includes: Vec<Phase>,
}

fields!(StepFigures {
    step,
    rank,
    start_ns,
    aligned_start_ns,
    duration_ns,
    partition,
    host_ns,
    host_data_ns,
    loss,
    evaluation_loss,
    gradient_noise_scale,
    tokens,
    tokens_per_second,
    mfu,
    hfu,
    includes,
});

/// How long a step takes, over the steps that count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepTime {
    /// The first step that counts.
    pub first_step: Step,
    /// The last one.
    pub last_step: Step,
    /// How many count.
    pub count: u64,
    /// Half of the steps take at most this long.
    pub median_ns: i64,
    /// The step that takes this long.
    pub median_step: Step,
    /// A tenth of the steps takes at most this long.
    pub low_ns: i64,
    /// Nine tenths of the steps take at most this long.
    pub high_ns: i64,
    /// Tokens a second of the whole job.
    pub tokens_per_second: Option<f64>,
    /// Tokens a second of the steps that only train, where others evaluate or save a checkpoint.
    pub training_tokens_per_second: Option<f64>,
    /// Whether steps were told from what repeats in the kernels alone.
    pub inferred: bool,
}

fields!(StepTime {
    first_step,
    last_step,
    count,
    median_ns,
    median_step,
    low_ns,
    high_ns,
    tokens_per_second,
    training_tokens_per_second,
    inferred,
});
