//! Where in the training this process is, and who says so.
//!
//! Three may: the program itself (`program`), its NVTX ranges (`nvtx`), and its framework (`torch`). Steps are those of the
//! first of these that ever said one: numbers of different counts are not mixed. The phase is what the first of them says
//! now.
//!
//! A training loop is one thread's, and what it says holds for all threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use stepscope_traces::{Phase, Step};

use crate::{process, recording::recorder, step_waiter};

/// A step and a phase of it, or neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepAndPhase {
    pub(crate) step: Option<Step>,
    pub(crate) phase: Option<Phase>,
}

/// Who says where the process is, by something that it opens and closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The program, which calls us.
    Program,
    /// NVTX ranges.
    Ranges,
}

/// What is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A step, or the next one.
    Step(Option<Step>),
    /// A phase.
    Phase(Phase),
}

/// What one of them says.
#[derive(Clone, Copy, Debug)]
struct Says {
    now: StepAndPhase,
    /// The step after the last, for those without a number.
    next: i32,
    /// Whether it ever said a step.
    steps: bool,
}

impl Says {
    const NOTHING: Says = Says { now: NOWHERE, next: 0, steps: false };
}

const NOWHERE: StepAndPhase = StepAndPhase { step: None, phase: None };

/// What all of them say.
#[derive(Clone, Copy, Debug)]
struct Place {
    program: Says,
    ranges: Says,
    framework: StepAndPhase,
    /// The newest step that the process was in.
    latest: Option<Step>,
}

impl Place {
    const UNKNOWN: Place = Place { program: Says::NOTHING, ranges: Says::NOTHING, framework: NOWHERE, latest: None };

    fn of(&mut self, source: Source) -> &mut Says {
        match source {
            Source::Program => &mut self.program,
            Source::Ranges => &mut self.ranges,
        }
    }

    /// Where the process is now, after a change.
    fn after_change(&mut self) -> StepAndPhase {
        let here = self.known();
        self.latest = here.step.or(self.latest);
        here
    }

    /// Where the process is.
    fn known(&self) -> StepAndPhase {
        let step = match self {
            Place { program: Says { steps: true, now, .. }, .. }
            | Place { ranges: Says { steps: true, now, .. }, .. } => now.step,
            Place { framework, .. } => framework.step,
        };
        let phase = self.program.now.phase.or(self.ranges.now.phase).or(self.framework.phase);
        StepAndPhase { step, phase }
    }
}

static PLACE: Mutex<Place> = Mutex::new(Place::UNKNOWN);

fn lock() -> MutexGuard<'static, Place> {
    PLACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The step that the process is in, or was in last: what lies between two steps closes no window.
pub(crate) fn latest_step() -> Option<Step> {
    lock().latest
}

/// Tells the recording where the process is, which may have been said before the recording began.
pub(crate) fn tell() {
    tell_recording(lock().known());
}

fn tell_recording(place: StepAndPhase) {
    if let Some(recorder) = recorder() {
        recorder.set_process_context(place.step, place.phase);
    }
}

/// Tells of a change.
fn changed(before: StepAndPhase, here: StepAndPhase) {
    tell_recording(here);
    if let Some(step) = here.step.filter(|_| here.step != before.step) {
        step_waiter::step_began(step);
    }
}

/// Says where the program's framework has it. Tells the step that the process is in, and whether that is the framework's.
pub(crate) fn by_framework(step: Option<Step>, phase: Option<Phase>) -> (Option<Step>, bool) {
    let mut place = lock();
    let before = place.known();
    place.framework = StepAndPhase { step, phase };
    let (here, is_framework) = (place.after_change(), !place.program.steps && !place.ranges.steps);
    drop(place);
    changed(before, here);
    (here.step, is_framework)
}

/// A step or a phase that was entered; leaves it when it is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    source: Source,
    before: StepAndPhase,
    pub(crate) here: StepAndPhase,
}

