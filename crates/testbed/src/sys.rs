//! The one system call without a safe wrapper.

use rustix::{io, thread::UnshareFlags};

/// Leaves namespaces and enters new ones. With `NEWUSER` the process must have one thread.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES), "the table of open files stays shared");
    // SAFETY: the function is unsafe because of CLONE_FILES, which can give threads different
    // tables of open files; namespaces leave that table alone.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}
