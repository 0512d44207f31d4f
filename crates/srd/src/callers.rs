//! Whether callers drive the engine now, or the device's thread has to.
//!
//! Callers say so with each poll of an empty queue, and say when they go to sleep; the thread rests
//! meanwhile. Who goes to sleep takes back that it drives and looks then whether the thread rests;
//! the thread says that it rests and looks then whether anybody still drives. All of it is
//! sequentially consistent, so one of the two sees the other.

use super::sync::{
    atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{self, Thread},
};
use std::{sync::OnceLock, time::Duration};

/// Callers of a device, and its thread.
#[derive(Debug)]
pub(crate) struct Callers {
    /// Somebody has polled an empty queue since the thread last drove.
    active: AtomicBool,
    /// When the last turn of such a poll began, in ns.
    polled_at: AtomicU64,
    /// The thread rests because callers drive.
    resting: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Callers {
    /// Nobody drives yet.
    pub(crate) fn new() -> Self {
        Self {
            active: AtomicBool::new(false),
            polled_at: AtomicU64::new(0),
            resting: AtomicBool::new(false),
            thread: OnceLock::new(),
        }
    }

    /// The device's thread, once it runs.
    pub(crate) fn thread_set(&self, thread: Thread) {
        // A device starts one thread, once.
        let _ = self.thread.set(thread);
    }

    /// Callers drive at the moment.
    #[inline]
    pub(crate) fn drive(&self) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    /// A caller polls, and will poll again soon.
    #[inline]
    pub(crate) fn begin(&self) {
        if !self.active.load(Ordering::Relaxed) {
            self.active.store(true, Ordering::SeqCst);
        }
    }

    /// A turn of such a caller began at that time.
    #[inline]
    pub(crate) fn turned(&self, now_ns: u64) {
        self.polled_at.store(now_ns, Ordering::Relaxed);
    }

    /// Whether callers still drive, or have until `idle` ago. If not, they have to say so again.
    pub(crate) fn stay(&self, now_ns: u64, idle: Duration) -> bool {
        let polled = Duration::from_nanos(self.polled_at.load(Ordering::Relaxed));
        let stay = self.drive() && Duration::from_nanos(now_ns) < polled + idle;
        if !stay {
            self.active.store(false, Ordering::SeqCst);
        }
        stay
    }

    /// Callers are about to sleep, or the device closes: the thread drives from now on.
    pub(crate) fn rest(&self) {
        self.active.store(false, Ordering::SeqCst);
        if self.resting.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Lets the thread rest for `idle`, or until callers do.
    pub(crate) fn thread_rest(&self, idle: Duration) {
        self.resting.store(true, Ordering::SeqCst);
        if self.drive() {
            thread::park_timeout(idle);
        }
        self.resting.store(false, Ordering::SeqCst);
    }
}
