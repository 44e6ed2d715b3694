//! Steps: where each begins and ends on a rank, and where its time goes.
//!
//! A step's window begins at the first activity launched inside the step and ends where the next one's begins; the last
//! one ends with its last activity. What crosses a border is clipped to the window.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_traces::{Rank, SpanKind, Spans, Step};

use crate::{activity::Activities, partition::Partition};

/// One step of one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepFigures {
    /// Which step.
    pub step: Step,
    /// Of which rank.
    pub rank: Rank,
    /// When it begins, in the rank's clock.
    pub start_ns: i64,
    /// When it begins, in the clock all ranks are aligned to.
    pub aligned_start_ns: i64,
    /// How long it is.
    pub duration_ns: i64,
    /// Where its time goes.
    #[serde(flatten)]
    pub partition: Partition,
    /// The loss that was recorded for it.
    pub loss: Option<f64>,
    /// Tokens of the whole job.
    pub tokens: Option<f64>,
    /// Those, in its time.
    pub tokens_per_second: Option<f64>,
    /// Model FLOP/s, as a share of what all devices could do.
    pub mfu: Option<f64>,
    /// Executed FLOP/s, as a share of what all devices could do.
    pub hfu: Option<f64>,
}

/// Where a step lies on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepWindow {
    /// Which step.
    pub step: Step,
    /// When it begins.
    pub start: i64,
    /// When it ends.
    pub end: i64,
}

/// The windows of a rank's steps, in order. The activities are sorted by start.
pub(crate) fn windows(activities: &Activities) -> Vec<StepWindow> {
    // Of each step: its first start, and its last end.
    let mut steps: BTreeMap<Step, (i64, i64)> = BTreeMap::new();
    for activity in &activities.items {
        if let Some(step) = activities.place(activity).step {
            let (_, last) = steps.entry(step).or_insert((activity.start, activity.end));
            *last = activity.end.max(*last);
        }
    }
    let mut starts: Vec<(i64, Step, i64)> = steps.into_iter().map(|(step, (start, end))| (start, step, end)).collect();
    starts.sort_unstable();
    let ends = starts.iter().skip(1).map(|(start, ..)| Some(*start)).chain([None]);
    let window = |(&(start, step, last), next): (&(i64, Step, i64), Option<i64>)| StepWindow {
        step,
        start,
        end: next.unwrap_or(last),
    };
    starts.iter().zip(ends).map(window).collect()
}

/// The annotations of steps among some spans: where the program was in each, in the host's time.
pub(crate) fn annotated(spans: &Spans) -> impl Iterator<Item = StepWindow> {
    (0..spans.len()).filter(|row| spans.kind.get(*row) == SpanKind::Step).filter_map(|row| {
        let (start, duration) = (spans.start_ns.get(row).0, spans.duration_ns.get(row).0.max(0));
        Some(StepWindow { step: spans.step.get(row)?, start, end: start.saturating_add(duration) })
    })
}

/// The windows of steps in the host's time: each ends where the next one begins, the last one with its annotation.
pub(crate) fn on_the_host(mut annotated: Vec<StepWindow>) -> Vec<StepWindow> {
    annotated.sort_by_key(|window| (window.start, window.step));
    annotated.dedup_by_key(|window| window.step);
    let starts: Vec<i64> = annotated.iter().skip(1).map(|next| next.start).collect();
    annotated.iter_mut().zip(starts).for_each(|(window, next)| window.end = next);
    annotated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_on_the_host_follow_each_other() {
        let window = |step, start, end| StepWindow { step: Step(step), start, end };
        let annotated = vec![window(2, 30, 50), window(1, 10, 25), window(2, 31, 49)];
        assert_eq!(on_the_host(annotated), [window(1, 10, 30), window(2, 30, 50)]);
    }
}
