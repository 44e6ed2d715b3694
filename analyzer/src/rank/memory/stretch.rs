//! Which step it is, from when on.

use stepscope_traces::Step;

use crate::rank::step_windows::StepWindow;

/// A stretch of time, which ends where the next one begins: a step's window, or what lies before or after all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// When it begins.
    pub(super) from: i64,
    /// The step it belongs to.
    pub(super) step: Option<Step>,
}

impl Default for Stretch {
    /// What lies before every step.
    fn default() -> Stretch {
        Stretch { from: i64::MIN, step: None }
    }
}

impl Stretch {
    /// The windows of steps, which are sorted by their beginnings, and what lies after them.
    pub(super) fn of_steps(every_step: &[StepWindow]) -> Vec<Stretch> {
        let windows = every_step.iter().map(|window| Stretch { from: window.start, step: Some(window.step) });
        // What happens as the last step ends is still its own: no other step has it.
        let outside = every_step.last().map(|last| Stretch { from: last.end.saturating_add(1), step: None });
        windows.chain(outside).collect()
    }
}
