//! The sending end of a stream: what may leave, what is acknowledged, what is retransmitted.

use crate::config::{CopaConfig, Recovery};
use crate::packet::{Ack, Nack};
use crate::policy::{Policy, policy_of};
use srd_fabric::Ps;
use std::collections::{BTreeSet, VecDeque};

/// Most doublings of the timeout.
const BACKOFF_MAX: u32 = 6;
/// Weight of the old value in the smoothed RTT, in eighths (RFC 6298).
const SMOOTHING: u64 = 7;

/// A packet in the retransmit buffer.
#[derive(Clone, Copy, Debug)]
struct Slot {
    sent_at: Ps,
    /// Number of its latest transmission.
    sent_no: u64,
    sent: bool,
    resent: bool,
    acked: bool,
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub seq: u64,
    pub round: u32,
    /// End of its round: the sequence number after the round's last packet.
    pub end: u64,
    /// It is a retransmission.
    pub again: bool,
}

/// Result of an acknowledgment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// It acknowledged nothing new.
    pub duplicate: bool,
}

/// The sending end of a stream.
#[derive(Debug)]
pub(crate) struct Outgoing {
    recovery: Recovery,
    limit: u64,
    timeout_rtts: u64,
    rtt_base: Ps,
    rtt: Ps,
    policy: Box<dyn Policy>,
    /// All packets before this one are acknowledged.
    una: u64,
    /// Next packet to send; below `top` after going back.
    next: u64,
    /// All packets before this one have been transmitted.
    top: u64,
    /// All packets before this one are queued for sending.
    end: u64,
    slots: VecDeque<Slot>,
    /// Packets to retransmit (selective).
    lost: BTreeSet<u64>,
    /// Packets sent, not acknowledged and not lost (selective).
    open: u64,
    /// Transmissions in order, to detect losses that no NACK reports.
    order: VecDeque<(u64, u64)>,
    sent_no: u64,
    /// Number of the latest transmission that was acknowledged.
    acked_no: u64,
    /// Rounds not yet acknowledged: number and end.
    rounds: VecDeque<(u32, u64)>,
    /// All packets before this one were answered at least once.
    answered: u64,
    /// When an answer last arrived, or the first packet left after an idle period.
    heard_at: Ps,
    tries: u32,
}

impl Outgoing {
    pub fn new(config: &CopaConfig) -> Self {
        Self {
            recovery: config.recovery,
            limit: config.outstanding_packets.into(),
            timeout_rtts: config.timeout_rtts.into(),
            rtt_base: config.rtt_ps,
            rtt: config.rtt_ps,
            policy: policy_of(config),
            una: 0,
            next: 0,
            top: 0,
            end: 0,
            slots: VecDeque::new(),
            lost: BTreeSet::new(),
            open: 0,
            order: VecDeque::new(),
            sent_no: 0,
            acked_no: 0,
            rounds: VecDeque::new(),
            answered: 0,
            heard_at: 0,
            tries: 0,
        }
    }

    /// Queues `packets` more packets.
    pub fn hand_in(&mut self, round: u32, packets: u64) {
        self.end += packets;
        self.rounds.push_back((round, self.end));
    }

    /// Unacknowledged packets.
    pub const fn unacknowledged(&self) -> u64 {
        self.top - self.una
    }

    fn in_flight(&self) -> u64 {
        match self.recovery {
            Recovery::GoBackN => self.next - self.una,
            Recovery::Selective => self.open,
        }
    }

    /// Whether a packet may leave now.
    pub fn ready(&self, now: Ps) -> bool {
        self.waits() && self.policy.allows(now, self.in_flight())
    }

    /// Whether there is a packet to send, regardless of the policy.
    fn waits(&self) -> bool {
        !self.lost.is_empty() || (self.next < self.end && self.next - self.una < self.limit)
    }

    /// Takes the next packet, if one may leave.
    pub fn send(&mut self, now: Ps) -> Option<Sent> {
        if !self.ready(now) {
            return None;
        }
        let seq = self.lost.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        if self.una == self.top || self.in_flight() == 0 {
            self.heard_at = now;
        }
        self.sent_no += 1;
        let again = seq < self.top;
        self.top = self.top.max(seq + 1);
        let fresh =
            Slot { sent_at: now, sent_no: self.sent_no, sent: true, resent: again, acked: false };
        match self.slots.get_mut((seq - self.una) as usize) {
            Some(slot) => *slot = fresh,
            None => self.slots.push_back(fresh),
        }
        if self.recovery == Recovery::Selective {
            self.open += 1;
            if self.policy.reordering().is_some() {
                self.order.push_back((self.sent_no, seq));
            }
        }
        self.policy.sent(now);
        let (round, end) = self.round_of(seq);
        Some(Sent { seq, round, end, again })
    }

    fn round_of(&self, seq: u64) -> (u32, u64) {
        self.rounds.iter().copied().find(|(_, end)| seq < *end).expect("it was handed in")
    }

    /// Removes all packets before `next` from the retransmit buffer; returns how many there were.
    fn advance(&mut self, next: u64) -> u64 {
        let mut new = 0;
        while self.una < next.min(self.top) {
            let Some(slot) = self.slots.pop_front() else { break };
            if !slot.acked {
                new += 1;
                self.acked_note(&slot);
                self.closed(self.una, &slot);
            }
            self.una += 1;
        }
        self.next = self.next.max(self.una);
        new
    }

