//! Ranges that programs and frameworks name through a library for it: NVTX, or ROCTX.
//!
//! They are annotations, but for those that PyTorch emits for its operators. Which of them are steps is known in the end.

use super::{
    annotation::TrainingContext,
    emitted::Emitted,
    operator::{Given, OperatorCall, OptionalNumber},
    rows::Profile,
    step_name::StepName,
    step_ranges::StepRanges,
};
use crate::{ids::Nanos, operators::Shapes};

/// The ranges of a rank.
#[derive(Debug, Default)]
pub(crate) struct NamedRanges {
    steps: StepRanges,
}

/// Where and when a range is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedRange {
    /// One that ends on another thread is of none.
    pub(crate) thread: Option<u32>,
    pub(crate) start: Nanos,
    pub(crate) duration: Nanos,
}

impl NamedRanges {
    /// Takes a range by its text, which may be that of an operator.
    pub(crate) fn take(&mut self, profile: &mut Profile, range: NamedRange, text: &str) {
        let Some(emitted) = Emitted::of(text) else { return self.annotate(profile, range, text, text) };
        let says_nothing = TrainingContext::named(emitted.name) == TrainingContext::default();
        if !(emitted.is_operator() && says_nothing) {
            return self.annotate(profile, range, emitted.name, emitted.name);
        }
        let NamedRange { thread, start, duration } = range;
        let name = profile.called.operator(emitted.name);
        let given = |sizes: &str| Some(Given { shapes: Shapes::of_profiler(sizes, None)?, concrete: Vec::new() });
        let shapes = profile.called.shapes(name, emitted.sizes, given);
        let (external, node, forward_thread) = (OptionalNumber::default(), OptionalNumber::default(), None);
        profile.operator(OperatorCall { start, duration, thread, name, shapes, external, node, forward_thread });
    }

    /// Takes a range by what it is called, and by what it is shown as.
    pub(crate) fn annotate(&mut self, profile: &mut Profile, range: NamedRange, name: &str, shown: &str) {
        let NamedRange { thread, start, duration } = range;
        if let Some(step) = StepName::of(name) {
            self.steps.take(&step, thread, start, duration, profile.rows.annotations.len());
        }
        profile.annotation(thread, start, duration, TrainingContext::named(name), shown);
    }

    /// Numbers those annotations that are steps.
    pub(crate) fn number_steps(self, profile: &mut Profile) {
        for (index, step) in self.steps.steps() {
            if let Some((annotated, _)) = profile.rows.annotations.get_mut(index) {
                annotated.place.step = Some(step);
            }
        }
    }
}
