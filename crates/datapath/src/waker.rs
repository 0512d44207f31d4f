//! Ends a wait from another thread.

use super::{
    event::Event,
    sync::atomic::{AtomicBool, Ordering},
};
use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    sync::Arc,
};

/// Ends [`Datapath::wait`](crate::Datapath::wait) from other threads. Cheap to clone. Wakes that
/// come before the waiting side noticed the first cost one atomic operation and no system call.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    event: Event,
    /// The event is set, or about to be.
    pending: AtomicBool,
}

impl Waker {
    /// Makes one that no wait listens to yet.
    ///
    /// # Errors
    /// Those of `eventfd`: the process has too many open files.
    pub fn new() -> io::Result<Self> {
        let event = Event::new()?;
        Ok(Self(Arc::new(Inner { event, pending: AtomicBool::new(false) })))
    }

    /// Ends the current wait, or the next one if none is going on.
    pub fn wake(&self) {
        if !self.0.pending.swap(true, Ordering::AcqRel) {
            self.0.event.set();
        }
    }

    /// Takes the wakes that came so far; tells whether there were any.
    ///
    /// The event is cleared before the flag: a wake between the two does not set the event, but
    /// the caller is awake and looks at its queues after this. The event is read even when the flag
    /// is down, because a wake may have set the event after its flag was taken.
    pub fn take(&self) -> bool {
        self.0.event.clear();
        self.0.pending.swap(false, Ordering::AcqRel)
    }
}

impl Waker {
    /// What a wait polls.
    pub(crate) fn event(&self) -> &Event {
        &self.0.event
    }
}

impl AsRawFd for Waker {
    /// A descriptor that is readable while a wake waits to be taken.
    fn as_raw_fd(&self) -> RawFd {
        self.event().as_raw_fd()
    }
}
