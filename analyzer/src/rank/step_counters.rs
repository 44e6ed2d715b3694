//! What a rank counted for each step.

use std::collections::BTreeSet;

use stepscope_traces::{Counter, CounterSample, Step};

use crate::rank::step_windows::StepWindow;

/// What was counted for a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct StepCounters {
    pub(crate) loss: Option<f64>,
    pub(crate) tokens: Option<f64>,
    /// Whether it ended while it was recorded.
    pub(crate) finished: bool,
}

impl StepCounters {
    /// What was counted for each step: the first value after it began is its own. The annotation of a step is recorded
    /// when it ends: where there are any, a step without one was cut off, and what was counted is of more than is there.
    pub(super) fn of(
        steps: &[StepWindow],
        annotated: &[StepWindow],
        samples: impl Iterator<Item = CounterSample>,
    ) -> Vec<StepCounters> {
        let annotated: BTreeSet<Step> = annotated.iter().map(|window| window.step).collect();
        let ended = |step: &StepWindow| annotated.is_empty() || annotated.contains(&step.step);
        let of = |step: &StepWindow| StepCounters { finished: ended(step), ..StepCounters::default() };
        let mut counters: Vec<StepCounters> = steps.iter().map(of).collect();
        for sample in samples {
            let is = |counter: Counter| sample.counter == counter.id();
            let after = steps.partition_point(|step| step.start <= sample.time_ns.0);
            let Some(step) = after.checked_sub(1) else { continue };
            let counted = &mut counters[step];
            if is(Counter::Loss) {
                counted.loss.get_or_insert(sample.value);
            } else if is(Counter::Tokens) && counted.finished {
                counted.tokens.get_or_insert(sample.value);
            }
        }
        counters
    }
}
