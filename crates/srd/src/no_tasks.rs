//! Without the feature `async` no task ever waits.

/// The tasks that wait for one thing: none.
#[derive(Debug, Default)]
pub(crate) struct Tasks(());

impl Tasks {
    #[inline]
    #[expect(clippy::unused_self, reason = "the same as with the feature")]
    pub(crate) fn wake(&self) {}
}

/// Held with a device's lock: no waker comes due meanwhile.
#[derive(Debug)]
pub(crate) struct Debts;

impl Debts {
    #[inline]
    pub(crate) fn new() -> Self {
        Self
    }
}

/// Whether a waker came due: never.
#[inline]
pub(crate) fn owed() -> bool {
    false
}

/// Calls no waker.
#[inline]
pub(crate) fn pay() {}
