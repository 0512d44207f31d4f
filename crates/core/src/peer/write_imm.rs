//! Multi-packet writes with immediate that a peer sends: how much of each is still to come.

use crate::limits::CANCELLED_MAX;
use crate::psn::Psn;

/// One message being received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImmMessage {
    pub msg_id: u32,
    /// Length of the message in bytes, which every segment repeats and the completion reports.
    pub len: u32,
    pub remaining: u32,
    /// Region and address range of its segments so far. The range must have the length of the
    /// message in the end, so that the completion does not report more bytes than were written.
    key: u32,
    range: Reach,
}

/// A message that the peer has cancelled.
#[derive(Clone, Copy, Debug)]
struct Cancelled {
    msg_id: u32,
    /// PSN of the Cancel.
    psn: Psn,
}

/// Addresses from `first` up to but not including `end`.
#[derive(Clone, Copy, Debug)]
struct Reach {
    first: u64,
    end: u64,
}

impl Reach {
    /// The smallest range that contains both.
    fn hull(self, other: Self) -> Self {
        debug_assert!(self.first <= self.end && other.first <= other.end, "edges in order");
        Self { first: self.first.min(other.first), end: self.end.max(other.end) }
    }
    fn bytes(self) -> u64 {
        debug_assert!(self.first <= self.end, "edges in order");
        self.end - self.first
    }
}

/// The messages being received, at most as many as the handshake allowed the peer.
#[derive(Debug, Default)]
pub(crate) struct ImmTable {
    messages: Vec<ImmMessage>,
    /// Cancelled messages, at most [`CANCELLED_MAX`]: segments with PSNs below that of the Cancel
    /// may still arrive, and must not start the message again.
    cancelled: Vec<Cancelled>,
}

/// A segment whose bytes lie within their region, as was checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub msg_id: u32,
    /// Length of the message in bytes.
    pub msg_len: u32,
    pub key: u32,
    pub addr: u64,
    pub len: u32,
}

impl Piece {
    fn range(&self) -> Reach {
        Reach { first: self.addr, end: self.addr + u64::from(self.len) }
    }
}

/// Effect of a segment on its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImmStep {
    /// More segments are to come.
    More,
    /// All bytes are here: deliver the immediate.
    Complete,
    /// The table is full.
    Full,
    /// The lengths contradict each other.
    Contradiction,
    /// The message was cancelled.
    Cancelled,
}

