//! The sending end of a queue pair.

use super::rate::Rate;
use super::{RcConfig, Recovery};
use crate::messages::{Messages, Part};
use srd_fabric::{HostId, Ps};
use std::collections::VecDeque;

/// Counters of a host's queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RcCounters {
    /// Data packets sent, repetitions included.
    pub sent: u64,
    /// Repetitions.
    pub repeated: u64,
    /// Local ACK timeouts.
    pub timeouts: u64,
    /// Times that a sender went back because of a NAK.
    pub went_back: u64,
    /// Queue pairs that broke.
    pub broken: u64,
    /// Acknowledgments sent.
    pub acks: u64,
    /// Congestion notifications sent.
    pub cnps: u64,
    /// Acknowledgments with a congestion notification (BECN) that senders have read.
    pub becns: u64,
    /// Data packets that arrived before an earlier one.
    pub early: u64,
    /// Data packets that the receiver already had.
    pub duplicates: u64,
}

impl RcCounters {
    /// Adds the counters of another host.
    pub const fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.repeated += other.repeated;
        self.timeouts += other.timeouts;
        self.went_back += other.went_back;
        self.broken += other.broken;
        self.acks += other.acks;
        self.cnps += other.cnps;
        self.becns += other.becns;
        self.early += other.early;
        self.duplicates += other.duplicates;
    }
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub psn: u64,
    pub len: u32,
    pub last: bool,
    pub repeated: bool,
}

/// What a timeout does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimedOut {
    Nothing,
    Repeat,
    Broken,
}

/// The sending end of a queue pair.
#[derive(Clone, Debug)]
pub struct QueuePair {
    pub(super) dst: HostId,
    pub(super) sport: u16,
    pub(super) life: u32,
    messages: Messages,
    /// The first packet that is not acknowledged, the next to send, and one past the last ever
    /// sent.
    una: u64,
    next: u64,
    high: u64,
    /// IRN: packets from `una` on that the receiver keeps.
    kept: VecDeque<bool>,
    /// IRN: one past the last packet that the receiver keeps, and the next to be judged lost.
    kept_high: u64,
    repeat_next: u64,
    /// IRN: repetitions due to a timeout end here.
    repeat_end: u64,
    /// When the packet before the next may follow at this queue pair's rate.
    pub(super) next_at: Ps,
    /// Deadline of the Local ACK timeout.
    pub(super) timeout_at: Ps,
    retries: u32,
    /// Until when no queue pair exists.
    pub(super) down_until: Ps,
    pub(super) rate: Option<Rate>,
    /// In the host's ring of queue pairs that may send.
    pub(super) queued: bool,
    pub(super) counters: RcCounters,
}

