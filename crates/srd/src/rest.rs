//! How the one who drives the engine goes to sleep without missing work.
//!
//! Whoever brings work makes it visible first and looks then whether somebody sleeps; whoever goes
//! to sleep says so first and looks then whether there is work. All of it is sequentially
//! consistent, so one of the two sees the other.

use super::sync::atomic::{AtomicBool, Ordering};

/// Whether the driver sleeps, or is about to.
#[derive(Debug)]
pub(crate) struct Rest(AtomicBool);

impl Rest {
    /// Nobody sleeps.
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Whether work that has just been made visible needs a wake.
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
