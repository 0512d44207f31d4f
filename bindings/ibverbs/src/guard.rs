//! The barrier between C and the library. A panic must not cross it, since that would abort a
//! program that may hold days of work. And a thread is not cancelled during a call, since unwinding
//! by `pthread_cancel` would leave the engine's lock locked.

use crate::{devices, errno, settings::warn};
use libc::c_int;
use srd::Uncancelled;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

/// The return value of a function that fails, by its type.
pub(crate) trait Failure {
    fn failure() -> Self;
}

impl Failure for c_int {
    fn failure() -> Self {
        libc::EIO
    }
}

impl<T> Failure for *mut T {
    fn failure() -> Self {
        errno::null(libc::EIO)
    }
}

impl<T> Failure for *const T {
    fn failure() -> Self {
        errno::set(libc::EIO);
        ptr::null()
    }
}

/// Functions whose type cannot express a failure.
macro_rules! zero {
    ($($name:ty)*) => {
        $(impl Failure for $name {
            fn failure() -> Self {
                Self::default()
            }
        })*
    };
}

zero! { () bool u8 u16 u32 u64 }

/// Result of taking an event.
pub(crate) enum Look {
    /// The value to return to the program.
    Done(c_int),
    /// No event: wait for this descriptor.
    Wait(c_int),
}

// SAFETY: as in poll.h.
unsafe extern "C-unwind" {
    /// As `libc::poll`, but cancelling the thread in it may unwind through its callers.
    fn poll(fds: *mut libc::pollfd, n: libc::nfds_t, timeout_ms: c_int) -> c_int;
}

/// Longest wait for an event before the device's state is checked.
const WAIT_MS: c_int = 1000;

/// Waits until a descriptor is readable or a second has passed; false if a signal came first (with
/// `errno` set). This is a cancellation point.
///
/// # Safety
/// No caller up to the program has anything to drop, and all of them permit unwinding.
pub(crate) unsafe fn wait_cancellable(fd: c_int) -> bool {
    let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { poll(&raw mut wanted, 1, WAIT_MS) >= 0 }
}

/// Runs a call. A panic makes the call and every device of the process fail.
#[inline]
pub(crate) fn run<R: Failure>(body: impl FnOnce() -> R) -> R {
    let _uncancelled = Uncancelled::new();
    look(body)
}

/// As [`run`], for functions whose type cannot express a failure. Sets `errno`, too.
#[inline]
pub(crate) fn run_or<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    let _uncancelled = Uncancelled::new();
    catch(body).unwrap_or_else(|| {
        errno::set(libc::EIO);
        otherwise
    })
}

/// As [`run`], for functions that contain no cancellation point.
#[inline]
pub(crate) fn look<R: Failure>(body: impl FnOnce() -> R) -> R {
    catch(body).unwrap_or_else(R::failure)
}

#[inline]
fn catch<R>(body: impl FnOnce() -> R) -> Option<R> {
    let body = || {
        #[cfg(debug_assertions)]
        planned::happen();
        body()
    };
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(_) => {
            failed();
            None
        }
    }
}

/// A device that panicked while its lock was held has already failed. After a panic elsewhere the
/// state of every device is unknown, so all of them fail.
#[cold]
fn failed() {
    let tell = || {
        warn(
            "internal error (see above): the devices of this process are closed, and all \
             requests end with an error; please report it",
        );
        devices::entries().iter().filter_map(devices::Entry::opened).for_each(|d| d.fail());
    };
    // If that panics, too, the call still returns.
    let _ = catch_unwind(AssertUnwindSafe(tell));
}

/// Panics on purpose, in builds with debug assertions only, so that tests can check the barrier.
#[cfg(debug_assertions)]
pub(crate) mod planned {
    use libc::c_int;
    use std::sync::atomic::{AtomicI32, Ordering};

    static WHERE: AtomicI32 = AtomicI32::new(0);
    /// A panic without the engine's lock.
    const OUTSIDE: c_int = 1;
    /// A panic with the engine's lock held.
    const LOCKED: c_int = 2;

    /// Makes the next call panic: 1 outside of the engine, 2 with the engine's lock held.
    #[unsafe(no_mangle)]
    pub extern "C" fn srd_debug_panic(place: c_int) {
        WHERE.store(place, Ordering::SeqCst);
    }

    pub(crate) fn happen() {
        if WHERE.load(Ordering::Relaxed) == 0 {
            return;
        }
        match WHERE.swap(0, Ordering::SeqCst) {
            OUTSIDE => panic!("on purpose, outside of the engine"),
            LOCKED => {
                for device in crate::devices::entries().iter().filter_map(|e| e.opened()) {
                    device.panic_on_purpose();
                }
            }
            _ => {}
        }
    }
}
