//! A kernel counter that `poll` can wait for: readable while above zero.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd},
};

/// Counts events up by [`EventFd::add`] and down by [`EventFd::take`].
#[derive(Debug)]
pub(crate) struct EventFd(File);

impl EventFd {
    /// A counter at zero. Blocking, so that the user of a channel can choose with `O_NONBLOCK`
    /// whether reading an event waits (as verbs programs do); this crate reads only what was added.
    pub(crate) fn new() -> io::Result<Self> {
        // Miri does not support semaphores; its tests do not count beyond one.
        let semaphore = if cfg!(miri) { 0 } else { libc::EFD_SEMAPHORE };
        let flags = libc::EFD_CLOEXEC | semaphore;
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened and belongs to nobody else.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// Adds one. Cannot fail below 2^64 - 1 events.
    pub(crate) fn add(&self) {
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// Subtracts one. The caller must know that the counter is above zero.
    pub(crate) fn take(&self) {
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Waits until one of `fds` is readable; false after `timeout_ms` (-1 = none).
pub(crate) fn poll_readable(fd: RawFd, timeout_ms: i32) -> io::Result<bool> {
    let mut item = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry is passed.
    match unsafe { libc::poll(&raw mut item, 1, timeout_ms) } {
        0 => Ok(false),
        n if n > 0 => Ok(true),
        _ => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(false),
            e => Err(e),
        },
    }
}
