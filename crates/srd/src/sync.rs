//! Locks that survive a panic of another thread, and the atomics and threads of the files that
//! `examples/models` checks under every interleaving: the models substitute their own.

use std::sync::{MutexGuard, PoisonError};
pub(crate) use std::{
    sync::{Mutex, atomic},
    thread,
};

/// Locks one of the small mutexes (rings, queues of events). A panicking thread leaves consistent
/// data, since their critical sections are single operations. The engine's lock differs: see
/// `Shard::nic_for_driver`.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
