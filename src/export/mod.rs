//! `stepscope export`: a run as a trace for ui.perfetto.dev, or as tables for SQL and data frames.

mod chosen;
mod critical_path;
mod estimate;
mod findings;
mod marks;
mod missing;
mod rank;
mod reach;
mod steps;
mod tables;
mod trace;

use std::{
    io::{IsTerminal, Write, stdout},
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use clap::ValueEnum;
use stepscope_plan::text;
use stepscope_traces::Run;

use crate::{
    failure::WithHint,
    output::{Output, WholeDirectory},
    source, terminal,
};
pub(crate) use chosen::{Chosen, Wanted};
pub(crate) use trace::{Packing, export};

/// Export a run as a Perfetto trace, for ui.perfetto.dev, or as tables in Parquet files, for SQL and data frames.
///
/// In a trace, each rank is a group of tracks, with its steps and their figures, and each stream is a track. Steps, micro-batches,
/// phases and layers are shown above the kernels; findings, pipeline bubbles, exposed communication and the critical path of a
/// step on tracks of their own. Arrows connect collectives across ranks. It opens at the steps that count.
///
/// Tables have every span, memory event and sample, and the figures of `analyze --format json`, in a folder for each table, run
/// and rank. DuckDB, polars, Spark and pyarrow read them.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope export runs/2026-11-14T10-22-07-llama-tiny -o llama.pftrace\n  \
    stepscope export traces/rank*.json.gz -o job.pftrace.gz --steps 3..5 --ranks 0-3\n  \
    stepscope export runs/2026-11-14T10-22-07-llama-tiny --format parquet -o tables")]
pub(crate) struct Arguments {
    #[command(flatten)]
    chosen: Chosen,
    /// What to write.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "perfetto")]
    format: Format,
    /// Output file, compressed if its name ends in .gz; - for stdout. Of tables, a directory that is new or empty.
    #[arg(short, long, value_name = "FILE|DIR")]
    output: PathBuf,
}

/// What a run is exported as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A trace for ui.perfetto.dev, in one file.
    Perfetto,
    /// Tables in a directory of Parquet files.
    Parquet,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let run = source::open(&arguments.chosen.sources)?;
    let summary = match arguments.format {
        Format::Perfetto => write_trace(&run, arguments)?,
        Format::Parquet => write_tables(&run, arguments)?,
    };
    // A closed stderr leaves nobody to tell.
    drop(anstream::stderr().lock().write_all(summary.as_bytes()));
    Ok(())
}

fn write_trace(run: &Run, arguments: &Arguments) -> Result<String> {
    let path = Some(arguments.output.as_path()).filter(|path| path.as_os_str() != "-");
    if let Some(path) = path.filter(|path| source::is_part_of(path, run)) {
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
    let exported = output.write_file(|file| export(run, &arguments.chosen.of(run), packing, file))?;
    let mut summary = exported.summary();
    if let Some(path) = path {
        let path = text::printable(&path.display().to_string());
        summary += &format!("next      open {path} in https://ui.perfetto.dev\n");
    }
    Ok(summary)
}

fn write_tables(run: &Run, arguments: &Arguments) -> Result<String> {
    let path = &arguments.output;
    check_directory(path, &arguments.chosen)?;
    let target = WholeDirectory::check(path)?;
    if source::is_inside(&target, run) {
        bail!("{} is in the run; write the tables elsewhere", path.display());
    }
    let exported = tables::export(run, &arguments.chosen.of(run), target)?;
    let query = format!("FROM \"{}\"", path.join("kernels/**/*.parquet").display());
    let command = terminal::command_line(&["duckdb".into(), "-c".into(), query]);
    Ok(exported.summary() + &format!("next      {}\n", text::printable(&command)))
}

/// Refuses a name that promises another format: traces are Perfetto's protobuf.
fn check_name(path: &Path) -> Result<()> {
    let plain = if has_extension(path, "gz") { path.with_extension("") } else { path.to_owned() };
    let what = |format: &str| format!("cannot write {}: export writes Perfetto protobuf, not {format}", path.display());
    if has_extension(&plain, "parquet") || path.is_dir() {
        let tables = plain.with_extension("");
        let hint = format!("tables are a directory: --format parquet -o {}", tables.display());
        let what =
            if path.is_dir() { format!("cannot write {}: it is a directory", path.display()) } else { what("Parquet") };
        return Err(WithHint { what, hint }.into());
    }
    if !has_extension(&plain, "json") {
        return Ok(());
    }
    let name = plain.with_extension(if has_extension(path, "gz") { "pftrace.gz" } else { "pftrace" });
    let hint = format!("use -o {}; `stepscope analyze --format json` writes figures as JSON", name.display());
    Err(WithHint { what: what("JSON"), hint }.into())
}

/// Refuses what tables cannot be: one file, of one size.
fn check_directory(path: &Path, chosen: &Chosen) -> Result<()> {
    let refuse = |what: &str, hint: &str| Err(WithHint { what: what.into(), hint: hint.into() }.into());
    if path.as_os_str() == "-" {
        return refuse("tables are a directory, and cannot go to stdout", "name a directory: -o DIR");
    }
    if ["pftrace", "gz", "json", "perfetto-trace"].iter().any(|extension| has_extension(path, extension)) {
        let what = format!("cannot write {}: tables are a directory of Parquet files", path.display());
        return refuse(&what, "name a directory, or leave out --format parquet for a trace");
    }
    if chosen.has_max_size() {
        return refuse(
            "--max-size is for traces: tables have everything",
            "choose --steps or --ranks for smaller tables",
        );
    }
    Ok(())
}

fn has_extension(path: &Path, expected: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(expected))
}
