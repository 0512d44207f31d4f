//! The receiving end of a stream: what is accepted, acknowledged and missing.

use crate::config::Recovery;
use crate::packet::{Ack, Nack, Stream};
use std::collections::VecDeque;

/// State of a packet at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Missing,
    /// Accepted, above the threshold: not yet acknowledged.
    Taken,
    /// Accepted and acknowledged.
    Green,
}

/// What to do with an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Put it into the ring.
    Take,
    /// Discard it: it was received before.
    Duplicate,
    /// Discard it: it is out of order, and the receiver keeps packets in order only.
    Early,
}

/// The receiving end of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    stream: Stream,
    recovery: Recovery,
    /// Whether it sends NACKs.
    nacks: bool,
    limit: u64,
    /// All packets before this one are acknowledged.
    next: u64,
    /// States of the packets from `next` on.
    states: VecDeque<State>,
    /// All packets before this one have been accepted.
    taken: u64,
    /// Packets above the threshold.
    above: u64,
    /// All packets before this one have arrived or were reported missing.
    seen: u64,
    /// The packet that arrived last.
    latest: u64,
    /// A NACK for `taken` was sent.
    nacked: bool,
    /// Rounds that are not completely accepted: number and end.
    rounds: VecDeque<(u32, u64)>,
    rounds_known: u64,
}

impl Incoming {
    /// `limit`: the most packets that the sender may have unacknowledged.
    pub const fn new(stream: Stream, recovery: Recovery, nacks: bool, limit: u64) -> Self {
        Self {
            stream,
            recovery,
            nacks,
            limit,
            next: 0,
            states: VecDeque::new(),
            taken: 0,
            above: 0,
            seen: 0,
            latest: 0,
            nacked: false,
            rounds: VecDeque::new(),
            rounds_known: 0,
        }
    }

    fn state(&self, seq: u64) -> State {
        match seq.checked_sub(self.next) {
            None => State::Green,
            Some(i) => self.states.get(i as usize).copied().unwrap_or(State::Missing),
        }
    }

    fn state_set(&mut self, seq: u64, state: State) {
        let Some(i) = seq.checked_sub(self.next) else { return };
        let i = i as usize;
        if self.states.len() <= i {
            self.states.resize(i + 1, State::Missing);
        }
        self.states[i] = state;
    }

    /// Classifies an arriving packet; also returns a NACK for packets found missing before it.
    pub fn arrived(&mut self, seq: u64, round: u32, end: u64) -> (Verdict, Option<Nack>) {
        if end > self.rounds_known {
            self.rounds_known = end;
            self.rounds.push_back((round, end));
        }
        let latest = std::mem::replace(&mut self.latest, seq);
        if self.state(seq) != State::Missing {
            return (Verdict::Duplicate, None);
        }
        if seq - self.next >= self.limit {
            return (Verdict::Early, None);
        }
        match self.recovery {
            Recovery::GoBackN if seq > self.taken => {
                // Falling sequence numbers mean that the sender went back: an earlier NACK is
                // obsolete.
                let known = self.nacked && seq > latest;
                let nack = (self.nacks && !known).then(|| self.nack(self.taken, self.taken));
                self.nacked = true;
                (Verdict::Early, nack)
            }
            Recovery::GoBackN => (Verdict::Take, None),
            Recovery::Selective => {
                let gap = (self.nacks && seq > self.seen).then(|| self.nack(self.seen, seq - 1));
                self.seen = self.seen.max(seq + 1);
                (Verdict::Take, gap)
            }
        }
    }

    const fn nack(&self, first: u64, last: u64) -> Nack {
        Nack { stream: self.stream, next: self.next, first, last }
    }

    /// The packet found no room in the ring; returns the NACK to send.
    pub const fn dropped(&mut self, seq: u64) -> Option<Nack> {
        self.nacked = true;
        if self.nacks { Some(self.nack(seq, seq)) } else { None }
    }

    /// The packet was put into the ring, at or below the threshold (`green`) or above it.
    pub fn took(&mut self, seq: u64, green: bool) -> Ack {
        self.nacked = false;
        self.state_set(seq, State::Taken);
        self.above += 1;
        while self.state(self.taken) != State::Missing {
            self.taken += 1;
        }
        if green { self.sunk(seq) } else { self.duplicate(seq) }
    }

