//! Writes with immediate that need several packets: how much of each is still to come.

use crate::limits::CANCELLED_MAX;
use crate::psn;

/// One message being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImmMessage {
    pub msg_id: u32,
    /// Its length, which every segment repeats: what the completion will say.
    pub len: u32,
    pub remaining: u32,
    /// Where its segments lie so far: first byte, and one past the last. A completion that says so
    /// many bytes must not say more than the region has.
    key: u32,
    range: (u64, u64),
}

/// At most as many messages as the handshake allowed the peer.
#[derive(Debug, Default)]
pub(crate) struct ImmTable {
    messages: Vec<ImmMessage>,
    /// Messages given up, and the PSN that said so: segments with lower PSNs may still arrive, and
    /// must not start the message again. At most [`CANCELLED_MAX`].
    cancelled: Vec<(u32, u32)>,
}

/// A segment, whose bytes were found to lie within their region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub msg_id: u32,
    /// Of the message.
    pub msg_len: u32,
    pub key: u32,
    pub addr: u64,
    pub len: u32,
}

impl Piece {
    fn range(&self) -> (u64, u64) {
        (self.addr, self.addr + u64::from(self.len))
    }
}

fn hull(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// What a segment does to its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImmStep {
    /// More to come.
    More,
    /// All bytes are here: deliver the immediate.
    Complete,
    /// The table is full.
    Full,
    /// The lengths contradict each other.
    Contradiction,
    /// The message was given up.
    Cancelled,
}

impl ImmTable {
    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        self.messages.capacity() * size_of::<ImmMessage>()
            + self.cancelled.capacity() * size_of::<(u32, u32)>()
    }

    /// The most that it may hold, of `messages` at once.
    pub fn held_bytes_max(messages: usize) -> usize {
        // Lists grow by doubling.
        2 * (messages.max(4) * size_of::<ImmMessage>() + CANCELLED_MAX * size_of::<(u32, u32)>())
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// What would this segment do? Nothing changes.
    pub fn peek(&self, p: &Piece, max: u16) -> ImmStep {
        if self.cancelled.iter().any(|c| c.0 == p.msg_id) {
            return ImmStep::Cancelled;
        }
        let known = self.messages.iter().find(|m| m.msg_id == p.msg_id);
        let remaining = known.map_or(p.msg_len, |m| m.remaining);
        let range = known.map_or(p.range(), |m| hull(m.range, p.range()));
        let reach = range.1 - range.0;
        let other = known.is_some_and(|m| (m.len, m.key) != (p.msg_len, p.key));
        let last = p.len == remaining;
        if p.len > remaining || other || last && reach != u64::from(p.msg_len) {
            ImmStep::Contradiction
        } else if last {
            ImmStep::Complete
        } else if known.is_none() && self.messages.len() >= usize::from(max) {
            ImmStep::Full
        } else {
            ImmStep::More
        }
    }

    /// Takes a segment into account. The entry stays, with 0 remaining, until [`Self::remove`]: the
    /// immediate may have to be tried again.
    pub fn add(&mut self, p: &Piece) {
        match self.messages.iter_mut().find(|m| m.msg_id == p.msg_id) {
            Some(m) => {
                m.remaining -= p.len;
                m.range = hull(m.range, p.range());
            }
            None => self.messages.push(ImmMessage {
                msg_id: p.msg_id,
                len: p.msg_len,
                remaining: p.msg_len - p.len,
                key: p.key,
                range: p.range(),
            }),
        }
    }

    /// If all bytes of `msg_id` have come and only its immediate is due: its length.
    pub fn awaits_imm(&self, msg_id: u32) -> Option<u32> {
        self.messages.iter().find(|m| m.msg_id == msg_id && m.remaining == 0).map(|m| m.len)
    }

    pub fn remove(&mut self, msg_id: u32) {
        self.messages.retain(|m| m.msg_id != msg_id);
    }

    /// Whether a Cancel with PSN `p` has to come again later: too many are kept in mind, because
    /// something that was sent before them is missing.
    pub fn is_full_for(&mut self, p: u32, cum: u32) -> bool {
        if self.cancelled.len() < CANCELLED_MAX || p == cum {
            return false;
        }
        self.cancelled.retain(|c| !psn::before(c.1, cum));
        self.cancelled.len() >= CANCELLED_MAX
    }

    /// The peer has given `msg_id` up with PSN `p`; everything below `cum` has arrived.
    pub fn cancel(&mut self, msg_id: u32, p: u32, cum: u32) {
        self.remove(msg_id);
        self.cancelled.retain(|c| !psn::before(c.1, cum));
        if p != cum && !planted!(CancelForgotten) {
            self.cancelled.push((msg_id, p));
        }
    }

    pub fn clear(&mut self) {
        self.messages.clear();
        self.cancelled.clear();
    }
}