    /// A packet is no longer in flight.
    fn closed(&mut self, seq: u64, slot: &Slot) {
        if self.recovery == Recovery::Selective && !self.lost.remove(&seq) && slot.sent {
            self.open -= 1;
        }
    }

    fn acked_note(&mut self, slot: &Slot) {
        self.acked_no = self.acked_no.max(slot.sent_no);
    }

    /// Adds an RTT sample.
    fn sample(&mut self, now: Ps, of: u64) {
        let slot = of.checked_sub(self.una).and_then(|i| self.slots.get(i as usize));
        if let Some(slot) = slot.filter(|s| !s.resent && !s.acked) {
            let sample = (now - slot.sent_at).max(self.rtt_base);
            self.rtt = (self.rtt * SMOOTHING + sample) / (SMOOTHING + 1);
        }
    }

    /// Handles an acknowledgment.
    pub fn acked(&mut self, now: Ps, ack: &Ack) -> Heard {
        if ack.own || ack.next > ack.of {
            self.sample(now, ack.of);
        }
        if ack.of >= self.answered {
            self.answered = ack.of + 1;
            self.policy.answered(now);
        }
        let mut new = self.advance(ack.next);
        let at = ack.of.checked_sub(self.una).filter(|_| ack.own && ack.of < self.top);
        if let Some(slot) = at.and_then(|i| self.slots.get_mut(i as usize)).filter(|s| !s.acked) {
            slot.acked = true;
            let slot = *slot;
            self.acked_note(&slot);
            self.closed(ack.of, &slot);
            new += 1;
        }
        if new > 0 {
            (self.heard_at, self.tries) = (now, 0);
            self.policy.acked(now, new);
            self.late_ones_lose(now);
            return Heard::default();
        }
        // Its packet was acknowledged before: it carries no new information.
        if ack.own || ack.of < self.una || ack.next < self.una || self.una == self.top {
            return Heard::default();
        }
        self.heard_at = now;
        if self.policy.duplicate(now) {
            self.loses(now, self.una, self.una);
        }
        Heard { duplicate: true }
    }

    /// Without NACKs, marks packets lost if enough later transmissions were acknowledged.
    fn late_ones_lose(&mut self, now: Ps) {
        let Some(reordering) = self.policy.reordering() else { return };
        while let Some((_, seq)) =
            self.order.pop_front_if(|(no, _)| *no + reordering <= self.acked_no)
        {
            // A transmission that was followed by a retransmission of its packet is not judged.
            let known = seq.checked_sub(self.una).and_then(|i| self.slots.get(i as usize));
            if known.is_some_and(|s| !s.acked && s.sent_no + reordering <= self.acked_no) {
                self.loses(now, seq, seq);
            }
        }
    }

    /// Handles a NACK.
    pub fn missed(&mut self, now: Ps, nack: &Nack) {
        let new = self.advance(nack.next);
        if new > 0 {
            self.policy.acked(now, new);
        }
        (self.heard_at, self.tries) = (now, 0);
        self.loses(now, nack.first, nack.last);
    }

    /// Marks packets lost: they, or all from the first one on, are to be retransmitted.
    fn loses(&mut self, now: Ps, first: u64, last: u64) {
        let (first, last) = (first.max(self.una), last.min(self.top.saturating_sub(1)));
        if first > last || self.una == self.top {
            return;
        }
        match self.recovery {
            Recovery::GoBackN if first >= self.next => return,
            Recovery::GoBackN => self.next = first,
            Recovery::Selective => {
                for seq in first..=last {
                    let slot = &self.slots[(seq - self.una) as usize];
                    if !slot.acked && self.lost.insert(seq) {
                        self.open -= 1;
                    }
                }
            }
        }
        self.policy.lost(now, self.rtt);
    }

    /// When everything in flight counts as lost; [`Ps::MAX`] if nothing is in flight.
    fn timeout_at(&self) -> Ps {
        if self.una == self.top {
            return Ps::MAX;
        }
        let wait = (self.rtt * self.timeout_rtts) << self.tries.min(BACKOFF_MAX);
        self.heard_at.saturating_add(wait)
    }

    /// When to poll it again if no packet arrives.
    pub fn due(&self, now: Ps) -> Ps {
        let wakes = if self.waits() { self.policy.wakes_at(now) } else { None };
        self.timeout_at().min(wakes.unwrap_or(Ps::MAX))
    }

    /// If the timeout has expired, marks everything in flight lost and returns true.
    pub fn timeout(&mut self, now: Ps) -> bool {
        if self.timeout_at() > now {
            return false;
        }
        self.heard_at = now;
        self.tries += 1;
        self.policy.timed_out();
        match self.recovery {
            Recovery::GoBackN => self.next = self.una,
            Recovery::Selective => {
                for (seq, slot) in (self.una..).zip(&self.slots) {
                    if !slot.acked && self.lost.insert(seq) {
                        self.open -= 1;
                    }
                }
            }
        }
        true
    }

    /// The next round that is completely acknowledged.
    pub fn round_ended(&mut self) -> Option<u32> {
        let una = self.una;
        self.rounds.pop_front_if(|(_, end)| *end <= una).map(|(round, _)| round)
    }
}