    /// The packet has fallen to the threshold.
    pub fn sunk(&mut self, seq: u64) -> Ack {
        debug_assert_eq!(
            self.state(seq),
            State::Taken,
            "an acknowledgment needs a place in the ring"
        );
        self.above -= 1;
        self.state_set(seq, State::Green);
        while self.states.pop_front_if(|s| *s == State::Green).is_some() {
            self.next += 1;
        }
        Ack { stream: self.stream, next: self.next, of: seq, own: true }
    }

    /// Repeats the last acknowledgment because of this packet.
    pub const fn duplicate(&self, seq: u64) -> Ack {
        Ack { stream: self.stream, next: self.next, of: seq, own: false }
    }

    /// Answer to a packet that was not accepted: a duplicate, if a later acknowledgment will revoke
    /// it; without NACKs (as in TCP) always.
    pub fn refused(&self, seq: u64) -> Option<Ack> {
        match self.state(seq) {
            State::Green => Some(Ack { own: true, ..self.duplicate(seq) }),
            _ => (self.above > 0 || !self.nacks).then(|| self.duplicate(seq)),
        }
    }

    /// The next round that is completely accepted.
    pub fn round_arrived(&mut self) -> Option<u32> {
        let taken = self.taken;
        self.rounds.pop_front_if(|(_, end)| *end <= taken).map(|(round, _)| round)
    }

    /// Packets acknowledged without a gap.
    pub const fn acknowledged(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_fabric::HostId;

    fn of(recovery: Recovery) -> Incoming {
        let stream = Stream { sender: HostId(0), number: 0 };
        Incoming::new(stream, recovery, true, 64)
    }

    #[test]
    fn above_the_threshold_is_a_duplicate_and_sinking_is_an_acknowledgment() {
        let mut t = of(Recovery::GoBackN);
        for seq in 0..3 {
            assert_eq!(t.arrived(seq, 0, 4), (Verdict::Take, None));
            let ack = t.took(seq, seq < 1);
            assert_eq!((ack.next, ack.of, ack.own), (1, seq, seq < 1));
        }
        assert_eq!((t.sunk(1).next, t.sunk(2).next), (2, 3));
        assert_eq!(t.arrived(2, 0, 4).0, Verdict::Duplicate);
        assert_eq!(t.refused(2).map(|a| a.own), Some(true), "what it says is no stop");
        assert_eq!(t.round_arrived(), None);
        t.arrived(3, 0, 4);
        t.took(3, false);
        assert_eq!((t.round_arrived(), t.acknowledged()), (Some(0), 3));
    }

    #[test]
    fn a_receiver_in_order_tells_once_what_is_missing_and_again_when_the_sender_went_back() {
        let mut t = of(Recovery::GoBackN);
        t.arrived(0, 0, 99);
        t.took(0, true);
        let nack = t.nack(1, 1);
        assert_eq!(t.arrived(2, 0, 99), (Verdict::Early, Some(nack)));
        assert_eq!(t.arrived(3, 0, 99), (Verdict::Early, None));
        assert_eq!(t.refused(3), None, "no stop without a go");
        assert_eq!(t.arrived(2, 0, 99), (Verdict::Early, Some(nack)), "1 was lost once more");
        assert_eq!(t.arrived(1, 0, 99), (Verdict::Take, None));
        assert_eq!(t.dropped(1), Some(nack));
        assert_eq!(t.arrived(2, 0, 99).1, None);
    }

    #[test]
    fn a_selective_receiver_keeps_what_comes_early_within_its_window() {
        let mut t = of(Recovery::Selective);
        let nack = Some(t.nack(0, 1));
        assert_eq!(t.arrived(2, 0, 4), (Verdict::Take, nack));
        let ack = t.took(2, true);
        assert_eq!((ack.next, ack.of, ack.own), (0, 2, true));
        assert_eq!(t.arrived(64, 0, 99).0, Verdict::Early);
        for seq in [1, 0] {
            assert_eq!(t.arrived(seq, 0, 4), (Verdict::Take, None));
            t.took(seq, true);
        }
        assert_eq!(t.acknowledged(), 3);
    }
}
