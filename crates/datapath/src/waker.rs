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

/// Ends [`Datapath::wait`](crate::Datapath::wait) from other threads. Cheap to clone. Repeated
/// wakes before the waiting side reacts cost one atomic operation each and no system call.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    event: Event,
    /// Whether the event is set or about to be set.
    pending: AtomicBool,
}

impl Waker {
    /// Creates a waker that no wait uses yet.
    ///
    /// # Errors
    /// Errors of `eventfd`: the process has too many open files.
    pub fn new() -> io::Result<Self> {
        let event = Event::new()?;
        Ok(Self(Arc::new(Inner { event, pending: AtomicBool::new(false) })))
    }

    /// Ends the current wait, or the next one if none is in progress.
    pub fn wake(&self) {
        if !self.0.pending.swap(true, Ordering::AcqRel) {
            self.0.event.set();
        }
    }

    /// Consumes the wakes so far; returns whether there were any.
    ///
    /// The event is cleared before the flag: a wake in between does not set the event, but the
    /// caller is awake and checks its queues after this. The event is read even if the flag is not
    /// set, because a wake may set the event after its flag was consumed.
    pub fn take(&self) -> bool {
        self.0.event.clear();
        self.0.pending.swap(false, Ordering::AcqRel)
    }
}

impl Waker {
    /// The descriptor that a wait polls.
    pub(crate) fn event(&self) -> &Event {
        &self.0.event
    }
}

impl AsRawFd for Waker {
    /// A descriptor that is readable while a wake is pending.
    fn as_raw_fd(&self) -> RawFd {
        self.event().as_raw_fd()
    }
}
