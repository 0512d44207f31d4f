//! Whether callers drive the engine at the moment, or the device's thread must.
//!
//! Each poll of an empty queue marks the caller as driving, and the device's thread rests
//! meanwhile. A caller that goes to sleep first clears its mark and then checks whether the thread
//! rests; the thread first announces that it rests and then checks whether a caller still drives.
//! All these accesses are sequentially consistent, so at least one side sees the other.

use super::sync::{
    atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{self, Thread},
};
use std::{sync::OnceLock, time::Duration};

/// State shared by the callers of a device and its thread.
#[derive(Debug)]
pub(crate) struct Callers {
    /// A caller has polled an empty queue since the thread last drove.
    active: AtomicBool,
    /// When the last turn of a caller that polled an empty queue began, in ns.
    polled_at: AtomicU64,
    /// The thread rests because callers drive.
    resting: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Callers {
    /// Initially no caller drives.
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

    /// Whether callers drive at the moment.
    #[inline]
    pub(crate) fn drive(&self) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    /// A caller polls and will poll again soon.
    #[inline]
    pub(crate) fn begin(&self) {
        if !self.active.load(Ordering::Relaxed) {
            self.active.store(true, Ordering::SeqCst);
        }
    }

    /// Records that a turn of such a caller began at that time.
    #[inline]
    pub(crate) fn turned(&self, now_ns: u64) {
        self.polled_at.store(now_ns, Ordering::Relaxed);
    }

    /// Whether callers drive now, or a turn of theirs began less than `idle` ago. If neither,
    /// clears their mark.
    pub(crate) fn stay(&self, now_ns: u64, idle: Duration) -> bool {
        let polled = Duration::from_nanos(self.polled_at.load(Ordering::Relaxed));
        let stay = self.drive() && Duration::from_nanos(now_ns) < polled.saturating_add(idle);
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

    /// Lets the thread rest for `idle`, or until callers stop driving.
    pub(crate) fn thread_rest(&self, idle: Duration) {
        self.resting.store(true, Ordering::SeqCst);
        if self.drive() {
            thread::park_timeout(idle);
        }
        self.resting.store(false, Ordering::SeqCst);
    }
}
