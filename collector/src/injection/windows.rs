//! When a process is recorded: by the clock, by its steps, or when somebody asks.

use std::{io, path::Path, time::Duration};

use serde::{Deserialize, Serialize};
use stepscope_traces::{Nanos, Step};

use super::left;

/// What a [`Trigger`] is called in a run.
pub const TRIGGER_FILE: &str = "trigger.json";

/// When a process is recorded. A [`Trigger`] adds to any of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Windows {
    /// By the time since CUDA began in the process.
    Timed {
        /// How long after that.
        after: Duration,
        /// How long each time; to the end, if it is not said.
        duration: Option<Duration>,
        /// From one beginning to the next; once, if it is not said.
        every: Option<Duration>,
    },
    /// By steps, as the program numbers them itself, its NVTX ranges or PyTorch's optimizers.
    Steps {
        /// The first one.
        first: Step,
        /// The one after the last; to the end, if it is not said.
        end: Option<Step>,
    },
    /// When it is triggered, and not before.
    Dormant,
}

impl Windows {
    /// From the beginning to the end.
    pub const ALWAYS: Windows = Windows::Timed { after: Duration::ZERO, duration: None, every: None };

    /// Whether to record now, unless somebody asks.
    pub fn is_open(&self, now: &Moment) -> bool {
        match self {
            Windows::Timed { after, duration, every } => now.since_start.checked_sub(*after).is_some_and(|since| {
                let since = match every {
                    Some(every) if !every.is_zero() => since.as_nanos() % every.as_nanos(),
                    _ => since.as_nanos(),
                };
                duration.is_none_or(|duration| since < duration.as_nanos())
            }),
            // It takes a moment to attach: better during the step before the first.
            Windows::Steps { first, end } => {
                now.step.is_some_and(|step| step.0 >= first.0.saturating_sub(1) && end.is_none_or(|end| step < end))
            }
            Windows::Dormant => false,
        }
    }
}

/// What decides whether a process is recorded now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// How long the process has used CUDA.
    pub since_start: Duration,
    /// The step it is in, or was in last, if it says so.
    pub step: Option<Step>,
}

/// Asks every process of a job to record, from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// Nanoseconds since 1970, UTC.
    pub wall_ns: Nanos,
    /// How long to record; to the end, if it is not said.
    pub duration: Option<Duration>,
}

impl Trigger {
    /// Whether to record at this time of day.
    pub fn is_open(&self, wall: Nanos) -> bool {
        // A clock of another host may be a little behind: what is not over has begun.
        self.duration.is_none_or(|duration| {
            let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
            wall < self.wall_ns + Nanos(nanos)
        })
    }

    /// Leaves it in a run, in place of an older one.
    pub fn leave(&self, run: &Path) -> io::Result<()> {
        left::leave(self, run, TRIGGER_FILE)
    }

    /// The one that was left in a run, if any was. What cannot be understood is none.
    pub fn find(run: &Path) -> Option<Trigger> {
        left::find(run, TRIGGER_FILE)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NOW: Moment = Moment { since_start: Duration::ZERO, step: None };

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn windows_open_and_close_by_the_clock() {
        let open = |windows: &Windows, at: f64| windows.is_open(&Moment { since_start: seconds(at), ..NOW });
        assert!(open(&Windows::ALWAYS, 0.0) && open(&Windows::ALWAYS, 1e6));
        let timed = |duration, every| Windows::Timed { after: seconds(10.0), duration, every };
        let times = [9.9, 10.0, 14.9, 15.0, 70.0, 74.9, 75.0].map(|at| {
            [timed(None, None), timed(Some(seconds(5.0)), None), timed(Some(seconds(5.0)), Some(seconds(60.0)))]
                .map(|windows| open(&windows, at))
        });
        let (no, yes) = (false, true);
        let expected = [
            [no, no, no],
            [yes, yes, yes],
            [yes, yes, yes],
            [yes, no, no],
            [yes, no, yes],
            [yes, no, yes],
            [yes, no, no],
        ];
        assert_eq!(times, expected);
        assert!(open(&timed(None, Some(Duration::ZERO)), 11.0), "nonsense is harmless");
    }

    #[test]
    fn windows_open_for_steps_and_the_one_before_them() {
        let windows = Windows::Steps { first: Step(5), end: Some(Step(7)) };
        let steps = [3, 4, 5, 6, 7].map(|step| windows.is_open(&Moment { step: Some(Step(step)), ..NOW }));
        assert_eq!(steps, [false, true, true, true, false]);
        assert!(!windows.is_open(&NOW), "who says no steps is not recorded by them");
        let from_first = Windows::Steps { first: Step(0), end: None };
        assert!(from_first.is_open(&Moment { step: Some(Step(9)), ..NOW }));
    }

    #[test]
    fn a_trigger_opens_what_is_dormant() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        assert_eq!(Trigger::find(run), None);
        assert!(!Windows::Dormant.is_open(&NOW));
        let trigger = Trigger { wall_ns: Nanos(900), duration: Some(Duration::from_nanos(200)) };
        trigger.leave(run).unwrap();
        let found = Trigger::find(run);
        assert_eq!(found, Some(trigger));
        let open_at = |wall| found.unwrap().is_open(Nanos(wall));
        assert_eq!([800, 900, 1099, 1100].map(open_at), [true, true, true, false]);
        let for_ever = Trigger { duration: None, ..trigger };
        for_ever.leave(run).unwrap();
        assert!(Trigger::find(run).unwrap().is_open(Nanos(i64::MAX)));
        let left: Vec<_> = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [TRIGGER_FILE]);
        fs::write(run.join(TRIGGER_FILE), "{").unwrap();
        assert_eq!(Trigger::find(run), None);
    }
}
