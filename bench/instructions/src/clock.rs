//! The clock of this program: each reading is later than the one before it by the same time.
//!
//! A device looks at the clock, and more of its timers come due per operation where operations take
//! longer: on the host's clock, a slow or busy machine adds up to 15 % of instructions. This
//! function stands in the place of the one of the C library for all code of the program.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Time from one reading to the next. A hop of a ping-pong, with some four readings, then takes
/// about as long as on a processor with nothing else to do, without the kernel's part.
const STEP_NS: u64 = 500;

static NOW_NS: AtomicU64 = AtomicU64::new(1_000_000_000);

/// Every clock shows the same. It is behind the stamps of the kernel, which a device takes for
/// packets that did not wait.
///
/// # Safety
///
/// `at` can be written to.
#[allow(unsafe_code, reason = "the C library's function has this form")]
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(
    _clock: libc::clockid_t,
    at: *mut libc::timespec,
) -> libc::c_int {
    let now_ns = NOW_NS.fetch_add(STEP_NS, Relaxed);
    let (seconds, rest) = (now_ns / 1_000_000_000, now_ns % 1_000_000_000);
    // SAFETY: the caller says so.
    unsafe { *at = libc::timespec { tv_sec: seconds as _, tv_nsec: rest as _ } };
    0
}
