//! How long a job has run, and how long it has to go.

use stepscope_traces::{Nanos, RunInfo, Step};

use crate::figures::{RankFigures, StepFigures};

/// A step of a rank: which one, and from when to when.
type StepExtent = (Step, i64, i64);

/// How long a job has run, and how long it has to go, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTime {
    /// From its start to the newest that is recorded of it; of a recording that has ended, its length.
    pub elapsed_ns: Option<i64>,
    /// What its steps that are left take at the pace of the last ones.
    pub left_ns: Option<i64>,
}

impl JobTime {
    /// Of a job that has ended.
    pub fn of_ended(ranks: &[RankFigures]) -> JobTime {
        let longest = ranks.iter().map(|rank| rank.partition.span_ns).max();
        JobTime { elapsed_ns: longest.filter(|longest| *longest > 0), left_ns: None }
    }

    /// Of a job that goes on: the newest of it, its last steps, and for how long it has been in the one after them.
    pub(crate) fn so_far(info: &RunInfo, newest: Option<Nanos>, steps: &[StepFigures], running_ns: i64) -> JobTime {
        let elapsed = newest.zip(info.started_at()).map(|(newest, started)| (newest - started).0);
        let extents = steps.iter().map(|step| {
            let from = step.aligned_start_ns;
            (step.step, from, from.saturating_add(step.duration_ns))
        });
        JobTime {
            elapsed_ns: elapsed.filter(|elapsed| *elapsed >= 0),
            left_ns: info.planned_steps().and_then(|planned| time_left(extents, planned, running_ns)),
        }
    }
}

/// The pace is that from the first of the steps to the last one, with what is between them.
fn time_left(steps: impl Iterator<Item = StepExtent> + Clone, planned: u64, running_ns: i64) -> Option<i64> {
    let numbers = || steps.clone().map(|(step, ..)| i64::from(step.0));
    let (first, last) = (numbers().min()?, numbers().max()?);
    let (from, to) = (steps.clone().map(|(_, from, _)| from).min()?, steps.map(|(.., to)| to).max()?);
    let pace = to.saturating_sub(from) / (last - first + 1);
    // Steps count from 0.
    let left = i64::try_from(planned).unwrap_or(i64::MAX).checked_sub(last + 1).filter(|left| *left >= 0)?;
    Some(left.saturating_mul(pace).saturating_sub(running_ns).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_steps_takes_time_too() {
        let steps = [(4, 1_000, 1_080), (4, 1_010, 1_090), (5, 1_100, 1_190), (5, 1_110, 1_200)];
        let steps = steps.map(|(step, from, to)| (Step(step), from, to)).into_iter();
        assert_eq!(time_left(steps.clone(), 10, 0), Some(4 * 100));
        assert_eq!(time_left(steps.clone(), 10, 30), Some(4 * 100 - 30));
        assert_eq!(time_left(steps.clone(), 6, 0), Some(0));
        assert_eq!(time_left(steps, 5, 0), None, "it makes more than it was to");
        assert_eq!(time_left([].into_iter(), 5, 0), None);
    }
}
