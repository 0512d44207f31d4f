//! Locks that outlive a panic of another thread, and the atomics and threads of the files that
//! `examples/models` runs under every order of their steps: it puts others in their place.

use std::sync::{Mutex, MutexGuard, PoisonError};
pub(crate) use std::{sync::atomic, thread};

/// Locks one of the small mutexes (rings, queues of events). What a panicking thread left behind is
/// used as it is: their critical sections are single operations. The engine's lock is another
/// matter: see `Shared::nic_for_driver`.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
