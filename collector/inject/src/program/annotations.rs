//! Which steps and phases the program has opened, and how many tokens a step has.

use std::{
    cell::RefCell,
    sync::{Mutex, MutexGuard, PoisonError},
};

use stepscope_collector::{Recorder, Scope};
use stepscope_traces::{Counter, Phase, Step};

use crate::{
    place::{Entered, Part, Source},
    recording::recorder,
};

/// No name of a phase is longer.
pub(super) const LONGEST_NAME: usize = 200;
/// How many may be open at a time on a thread before more are not looked at.
const MOST_OPEN: usize = 4096;

thread_local! {
    static OPEN: RefCell<Vec<Annotation>> = const { RefCell::new(Vec::new()) };
}

/// The tokens of the step that is open, as far as they were told; nothing, while none is.
static TOKENS: Mutex<Option<f64>> = Mutex::new(None);

/// A step or a phase that is open on a thread.
#[derive(Default)]
struct Annotation {
    scope: Option<Scope<'static>>,
    entered: Option<Entered>,
}

/// Opens a step, or the next one.
pub(super) fn begin_step(number: Option<Step>) {
    open(|| Entered::new(Source::Program, Part::Step(number)), "step");
}

/// Opens a phase by its name.
pub(super) fn begin_phase(name: &str) {
    let enter = |phase| Entered::new(Source::Program, Part::Phase(phase));
    open(
        || Phase::ALL.iter().copied().find(|phase| phase.word() == name).and_then(enter),
        if name.is_empty() { "(unnamed)" } else { name },
    );
}

/// What is entered is a step or a phase; everything else is a range of that name.
fn open(enter: impl FnOnce() -> Option<Entered>, name: &str) {
    let depth = OPEN.try_with(|open| open.try_borrow().map_or(MOST_OPEN, |open| open.len()));
    let opened = if depth.is_ok_and(|depth| depth < MOST_OPEN) {
        let entered = enter();
        let part = entered.as_ref().map(Entered::new_part);
        if let Some((Some(_), _)) = part {
            *tokens() = Some(0.0);
        }
        let scope = recorder().map(|recorder| match part {
            Some((Some(step), _)) => recorder.step(step),
            Some((_, Some(phase))) => recorder.phase(phase),
            _ => recorder.range(recorder.name(name)),
        });
        Annotation { scope, entered }
    } else {
        Annotation::default()
    };
    // Not borrowed while it was opened: recording is no matter of this list. A thread that ends has none.
    drop(OPEN.try_with(|open| open.try_borrow_mut().map(|mut open| open.push(opened))));
}

/// Closes the newest of this thread.
pub(super) fn end() {
    let popped = OPEN.try_with(|open| open.try_borrow_mut().ok()?.pop());
    let Some(Annotation { scope, entered }) = popped.ok().flatten() else { return };
    if let Some((Some(_), _)) = entered.as_ref().map(Entered::new_part) {
        // Before its annotation ends, so that they are counted inside of it.
        let counted = tokens().take().filter(|tokens| *tokens > 0.0);
        counted.zip(recorder()).into_iter().for_each(|(tokens, recorder)| count(recorder, tokens));
    }
    // The annotation is recorded in the place where it was opened.
    drop(scope);
    drop(entered);
}

/// Adds to the tokens of the step that is open. Where none is they are counted at once.
pub(super) fn add_tokens(count_of_job: f64) {
    if !count_of_job.is_finite() || count_of_job < 0.0 {
        return;
    }
    if let Some(tokens) = tokens().as_mut() {
        *tokens += count_of_job;
        return;
    }
    recorder().into_iter().for_each(|recorder| count(recorder, count_of_job));
}

fn count(recorder: &Recorder, tokens: f64) {
    recorder.count(Counter::Tokens, tokens);
}

fn tokens() -> MutexGuard<'static, Option<f64>> {
    TOKENS.lock().unwrap_or_else(PoisonError::into_inner)
}
