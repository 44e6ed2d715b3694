//! Who waits for another step: the thread that opens windows, where steps say when.

use std::{
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicI32, Ordering::Relaxed},
    },
    thread::Thread,
};

use stepscope_traces::{Nanos, Step, now};

/// So many steps are kept until somebody asks for them; that is several times a second.
const MOST_BEGUN: usize = 4096;

static WAITER: OnceLock<Thread> = OnceLock::new();
/// The first step that it waits for.
static AWAITED: AtomicI32 = AtomicI32::new(i32::MIN);
/// The steps that have begun since somebody asked.
static BEGUN: Mutex<Vec<(Step, Nanos)>> = Mutex::new(Vec::new());

/// Has a thread woken whenever another step begins.
pub(crate) fn wake(waiter: Thread) {
    // There is one such thread in a process.
    drop(WAITER.set(waiter));
}

/// Has the thread woken only for this step and those after it; for none, if none is said.
pub(crate) fn wake_at(step: Option<Step>) {
    AWAITED.store(step.map_or(i32::MAX, |step| step.0), Relaxed);
}

/// Says that another step begins.
pub(crate) fn step_began(step: Step) {
    let Some(waiter) = WAITER.get() else { return };
    let mut begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    if begun.len() < MOST_BEGUN {
        begun.push((step, now()));
    }
    drop(begun);
    if step.0 >= AWAITED.load(Relaxed) {
        waiter.unpark();
    }
}

/// The steps that have begun since this was asked last, and when.
pub(crate) fn take_begun() -> Vec<(Step, Nanos)> {
    std::mem::take(&mut BEGUN.lock().unwrap_or_else(PoisonError::into_inner))
}
