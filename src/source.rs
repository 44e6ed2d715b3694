//! Opens what a command is asked to look at.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anstyle::AnsiColor;
use anyhow::{Context, Result};
use stepscope_plan::text;
use stepscope_traces::Run;

use crate::{analyze::ranges::RankList, object_storage};

/// Of how many files that are not read it is said why.
const MOST_TOLD: usize = 8;

/// Opens a run directory, or what other tools recorded, here or in object storage. Default: the newest run under `runs/`.
pub(crate) fn open(sources: &[PathBuf]) -> Result<Run> {
    open_ranks(sources, None)
}

/// As [`open`], for whoever reads only some ranks.
pub(crate) fn open_ranks(sources: &[PathBuf], ranks: Option<&RankList>) -> Result<Run> {
    if sources.is_empty() {
        let newest = Run::newest_under(Path::new("runs")).context("there is no run under runs/; name a SOURCE")?;
        return Ok(Run::open(&newest)?);
    }
    let run = Run::of_sources(&local(sources, ranks)?)?;
    tell_what_is_passed_over(&run);
    Ok(run)
}

/// Where sources are on this machine. What is in object storage is fetched; of runs, only the ranks that are read.
pub(crate) fn local(sources: &[PathBuf], ranks: Option<&RankList>) -> Result<Vec<PathBuf>> {
    let local = |source: &PathBuf| match object_storage::is_meant(source) {
        true => object_storage::fetch(source, ranks),
        false => Ok(source.clone()),
    };
    sources.iter().map(local).collect()
}

/// Where a run is that was opened from sources: in object storage, or on this machine.
pub(crate) fn place(sources: &[PathBuf], run: &Run) -> String {
    let place = sources.first().filter(|source| sources.len() == 1 && object_storage::is_meant(source));
    place.unwrap_or(&run.path).to_string_lossy().into_owned()
}

/// Says of files beside the run's own why they are not read.
fn tell_what_is_passed_over(run: &Run) {
    let mut told: Vec<String> = run.passed_over.iter().take(MOST_TOLD).map(ToString::to_string).collect();
    if let Some(more @ 1..) = run.passed_over.len().checked_sub(MOST_TOLD) {
        told.push(format!("{} are not read, either", text::counted(more as u64, "other file")));
    }
    let mut stderr = anstream::stderr().lock();
    let yellow = AnsiColor::Yellow.on_default().bold();
    for line in told {
        // A closed stderr leaves nobody to tell.
        drop(writeln!(stderr, "{yellow}warning:{yellow:#} {}", text::printable(&object_storage::with_urls(&line))));
    }
}

/// Whether a path is that of a file that a run is made of, or would be if there were one. Other files may lie in its
/// directory: whoever reads a run passes them by.
pub(crate) fn is_part_of(path: &Path, run: &Run) -> bool {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = || Some(directory.canonicalize().ok()?.join(path.file_name()?));
    let Some(path) = path.canonicalize().ok().or_else(made) else { return false };
    if run.ranks.iter().any(|rank| rank.path.canonicalize().is_ok_and(|rank| rank == path)) {
        return true;
    }
    let inside = run.path.canonicalize().is_ok_and(|run| path.starts_with(run));
    let is_table = path.extension().is_some_and(|extension| extension == "json" || extension == "arrows");
    inside && (is_table || path.file_name().is_some_and(|name| name == "summary.bin"))
}

/// Whether a path is in the directory of a run, or would be.
pub(crate) fn is_inside(path: &Path, run: &Run) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    let there = real(path).or_else(|| Some(real(path.parent()?)?.join(path.file_name()?)));
    let is_run = run.path.join("run.json").exists();
    is_run && there.zip(real(&run.path)).is_some_and(|(path, run)| path.starts_with(run))
}
