//! What of a rank's time is looked at.

use stepscope_traces::Step;

use crate::{rank::step_windows::StepWindow, selection::StepRange};

/// A stretch of time, which ends where the next one begins: a step's window, or what lies before or after all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// When it begins.
    pub(super) from: i64,
    /// The step it belongs to.
    pub(super) step: Option<Step>,
    /// Whether it is looked at.
    pub(super) chosen: bool,
}

impl Stretch {
    /// What lies before every step.
    pub(super) fn before_steps(steps: StepRange) -> Stretch {
        Stretch { from: i64::MIN, step: None, chosen: steps.has(None) }
    }

    /// The windows of steps, which are sorted by their beginnings, and what lies after them. Chosen are some of the steps;
    /// where all are, what is outside of them too.
    pub(super) fn of_steps(every_step: &[StepWindow], steps: StepRange) -> Vec<Stretch> {
        let stretch = |from, step| Stretch { from, step, chosen: steps.has(step) };
        let windows = every_step.iter().map(|window| stretch(window.start, Some(window.step)));
        // What happens as the last step ends is still its own: no other step has it.
        let outside = every_step.last().map(|last| stretch(last.end.saturating_add(1), None));
        windows.chain(outside).collect()
    }
}
