//! What of a rank's time is looked at.

use std::ops::Range;

use stepscope_traces::Step;

use super::replay::Event;
use crate::{selection::StepRange, steps::StepWindow};

/// A stretch of time: a step's window, or what lies before or after all of them.
pub(super) struct Stretch {
    /// When it begins.
    pub(super) from: i64,
    /// The step it belongs to.
    pub(super) step: Option<Step>,
    /// Its events, by their places among all.
    pub(super) events: Range<usize>,
}

/// The windows of the chosen steps, in order; where all are chosen, what is outside of them too. The events are sorted
/// by time, and the windows by their beginnings.
pub(super) fn stretches(events: &[Event], every_step: &[StepWindow], steps: StepRange) -> Vec<Stretch> {
    let happened_before = |time: i64| events.partition_point(|event| event.time < time);
    let begins = every_step.iter().map(|window| (window.start, Some(window.step), happened_before(window.start)));
    // What happens as the last step ends is still its own: no other step has it.
    let outside = every_step.last().map(|last| {
        let end = last.end.saturating_add(1);
        (end, None, happened_before(end))
    });
    let borders: Vec<_> = [(i64::MIN, None, 0)].into_iter().chain(begins).chain(outside).collect();
    let ends = borders.iter().skip(1).map(|(_, _, begin)| *begin).chain([events.len()]);
    let stretch =
        |(&(from, step, begin), end): (&(i64, Option<Step>, usize), usize)| Stretch { from, step, events: begin..end };
    borders.iter().zip(ends).filter(|((_, step, _), _)| steps.has(*step)).map(stretch).collect()
}
