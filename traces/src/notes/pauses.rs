//! How often a rank was not recorded because its program had a profiler of its own running.

use super::field::NoteText;
use crate::ids::Nanos;

const TIMES: &str = " times, ";
const NANOS: &str = " ns in all";
const MISSING_SINCE: &str = "; no kernels since ";

/// CUPTI serves one profiler at a time: while the program's own ran, nothing was recorded of the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// How often it was let go of.
    pub count: u64,
    /// For how long, all together.
    pub nanos: u64,
    /// Since when, in the rank's time, it could not be taken back, if it could not.
    pub missing_since: Option<Nanos>,
}

impl NoteText for Pauses {
    fn read(text: &str) -> Option<Pauses> {
        let (count, rest) = text.split_once(TIMES)?;
        let (nanos, rest) = rest.split_once(NANOS)?;
        let missing_since = match rest {
            "" => None,
            rest => Some(Nanos(rest.strip_prefix(MISSING_SINCE)?.parse().ok()?)),
        };
        Some(Pauses { count: count.parse().ok()?, nanos: nanos.parse().ok()?, missing_since })
    }

    fn write(&self) -> String {
        let Pauses { count, nanos, missing_since } = self;
        let missing = missing_since.map(|since| format!("{MISSING_SINCE}{}", since.0));
        format!("{count}{TIMES}{nanos}{NANOS}{}", missing.unwrap_or_default())
    }
}