impl ImmTable {
    /// Memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.messages.capacity() * size_of::<ImmMessage>()
            + self.cancelled.capacity() * size_of::<Cancelled>()
    }

    /// Largest value of [`Self::held_bytes`] with `messages` messages at the same time.
    pub fn held_bytes_max(messages: usize) -> usize {
        // Lists grow by doubling.
        2 * (messages.max(4) * size_of::<ImmMessage>() + CANCELLED_MAX * size_of::<Cancelled>())
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The effect that the segment would have, without a change of state.
    pub fn peek(&self, p: &Piece, max: u16) -> ImmStep {
        if self.cancelled.iter().any(|c| c.msg_id == p.msg_id) {
            return ImmStep::Cancelled;
        }
        let known = self.messages.iter().find(|m| m.msg_id == p.msg_id);
        debug_assert!(known.is_none_or(|m| m.remaining <= m.len), "{known:?}");
        let remaining = known.map_or(p.msg_len, |m| m.remaining);
        let range = known.map_or(p.range(), |m| m.range.hull(p.range()));
        let other = known.is_some_and(|m| (m.len, m.key) != (p.msg_len, p.key));
        let last = p.len == remaining;
        if p.len > remaining || other || last && range.bytes() != u64::from(p.msg_len) {
            ImmStep::Contradiction
        } else if last {
            ImmStep::Complete
        } else if known.is_none() && self.messages.len() >= usize::from(max) {
            ImmStep::Full
        } else {
            ImmStep::More
        }
    }

    /// Counts a segment. A complete message stays, with 0 bytes remaining, until [`Self::remove`],
    /// because its immediate may have to be tried again.
    pub fn add(&mut self, p: &Piece) {
        debug_assert!(p.len <= p.msg_len, "as was peeked at: {p:?}");
        match self.messages.iter_mut().find(|m| m.msg_id == p.msg_id) {
            Some(m) => {
                debug_assert!(m.remaining >= p.len, "as was peeked at: {m:?}");
                m.remaining -= p.len;
                m.range = m.range.hull(p.range());
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

    /// Length of message `msg_id`, if all of its bytes have arrived and only its immediate is
    /// missing.
    pub fn awaits_imm(&self, msg_id: u32) -> Option<u32> {
        self.messages.iter().find(|m| m.msg_id == msg_id && m.remaining == 0).map(|m| m.len)
    }

    pub fn remove(&mut self, msg_id: u32) {
        self.messages.retain(|m| m.msg_id != msg_id);
    }

    /// Whether a Cancel with PSN `p` must be sent again later, because too many cancelled messages
    /// are remembered while an earlier PSN is missing.
    pub fn is_full_for(&mut self, p: Psn, cum: Psn) -> bool {
        if self.cancelled.len() < CANCELLED_MAX || p == cum {
            return false;
        }
        self.cancelled.retain(|c| !c.psn.is_before(cum));
        debug_assert!(self.cancelled.len() <= CANCELLED_MAX, "no more than that are kept");
        self.cancelled.len() >= CANCELLED_MAX
    }

    /// Cancels message `msg_id` by the Cancel with PSN `p`; everything below `cum` has arrived.
    pub fn cancel(&mut self, msg_id: u32, p: Psn, cum: Psn) {
        self.remove(msg_id);
        self.cancelled.retain(|c| !c.psn.is_before(cum));
        if p != cum && !planted!(CancelForgotten) {
            debug_assert!(cum.is_before(p) || cfg!(planted_bugs), "something before it is missing");
            self.cancelled.push(Cancelled { msg_id, psn: p });
            debug_assert!(self.cancelled.len() <= CANCELLED_MAX, "no more than that are kept");
        }
    }

    pub fn clear(&mut self) {
        self.messages.clear();
        self.cancelled.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(msg_id: u32, addr: u64, len: u32) -> Piece {
        Piece { msg_id, msg_len: 100, key: 9, addr, len }
    }

    #[test]
    fn a_message_is_complete_when_its_pieces_fill_its_range_in_any_order() {
        let mut t = ImmTable::default();
        for (addr, len, step) in
            [(1_040, 60, ImmStep::More), (1_000, 30, ImmStep::More), (1_030, 10, ImmStep::Complete)]
        {
            assert_eq!(t.peek(&piece(1, addr, len), 1), step);
            t.add(&piece(1, addr, len));
        }
        assert_eq!((t.awaits_imm(1), t.awaits_imm(2)), (Some(100), None));
        t.remove(1);
        assert!(t.is_empty());
    }

    #[test]
    fn contradictions_and_too_many_are_refused() {
        let mut t = ImmTable::default();
        t.add(&piece(1, 1_000, 60));
        let peek = |t: &ImmTable, p: Piece| t.peek(&p, 1);
        assert_eq!(peek(&t, piece(1, 1_060, 41)), ImmStep::Contradiction, "more than there is");
        assert_eq!(peek(&t, piece(1, 2_000, 40)), ImmStep::Contradiction, "it leaves a hole");
        let other = Piece { key: 8, ..piece(1, 1_060, 10) };
        assert_eq!(peek(&t, other), ImmStep::Contradiction, "another region");
        let longer = Piece { msg_len: 101, ..piece(1, 1_060, 10) };
        assert_eq!(peek(&t, longer), ImmStep::Contradiction, "another length");
        assert_eq!(peek(&t, piece(2, 1_000, 60)), ImmStep::Full);
    }

    #[test]
    fn what_was_given_up_does_not_begin_again_while_it_may_arrive() {
        let mut t = ImmTable::default();
        t.add(&piece(1, 1_000, 60));
        t.cancel(1, Psn(5), Psn(2));
        assert!(t.is_empty() && t.peek(&piece(1, 1_060, 40), 1) == ImmStep::Cancelled);
        t.cancel(2, Psn(6), Psn(6));
        assert_eq!(t.peek(&piece(1, 1_060, 40), 1), ImmStep::More, "all before it has arrived");
        for n in 0..CANCELLED_MAX as u32 {
            assert!(!t.is_full_for(Psn(20 + n), Psn(8)));
            t.cancel(100 + n, Psn(20 + n), Psn(8));
        }
        assert!(t.is_full_for(Psn(2_000), Psn(8)) && !t.is_full_for(Psn(8), Psn(8)));
        assert!(!t.is_full_for(Psn(2_000), Psn(21)), "the first has been passed");
    }
}
