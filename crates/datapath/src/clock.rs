//! The one clock: monotonic, in nanoseconds.

use crate::sys;
use std::sync::OnceLock;

/// Nanoseconds since the first call in this process. Never goes back; the same on all threads.
pub fn now_ns() -> u64 {
    static ORIGIN: OnceLock<u64> = OnceLock::new();
    let now = sys::clock_ns(libc::CLOCK_MONOTONIC);
    // Another thread may have read a later time and been faster.
    now.saturating_sub(*ORIGIN.get_or_init(|| now))
}

/// What to add to [`now_ns`] for nanoseconds since 1970, as of now. For trace files only.
pub fn unix_offset_ns() -> u64 {
    sys::clock_ns(libc::CLOCK_REALTIME).saturating_sub(now_ns())
}
