//! A child of `fork` has no engine: its copies of the sockets and of the protocol state belong to
//! the parent. The child must neither use them nor close contexts through them.

use std::sync::{
    Once,
    atomic::{AtomicU32, Ordering},
};

/// Number of forks between the first device's process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static HOOK: Once = Once::new();

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The process a device was opened in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The current process. Forks are noticed from this call on.
    pub(crate) fn current() -> Self {
        HOOK.call_once(|| {
            // SAFETY: the handler only adds to an atomic, which is async-signal-safe. When the
            // registration fails for lack of memory, forks stay unnoticed, as without the hook.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this code runs in a child that was forked from that process.
    #[inline]
    pub(crate) fn is_left(self) -> bool {
        self.0 != GENERATION.load(Ordering::Relaxed)
    }
}
