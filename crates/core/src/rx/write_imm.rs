//! Writes with immediate that need several packets: how much of each is still to come.

use crate::psn;

/// One message being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImmMessage {
    pub msg_id: u32,
    pub remaining: u32,
}

/// At most as many messages as the handshake allowed the peer.
#[derive(Debug, Default)]
pub(crate) struct ImmTable {
    messages: Vec<ImmMessage>,
    /// Messages given up, and the PSN that said so: segments with lower PSNs may still arrive, and
    /// must not start the message again. Bounded by the window.
    cancelled: Vec<(u32, u32)>,
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

    /// The most that it may hold, of `messages` at once in a window of so many PSNs.
    pub fn held_bytes_max(messages: usize, window: usize) -> usize {
        // Lists grow by doubling.
        2 * (messages.max(4) * size_of::<ImmMessage>() + window * size_of::<(u32, u32)>())
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// What would `len` bytes of a message of `msg_len` do? Nothing changes.
    pub fn peek(&self, msg_id: u32, msg_len: u32, len: u32, max: u16) -> ImmStep {
        if self.cancelled.iter().any(|c| c.0 == msg_id) {
            return ImmStep::Cancelled;
        }
        let known = self.messages.iter().find(|m| m.msg_id == msg_id);
        let remaining = known.map_or(msg_len, |m| m.remaining);
        if len > remaining {
            ImmStep::Contradiction
        } else if len == remaining {
            ImmStep::Complete
        } else if known.is_none() && self.messages.len() >= usize::from(max) {
            ImmStep::Full
        } else {
            ImmStep::More
        }
    }

    /// Takes `len` bytes into account. The entry stays, with 0 remaining, until [`Self::remove`]:
    /// the immediate may have to be tried again.
    pub fn add(&mut self, msg_id: u32, msg_len: u32, len: u32) {
        match self.messages.iter_mut().find(|m| m.msg_id == msg_id) {
            Some(m) => m.remaining -= len,
            None => self.messages.push(ImmMessage { msg_id, remaining: msg_len - len }),
        }
    }

    /// Whether all bytes of `msg_id` have come and only its immediate is due.
    pub fn awaits_imm(&self, msg_id: u32) -> bool {
        self.messages.iter().any(|m| m.msg_id == msg_id && m.remaining == 0)
    }

    pub fn remove(&mut self, msg_id: u32) {
        self.messages.retain(|m| m.msg_id != msg_id);
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
