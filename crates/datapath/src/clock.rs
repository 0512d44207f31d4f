//! The one clock: monotonic, in nanoseconds.

use std::{sync::OnceLock, time::Instant};

/// Nanoseconds since the first call in this process. Never goes back; the same on all threads.
pub fn now_ns() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let elapsed = ORIGIN.get_or_init(Instant::now).elapsed();
    elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos())
}

/// What to add to [`now_ns`] for nanoseconds since 1970, as of now. For trace files only.
pub fn unix_offset_ns() -> u64 {
    let since_1970 = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs() * 1_000_000_000 + u64::from(d.subsec_nanos()));
    since_1970.saturating_sub(now_ns())
}
