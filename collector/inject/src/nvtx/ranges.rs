//! Which ranges are open, and what they say of where the program is.

use std::{
    cell::RefCell,
    collections::HashMap,
    ffi::c_int,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use stepscope_collector::{Recorder, Scope};
use stepscope_traces::{Nanos, Phase, Span, SpanKind, Step, now};

use super::meaning::{self, Meaning};
use crate::{process, recording::recorder, step_waiter};

/// How many ranges may be open at a time on a thread, and in the process, before more are not looked at.
const MOST_OPEN: usize = 4096;

/// Where a library keeps its ranges apart from others'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Domain(pub(crate) usize);

impl Domain {
    /// The program's own.
    pub(crate) const NONE: Domain = Domain(0);
}

/// Where the program is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StepAndPhase {
    step: Option<Step>,
    phase: Option<Phase>,
}

/// Where the program is, and how many steps without a number there were.
struct Steps {
    place: StepAndPhase,
    next: i32,
    /// Whether a range said a step.
    said: bool,
    /// Where its framework has it.
    framework: StepAndPhase,
}

impl Steps {
    /// Where the program is: as its ranges say, and as its framework does where they say nothing.
    fn known(&self) -> StepAndPhase {
        let framework = if self.said { StepAndPhase { step: None, ..self.framework } } else { self.framework };
        StepAndPhase { step: self.place.step.or(framework.step), phase: self.place.phase.or(framework.phase) }
    }
}

/// A training loop is one thread's, and what it says is of all threads.
static STEPS: Mutex<Steps> = Mutex::new(Steps { place: NOWHERE, next: 0, said: false, framework: NOWHERE });

const NOWHERE: StepAndPhase = StepAndPhase { step: None, phase: None };

/// Ranges that may end on another thread.
static STARTED: Mutex<Option<HashMap<u64, Started>>> = Mutex::new(None);

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

/// A range that is open on a thread.
struct Open {
    domain: Domain,
    #[expect(dead_code, reason = "recorded when it is dropped")]
    scope: Option<Scope<'static>>,
    #[expect(dead_code, reason = "left when it is dropped, after the range was recorded")]
    entered: Option<Entered>,
}

/// A range that may end on another thread.
struct Started {
    began: Nanos,
    name: String,
    entered: Option<Entered>,
}

/// A place that was entered with a range; leaves it when it is dropped.
struct Entered {
    before: StepAndPhase,
    here: StepAndPhase,
}

/// The step that the program is in, if it says so.
pub(crate) fn current_step() -> Option<Step> {
    lock(&STEPS).known().step
}

/// Says where the program's framework has it: what ranges say of steps comes first. Tells the step that it is in, and
/// whether that is the framework's.
pub(crate) fn place_by_framework(step: Option<Step>, phase: Option<Phase>) -> (Option<Step>, bool) {
    let mut steps = lock(&STEPS);
    let before = steps.known();
    steps.framework = StepAndPhase { step, phase };
    let (here, said) = (steps.known(), steps.said);
    drop(steps);
    tell(here);
    if here.step != before.step {
        step_waiter::step_began();
    }
    (here.step, !said)
}

/// Opens a range on this thread; tells how many of its domain were open there.
pub(crate) fn push(domain: Domain, name: &str) -> c_int {
    if process::is_fork() {
        return 0;
    }
    let opened = OPEN.try_with(|open| {
        let depth = open.try_borrow().ok()?.iter().filter(|range| range.domain == domain).count();
        let range = if open.try_borrow().ok()?.len() < MOST_OPEN { begin(domain, name) } else { (None, None) };
        // Not borrowed while it began: recording is no matter of ranges.
        open.try_borrow_mut().ok()?.push(Open { domain, scope: range.0, entered: range.1 });
        Some(depth as c_int)
    });
    opened.ok().flatten().unwrap_or(0)
}

/// Closes the newest range of a domain on this thread; tells how many are left. `None` when there was none.
pub(crate) fn pop(domain: Domain) -> Option<c_int> {
    if process::is_fork() {
        return None;
    }
    let popped = OPEN.try_with(|open| {
        let mut open = open.try_borrow_mut().ok()?;
        let at = open.iter().rposition(|range| range.domain == domain)?;
        let range = open.remove(at);
        Some((range, open.iter().filter(|range| range.domain == domain).count() as c_int))
    });
    let (range, depth) = popped.ok().flatten()?;
    drop(range);
    Some(depth)
}

fn begin(domain: Domain, name: &str) -> (Option<Scope<'static>>, Option<Entered>) {
    let entered = (domain == Domain::NONE).then(|| Entered::by(name)).flatten();
    let scope = recorder().map(|recorder| match entered.as_ref().map(Entered::new_part) {
        Some((Some(step), _)) => recorder.step(step),
        Some((_, Some(phase))) => recorder.phase(phase),
        _ => recorder.range(recorder.name(&meaning::recorded(name))),
    });
    (scope, entered)
}

/// Begins a range that any thread may end.
pub(crate) fn start(domain: Domain, name: &str) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = NEXT.fetch_add(1, Relaxed);
    if process::is_fork() {
        return id;
    }
    let entered = (domain == Domain::NONE).then(|| Entered::by(name)).flatten();
    let mut started = lock(&STARTED);
    let started = started.get_or_insert_default();
    if started.len() < MOST_OPEN {
        started.insert(id, Started { began: now(), name: meaning::recorded(name).into_owned(), entered });
    }
    id
}

