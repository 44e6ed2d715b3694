//! What a rank counted for each step.

use std::collections::BTreeMap;

use stepscope_traces::{Counter, CounterSample, Step};

use crate::rank::{recorded_windows::RecordedWindows, step_windows::StepWindow};

/// What was counted for a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct StepCounters {
    pub(crate) loss: Option<f64>,
    pub(crate) tokens: Option<f64>,
    /// Whether it was recorded from its beginning to its end.
    pub(crate) is_complete: bool,
}

impl StepCounters {
    /// What was counted for each step: the first value after it began is its own. The annotation of a step is recorded
    /// when it ends: where there are any, a step without one was cut off, and what was counted is of more than is there. So
    /// was one whose annotation reaches out of the windows in which the rank was recorded, and where there are no
    /// annotations the first and the last of each of several windows.
    pub(super) fn of(
        steps: &[StepWindow],
        annotated: &[StepWindow],
        recorded: &RecordedWindows,
        extents: &[(i64, i64)],
        samples: impl Iterator<Item = CounterSample>,
    ) -> Vec<StepCounters> {
        let mut is_whole: BTreeMap<Step, bool> = BTreeMap::new();
        for window in annotated {
            *is_whole.entry(window.step).or_insert(true) &= recorded.have_all_of(window);
        }
        let extent = |step: &StepWindow| extents.iter().position(|(from, to)| *from <= step.start && step.start <= *to);
        let is_at_an_edge = |index: usize| {
            let of = |index: usize| steps.get(index).and_then(extent);
            extents.len() > 1 && (index == 0 || of(index - 1) != of(index) || of(index + 1) != of(index))
        };
        let is_complete = |(index, step): (usize, &StepWindow)| match is_whole.is_empty() {
            true => !is_at_an_edge(index),
            false => is_whole.get(&step.step).copied().unwrap_or(false),
        };
        let of = |step| StepCounters { is_complete: is_complete(step), ..StepCounters::default() };
        let mut counters: Vec<StepCounters> = steps.iter().enumerate().map(of).collect();
        for sample in samples {
            let is = |counter: Counter| sample.counter == counter.id();
            let after = steps.partition_point(|step| step.start <= sample.time_ns.0);
            let Some(step) = after.checked_sub(1) else { continue };
            let counted = &mut counters[step];
            if is(Counter::Loss) {
                counted.loss.get_or_insert(sample.value);
            } else if is(Counter::Tokens) && counted.is_complete {
                counted.tokens.get_or_insert(sample.value);
            }
        }
        counters
    }
}
