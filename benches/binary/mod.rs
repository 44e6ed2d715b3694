//! The binary itself, timed, so that its memory is its own.

use std::{
    error::Error,
    ffi::OsStr,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

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

/// The most memory a process has had, looked at until it ends.
fn peak_while_running(child: &mut Child) -> Result<f64, Box<dyn Error>> {
    let mut peak = 0.0_f64;
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(peak) } else { Err("the analysis failed".into()) };
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(0.0);
        peak = peak.max(kilobytes * 1024.0 / 1e6);
        std::thread::sleep(Duration::from_millis(5));
    }
}
