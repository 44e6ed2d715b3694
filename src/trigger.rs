//! `stepscope trigger`: starts recording a running job.

use std::{io::Write, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use stepscope_collector::injection::Trigger;
use stepscope_traces::{ClockSnapshot, Run, State};

use crate::{record, seconds};

/// Start recording a running job that `stepscope record` launched.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  stepscope trigger runs/2026-11-14T10-22-07-train --duration 5")]
pub(crate) struct Arguments {
    /// The run directory of the job.
    run: PathBuf,
    /// Seconds to record [default: until the job ends]
    #[arg(long, value_name = "S", value_parser = seconds::parse)]
    duration: Option<Duration>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let run = Run::open(&arguments.run)?;
    if !record::is_recorded_program(&run.info) {
        anyhow::bail!("{} was not started by `stepscope record`, so it cannot be triggered", run.path.display());
    }
    if !run.ranks.is_empty() && run.state() != State::Recording {
        anyhow::bail!("the job of {} has ended", run.path.display());
    }
    record::check_duration(arguments.duration)?;
    let trigger = Trigger { wall_ns: ClockSnapshot::take().wall_ns, duration: arguments.duration };
    trigger.leave(&run.path).with_context(|| format!("cannot leave a trigger in {}", run.path.display()))?;
    let how_long =
        arguments.duration.map_or("until it ends".into(), |duration| format!("for {} s", duration.as_secs_f64()));
    // A closed stderr leaves nobody to tell.
    drop(writeln!(anstream::stderr().lock(), "triggered: recording the job {how_long}"));
    Ok(())
}
