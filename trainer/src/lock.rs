//! Locks that a panic elsewhere does not close: what they guard is whole at every moment.

use std::sync::{Mutex, MutexGuard};

/// What a mutex guards, whatever became of those who held it before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