/// Ends such a range.
pub(crate) fn end(id: u64) {
    let ended = (!process::is_fork()).then(|| lock(&STARTED).as_mut()?.remove(&id)).flatten();
    if let (Some(started), Some(recorder)) = (ended, recorder()) {
        recorder.record(started.span(recorder, now()));
    }
}

impl Started {
    fn span(&self, recorder: &Recorder, ended: Nanos) -> Span {
        let new = self.entered.as_ref().map(Entered::new_part);
        let (kind, name) = match new {
            Some((Some(_), _)) => (SpanKind::Step, "step"),
            Some((_, Some(phase))) => (SpanKind::Phase, phase.word()),
            _ => (SpanKind::Range, self.name.as_str()),
        };
        let StepAndPhase { step, phase } = self.entered.as_ref().map(|entered| entered.here).unwrap_or_default();
        Span { step, phase, ..Span::new(kind, recorder.name(name), self.began, ended - self.began) }
    }
}

impl Entered {
    /// Enters the step or the phase that a name says. Within a step, another one is a range as any other: a micro-batch, or
    /// a library's own idea of a step. The same goes for phases.
    fn by(name: &str) -> Option<Entered> {
        let meaning = Meaning::of(name);
        if meaning == Meaning::Range {
            return None;
        }
        let mut steps = lock(&STEPS);
        let before = steps.place;
        let here = match meaning {
            Meaning::Step(number) if before.step.is_none() => {
                let step = number.unwrap_or(Step(steps.next));
                steps.next = step.0.saturating_add(1);
                steps.said = true;
                StepAndPhase { step: Some(step), phase: None }
            }
            Meaning::Phase(phase) if before.phase.is_none() => StepAndPhase { phase: Some(phase), ..before },
            _ => return None,
        };
        steps.place = here;
        let known = steps.known();
        drop(steps);
        tell(known);
        if here.step != before.step {
            step_waiter::step_began();
        }
        Some(Entered { before, here })
    }

    /// The step, or else the phase, that was entered.
    fn new_part(&self) -> (Option<Step>, Option<Phase>) {
        let step = self.here.step.filter(|_| self.before.step.is_none());
        (step, self.here.phase.filter(|_| step.is_none()))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if process::is_fork() {
            return;
        }
        let mut steps = lock(&STEPS);
        // A step that ends before its phase does has left that too.
        if steps.place.step == self.here.step {
            steps.place = self.before;
            let known = steps.known();
            drop(steps);
            tell(known);
        }
    }
}

/// Tells the recording where all threads are.
fn tell(place: StepAndPhase) {
    if let Some(recorder) = recorder() {
        recorder.set_process_context(place.step, place.phase);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place is the process's.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn the_program_is_where_its_outermost_ranges_say() {
        let _alone = lock(&ALONE);
        let place = || {
            let place = lock(&STEPS).place;
            (place.step.map(|step| step.0), place.phase)
        };
        assert_eq!(place(), (None, None));
        for (name, expected) in [
            ("epoch 1", (None, None)),
            ("ProfilerStep#5", (Some(5), None)),
            ("step 1", (Some(5), None)),
            ("forward", (Some(5), Some(Phase::Forward))),
            ("backward", (Some(5), Some(Phase::Forward))),
        ] {
            push(Domain::NONE, name);
            assert_eq!(place(), expected, "{name}");
        }
        push(Domain(16), "step 9");
        assert_eq!(place(), (Some(5), Some(Phase::Forward)), "libraries have steps of their own");
        pop(Domain(16));
        let popped: Vec<_> = (0..5).map(|_| (pop(Domain::NONE), place()).1).collect();
        let (in_phase, in_step, nowhere) = ((Some(5), Some(Phase::Forward)), (Some(5), None), (None, None));
        assert_eq!(popped, [in_phase, in_step, in_step, nowhere, nowhere]);
        push(Domain::NONE, "train_step");
        assert_eq!(place(), (Some(6), None), "counted from where numbers ended");
        pop(Domain::NONE);
    }

    #[test]
    fn what_ranges_say_of_steps_comes_before_what_a_framework_says() {
        let _alone = lock(&ALONE);
        lock(&STEPS).said = false;
        let (step, phase) = (Some(Step(2)), Some(Phase::Backward));
        assert_eq!(place_by_framework(step, phase), (step, true));
        assert_eq!(current_step(), step);
        push(Domain::NONE, "step 7");
        assert_eq!(lock(&STEPS).known(), StepAndPhase { step: Some(Step(7)), phase });
        assert_eq!(place_by_framework(Some(Step(3)), None), (Some(Step(7)), false));
        pop(Domain::NONE);
        assert_eq!(current_step(), None, "between its own steps the program is in none");
        place_by_framework(None, None);
    }

    #[test]
    fn a_range_may_be_pushed_without_end() {
        let _alone = lock(&ALONE);
        let most = MOST_OPEN as c_int + 100;
        assert!((0..most).all(|depth| push(Domain(32), "deep") == depth));
        assert!((0..most).rev().all(|depth| pop(Domain(32)) == Some(depth)));
        assert_eq!(pop(Domain(32)), None);
    }

    #[test]
    fn a_step_that_ends_before_its_phase_leaves_both() {
        let _alone = lock(&ALONE);
        let (step, phase) = (Entered::by("step 3").unwrap(), Entered::by("forward").unwrap());
        drop(step);
        drop(phase);
        assert_eq!(lock(&STEPS).place, StepAndPhase::default());
    }
}
