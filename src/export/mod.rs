//! `stepscope export`: a run as a trace for ui.perfetto.dev.

mod chosen;
mod critical_path;
mod estimate;
mod findings;
mod marks;
mod missing;
mod rank;
mod reach;
mod steps;
mod trace;

use std::{
    io::{IsTerminal, Write, stdout},
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use stepscope_plan::text;

use crate::{failure::WithHint, output::Output, source};
pub(crate) use chosen::{Chosen, Wanted};
pub(crate) use trace::{Packing, export};

/// Export a run as a Perfetto trace, for ui.perfetto.dev.
///
/// Each rank is a group of tracks, with its steps and their figures, and each stream is a track. Steps, micro-batches, phases
/// and layers are shown above the kernels; findings, pipeline bubbles, exposed communication and the critical path of a step on
/// tracks of their own. Arrows connect collectives across ranks. It opens at the steps that count.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope export runs/2026-11-14T10-22-07-llama-tiny -o llama.pftrace\n  \
    stepscope export traces/rank*.json.gz -o job.pftrace.gz --steps 3..5 --ranks 0-3")]
pub(crate) struct Arguments {
    #[command(flatten)]
    chosen: Chosen,
    /// Output file, compressed if its name ends in .gz; - for stdout.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let run = source::open(&arguments.chosen.sources)?;
    let path = Some(arguments.output.as_path()).filter(|path| path.as_os_str() != "-");
    if let Some(path) = path.filter(|path| source::is_part_of(path, &run)) {
        bail!("{} is part of the run; write the trace elsewhere", path.display());
    }
    if path.is_none() && stdout().is_terminal() {
        bail!("a trace is binary: write it to a file (-o FILE) or a pipe");
    }
    if let Some(path) = path {
        check_name(path)?;
    }
    let output = Output::open(path)?;
    let packing = match path.is_some_and(|path| path.extension().is_some_and(|extension| extension == "gz")) {
        true => Packing::Gzip,
        false => Packing::None,
    };
    let exported = output.write_file(|file| export(&run, &arguments.chosen.of(&run), packing, file))?;
    let mut summary = exported.summary();
    if let Some(path) = path {
        let path = text::printable(&path.display().to_string());
        summary += &format!("next      open {path} in https://ui.perfetto.dev\n");
    }
    // A closed stderr leaves nobody to tell.
    drop(anstream::stderr().lock().write_all(summary.as_bytes()));
    Ok(())
}

/// Refuses a name that promises JSON: traces are Perfetto's protobuf.
fn check_name(path: &Path) -> Result<()> {
    let is_compressed = path.extension().is_some_and(|extension| extension == "gz");
    let plain = if is_compressed { path.with_extension("") } else { path.to_owned() };
    if !plain.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
        return Ok(());
    }
    let what = format!("cannot write {}: export writes Perfetto protobuf, not JSON", path.display());
    let name = plain.with_extension(if is_compressed { "pftrace.gz" } else { "pftrace" });
    let hint = format!("use -o {}; `stepscope analyze --format json` writes figures as JSON", name.display());
    Err(WithHint { what, hint }.into())
}
