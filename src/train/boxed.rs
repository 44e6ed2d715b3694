//! Training with a black box: this process watches it from outside, so that it outlives whatever happens to it.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Result, anyhow};
use stepscope_collector::injection::{Job, exit_status};

use crate::{black_box, object_storage};

/// Says to the process that trains that another one watches it, and where it records.
const WATCHED: &str = "STEPSCOPE_WATCHED";

/// Where this process records, if another one watches it.
pub(super) fn watched_run() -> Option<PathBuf> {
    std::env::var_os(WATCHED).map(PathBuf::from)
}

/// Starts this command again, and watches it.
pub(super) fn train(
    run: &Path,
    long_jobs: &black_box::Arguments,
    upload: Option<&object_storage::Arguments>,
) -> Result<ExitCode> {
    let program = std::env::current_exe().map_err(|error| anyhow!("cannot find this program: {error}"))?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env(WATCHED, run);
    let keeper = long_jobs.watch(run, true)?;
    let uploader = upload.map(|upload| upload.start(run)).transpose()?.flatten();
    let status = Job::start(command)?.wait(|signal| keeper.signal(signal))?;
    keeper.end(Some(status));
    uploader.into_iter().for_each(object_storage::Uploader::end);
    Ok(ExitCode::from(exit_status(status)))
}