impl Entered {
    /// Enters a step or a phase, if that is news. Within a step, another one is a range as any other: a micro-batch, or a
    /// library's own idea of a step. So are steps of ranges in a program that says its steps itself. The same goes for
    /// phases.
    pub(crate) fn new(source: Source, part: Part) -> Option<Entered> {
        let mut place = lock();
        let known_before = place.known();
        let program_has_steps = place.program.steps;
        let says = place.of(source);
        let before = says.now;
        says.now = match part {
            Part::Step(number) if before.step.is_none() && (source == Source::Program || !program_has_steps) => {
                let step = number.unwrap_or(Step(says.next));
                says.next = step.0.saturating_add(1);
                says.steps = true;
                StepAndPhase { step: Some(step), phase: None }
            }
            Part::Phase(phase) if before.phase.is_none() => StepAndPhase { phase: Some(phase), ..before },
            _ => return None,
        };
        let (here, known) = (says.now, place.after_change());
        drop(place);
        changed(known_before, known);
        Some(Entered { source, before, here })
    }

    /// The step, or else the phase, that was entered.
    pub(crate) fn new_part(&self) -> (Option<Step>, Option<Phase>) {
        let step = self.here.step.filter(|_| self.before.step.is_none());
        (step, self.here.phase.filter(|_| step.is_none()))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if process::is_fork() {
            return;
        }
        let mut place = lock();
        let known_before = place.known();
        let says = place.of(self.source);
        // A step that ends before its phase does has left that too.
        if says.now.step == self.here.step {
            says.now = self.before;
            let known = place.after_change();
            drop(place);
            changed(known_before, known);
        }
    }
}

/// Forgets all that was said, for a test. The place is the process's: nobody else's test may look at it meanwhile.
#[cfg(test)]
pub(crate) fn alone_and_nowhere() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    *lock() = Place::UNKNOWN;
    alone
}

/// What one of them says, for a test.
#[cfg(test)]
pub(crate) fn said_by(source: Source) -> StepAndPhase {
    lock().of(source).now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> (Option<i32>, Option<Phase>) {
        let StepAndPhase { step, phase } = lock().known();
        (step.map(|step| step.0), phase)
    }

    #[test]
    fn a_step_that_ends_before_its_phase_leaves_both() {
        let _alone = alone_and_nowhere();
        let enter = |part| Entered::new(Source::Ranges, part).unwrap();
        let (step, phase) = (enter(Part::Step(Some(Step(3)))), enter(Part::Phase(Phase::Forward)));
        drop(step);
        drop(phase);
        assert_eq!(said_by(Source::Ranges), NOWHERE);
    }

    #[test]
    fn what_the_program_says_of_steps_comes_first_then_its_ranges_then_its_framework() {
        let _alone = alone_and_nowhere();
        let (step, phase) = (Some(Step(2)), Some(Phase::Backward));
        assert_eq!(by_framework(step, phase), (step, true));
        assert_eq!(known(), (Some(2), phase));
        let range = Entered::new(Source::Ranges, Part::Step(Some(Step(7))));
        assert_eq!(known(), (Some(7), phase));
        assert_eq!(by_framework(Some(Step(3)), None), (Some(Step(7)), false));
        let program = Entered::new(Source::Program, Part::Step(Some(Step(40)))).unwrap();
        assert_eq!(known(), (Some(40), None));
        drop(range);
        assert!(Entered::new(Source::Ranges, Part::Step(Some(Step(8)))).is_none(), "then it is a range");
        let forward = Entered::new(Source::Ranges, Part::Phase(Phase::Forward));
        let optimizer = Entered::new(Source::Program, Part::Phase(Phase::Optimizer));
        assert_eq!(known(), (Some(40), Some(Phase::Optimizer)));
        drop(optimizer);
        assert_eq!(known(), (Some(40), Some(Phase::Forward)));
        drop((forward, program));
        assert_eq!(by_framework(step, phase), (None, false), "between its own steps the program is in none");
        assert_eq!((known(), latest_step()), ((None, phase), Some(Step(40))));
        let next = Entered::new(Source::Program, Part::Step(None)).unwrap();
        assert_eq!(next.new_part(), (Some(Step(41)), None), "counted from where numbers ended");
    }
}
