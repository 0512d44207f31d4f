//! Failures as C sees them: a negative errno, and words for the calling thread.

use std::{
    cell::RefCell,
    ffi::{CString, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A failed call: errno and words.
#[derive(Debug)]
pub(crate) struct Fail {
    errno: c_int,
    text: String,
}

impl Fail {
    pub(crate) fn new(errno: c_int, text: &str) -> Self {
        Self { errno, text: text.to_owned() }
    }

    /// A pointer that must not be null is null, or a value makes no sense.
    pub(crate) fn invalid(text: &str) -> Self {
        Self::new(libc::EINVAL, text)
    }
}

impl From<srd::DeviceError> for Fail {
    fn from(e: srd::DeviceError) -> Self {
        Self { errno: e.errno(), text: e.to_string() }
    }
}

impl From<srd::Error> for Fail {
    fn from(e: srd::Error) -> Self {
        Self { errno: e.errno(), text: e.to_string() }
    }
}

impl From<srd::PostError> for Fail {
    fn from(e: srd::PostError) -> Self {
        Self { errno: e.errno(), text: e.to_string() }
    }
}

/// Runs the body of a function: its value, or the negative errno with the words put aside. A panic
/// does not cross into C, and the thread is not cancelled meanwhile.
pub(crate) fn run(body: impl FnOnce() -> Result<c_int, Fail>) -> c_int {
    let _uncancelled = srd::Uncancelled::new();
    let fail = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(fail)) => fail,
        Err(_) => Fail::new(libc::EIO, "internal error in the SRD library; please report it"),
    };
    let text = CString::new(fail.text).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
    -fail.errno
}

/// What went wrong in the last failed call of this thread, in words; empty if none failed. Valid
/// until the next failed call of the same thread.
#[unsafe(no_mangle)]
pub extern "C" fn srd_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        // SAFETY: the string lives until the next failure of this thread.
        unsafe { CStr::from_ptr(srd_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn words_stay_with_their_thread() {
        assert_eq!(run(|| Err(Fail::invalid("here"))), -libc::EINVAL);
        std::thread::spawn(|| {
            assert_eq!(last(), "");
            assert_eq!(run(|| Err(Fail::new(libc::EBUSY, "there"))), -libc::EBUSY);
            assert_eq!(last(), "there");
        })
        .join()
        .unwrap();
        assert_eq!(last(), "here");
        assert_eq!(run(|| Ok(3)), 3);
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(run(|| panic!("on purpose")), -libc::EIO);
        assert!(last().contains("report"));
    }
}
