//! How much of the devices is used.

use std::collections::BTreeMap;

use crate::stored::{fields, one_of};
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
    pub flops_per_token: Option<f64>,
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
    /// The same by the FLOPs of the kernels that ran; none, where those of too many are not known.
    pub by_kernels: Option<KernelMfu>,
}

fields!(Mfu {
    model_from,
    convention,
    flops_per_token,
    peak_flops,
    value,
    training_value,
    hfu,
    by_convention,
    tokens_per_second,
    by_kernels,
});

/// MFU by the FLOPs of matrix products, attention and convolutions that ran in the steps that count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KernelMfu {
    /// Of forward and backward, without what was computed again.
    pub value: f64,
    /// Of everything that ran.
    pub hfu: f64,
    /// The FLOPs of a step, over all ranks: those of the model, and those that ran. None without steps.
    pub model_flops_per_step: Option<f64>,
    /// Those that ran.
    pub flops_per_step: Option<f64>,
    /// The time of such kernels whose FLOPs are known, as a share of the time of all.
    pub known_share: f64,
}

fields!(KernelMfu { value, hfu, model_flops_per_step, flops_per_step, known_share });

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
    /// The shapes that its operators were given: there is no model, only its FLOPs.
    Shapes,
}

one_of!(ModelFrom: [ModelFrom::Run, ModelFrom::Program, ModelFrom::Flag, ModelFrom::Shapes]);
