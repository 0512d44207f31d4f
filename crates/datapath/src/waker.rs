//! Ends a wait from another thread.

use crate::sys;
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsRawFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Ends [`Datapath::wait`](crate::Datapath::wait) from other threads. Cheap to clone. Wakes that
/// come before the waiting side noticed the first cost one atomic operation and no system call.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    event: File,
    /// The event is set, or about to be.
    pending: AtomicBool,
}

impl Waker {
    /// Makes one that no wait listens to yet.
    ///
    /// # Errors
    /// Those of `eventfd`: the process has too many open files.
    pub fn new() -> io::Result<Self> {
        let event = File::from(sys::event()?);
        Ok(Self(Arc::new(Inner { event, pending: AtomicBool::new(false) })))
    }

    /// Ends the current wait, or the next one if none is going on.
    pub fn wake(&self) {
        if !self.0.pending.swap(true, Ordering::AcqRel) {
            // Fails only when the counter is at its maximum, and then the event is set anyway.
            let _ = (&self.0.event).write(&1u64.to_ne_bytes());
        }
    }

    /// Takes the wakes that came so far; tells whether there were any.
    ///
    /// The event is cleared before the flag: a wake between the two does not set the event, but
    /// the caller is awake and looks at its queues after this. The event is read even when the flag
    /// is down, because a wake may have set the event after its flag was taken.
    pub fn take(&self) -> bool {
        let _ = (&self.0.event).read(&mut [0; 8]);
        self.0.pending.swap(false, Ordering::AcqRel)
    }
}

impl AsRawFd for Waker {
    /// A descriptor that is readable while a wake waits to be taken.
    fn as_raw_fd(&self) -> RawFd {
        self.0.event.as_raw_fd()
    }
}
