//! What was taken back of what was sent.

use crate::api::WrHandle;
use crate::peer::scoreboard::Kind;

/// A range of a request or of a read that is served, to be cut anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recut {
    /// `Write` or `ReadResp`.
    pub kind: Kind,
    /// Work request or read job.
    pub wr: u32,
    pub off: u32,
    pub len: u32,
}

impl Recut {
    /// The work request that it is of, if it is a `Write`.
    pub fn request(&self) -> WrHandle {
        debug_assert_eq!(self.kind, Kind::Write);
        WrHandle(self.wr)
    }
}
