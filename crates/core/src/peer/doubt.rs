//! A question whether the peer still has its end of the context (see `engine/doubt.rs`).

use crate::peer::Window;
use crate::time::Time;

/// A question that the peer has not answered yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    pub nonce: u64,
    pub began: Time,
    /// The next Challenge.
    pub at: Time,
    pub round: u8,
    /// When silence is an answer.
    pub ends: Time,
    /// The peer has said, with both tags, that it goes away.
    pub goodbye: bool,
    /// The peer's newest transmission number when it began.
    pub newest: u64,
}

impl Window {
    /// When the doubt about the peer needs something done.
    pub fn doubt_at(&self) -> Time {
        self.doubt.as_ref().map_or(Time::NEVER, |d| d.at.min(d.ends))
    }
}
