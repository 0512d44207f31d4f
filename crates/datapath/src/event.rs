//! A kernel event descriptor that one thread sets and another polls, reads and clears.

use crate::sys;
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsRawFd, RawFd},
};

/// Readable for `poll` while it is set.
#[derive(Debug)]
pub struct Event(File);

impl Event {
    /// An event that is not set. Fails if the process has too many open files.
    pub fn new() -> io::Result<Self> {
        Ok(Self(File::from(sys::event()?)))
    }

    /// Sets it.
    pub fn set(&self) {
        // Fails only if the counter is at its maximum; then the event is set anyway.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// Clears it. Never blocks.
    pub fn clear(&self) {
        // Fails when it is not set.
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
