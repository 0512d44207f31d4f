//! Writes with immediate that need several packets: how much of each is still to come.

/// One message being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImmMessage {
    pub msg_id: u32,
    pub remaining: u32,
}

/// At most as many as the handshake allowed the peer.
#[derive(Debug, Default)]
pub(crate) struct ImmTable(Vec<ImmMessage>);

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
}

impl ImmTable {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What would `len` bytes of a message of `msg_len` do? Nothing changes.
    pub fn peek(&self, msg_id: u32, msg_len: u32, len: u32, max: u16) -> ImmStep {
        let known = self.0.iter().find(|m| m.msg_id == msg_id);
        let remaining = known.map_or(msg_len, |m| m.remaining);
        if len > remaining {
            ImmStep::Contradiction
        } else if len == remaining {
            ImmStep::Complete
        } else if known.is_none() && self.0.len() >= usize::from(max) {
            ImmStep::Full
        } else {
            ImmStep::More
        }
    }

    /// Takes `len` bytes into account. The entry stays, with 0 remaining, until [`Self::remove`]:
    /// the immediate may have to be tried again.
    pub fn add(&mut self, msg_id: u32, msg_len: u32, len: u32) {
        match self.0.iter_mut().find(|m| m.msg_id == msg_id) {
            Some(m) => m.remaining -= len,
            None => self.0.push(ImmMessage { msg_id, remaining: msg_len - len }),
        }
    }

    /// Whether all bytes of `msg_id` have come and only its immediate is due.
    pub fn awaits_imm(&self, msg_id: u32) -> bool {
        self.0.iter().any(|m| m.msg_id == msg_id && m.remaining == 0)
    }

    pub fn remove(&mut self, msg_id: u32) {
        self.0.retain(|m| m.msg_id != msg_id);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
