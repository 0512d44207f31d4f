//! Measurement of rounds of one round trip: bytes delivered and sent, loss rate, and duration.

use super::Link;
use crate::time::{Span, Time};

/// Summary of one round, the input of a rate policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Median over the paths of the least queueing delay in ns; `None` = no sample.
    pub queue_ns: Option<u64>,
    /// Delivery rate: bytes per second acknowledged.
    pub delivered: u64,
    /// Bytes per second sent in the previous round, which are acknowledged in this one.
    pub sent: u64,
    /// Packets on which `delivered` is based, rounded down: the more, the more accurate it is.
    pub packets: u64,
    /// Loss rate: lost bytes per thousand of lost and delivered ones.
    pub lost_permille: u32,
    /// Whether the sender had nothing to send for a part of the round.
    pub app_limited: bool,
    /// Whether more than half of the echoes were those of packets that a switch had marked (ECN).
    pub marked: bool,
}

/// Measures rounds. A round ends when a packet sent after its start is acknowledged.
#[derive(Debug)]
pub(crate) struct RoundMeter {
    began: Time,
    acked: u64,
    lost: u64,
    sent: u64,
    sent_before: u64,
    last_sent: Time,
    /// Newest send time of an acknowledged packet.
    newest: Time,
    app_limited: bool,
    /// Echoes, and the echoes of packets that a switch had marked.
    echoes: u32,
    marks: u32,
    /// No acknowledgment has come since sending started: the measurement has no beginning yet.
    starting: bool,
    /// The first round since then is not over. If the first window was too large, its queue makes
    /// the round long, so a maximum time may end the round as well.
    opening: bool,
}

impl RoundMeter {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            began: now,
            acked: 0,
            lost: 0,
            sent: 0,
            sent_before: 0,
            last_sent: now,
            newest: Time(0),
            app_limited: false,
            echoes: 0,
            marks: 0,
            starting: true,
            opening: true,
        }
    }

    /// Bytes are sent. Returns the time since the previous send.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: u32) -> Span {
        let gap = now.since(self.last_sent);
        self.last_sent = now;
        self.sent += u64::from(bytes);
        gap
    }

    /// Sending starts again after a pause: discards the old measurement.
    pub(crate) fn restart(&mut self, now: Time, bytes: u32) {
        *self = Self { last_sent: now, sent: u64::from(bytes), ..Self::new(now) };
    }

    pub(crate) fn on_acked(&mut self, bytes: u32, sent: Time) {
        self.acked += u64::from(bytes);
        self.newest = self.newest.max(sent);
    }

    /// The peer echoed a packet; `ce`: a switch had marked it.
    pub(crate) fn on_echo(&mut self, ce: bool) {
        self.echoes += 1;
        self.marks += u32::from(ce);
    }

    pub(crate) fn on_lost(&mut self, bytes: u32) {
        self.lost += u64::from(bytes);
    }

    /// A loss was spurious.
    pub(crate) fn on_spurious(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_sub(bytes);
    }

    /// Time of the last send.
    pub(crate) fn last_sent(&self) -> Time {
        self.last_sent
    }

    /// An acknowledgment block was handled. If that ends the round, returns it, without its
    /// queueing delay. `opening_max`: longest first round.
    /// Rule CC-05.
    pub(crate) fn on_ack_end(
        &mut self,
        now: Time,
        app_limited: bool,
        mtu: u64,
        opening_max: Span,
    ) -> Option<Round> {
        self.app_limited |= app_limited;
        if self.acked == 0 {
            return None;
        }
        if self.starting {
            // The time in which the bytes of the first block were delivered is unknown.
            self.starting = false;
            self.began = now;
            self.acked = 0;
            self.sent_before = 0;
            return None;
        }
        let overdue = self.opening && now.since(self.began) > opening_max;
        if (self.newest < self.began && !overdue) || now <= self.began {
            return None;
        }
        self.opening = false;
        let ns = now.since(self.began).0;
        let round = Round {
            queue_ns: None,
            delivered: Link::rate(self.acked, ns),
            sent: self.sent_before,
            packets: self.acked / mtu.max(1),
            lost_permille: (self.lost * 1000 / (self.lost + self.acked)) as u32,
            app_limited: self.app_limited,
            marked: self.marks > self.echoes / 2,
        };
        self.sent_before = Link::rate(self.sent, ns);
        self.began = now;
        self.acked = 0;
        self.lost = 0;
        self.sent = 0;
        (self.echoes, self.marks) = (0, 0);
        self.app_limited = app_limited;
        Some(round)
    }
}
