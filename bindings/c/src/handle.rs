//! Pointers of C to objects of Rust and back.

use crate::fail::Fail;
use std::ffi::{CStr, c_char};

/// Gives an object away: C holds it from now on.
///
/// # Safety
/// `out` is null or points to a place for a pointer.
pub(crate) unsafe fn give<T>(out: *mut *mut T, object: T) -> Result<(), Fail> {
    if out.is_null() {
        return Err(Fail::invalid("the place for the new object is NULL"));
    }
    // SAFETY: not null, hence a place for a pointer.
    unsafe { out.write(Box::into_raw(Box::new(object))) };
    Ok(())
}

/// The object behind a handle.
///
/// # Safety
/// `handle` is null or came from [`give`] and was not taken back.
pub(crate) unsafe fn at<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Fail> {
    // SAFETY: null, or a live object.
    unsafe { handle.as_ref() }.ok_or_else(|| Fail::invalid(&format!("{what} is NULL")))
}

/// Takes an object back to drop it, unless `busy` says that something still uses it.
///
/// # Safety
/// As [`at`], and nobody uses the handle afterwards if this succeeds.
pub(crate) unsafe fn take<T>(
    handle: *mut T,
    what: &str,
    busy: impl FnOnce(&T) -> bool,
) -> Result<T, Fail> {
    // SAFETY: as promised by the caller.
    if busy(unsafe { at(handle, what) }?) {
        let text = format!("{what} is still in use: take apart what was made from it first");
        return Err(Fail::new(libc::EBUSY, &text));
    }
    // SAFETY: it came from `give` and is not used any more.
    Ok(*unsafe { Box::from_raw(handle) })
}

/// A structure or array passed for reading.
///
/// # Safety
/// `from` is null or points to `n` values.
pub(crate) unsafe fn slice<'a, T>(from: *const T, n: usize) -> Result<&'a [T], Fail> {
    if n == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        return Err(Fail::invalid("an array is NULL but its length is not 0"));
    }
    // SAFETY: not null, hence n values.
    Ok(unsafe { std::slice::from_raw_parts(from, n) })
}

/// Writes a result to where the caller wants it.
///
/// # Safety
/// `to` is null or points to a place for the value.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Fail> {
    if to.is_null() {
        return Err(Fail::invalid("the place for the result is NULL"));
    }
    // SAFETY: not null, hence a place for it.
    unsafe { to.write(value) };
    Ok(())
}

/// The places of an array of results, each for [`put`].
///
/// # Safety
/// `to` is null or points to `n` places for values.
pub(crate) unsafe fn places<T>(to: *mut T, n: u32) -> Result<impl Iterator<Item = *mut T>, Fail> {
    if to.is_null() && n > 0 {
        return Err(Fail::invalid("the place for the results is NULL but their number is not 0"));
    }
    // SAFETY: promised by the caller.
    Ok((0..n as usize).map(move |i| unsafe { to.add(i) }))
}

/// Text, or `None` for NULL.
///
/// # Safety
/// `text` is null or points to a nul-terminated string.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, Fail> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, hence nul-terminated.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Fail::invalid("a string is not UTF-8"))
}
