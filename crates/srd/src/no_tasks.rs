//! Without the feature `async` no task ever waits.

/// The tasks that wait for one thing: none.
#[derive(Debug, Default)]
pub(crate) struct Tasks(());

impl Tasks {
    #[inline]
    #[expect(clippy::unused_self, reason = "the same as with the feature")]
    pub(crate) fn wake(&self) {}
}
