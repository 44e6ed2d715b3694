//! `stepscope import`: what other tools recorded, as a run directory.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use stepscope_plan::text;
use stepscope_traces::{Loss, Run, TraceError};

use crate::{object_storage, progress, source, terminal};

/// Convert what other tools recorded to a run directory.
///
/// Other commands also read these files directly. A run directory is smaller, loads many times faster, and opens in any
/// Arrow reader.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope import traces/ --run runs/my-training\n  \
    stepscope import rank0.json.gz rank0.pickle --run runs/rank0\n  \
    stepscope import s3://bucket/traces --run runs/my-training")]
pub(crate) struct Arguments {
    /// PyTorch profiler traces (*.json, *.json.gz), memory snapshots (*.pickle), Nsight Systems exports (*.sqlite), JAX
    /// profiles (*.xplane.pb), rocprofv3 JSON or databases, Flight Recorder dumps, or directories of them.
    ///
    /// A snapshot and a trace of the same rank are merged.
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<PathBuf>,
    /// The run directory to create.
    #[arg(long, value_name = "DIR")]
    run: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let instead = "import into a directory; then `stepscope upload DIR URL` uploads it";
    object_storage::refuse(Some(&arguments.run), "--run", instead)?;
    let run = source::open(&arguments.sources)?;
    let is_run = run.path.join("run.json").exists();
    if is_run && !arguments.sources.iter().any(|source| object_storage::is_meant(source)) {
        bail!("{} is already a run directory", run.path.display());
    }
    let is_there = arguments.run.exists();
    check_is_new(&arguments.run)?;
    let written = match is_run {
        // It was fetched, and is to be a directory of its own.
        true => copy(&run.path, &arguments.run),
        false => progress::shown(run.ranks.iter(), |progress| Ok(run.write_to(&arguments.run, progress)?)),
    };
    if let Err(error) = written {
        take_back(&arguments.run, is_there, &error);
        return Err(error);
    }
    let mut stderr = anstream::stderr().lock();
    // A closed stderr leaves nobody to tell.
    drop(stderr.write_all(summary(&run, &Run::open(&arguments.run)?).as_bytes()));
    Ok(())
}

/// Refuses a directory that has something in it.
fn check_is_new(path: &Path) -> Result<()> {
    if path.join("run.json").exists() {
        return Err(TraceError::AlreadyRecorded { path: path.to_owned() }.into());
    }
    match fs::read_dir(path).into_iter().flatten().flatten().next() {
        Some(entry) => {
            let entry = entry.file_name().to_string_lossy().into_owned();
            Err(TraceError::NotEmpty { path: path.to_owned(), entry }.into())
        }
        None => Ok(()),
    }
}

/// Takes away what was written of a run that cannot be finished, but nothing of somebody who has written there meanwhile.
fn take_back(path: &Path, was_there: bool, error: &anyhow::Error) {
    use TraceError::{AlreadyRecorded, NotARun, NotEmpty, OpenToAll, Vanished};
    let is_of_others = matches!(
        error.downcast_ref(),
        Some(AlreadyRecorded { .. } | NotARun { .. } | NotEmpty { .. } | OpenToAll { .. } | Vanished { .. })
    );
    if is_of_others {
        return;
    }
    // What cannot be removed is an interrupted run.
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        drop(fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path())));
    }
    if !was_there {
        drop(fs::remove_dir(path));
    }
}

/// Copies a directory, with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let (path, copied) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
        if path.is_dir() {
            copy(&path, &copied)?;
        } else {
            fs::copy(&path, &copied).with_context(|| format!("cannot write {}", copied.display()))?;
        }
    }
    Ok(())
}

/// What was imported, what of it is lost, and what to do next.
fn summary(from: &Run, to: &Run) -> String {
    let (mut spans, mut memory, mut lost) = (0, 0, Loss::default());
    for survey in to.ranks.iter().filter_map(|rank| rank.survey().ok()) {
        spans += survey.spans.rows;
        memory += survey.memory.rows;
        lost += survey.loss;
    }
    let ranks = text::ranks(to.ranks.len() as u64, from.info.world_size);
    let what = from.info.source.other_tool().map_or_else(String::new, |tool| format!(" ({tool})"));
    let (spans, memory) = (text::counted(spans, "span"), text::counted(memory, "memory event"));
    let mut summary = format!("imported  {}, {ranks}: {spans}, {memory}{what}\n", text::printable(&from.info.name));
    if !lost.is_none() {
        summary += &format!("lost      {}\n", lost.words());
    }
    let path = terminal::command_line(&[to.path.display().to_string()]);
    summary + &format!("next      {} analyze {path}\n", terminal::program())
}
