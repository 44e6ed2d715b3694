//! `stepscope trigger`: wakes a job that `stepscope record` started.

use std::{io::Write, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use stepscope_collector::injection::Trigger;
use stepscope_traces::{ClockSnapshot, Run, State};

use crate::{record, seconds};

/// Have a job recorded that `stepscope record` started, from now on.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  stepscope trigger runs/2026-11-14T10-22-07-train --duration 5")]
pub(crate) struct Arguments {
    /// The run of the job.
    run: PathBuf,
    /// For how many seconds; to its end, if it is not said.
    #[arg(long, value_name = "S", value_parser = seconds::parse)]
    duration: Option<Duration>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let run = Run::open(&arguments.run)?;
    if !record::is_recorded_program(&run.info) {
        anyhow::bail!("{} is no run of `stepscope record`: nobody there looks for a trigger", run.path.display());
    }
    if !run.ranks.is_empty() && run.state() != State::Recording {
        anyhow::bail!("the job of {} has ended", run.path.display());
    }
    record::check_duration(arguments.duration)?;
    let trigger = Trigger { wall_ns: ClockSnapshot::take().wall_ns, duration: arguments.duration };
    trigger.leave(&run.path).with_context(|| format!("cannot leave a trigger in {}", run.path.display()))?;
    let how_long =
        arguments.duration.map_or("to its end".into(), |duration| format!("for {} s", duration.as_secs_f64()));
    // A closed stderr leaves nobody to tell.
    drop(writeln!(anstream::stderr().lock(), "triggered: the job is recorded {how_long}"));
    Ok(())
}
