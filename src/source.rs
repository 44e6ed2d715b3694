//! Opens what a command is asked to look at.

use std::path::Path;

use anyhow::{Context, Result};
use stepscope_traces::Run;

/// Opens a run directory; the newest run under `runs/`, if none is named.
pub(crate) fn open(source: Option<&Path>) -> Result<Run> {
    let newest = || Run::newest_under(Path::new("runs")).context("there is no run under runs/; name a run directory");
    let source = source.map_or_else(newest, |source| Ok(source.to_owned()))?;
    Ok(Run::open(&source)?)
}
