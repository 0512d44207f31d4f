//! Who drives the engine now: callers, or the device's thread.

use crate::{
    Progress,
    device::Shared,
    nic::{Nic, Turn},
};
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

/// The arrangement of [`Progress`], and what it needs to know at the moment.
#[derive(Debug)]
pub(crate) struct Driving {
    progress: Progress,
    /// Somebody has polled an empty queue since the thread last drove.
    active: AtomicBool,
    /// When the last turn of such a poll began.
    polled_at: AtomicU64,
    /// The thread rests because callers drive.
    resting: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Driving {
    pub(crate) fn new(progress: Progress) -> Self {
        Self {
            progress,
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

    /// Nobody but callers drives, ever.
    pub(crate) fn by_caller_only(&self) -> bool {
        self.progress == Progress::Caller
    }

    /// Posting hands packets to the network itself if nobody else drives at the moment.
    #[inline]
    pub(crate) fn posts_leave_at_once(&self) -> bool {
        matches!(self.progress, Progress::Shared { .. })
    }

    /// Callers drive at the moment.
    #[inline]
    pub(crate) fn callers_active(&self) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    /// Whether callers still drive, or have until `idle` ago. If not, they have to say so again.
    pub(crate) fn callers_stay(&self, idle: Duration) -> bool {
        let polled = Duration::from_nanos(self.polled_at.load(Ordering::Relaxed));
        let stay = self.callers_active() && Duration::from_nanos(Nic::now().0) < polled + idle;
        if !stay {
            self.active.store(false, Ordering::SeqCst);
        }
        stay
    }

    /// Callers are about to sleep, or the device closes: the thread drives from now on.
    pub(crate) fn callers_rest(&self) {
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
        thread::park_timeout(idle);
        self.resting.store(false, Ordering::SeqCst);
    }
}

impl Shared {
    /// What a poll of an empty queue does for progress; whether anything was done. `stays` says
    /// that the caller will poll again soon: a thread that drives gives way then.
    #[inline]
    pub(crate) fn drive_from_poll(&self, stays: bool) -> bool {
        let stays = match self.driving.progress {
            Progress::Thread { .. } => return false,
            Progress::Shared { .. } if stays => {
                if !self.driving.active.load(Ordering::Relaxed) {
                    self.driving.active.store(true, Ordering::SeqCst);
                }
                if self.rest.needs_wake() {
                    self.waker.wake();
                }
                true
            }
            Progress::Caller | Progress::Shared { .. } => false,
        };
        let Some(mut nic) = self.try_nic() else { return false };
        let done = nic.turn(self) != Turn::default();
        if stays {
            self.driving.polled_at.store(nic.turned_at.0, Ordering::Relaxed);
        }
        done
    }
}
