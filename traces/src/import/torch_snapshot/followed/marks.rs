//! What a program does, as it is told while it runs: which pass of the training it is in, and which step.

use crate::{
    ids::{Nanos, Step},
    import::torch_snapshot::{
        frame::{Pass, Stack},
        records::Event,
    },
};

/// What a program begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingEvent {
    /// Autograd begins.
    BackwardBegins,
    /// Autograd ends.
    BackwardEnds,
    /// Autograd begins to repeat forward work.
    RecomputationBegins,
    /// It ends to do so.
    RecomputationEnds,
    /// An optimizer begins.
    OptimizerBegins,
    /// An optimizer ends.
    OptimizerEnds,
    /// A step ends, with its last optimizer.
    StepEnds,
}

/// A moment in which a program begins or ends something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When, on the rank's clock.
    pub time_ns: Nanos,
    /// What.
    pub event: TrainingEvent,
    /// The step that it is in from then on.
    pub step: Option<Step>,
}

/// What goes on, and how often one within the other.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    backward: u32,
    recomputation: u32,
    optimizer: u32,
}

impl Open {
    fn after(mut self, event: TrainingEvent) -> Open {
        match event {
            TrainingEvent::BackwardBegins => self.backward = self.backward.saturating_add(1),
            TrainingEvent::BackwardEnds => self.backward = self.backward.saturating_sub(1),
            TrainingEvent::RecomputationBegins => self.recomputation = self.recomputation.saturating_add(1),
            TrainingEvent::RecomputationEnds => self.recomputation = self.recomputation.saturating_sub(1),
            TrainingEvent::OptimizerBegins => self.optimizer = self.optimizer.saturating_add(1),
            TrainingEvent::OptimizerEnds => self.optimizer = self.optimizer.saturating_sub(1),
            TrainingEvent::StepEnds => {}
        }
        self
    }

    /// What a stack would say meanwhile. Some optimizers run both other passes inside of their own.
    fn stack(self) -> Stack {
        match self {
            Open { recomputation: 1.., backward: 1.., .. } => Stack::of_recomputation(),
            Open { backward: 1.., .. } => Stack::of_pass(Some(Pass::Backward)),
            Open { optimizer: 1.., .. } => Stack::of_pass(Some(Pass::Optimizer)),
            _ => Stack::of_pass(None),
        }
    }
}

/// All marks that are still needed, by time.
#[derive(Debug, Default)]
pub(super) struct Marks {
    marks: Vec<Mark>,
    /// What went on before the first of them.
    before: Open,
    step_before: Option<Step>,
}

impl Marks {
    pub(super) fn add(&mut self, mark: Mark) {
        let latest = self.marks.last().map_or(mark.time_ns, |last| last.time_ns.max(mark.time_ns));
        self.marks.push(Mark { time_ns: latest, ..mark });
    }

    /// When the step ended before the last one that was over by a time.
    pub(super) fn last_step_but_one_ended(&self, by: i64) -> Option<i64> {
        let known = &self.marks[..self.marks.partition_point(|mark| mark.time_ns.0 <= by)];
        let mut ends = known.iter().rev().filter(|mark| mark.event == TrainingEvent::StepEnds);
        ends.nth(1).map(|mark| mark.time_ns.0)
    }

    /// The step at a time.
    pub(super) fn step_at(&self, time: i64) -> Option<Step> {
        let before = self.marks.partition_point(|mark| mark.time_ns.0 <= time);
        before.checked_sub(1).map_or(self.step_before, |last| self.marks[last].step)
    }

    /// Gives each event the stack that it would have. The times are in order.
    pub(super) fn give_stacks(&self, events: &mut [Event], times: &[i64]) {
        let (mut open, mut next) = (self.before, self.marks.iter().peekable());
        for (event, time) in events.iter_mut().zip(times) {
            while let Some(mark) = next.next_if(|mark| mark.time_ns.0 <= *time) {
                open = open.after(mark.event);
            }
            event.stack = Some(open.stack());
        }
    }

    /// Forgets what went on.
    pub(super) fn forget_all(&mut self) {
        *self = Marks::default();
    }

    /// Forgets marks up to a time, and keeps what they come to.
    pub(super) fn forget_before(&mut self, time: i64) {
        let gone = self.marks.partition_point(|mark| mark.time_ns.0 <= time);
        for mark in self.marks.drain(..gone) {
            self.before = self.before.after(mark.event);
            self.step_before = mark.step;
        }
    }
}
