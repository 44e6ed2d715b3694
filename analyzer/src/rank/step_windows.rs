//! Where each step of a rank begins and ends.
//!
//! For users, it is defined in `docs/src/metrics.md#which-steps-count`.
//!
//! A step's window begins at the first activity launched inside the step and ends where the next one's begins; the last
//! one ends with its last activity. What crosses a border is clipped to the window.

use std::collections::BTreeMap;

use stepscope_traces::{Phase, SpanKind, Spans, Step};

use crate::{
    figures::Class,
    rank::activity::{Activities, Activity},
    stored::fields,
};

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

fields!(StepWindow { step, start, end });

/// The extents of a rank's steps. The activities are sorted by start.
pub(crate) fn step_extents(activities: &Activities) -> StepExtents {
    let mut extents = StepExtents::default();
    // Neighbours are of one step, mostly: those are added together.
    let mut together: Option<(Step, i64, i64)> = None;
    for activity in &activities.items {
        let Some(step) = activities.place(activity).step else { continue };
        match &mut together {
            // Activities are sorted by start.
            Some((same, _, end)) if *same == step => *end = activity.end.max(*end),
            _ => {
                let others = together.replace((step, activity.start, activity.end));
                others.into_iter().for_each(|(step, start, end)| extents.add(step, start, end));
            }
        }
    }
    together.into_iter().for_each(|(step, start, end)| extents.add(step, start, end));
    extents
}

/// The windows of a rank's steps, in order; none reaches out of the stretch of time that was recorded when it began.
///
/// A program may have taken its last step, and something is left to do, evaluation for one: that is no step. It is the last
/// one, has not ended, and computes nothing, or, where the recording ended well, next to nothing or nothing backward while the
/// others do.
pub(crate) fn windows(
    activities: &Activities,
    annotated: &[StepWindow],
    recorded: &[(i64, i64)],
    ended_well: bool,
) -> Vec<StepWindow> {
    const NEXT_TO_NOTHING: i64 = 10;
    let mut extents = step_extents(activities);
    let all = extents.windows();
    if let [steps @ .., last] = all.as_slice()
        && !annotated.is_empty()
        && !annotated.iter().any(|window| window.step == last.step)
    {
        let mut times: Vec<i64> = steps.iter().map(|window| window.end - window.start).collect();
        times.sort_unstable();
        let usual = times.get(times.len() / 2).copied().unwrap_or(0);
        let computes = |activity: &Activity| {
            let place = activities.place(activity);
            place.class == Class::Compute && place.step == Some(last.step)
        };
        let is_short = last.end.saturating_sub(last.start) < usual / NEXT_TO_NOTHING;
        let mut backward = activities.places.iter().filter(|place| place.phase == Some(Phase::Backward)).peekable();
        let some_train = backward.peek().is_some();
        let is_after_all = is_short || some_train && !backward.any(|place| place.step == Some(last.step));
        if ended_well && is_after_all || !activities.items.iter().rev().any(computes) {
            extents.forget(last.step);
        }
    }
    let mut windows = extents.windows();
    for window in &mut windows {
        let within = recorded.iter().find(|(start, end)| *start <= window.start && window.start <= *end);
        window.end = within.map_or(window.end, |(_, end)| window.end.min(*end));
    }
    windows
}

/// From where to where the activity of each step reaches.
#[derive(Default)]
pub(crate) struct StepExtents(BTreeMap<Step, (i64, i64)>);

impl StepExtents {
    /// Adds an activity.
    pub(crate) fn add(&mut self, step: Step, start: i64, end: i64) {
        let (first, last) = self.0.entry(step).or_insert((start, end));
        (*first, *last) = (start.min(*first), end.max(*last));
    }

    /// The steps, in order.
    pub(crate) fn steps(&self) -> impl DoubleEndedIterator<Item = Step> {
        self.0.keys().copied()
    }

    /// When a step begins.
    pub(crate) fn start(&self, step: Step) -> Option<i64> {
        self.0.get(&step).map(|(start, _)| *start)
    }

    /// Forgets a step.
    fn forget(&mut self, step: Step) {
        self.0.remove(&step);
    }

    /// Forgets the steps before one.
    pub(crate) fn forget_before(&mut self, step: Step) {
        self.0 = self.0.split_off(&step);
    }

    /// The windows that follow from them: each ends where the next one begins, the last one with its last activity.
    pub(crate) fn windows(&self) -> Vec<StepWindow> {
        let mut starts: Vec<(i64, Step, i64)> =
            self.0.iter().map(|(step, (start, end))| (*start, *step, *end)).collect();
        starts.sort_unstable();
        let ends = starts.iter().skip(1).map(|(start, ..)| Some(*start)).chain([None]);
        let window = |(&(start, step, last), next): (&(i64, Step, i64), Option<i64>)| StepWindow {
            step,
            start,
            end: next.unwrap_or(last),
        };
        starts.iter().zip(ends).map(window).collect()
    }
}

/// The annotations of steps among some spans: where the program was in each, in the host's time.
pub(crate) fn annotated(spans: &Spans) -> impl Iterator<Item = StepWindow> {
    (0..spans.len()).filter(|row| spans.kind.get(*row) == SpanKind::Step).filter_map(|row| {
        let (start, duration) = (spans.start_ns.get(row).0, spans.duration_ns.get(row).0.max(0));
        Some(StepWindow { step: spans.step.get(row)?, start, end: start.saturating_add(duration) })
    })
}

/// The windows of steps in the host's time: each ends where the next one begins, the last one with its annotation.
pub(crate) fn on_the_host(annotated: &[StepWindow]) -> Vec<StepWindow> {
    let mut extents = StepExtents::default();
    annotated.iter().for_each(|window| extents.add(window.step, window.start, window.end));
    extents.windows()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_on_the_host_follow_each_other() {
        let window = |step, start, end| StepWindow { step: Step(step), start, end };
        let annotated = vec![window(2, 30, 50), window(1, 10, 25), window(2, 31, 49)];
        assert_eq!(on_the_host(&annotated), [window(1, 10, 30), window(2, 30, 50)]);
    }
}