impl QueuePair {
    /// Bytes of this end with its queues.
    pub(super) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.kept.capacity() + self.messages.held_bytes()
    }

    pub(super) fn new(dst: HostId, sport: u16, config: &RcConfig) -> Self {
        Self {
            dst,
            sport,
            life: 0,
            messages: Messages::default(),
            una: 0,
            next: 0,
            high: 0,
            kept: VecDeque::new(),
            kept_high: 0,
            repeat_next: 0,
            repeat_end: 0,
            next_at: 0,
            timeout_at: Ps::MAX,
            retries: 0,
            down_until: 0,
            rate: Rate::new(config),
            queued: false,
            counters: RcCounters::default(),
        }
    }

    /// Adds a message.
    pub(super) fn post(&mut self, tag: u64, bytes: u64, config: &RcConfig) {
        let most = if config.message_bytes == 0 { u64::MAX } else { config.message_bytes };
        let mut left = bytes;
        loop {
            let part = left.min(most);
            left -= part;
            self.messages.add((left == 0).then_some(tag), part, config.mtu);
            if left == 0 {
                return;
            }
        }
    }

    /// Packets in flight.
    pub const fn flight(&self) -> u64 {
        self.next - self.una
    }

    fn window(&self, config: &RcConfig) -> u64 {
        if config.window_bytes == 0 {
            u64::MAX
        } else {
            (config.window_bytes / u64::from(config.mtu)).max(1)
        }
    }

    /// IRN: the next packet that is missing at the receiver and has not been repeated.
    fn missing(&self) -> Option<u64> {
        let from = self.repeat_next.max(self.una);
        let to = self.kept_high.max(self.repeat_end).min(self.high);
        let is = |psn: &u64| !self.kept.get((*psn - self.una) as usize).copied().unwrap_or(false);
        (from..to).find(is)
    }

    /// Whether a packet may be sent, apart from the queue pair's rate.
    pub(super) fn ready(&self, now: Ps, config: &RcConfig) -> bool {
        if self.down_until > now {
            return false;
        }
        let end = self.messages.end_of(config.outstanding as usize);
        let fresh = self.next < end && self.flight() < self.window(config);
        fresh || (config.recovery == Recovery::Irn && self.missing().is_some())
    }

    /// Takes the packet that is sent next.
    pub(super) fn take(&mut self, now: Ps, config: &RcConfig) -> Option<Next> {
        if !self.ready(now, config) {
            return None;
        }
        let missing = if config.recovery == Recovery::Irn { self.missing() } else { None };
        let psn = match missing {
            Some(psn) => {
                self.repeat_next = psn + 1;
                psn
            }
            None => {
                self.next += 1;
                self.next - 1
            }
        };
        let Part { len, last } = self.messages.part(psn, config.mtu)?;
        let repeated = psn < self.high;
        self.high = self.high.max(psn + 1);
        self.counters.sent += 1;
        self.counters.repeated += u64::from(repeated);
        let wire = len + config.header_bytes;
        let mut bps = config.static_gbps.map_or(config.line_bps, |gbps| gbps * 1e9);
        if let Some(rate) = &mut self.rate {
            bps = bps.min(rate.rate_bps(now));
            rate.sent(wire);
        }
        if bps < config.line_bps {
            let gap = f64::from(wire) * 8e12 / bps;
            self.next_at = self.next_at.max(now) + gap as Ps;
        }
        if self.timeout_at == Ps::MAX {
            self.timer_restart(now, config);
        }
        Some(Next { psn, len, last, repeated })
    }

    fn timer_restart(&mut self, now: Ps, config: &RcConfig) {
        let after = match config.recovery {
            _ if self.high == self.una => Ps::MAX,
            Recovery::GoBackN => config.timeout_ps(),
            Recovery::Irn if self.high - self.una < config.irn_few => config.irn_low_ps,
            Recovery::Irn => config.irn_high_ps,
        };
        self.timeout_at = now.saturating_add(after);
    }

    /// Handles an acknowledgment; `done` gets the tag of every message that it completes.
    pub(super) fn on_ack(
        &mut self,
        now: Ps,
        (expected, kept, nak): (u64, Option<u64>, bool),
        config: &RcConfig,
        done: impl FnMut(u64),
    ) {
        let expected = expected.min(self.high);
        if expected > self.una {
            let n = (expected - self.una) as usize;
            self.kept.drain(..n.min(self.kept.len()));
            self.una = expected;
            self.next = self.next.max(expected);
            self.retries = 0;
            self.messages.complete(expected, done);
            self.timer_restart(now, config);
        }
        if let Some(psn) = kept.filter(|psn| (self.una..self.high).contains(psn)) {
            let at = (psn - self.una) as usize;
            if self.kept.len() <= at {
                self.kept.resize(at + 1, false);
            }
            self.kept[at] = true;
            self.kept_high = self.kept_high.max(psn + 1);
        }
        if nak && expected == self.una && self.next > expected {
            self.next = expected;
            self.counters.went_back += 1;
            self.timer_restart(now, config);
        }
    }

    /// Handles the deadline of the Local ACK timeout.
    pub(super) fn on_timeout(&mut self, now: Ps, config: &RcConfig) -> TimedOut {
        if self.timeout_at > now {
            return TimedOut::Nothing;
        }
        self.timeout_at = Ps::MAX;
        if self.high == self.una {
            return TimedOut::Nothing;
        }
        self.counters.timeouts += 1;
        if self.retries == config.retry_cnt {
            self.counters.broken += 1;
            self.down_until = now.saturating_add(config.reconnect_ps);
            return TimedOut::Broken;
        }
        self.retries += 1;
        match config.recovery {
            Recovery::GoBackN => self.next = self.una,
            Recovery::Irn => {
                self.repeat_next = self.una;
                self.repeat_end = self.repeat_end.max(self.una + 1);
            }
        }
        self.timer_restart(now, config);
        TimedOut::Repeat
    }

    /// Continues on a new queue pair: unfinished messages start again from their first byte.
    pub(super) fn renew(&mut self, sport: u16, config: &RcConfig) {
        let mut messages = std::mem::take(&mut self.messages);
        messages.renumber();
        let counters = self.counters;
        let (life, queued) = (self.life + 1, self.queued);
        *self = Self { life, queued, counters, messages, ..Self::new(self.dst, sport, config) };
    }
}
