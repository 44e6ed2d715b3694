//! `stepscope plan`: which configurations fit, and how fast they should be. Every figure is predicted.

mod assumptions;
mod report;

use std::{io::Write, path::PathBuf};

use anyhow::Result;
use stepscope_plan::{Device, ModelShape, Precision, Request};

use crate::{Format, amount, words};
use assumptions::AssumptionArguments;
use report::Report;

/// Find the configurations that fit a model on GPUs, and rank them by predicted throughput.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope plan --model llama-70b --gpu h100 --gpus 64\n  \
    stepscope plan --model config.json --gpu h200 --gpus 8 --global-batch 1048576 --seq-len 8192 --tokens 100B")]
pub(crate) struct Arguments {
    /// The model: a preset, a Hugging Face config.json, or a TOML file.
    #[arg(long, value_name = "NAME|FILE")]
    model: PathBuf,
    /// The GPU, such as h100, or the name its driver reports.
    #[arg(long, value_name = "NAME")]
    gpu: String,
    /// The number of GPUs.
    #[arg(long, value_name = "N", value_parser = amount::parse)]
    gpus: u64,
    /// Tokens per step over all GPUs [default: about 4M, divisible by any number of replicas]
    #[arg(long, value_name = "TOKENS", value_parser = amount::parse, help_heading = "Workload")]
    global_batch: Option<u64>,
    /// Tokens per sequence [default: 4096, or fewer if the model has fewer learned positions]
    #[arg(long, value_name = "S", value_parser = amount::parse, help_heading = "Workload")]
    seq_len: Option<u64>,
    /// Precision of parameters and activations.
    #[arg(long, value_parser = words::precision(), default_value = "bf16", help_heading = "Workload")]
    precision: Precision,
    /// Precision of gradients [default: fp32, as Megatron-LM accumulates them]
    #[arg(long, value_parser = words::precision(), help_heading = "Workload")]
    grads: Option<Precision>,
    /// Tokens to train on; adds the training time in days and GPU-days.
    #[arg(long, value_name = "TOKENS", value_parser = amount::parse, help_heading = "Workload")]
    tokens: Option<u64>,
    /// Rows per table; JSON always has all.
    #[arg(long, value_name = "N", default_value = "10")]
    limit: usize,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten, next_help_heading = "Assumptions")]
    assumptions: AssumptionArguments,
}

/// Default tokens per step and per sequence.
const USUAL_BATCH: u64 = 4 << 20;
const USUAL_LENGTH: u64 = 4096;

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let model = ModelShape::load(&arguments.model.to_string_lossy())?;
    let device = Device::named(&arguments.gpu)?.clone();
    let precision = arguments.precision;
    let most = model.learned_positions.unwrap_or(USUAL_LENGTH);
    let sequence_length = arguments.seq_len.unwrap_or(USUAL_LENGTH.min(most));
    let request = Request {
        model,
        assumptions: arguments.assumptions.apply(&device),
        device,
        gpus: arguments.gpus,
        global_batch_tokens: arguments.global_batch.unwrap_or_else(|| {
            let evenly = arguments.gpus.saturating_mul(sequence_length).max(1);
            USUAL_BATCH.div_ceil(evenly).saturating_mul(evenly)
        }),
        sequence_length,
        precision,
        gradients: arguments.grads.unwrap_or(Precision::Fp32),
    };
    let search = request.search()?;
    let report = Report { request: &request, search: &search, tokens: arguments.tokens };
    let mut stdout = anstream::stdout().lock();
    match arguments.format {
        Format::Text => stdout.write_all(report.text(arguments.limit).as_bytes())?,
        Format::Json => writeln!(stdout, "{}", serde_json::to_string_pretty(&report.json())?)?,
    }
    Ok(stdout.flush()?)
}
