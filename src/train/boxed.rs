//! Training with a black box: this process watches it from outside, so that it outlives whatever happens to it.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Result, anyhow};
use stepscope_collector::injection::{Job, exit_status};

use crate::black_box;

/// Says to the process that trains that another one watches it.
const WATCHED: &str = "STEPSCOPE_WATCHED";

/// Whether another process watches this one.
pub(super) fn is_watched() -> bool {
    std::env::var_os(WATCHED).is_some()
}

/// Starts this command again, and watches it.
pub(super) fn train(run: &Path, is_named: bool, long_jobs: &black_box::Arguments) -> Result<ExitCode> {
    let program = std::env::current_exe().map_err(|error| anyhow!("cannot find this program: {error}"))?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env(WATCHED, "1");
    if !is_named {
        command.args([OsString::from("--run"), run.into()]);
    }
    let keeper = long_jobs.watch(run, true)?;
    let status = Job::start(command)?.wait(|signal| keeper.signal(signal))?;
    keeper.end(Some(status));
    Ok(ExitCode::from(exit_status(status)))
}
