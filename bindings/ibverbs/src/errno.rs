//! Error reporting of verbs functions.

use std::ptr;

/// Sets `errno` and returns null.
pub(crate) fn null<T>(code: i32) -> *mut T {
    set(code);
    ptr::null_mut()
}

/// Sets `errno` and returns -1.
pub(crate) fn minus_one(code: i32) -> i32 {
    set(code);
    -1
}

/// Sets `errno`.
pub(crate) fn set(code: i32) {
    // SAFETY: libc gives the place of this thread's errno.
    unsafe { *libc::__errno_location() = code };
}
