//! How much of the devices is used.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_plan::Convention;

/// MFU over a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mfu {
    /// Who says what the model is.
    pub model_from: ModelFrom,
    /// Which FLOPs count.
    pub convention: Convention,
    /// Of the model, by that convention.
    pub flops_per_token: f64,
    /// What a device computes at most.
    pub peak_flops: f64,
    /// Model FLOPs utilization; none without tokens or steps.
    pub value: Option<f64>,
    /// That of the steps that only train, where others evaluate or save a checkpoint.
    pub training_value: Option<f64>,
    /// Hardware FLOPs utilization.
    pub hfu: Option<f64>,
    /// MFU by every convention.
    pub by_convention: BTreeMap<&'static str, f64>,
    /// Tokens a second of the whole job.
    pub tokens_per_second: Option<f64>,
}

/// Who says what the model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelFrom {
    /// The run itself, in `run.json`.
    Run,
    /// The program that was recorded: it says so, or its modules and configuration show it.
    Program,
    /// Whoever asks, with `--model`.
    Flag,
}
