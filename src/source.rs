//! Opens what a command is asked to look at.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use stepscope_traces::Run;

/// Opens a run directory, or what other tools recorded. Default: the newest run under `runs/`.
pub(crate) fn open(sources: &[PathBuf]) -> Result<Run> {
    if sources.is_empty() {
        let newest = Run::newest_under(Path::new("runs")).context("there is no run under runs/; name a SOURCE")?;
        return Ok(Run::open(&newest)?);
    }
    Ok(Run::of_sources(sources)?)
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
    inside && path.extension().is_some_and(|extension| extension == "json" || extension == "arrows")
}
