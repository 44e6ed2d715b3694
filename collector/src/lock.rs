//! Locks of the collector.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever a thread that panicked left behind: every change under these locks is whole at each point.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
