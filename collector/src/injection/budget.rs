//! What recording may cost, and which steps are recorded for it.

use std::{fmt, fs, io, path::Path, str::FromStr};

use serde::{Deserialize, Serialize};
use stepscope_traces::{Nanos, Step};

use super::left;

/// What the [`SaidPace`] of a job is called in its run.
const PACE_FILE: &str = "pace.json";

/// What recording may cost on average, as a share of the time that the program takes without.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Budget(f64);

impl Budget {
    /// Unless somebody says otherwise: a hundredth.
    pub const USUAL: Budget = Budget(0.01);

    /// As a share.
    pub fn share(self) -> f64 {
        self.0
    }
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Budget, String> {
        let percent = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        match percent {
            Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(Budget(percent / 100.0)),
            _ => Err(format!("a budget is a percentage above 0, such as 1% or 0.5%, or none; not {text:?}")),
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As people write it: 0.1 + 0.2 percent is not 0.30000000000000004.
        write!(f, "{}%", (self.0 * 1e8).round() / 1e6)
    }
}

/// Steps that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedSteps {
    /// The first one.
    pub first: Step,
    /// The one after the last.
    pub end: Step,
}

/// The steps that all ranks of a job record next, or now: one of them says so, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaidPace {
    /// Which steps.
    #[serde(flatten)]
    pub steps: RecordedSteps,
    /// Who says so: a number that no other process has.
    pub leader: u64,
    /// When, in nanoseconds since 1970, UTC.
    pub wall_ns: Nanos,
}

impl SaidPace {
    /// Says it in a run where nobody has said it yet: whether that was so.
    pub fn say_first(&self, run: &Path) -> io::Result<bool> {
        left::leave_first(self, run, PACE_FILE)
    }

    /// Says it in a run, in place of what was said before.
    pub fn say(&self, run: &Path) -> io::Result<()> {
        left::leave(self, run, PACE_FILE)
    }

    /// What was said last in a run.
    pub fn find(run: &Path) -> Option<SaidPace> {
        left::find(run, PACE_FILE)
    }

    /// Takes it back: nobody says it any more.
    pub fn take_back(run: &Path) -> io::Result<()> {
        fs::remove_file(run.join(PACE_FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_percentages() {
        let read = |text: &str| text.parse::<Budget>().map(|budget| (budget.share(), budget.to_string()));
        assert_eq!(read("1%"), Ok((0.01, "1%".into())));
        assert_eq!(read(" 0.3 %").unwrap().1, "0.3%");
        assert_eq!("1%".parse(), Ok(Budget::USUAL));
        for text in ["1", "0%", "-1%", "101%", "nan%", "inf%", "%", ""] {
            assert!(read(text).unwrap_err().contains("such as 1%"), "{text}");
        }
    }
}
