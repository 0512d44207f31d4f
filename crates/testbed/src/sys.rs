//! The only system call without a safe wrapper.

use rustix::{io, thread::UnshareFlags};

/// Leaves namespaces and enters new ones. With `NEWUSER`, the process must have a single thread.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES), "the descriptor table must stay shared");
    // SAFETY: the function is unsafe because of CLONE_FILES, which gives a thread a separate
    // descriptor table; namespaces do not affect descriptor tables.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}
