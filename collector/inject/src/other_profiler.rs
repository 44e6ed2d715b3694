//! Who has CUPTI: we, or a profiler that the program itself starts. It serves one of them at a time.

use std::{
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::Thread,
    time::Duration,
};

/// How long the program waits for us to let go, at most. It then has its profiler try all the same.
const PATIENCE: Duration = Duration::from_secs(3);

/// Who wants CUPTI, and whether we have it.
#[derive(Clone, Copy, Debug)]
struct Ownership {
    /// Whether the program's own profiler runs, or is about to.
    is_wanted: bool,
    is_ours: bool,
}

static OWNERSHIP: Mutex<Ownership> = Mutex::new(Ownership { is_wanted: false, is_ours: false });
static LET_GO: Condvar = Condvar::new();
/// Lets go, and takes back.
static WAITER: OnceLock<Thread> = OnceLock::new();

fn lock() -> MutexGuard<'static, Ownership> {
    OWNERSHIP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a thread woken when the program's own profiler begins or has ended.
pub(crate) fn wake(waiter: Thread) {
    // There is one such thread in a process.
    drop(WAITER.set(waiter));
}

/// The program's own profiler is about to begin: returns when CUPTI is free.
pub(crate) fn begins() {
    let mut ownership = lock();
    ownership.is_wanted = true;
    if ownership.is_ours {
        WAITER.get().into_iter().for_each(Thread::unpark);
        drop(LET_GO.wait_timeout_while(ownership, PATIENCE, |ownership| ownership.is_ours));
    }
}

/// The program's own profiler has ended.
pub(crate) fn ends() {
    lock().is_wanted = false;
    WAITER.get().into_iter().for_each(Thread::unpark);
}

/// Whether the program's own profiler runs, or waits for us.
pub(crate) fn is_wanted() -> bool {
    lock().is_wanted
}

/// To be called before CUPTI is attached: whether it may be.
pub(crate) fn take() -> bool {
    let mut ownership = lock();
    ownership.is_ours = !ownership.is_wanted;
    ownership.is_ours
}

/// Says that we do not have CUPTI, or have it no more.
pub(crate) fn let_go() {
    lock().is_ours = false;
    LET_GO.notify_all();
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn a_profiler_begins_when_we_have_let_go_and_nobody_takes_what_it_has() {
        let began = Instant::now();
        begins();
        assert!(is_wanted() && !take(), "nobody had it");
        ends();
        assert!(!is_wanted() && take());
        let us = thread::spawn(|| {
            while !is_wanted() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(50));
            let_go();
        });
        begins();
        assert!(began.elapsed() >= Duration::from_millis(50) && !take());
        us.join().unwrap();
        ends();
        assert!(began.elapsed() < PATIENCE, "it was told at once");
    }
}
