//! The process's clock: monotonic, in nanoseconds.

use crate::sys;
use std::sync::OnceLock;

/// The first call in this process, on the host's monotonic clock.
static ORIGIN: OnceLock<u64> = OnceLock::new();

/// What the host's monotonic clock, which all processes share, shows when [`now_ns`] is 0.
pub fn origin_ns() -> u64 {
    *ORIGIN.get_or_init(|| sys::clock_ns(libc::CLOCK_MONOTONIC))
}

/// Nanoseconds since the first call in this process. Never decreases, on all threads together.
pub fn now_ns() -> u64 {
    let now = sys::clock_ns(libc::CLOCK_MONOTONIC);
    // Another thread may have read a later time and stored it first.
    now.saturating_sub(*ORIGIN.get_or_init(|| now))
}

/// Current offset from [`now_ns`] to nanoseconds since 1970. For trace files only.
pub fn unix_offset_ns() -> u64 {
    sys::clock_ns(libc::CLOCK_REALTIME).saturating_sub(now_ns())
}
