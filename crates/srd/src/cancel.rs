//! A thread that is cancelled (`pthread_cancel`) in a system call unwinds without releasing the
//! engine's lock. Bindings for other languages disable cancellation during a call.

use libc::c_int;
use std::{marker::PhantomData, ptr};

// SAFETY: as in pthread.h; it is not in the crate `libc`.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc and musl.
const CANCEL_DISABLE: c_int = 1;

/// While this value exists, the thread that created it is not cancelled.
#[derive(Debug)]
pub struct Uncancelled {
    old: c_int,
    /// Not `Send`: it belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Uncancelled {
    /// Disables cancellation until the value is dropped.
    #[inline]
    #[expect(clippy::new_without_default, reason = "it has an effect on the thread")]
    pub fn new() -> Self {
        let mut old = 0;
        // SAFETY: a place for the old state.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut old) };
        Self { old, _thread: PhantomData }
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: no memory is passed: a null pointer is allowed.
        unsafe { pthread_setcancelstate(self.old, ptr::null_mut()) };
    }
}
