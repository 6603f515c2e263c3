//! Locks that are used on when a thread has panicked with them: what they guard is whole between any two statements.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
