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
use stepscope_traces::{Nanos, Span, SpanKind, now};

use super::{
    meaning::{self, Meaning},
    operators::{self, OpenOperator},
};
use crate::{
    place::{Entered, Part, Source, StepAndPhase},
    process,
    recording::recorder,
};

/// How many ranges may be open at a time on a thread, and in the process, before more are not looked at.
const MOST_OPEN: usize = 4096;

/// Where a library keeps its ranges apart from others'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Domain(pub(crate) usize);

impl Domain {
    /// The program's own.
    pub(crate) const NONE: Domain = Domain(0);
}

/// Ranges that may end on another thread.
static STARTED: Mutex<Option<HashMap<u64, Started>>> = Mutex::new(None);

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

/// A range that is open on a thread.
struct Open {
    domain: Domain,
    #[expect(dead_code, reason = "closed when it is dropped")]
    operator: Option<OpenOperator>,
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

/// Opens a range on this thread; tells how many of its domain were open there.
pub(crate) fn push(domain: Domain, name: &str) -> c_int {
    if process::is_fork() {
        return 0;
    }
    let opened = OPEN.try_with(|open| {
        let depth = open.try_borrow().ok()?.iter().filter(|range| range.domain == domain).count();
        let is_room = open.try_borrow().ok()?.len() < MOST_OPEN;
        let operator = recorder().filter(|_| is_room && domain == Domain::NONE);
        let operator = operator.and_then(|recorder| operators::open(recorder, name));
        let is_ours = operators::is_looking() && name.contains(", op_id = ");
        let (scope, entered) = if is_room && !is_ours { begin(domain, name) } else { (None, None) };
        // Not borrowed while it began: recording is no matter of ranges.
        open.try_borrow_mut().ok()?.push(Open { domain, operator, scope, entered });
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
    let entered = (domain == Domain::NONE).then(|| enter(name)).flatten();
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
    let entered = (domain == Domain::NONE).then(|| enter(name)).flatten();
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

/// Enters the step or the phase that a name says.
fn enter(name: &str) -> Option<Entered> {
    let part = match Meaning::of(name) {
        Meaning::Step(number) => Part::Step(number),
        Meaning::Phase(phase) => Part::Phase(phase),
        Meaning::Range => return None,
    };
    Entered::new(Source::Ranges, part)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use stepscope_traces::Phase;

    use super::*;
    use crate::place;

    #[test]
    fn the_program_is_where_its_outermost_ranges_say() {
        let _alone = place::alone_and_nowhere();
        let place = || {
            let place = place::said_by(Source::Ranges);
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
    fn a_range_may_be_pushed_without_end() {
        let most = MOST_OPEN as c_int + 100;
        assert!((0..most).all(|depth| push(Domain(32), "deep") == depth));
        assert!((0..most).rev().all(|depth| pop(Domain(32)) == Some(depth)));
        assert_eq!(pop(Domain(32)), None);
    }
}
