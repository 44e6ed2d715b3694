//! Locks that a panic elsewhere does not close: what they guard is whole at every moment.

use std::{
    sync::{Condvar, Mutex, MutexGuard, TryLockError},
    thread,
    time::{Duration, Instant},
};

/// What a mutex guards, whatever became of those who held it before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// How often to look whether a lock is open.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Like [`lock`], but gives up at a deadline.
pub(crate) fn lock_until<T>(mutex: &Mutex<T>, deadline: Instant) -> Option<MutexGuard<'_, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(LOOK_EVERY),
        }
    }
}

/// Waits until there is something, for so long at most.
pub(crate) fn wait_for<T, R>(
    mutex: &Mutex<T>,
    changed: &Condvar,
    time: Duration,
    mut ready: impl FnMut(&mut T) -> Option<R>,
) -> Option<R> {
    let deadline = Instant::now() + time;
    let mut state = lock(mutex);
    loop {
        let result = ready(&mut state);
        let left = deadline.saturating_duration_since(Instant::now());
        if result.is_some() || left.is_zero() {
            return result;
        }
        let waited = changed.wait_timeout(state, left);
        state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
    }
}
