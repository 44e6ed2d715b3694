//! Which steps count.
//!
//! For users, it is defined in `docs/src/metrics.md#which-steps-count`.
//!
//! Steps count that were recorded from their beginning to their end and are not of the warm-up: the first step, and those
//! after it that are clearly slower than most. Where steps are chosen, those count, and of a recording without steps all of
//! it. Of fewer than three complete steps none is taken for warm-up. Where no step is complete, those that there are count.

use stepscope_traces::Step;

use crate::{figures::CountedSteps, selection::StepChoice};

/// Fewer complete steps than this are all counted.
const STEPS_WITH_WARM_UP: usize = 3;
/// A step this many times longer than the median is slow.
const SLOW: f64 = 1.5;
/// Besides the first step, at most one step in this many is warm-up.
const FEW: usize = 4;

/// A step, as far as it matters here: how long it takes, and whether all of it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedStep {
    pub(crate) step: Step,
    pub(crate) span_ns: i64,
    pub(crate) is_complete: bool,
}

/// Which of some steps count, in their order.
pub(crate) fn counted_steps(steps: &[RecordedStep], choice: StepChoice) -> CountedSteps {
    let chosen: Vec<RecordedStep> =
        steps.iter().filter(|recorded| choice.may_have(Some(recorded.step))).copied().collect();
    let any_is_complete = chosen.iter().any(|recorded| recorded.is_complete);
    let (complete, cut_off): (Vec<RecordedStep>, Vec<RecordedStep>) =
        chosen.into_iter().partition(|recorded| recorded.is_complete || !any_is_complete);
    let warm_up = if choice == StepChoice::Counted { warm_up(&complete) } else { 0 };
    let (warm_up, counted) = complete.split_at(warm_up);
    let numbers = |steps: &[RecordedStep]| steps.iter().map(|recorded| recorded.step).collect::<Vec<Step>>();
    CountedSteps {
        steps: counted.first().zip(counted.last()).map(|(first, last)| [first.step, last.step]),
        warm_up: numbers(warm_up),
        cut_off: numbers(&cut_off),
        whole: choice == StepChoice::All || choice == StepChoice::Counted && steps.is_empty(),
    }
}

/// How many of some steps at the beginning are warm-up.
fn warm_up(steps: &[RecordedStep]) -> usize {
    if steps.len() < STEPS_WITH_WARM_UP {
        return 0;
    }
    let (_, later) = steps.split_at(1);
    let mut times: Vec<i64> = later.iter().map(|recorded| recorded.span_ns).collect();
    times.sort_unstable();
    let usual = times[(times.len() - 1) / 2] as f64;
    let most = (steps.len() / FEW).saturating_sub(1);
    1 + later.iter().take(most).take_while(|recorded| recorded.span_ns as f64 > SLOW * usual).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::StepRange;

    fn steps(times: &[i64]) -> Vec<RecordedStep> {
        let step = |(step, span_ns): (i32, &i64)| RecordedStep {
            step: Step(step),
            span_ns: span_ns.abs(),
            is_complete: *span_ns > 0,
        };
        (0..).zip(times).map(step).collect()
    }

    /// The first and the last that count, how many are warm-up, and how many are cut off; those cut off are negative.
    fn counted(times: &[i64]) -> (Option<[i32; 2]>, usize, usize) {
        let window = counted_steps(&steps(times), StepChoice::Counted);
        (window.steps.map(|steps| steps.map(|step| step.0)), window.warm_up.len(), window.cut_off.len())
    }

    #[test]
    fn the_first_step_is_warm_up_and_those_that_are_as_slow() {
        assert_eq!(counted(&[10, 10, 10]), (Some([1, 2]), 1, 0), "also where it is as fast");
        assert_eq!(counted(&[90, 10]), (Some([0, 1]), 0, 0), "of so few all count");
        assert_eq!(counted(&[90, 80, 20, 10, 10, 10, 10, 11, 10, 10, 10, 10]), (Some([3, 11]), 3, 0));
        assert_eq!(counted(&[90, 80, 10, 10]), (Some([1, 3]), 1, 0), "one in four at most");
        assert_eq!(counted(&[90, 10, 80, 10, 10, 10, 10, 10]), (Some([1, 7]), 1, 0), "a slow one later counts");
    }

    #[test]
    fn what_is_cut_off_does_not_count_unless_nothing_else_is_there() {
        assert_eq!(counted(&[-5, 90, 10, 10, -4]), (Some([2, 3]), 1, 2));
        assert_eq!(counted(&[-5, -7]), (Some([0, 1]), 0, 0));
        assert_eq!(counted(&[]), (None, 0, 0));
    }

    #[test]
    fn what_is_chosen_counts() {
        let range = StepChoice::Range(StepRange { from: None, to: Some(Step(2)) });
        let window = counted_steps(&steps(&[90, 10, 10, -4]), range);
        assert_eq!((window.steps, window.warm_up.len(), window.whole), (Some([Step(0), Step(1)]), 0, false));
        assert!(window.has(Some(Step(0))) && !window.has(Some(Step(2))) && !window.has(None));
        let all = counted_steps(&steps(&[90, 10, 10, -4]), StepChoice::All);
        assert!(all.whole && all.has(None) && all.has(Some(Step(3))) && !all.counts(Step(3)));
        assert!(counted_steps(&[], StepChoice::Counted).whole);
        assert!(!counted_steps(&[], range).whole);
    }
}
