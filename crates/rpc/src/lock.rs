//! Taking a lock of ours.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// No code of ours panics while it holds such a lock, so what it guards is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
