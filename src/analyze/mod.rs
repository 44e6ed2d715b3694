//! `stepscope analyze`: where the time and memory of a run go, and what to improve.

mod brief;
mod devices;
mod host;
pub(crate) mod html;
mod launched;
mod markdown;
mod memory;
mod places;
pub(crate) mod ranges;
mod report;
mod tables;
mod text;
mod time;
mod trained;
mod waterfall;

use std::path::PathBuf;

use anyhow::{Result, bail};
use stepscope_analyzer::{Selection, StepChoice, analyze, analyze_with_overlay};
use stepscope_plan::{Convention, possible_peak};

use crate::{
    output::Output,
    progress,
    render::{Format, json},
    source, words,
};
use ranges::RankList;
use trained::Trained;

/// Show where the time and memory of a run go, and what to improve.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope analyze runs/2026-11-14T10-22-07-llama-tiny --steps 10..20 --ranks 0,2-5\n  \
    stepscope analyze --format html -o report.html\n  \
    stepscope analyze --brief\n  \
    stepscope analyze traces/rank*.json.gz traces/rank0.pickle\n  \
    stepscope analyze s3://bucket/runs/mine --ranks 0")]
pub(crate) struct Arguments {
    /// A run directory, PyTorch profiler traces (*.json, *.json.gz), memory snapshots (*.pickle), Nsight Systems exports
    /// (*.sqlite), JAX profiles (*.xplane.pb), rocprofv3 JSON or databases, Flight Recorder dumps, or a
    /// directory of these
    /// [default: the newest run under runs/]
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Output file [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Steps to count [default: complete steps without warm-up]
    ///
    /// A..B counts from A to before B, A.. from A on, ..B before B, and N only step N. `all` counts the whole recording.
    #[arg(long, value_name = "A..B|all", value_parser = ranges::choice, allow_hyphen_values = true, help_heading = "Selection")]
    steps: Option<StepChoice>,
    /// Ranks to analyze, such as 0,2-5 [default: all]
    #[arg(long, value_name = "LIST", value_parser = ranges::ranks, help_heading = "Selection")]
    ranks: Option<RankList>,
    /// Dense peak of one device in TFLOP/s, in the precision of the run.
    #[arg(long = "peak-tflops", value_name = "X", value_parser = tera_flops, allow_hyphen_values = true, help_heading = "MFU")]
    peak_flops: Option<f64>,
    /// Which FLOPs count in MFU.
    #[arg(long, value_name = "NAME", value_parser = words::convention(), default_value = "model", help_heading = "MFU")]
    mfu_convention: Convention,
    /// At most ten lines: what was run, how fast, and what to do first.
    #[arg(long, conflicts_with = "format")]
    brief: bool,
    #[command(flatten)]
    trained: Trained,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let run = source::open_ranks(&arguments.sources, arguments.ranks.as_ref())?;
    if let Some(path) = arguments.output.as_deref().filter(|path| source::is_part_of(path, &run)) {
        bail!("{} is part of the run; write the report elsewhere", path.display());
    }
    let output = Output::open(arguments.output.as_deref())?;
    let ranks = arguments.ranks.as_ref().map_or_else(Vec::new, |list| list.among(&run));
    let selection = Selection {
        steps: arguments.steps.unwrap_or_default(),
        peak_flops: arguments.peak_flops,
        convention: arguments.mfu_convention,
        ranks: ranks.clone(),
        // Other forms have pictures, or all that is known.
        words_only: matches!(arguments.format, Format::Text | Format::Markdown),
        ..arguments.trained.selection()?
    };
    let chosen = run.ranks.iter().filter(|rank| ranks.is_empty() || ranks.contains(&rank.info.rank));
    if arguments.format == Format::Html {
        let analyzed = |progress: &(dyn Fn(usize) + Sync)| analyze_with_overlay(&run, &selection, progress);
        let (analysis, overlay) = progress::shown(chosen, analyzed)?;
        return output.write(&html::written(&run, &analysis, &overlay)?);
    }
    let analysis = progress::shown(chosen, |progress| analyze(&run, &selection, progress))?;
    let text = match arguments.format {
        _ if arguments.brief => brief::written(&analysis),
        Format::Markdown => markdown::written(&analysis),
        Format::Json => return output.write_plain(|to| json::write(&analysis, to)),
        Format::Text | Format::Html => text::written(&analysis, output.columns()),
    };
    output.write(&text)
}

/// Reads a peak in TFLOP/s; gives it in FLOP/s.
pub(crate) fn tera_flops(text: &str) -> Result<f64, String> {
    let peak = text.parse::<f64>().map_err(|_| format!("`{text}` is not a number"))?;
    possible_peak(peak * 1e12).ok_or_else(|| format!("{text} TFLOP/s is not a possible peak of a device"))
}
