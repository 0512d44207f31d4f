//! How the driver of the engine goes to sleep without missing work.
//!
//! A thread that adds work first publishes it and then checks whether the driver sleeps; the driver
//! first announces that it sleeps and then checks whether there is work. All accesses are
//! sequentially consistent, so one of the two sees the other.

use super::sync::atomic::{AtomicBool, Ordering};

/// Whether the driver sleeps, or is about to.
#[derive(Debug)]
pub(crate) struct Rest(AtomicBool);

impl Rest {
    /// The driver does not sleep.
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Whether work that has just been published needs a wake-up.
    #[inline]
    pub(crate) fn needs_wake(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Sleeps, unless there is work.
    pub(crate) fn sleep_unless(&self, has_work: impl FnOnce() -> bool, sleep: impl FnOnce()) {
        self.0.store(true, Ordering::SeqCst);
        if !has_work() {
            sleep();
        }
        self.0.store(false, Ordering::SeqCst);
    }
}
