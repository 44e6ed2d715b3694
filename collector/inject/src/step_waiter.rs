//! Who waits for another step: the thread that opens windows, where steps say when.

use std::{sync::OnceLock, thread::Thread};

static WAITER: OnceLock<Thread> = OnceLock::new();

/// Has a thread woken whenever another step begins.
pub(crate) fn wake(waiter: Thread) {
    // There is one such thread in a process.
    drop(WAITER.set(waiter));
}

/// Says that another step begins.
pub(crate) fn step_began() {
    WAITER.get().into_iter().for_each(Thread::unpark);
}
