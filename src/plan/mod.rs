//! `stepscope plan`: which configurations fit, and how fast they should be; and how near predictions come to recorded runs.

mod assumptions;
mod recorded;
mod report;
mod score;
mod wanted;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use stepscope_plan::{Device, ModelShape, Precision, Request};

use crate::{Format, amount, render::json, words};
use assumptions::AssumptionArguments;
use recorded::Recorded;
use report::Report;
use score::Scores;
use wanted::WantedArguments;

/// Find the configurations that fit a model on GPUs, and rank them by predicted throughput.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope plan --model llama-70b --gpu h100 --gpus 64\n  \
    stepscope plan --model config.json --gpu h200 --gpus 8 --global-batch 1048576 --seq-len 8192 --tokens 100B\n  \
    stepscope plan --model llama-405b --gpu h100 --gpus 16384 --tp 8 --pp 16\n  \
    stepscope plan --from runs/one runs/two --score runs/three")]
pub(crate) struct Arguments {
    /// The model: a preset, a Hugging Face config.json, or a TOML file.
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "score")]
    model: Option<PathBuf>,
    /// The GPU, such as h100, or the name its driver reports.
    #[arg(long, value_name = "NAME", required_unless_present = "score")]
    gpu: Option<String>,
    /// The number of GPUs.
    #[arg(long, value_name = "N", value_parser = amount::parse, required_unless_present = "score")]
    gpus: Option<u64>,
    /// Recorded runs of `stepscope train` to take assumptions from: efficiencies, bandwidths, gaps, memory.
    #[arg(long, value_name = "RUN", num_args = 1.., help_heading = "Recorded runs")]
    from: Vec<PathBuf>,
    /// Compare what is predicted for recorded runs of `stepscope train` with what was measured, and search nothing.
    #[arg(
        long,
        value_name = "RUN",
        num_args = 1..,
        conflicts_with_all = ["model", "gpu", "gpus", "tokens", "wanted"],
        help_heading = "Recorded runs"
    )]
    score: Vec<PathBuf>,
    /// Tokens per step over all GPUs [default: about 4M, or a sequence for each GPU if that is more]
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
    #[command(flatten, next_help_heading = "Layout")]
    wanted: WantedArguments,
    #[command(flatten, next_help_heading = "Assumptions")]
    assumptions: AssumptionArguments,
}

/// Default tokens per step and per sequence.
const USUAL_BATCH: u64 = 4 << 20;
const USUAL_LENGTH: u64 = 4096;

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let recorded = Recorded::of(&arguments.from)?;
    let written = match (&arguments.model, &arguments.gpu, arguments.gpus) {
        (Some(model), Some(gpu), Some(gpus)) => searched(arguments, (model, gpu, gpus), recorded.as_ref())?,
        _ => scored(arguments, recorded.as_ref())?,
    };
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(written.as_bytes())?;
    Ok(stdout.flush()?)
}

fn scored(arguments: &Arguments, recorded: Option<&Recorded>) -> Result<String> {
    let scores = Scores::of(&arguments.score, recorded, &arguments.assumptions)?;
    Ok(match arguments.format {
        Format::Text => scores.text(),
        Format::Json => json::written(&scores.json())?,
    })
}

fn searched(
    arguments: &Arguments,
    (model, gpu, gpus): (&Path, &str, u64),
    recorded: Option<&Recorded>,
) -> Result<String> {
    let model = ModelShape::load(&model.to_string_lossy())?;
    let device = Device::named(gpu)?;
    if let Some(other) = recorded.map(|recorded| recorded.device).filter(|other| *other != device) {
        bail!("the runs of --from were recorded on {}, which says nothing of {}", other.name, device.name);
    }
    let most = model.learned_positions.unwrap_or(USUAL_LENGTH);
    let sequence_length = arguments.seq_len.unwrap_or(USUAL_LENGTH.min(most));
    let request = Request {
        model,
        assumptions: arguments.assumptions.apply(device, recorded),
        device: device.clone(),
        gpus,
        global_batch_tokens: arguments.global_batch.unwrap_or_else(|| {
            let evenly = gpus.saturating_mul(sequence_length).max(1);
            USUAL_BATCH.div_ceil(evenly).saturating_mul(evenly)
        }),
        sequence_length,
        precision: arguments.precision,
        gradients: arguments.grads.unwrap_or(Precision::Fp32),
        wanted: arguments.wanted.wanted(),
    };
    let search = request.search()?;
    let report = Report { request: &request, search: &search, recorded, tokens: arguments.tokens };
    Ok(match arguments.format {
        Format::Text => report.text(arguments.limit),
        Format::Json => json::written(&report.json())?,
    })
}
