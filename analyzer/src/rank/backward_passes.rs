//! How many backward passes a rank makes in each step, by what it says of its phases.

use std::collections::BTreeMap;

use stepscope_traces::{Phase, SpanKind, Spans, Step};

use crate::stored::fields;

/// The backward passes of each step. What is computed again within one is part of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackwardPasses {
    by_step: BTreeMap<Step, u64>,
    goes_on: bool,
}

fields!(BackwardPasses { by_step; goes_on });

impl BackwardPasses {
    /// Takes the phases among some spans, which come in the order in which they ended.
    pub(crate) fn take(&mut self, spans: &Spans) {
        for row in (0..spans.len()).filter(|row| spans.kind.get(*row) == SpanKind::Phase) {
            let is_backward = matches!(spans.phase.get(row), Some(Phase::Backward | Phase::Recompute));
            if is_backward && !self.goes_on {
                spans.step.get(row).into_iter().for_each(|step| *self.by_step.entry(step).or_default() += 1);
            }
            self.goes_on = is_backward;
        }
    }

    /// How many each step has.
    pub(crate) fn of_steps(&self) -> impl Iterator<Item = u64> {
        self.by_step.values().copied()
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{FIRST_NAME, Nanos, Span};

    use super::*;

    #[test]
    fn what_is_computed_again_is_part_of_a_pass() {
        use Phase::{Backward, Forward, Optimizer, Recompute};
        let mut passes = BackwardPasses::default();
        for (step, phases) in [
            (0, [Forward, Backward, Recompute, Backward, Forward, Backward, Optimizer].as_slice()),
            (1, [Forward, Recompute, Backward].as_slice()),
        ] {
            let mut spans = Spans::default();
            for phase in phases {
                let span = Span::new(SpanKind::Phase, FIRST_NAME, Nanos(0), Nanos(1));
                spans.push(&Span { step: Some(Step(step)), phase: Some(*phase), ..span });
            }
            passes.take(&spans);
        }
        assert_eq!(passes.of_steps().collect::<Vec<_>>(), [2, 1]);
    }
}
