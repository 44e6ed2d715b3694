//! How much of a long job is kept, and when it hangs: options of the commands that record.

use std::{path::Path, time::Duration};

use anyhow::{Result, bail};
use stepscope_traces::RingBounds;

use crate::{
    amount_of_bytes,
    incidents::{self, HangAfter, Keeper},
    seconds,
};

/// Less has no room for segments that are worth it.
const LEAST_BYTES: u64 = 16_000_000;
const LEAST_TIME: Duration = Duration::from_secs(10);
/// Steps are not looked for more often.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);

/// How much of a long job is kept, and when it hangs.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Long jobs")]
pub(crate) struct Arguments {
    /// Keep only the last minutes in full, and what went wrong before: for jobs of days.
    ///
    /// A slow step, a hang, a loss that is not finite, an exception, lack of memory and the end of the job are incidents: what
    /// was recorded around each is kept in the run, under incidents/. See `stepscope incidents`.
    #[arg(long)]
    pub(crate) black_box: bool,
    /// How much time the black box keeps: 600, 10m or 2h.
    #[arg(long, value_name = "TIME", value_parser = seconds::parse, requires = "black_box", default_value = "10m")]
    keep: Duration,
    /// How much disk space a rank may take, with its incidents.
    #[arg(long, value_name = "SIZE", value_parser = amount_of_bytes::parse, requires = "black_box", default_value = "2GB")]
    max_size: u64,
    /// Report a hang when no step ends for this long [default: 10 times the usual step, at least 60 s]
    #[arg(long, value_name = "TIME", value_parser = seconds::parse)]
    pub(crate) hang_after: Option<Duration>,
}

impl Arguments {
    /// What a rank keeps at most, if not everything.
    pub(crate) fn bounds(&self) -> Result<Option<RingBounds>> {
        if self.hang_after.is_some_and(|time| time < LEAST_PATIENCE) {
            bail!("--hang-after must be at least {} s", LEAST_PATIENCE.as_secs());
        }
        if !self.black_box {
            return Ok(None);
        }
        if self.max_size < LEAST_BYTES {
            bail!("--max-size must be at least {} MB", LEAST_BYTES / 1_000_000);
        }
        if self.keep < LEAST_TIME {
            bail!("--keep must be at least {} s", LEAST_TIME.as_secs());
        }
        Ok(Some(RingBounds { keep_seconds: self.keep.as_secs_f64(), max_bytes: self.max_size }))
    }

    /// Begins to watch the job of a run, of which steps may not be recorded all the time.
    pub(crate) fn watch(&self, run: &Path, all_steps: bool) -> Result<Keeper> {
        let hang_after = match self.hang_after {
            _ if !all_steps => HangAfter::Never,
            Some(time) => HangAfter::This(time),
            None => HangAfter::Usual,
        };
        Ok(Keeper::start(run, hang_after, incidents::tell)?)
    }
}
