//! The binary itself, timed, so that its memory is its own.
#![allow(dead_code, reason = "each bench is a program of its own and uses some of this")]

use std::{
    error::Error,
    ffi::OsStr,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::sys::resource::{UsageWho, getrusage};

use crate::figures::Estimate;

/// How often each is done.
const TRIES: usize = 3;

/// What one command took: its median time, and the most memory of all tries.
pub(crate) struct Timed {
    pub(crate) seconds: Estimate,
    pub(crate) megabytes: f64,
}

/// Analyzes a source, several times.
pub(crate) fn analysis(source: impl AsRef<OsStr>) -> Result<Timed, Box<dyn Error>> {
    let (mut seconds, mut megabytes) = (Vec::new(), 0.0_f64);
    for _ in 0..TRIES {
        let began = Instant::now();
        let mut analysis = Command::new(env!("CARGO_BIN_EXE_stepscope"));
        analysis.arg("analyze").arg(source.as_ref()).args(["--format", "json"]).stdout(Stdio::null());
        megabytes = megabytes.max(peak_while_running(&mut analysis.spawn()?)?);
        seconds.push(began.elapsed().as_secs_f64());
    }
    Ok(Timed { seconds: Estimate::of(seconds, |sorted| sorted[sorted.len() / 2]), megabytes })
}

/// Analyzes a source once; says how long that is.
pub(crate) fn analysis_once(source: &Path) -> Result<Duration, Box<dyn Error>> {
    let mut analysis = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    timed(analysis.arg("analyze").arg(source).args(["--format", "json"]).stdout(Stdio::null()))
}

/// Unpacks a file and counts its lines; says how long that is.
pub(crate) fn lines_of_packed(file: &Path) -> Result<Duration, Box<dyn Error>> {
    timed(Command::new("sh").args(["-c", "gzip -dc \"$0\" | wc -l"]).arg(file).stdout(Stdio::null()))
}

fn timed(command: &mut Command) -> Result<Duration, Box<dyn Error>> {
    let began = Instant::now();
    let status = command.status()?;
    if !status.success() {
        return Err(format!("{command:?}: {status}").into());
    }
    Ok(began.elapsed())
}

/// What one command took of processors and of memory.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) seconds: f64,
    pub(crate) megabytes: f64,
}

/// Exports a run, into at most so many bytes if there is a limit.
pub(crate) fn export(run: &Path, file: &Path, limit: Option<u64>) -> Result<Taken, Box<dyn Error>> {
    let mut export = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    export.arg("export").arg(run).arg("-o").arg(file).stderr(Stdio::null());
    if let Some(limit) = limit {
        export.arg("--max-size").arg(limit.to_string());
    }
    taken(&mut export)
}

/// Exports a run as tables, into a new directory.
pub(crate) fn export_tables(run: &Path, directory: &Path) -> Result<Taken, Box<dyn Error>> {
    let mut export = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    export.arg("export").arg(run).args(["--format", "parquet", "-o"]).arg(directory).stderr(Stdio::null());
    taken(&mut export)
}

/// Analyzes a run once.
pub(crate) fn analyze(run: &Path) -> Result<Taken, Box<dyn Error>> {
    let mut analyze = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    analyze.arg("analyze").arg(run).args(["--format", "json"]).stdout(Stdio::null()).stderr(Stdio::null());
    taken(&mut analyze)
}

/// Writes a run's shortest report.
pub(crate) fn report(run: &Path) -> Result<Taken, Box<dyn Error>> {
    let mut analyze = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    analyze.arg("analyze").arg(run).arg("--brief").stdout(Stdio::null()).stderr(Stdio::null());
    taken(&mut analyze)
}

/// Summarizes a run.
pub(crate) fn summarize(run: &Path) -> Result<Taken, Box<dyn Error>> {
    let mut summarize = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    taken(summarize.arg("summarize").arg(run).stderr(Stdio::null()))
}

fn taken(command: &mut Command) -> Result<Taken, Box<dyn Error>> {
    let before = seconds_of_children()?;
    let megabytes = peak_while_running(&mut command.spawn()?)?;
    Ok(Taken { seconds: seconds_of_children()? - before, megabytes })
}

/// The time that processors spent on commands that have ended.
fn seconds_of_children() -> Result<f64, Box<dyn Error>> {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(used.user_time()) + seconds(used.system_time()))
}

/// The most memory a process has had, looked at until it ends.
fn peak_while_running(child: &mut Child) -> Result<f64, Box<dyn Error>> {
    let mut peak = 0.0_f64;
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(peak) } else { Err("the command failed".into()) };
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(0.0);
        peak = peak.max(kilobytes * 1024.0 / 1e6);
        std::thread::sleep(Duration::from_millis(5));
    }
}
