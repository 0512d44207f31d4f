//! Measurement of rounds of one round trip: bytes delivered and sent, loss rate, and duration.

use super::Link;
use crate::time::{Span, Time};
use crate::tuning::{MARKED_ALL, UNSURE_MAX};

/// Summary of one round, the input of a rate policy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    /// Median over the paths of the least queueing delay in ns; `None` = no sample.
    pub queue_ns: Option<u64>,
    /// The same median in ns, with the spread between the paths; 0 = no sample.
    pub median_ns: u64,
    /// Lower quartile of the same in ns, less the own time of full packets: a queue that nearly all
    /// paths have. 0 = no sample, or several engines of this host send there, each of which sees
    /// too few packets.
    pub shared_ns: u64,
    /// Delivery rate: bytes per second acknowledged.
    pub delivered: u64,
    /// Bytes per second sent in the previous round, which are acknowledged in this one.
    pub sent: u64,
    /// Packets on which `delivered` is based, rounded down: the more, the more accurate it is.
    pub packets: u64,
    /// Loss rate: lost bytes per thousand of lost and delivered ones. Of the losses of a path only
    /// the first since an arrival counts.
    pub lost_permille: u32,
    /// Largest queueing delay of any echo, in ns, less the own time of full packets.
    pub most_ns: u64,
    /// By how much a full packet takes longer than the base RTT where nothing waits, in ns; 0 if
    /// most echoes were those of smaller packets.
    pub own_ns: u64,
    /// Whether at least half of the echoes were those of full packets.
    pub full: bool,
    /// Longest wait in this host's port, behind other packets of the sender, of a packet that was
    /// sent in this or the round before, in ns.
    pub port_ns: u64,
    /// How long the round took, in ns.
    pub ns: u64,
    /// Bytes acknowledged, and bytes lost: all of them, also those that only the arrival of a copy
    /// proved to be lost.
    pub acked: u64,
    /// See [`Self::acked`].
    pub missing: u64,
    /// Whether the sender had nothing to send for a part of the round.
    pub app_limited: bool,
    /// Whether more than half of the echoes were those of packets that a switch had marked (ECN).
    pub marked: bool,
    /// Whether more than seven eighths were; without an echo, not.
    pub marked_all: bool,
}

impl Round {
    /// Whether nothing tells of congestion: neither a loss, nor most packets marked, nor a queue
    /// beyond the target.
    pub(crate) fn is_calm(&self, target_ns: u64) -> bool {
        let short = self.queue_ns.is_some_and(|queue| queue <= target_ns);
        short && self.missing == 0 && !self.marked
    }
}

/// Longest pause that is looked at: any port is empty then.
const PORT_NS_MAX: u64 = 1 << 24;
/// Fastest port, in bytes per second, for which the product is exact.
const PORT_LINE_MAX: u64 = 1 << 39;

/// Measures rounds. A round ends when a packet sent after its start is acknowledged.
#[derive(Debug)]
pub(crate) struct RoundMeter {
    began: Time,
    acked: u64,
    lost: u64,
    missing: u64,
    /// Packets given up lately of which it is not known whether they arrived, up to
    /// [`UNSURE_MAX`].
    unsure: u8,
    sent: u64,
    sent_before: u64,
    last_sent: Time,
    /// When packets were acknowledged last.
    acked_at: Time,
    /// Newest send time of an acknowledged packet.
    newest: Time,
    app_limited: bool,
    /// Echoes, and the echoes of packets that a switch had marked.
    echoes: u32,
    marks: u32,
    /// Echoes of full packets.
    fulls: u32,
    most_ns: u32,
    /// Bytes of this sender that wait in the port, and the most that did in this round and the one
    /// before.
    port: u64,
    /// See [`Self::port`].
    port_most: [u64; 2],
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
            missing: 0,
            unsure: 0,
            sent: 0,
            sent_before: 0,
            last_sent: now,
            acked_at: Time(0),
            newest: Time(0),
            app_limited: false,
            echoes: 0,
            marks: 0,
            fulls: 0,
            most_ns: 0,
            port: 0,
            port_most: [0; 2],
            starting: true,
            opening: true,
        }
    }

    /// Bytes are sent through a port with this line rate. Returns the time since the previous send.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: u32, line: u64) -> Span {
        let gap = now.since(self.last_sent);
        let left = gap.0.min(PORT_NS_MAX) * line.min(PORT_LINE_MAX) / 1_000_000_000;
        self.port = self.port.saturating_sub(left);
        self.port_most[0] = self.port_most[0].max(self.port);
        self.port += u64::from(bytes);
        self.last_sent = now;
        self.sent += u64::from(bytes);
        gap
    }

    /// Sending starts again after a pause: discards the old measurement.
    pub(crate) fn restart(&mut self, now: Time, bytes: u32) {
        let acked_at = self.acked_at;
        *self = Self { last_sent: now, acked_at, sent: u64::from(bytes), ..Self::new(now) };
    }

    pub(crate) fn on_acked(&mut self, bytes: u32, sent: Time) {
        self.acked += u64::from(bytes);
        self.newest = self.newest.max(sent);
    }

    /// The peer echoed a packet; `ce`: a switch had marked it.
    pub(crate) fn on_echo(&mut self, ce: bool, queue_ns: u32, full: bool) {
        self.fulls += u32::from(full);
        self.echoes += 1;
        self.most_ns = self.most_ns.max(queue_ns);
        self.marks += u32::from(ce);
    }

    /// A packet is lost. `first`: it is the first loss of its path since an arrival on it.
    pub(crate) fn on_lost(&mut self, bytes: u32, first: bool) {
        self.missing += u64::from(bytes);
        self.lost += u64::from(bytes) * u64::from(first);
    }

    /// A packet counts as in flight no longer, without evidence that it is lost.
    pub(crate) fn on_forgotten(&mut self) {
        self.unsure = (self.unsure + 1).min(UNSURE_MAX);
    }

    /// A packet of `bytes` that was given up never arrived. After a silence many are given up at
    /// once, and each is proved lost much later: these say nothing about the rate of now.
    pub(crate) fn on_proved_lost(&mut self, bytes: u64) {
        if self.unsure > 0 {
            self.unsure -= 1;
            self.missing += bytes;
        }
    }

    /// A loss was spurious.
    pub(crate) fn on_spurious(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_sub(bytes);
        self.missing = self.missing.saturating_sub(bytes);
    }

    /// When packets were acknowledged last.
    pub(crate) fn acked_at(&self) -> Time {
        self.acked_at
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
        line: u64,
    ) -> Option<Round> {
        self.app_limited |= app_limited;
        if self.acked == 0 {
            return None;
        }
        self.acked_at = now;
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
        let port_ns = self.port_most[0].max(self.port_most[1]) * 1_000_000_000 / line.max(1);
        let round = Round {
            queue_ns: None,
            median_ns: 0,
            shared_ns: 0,
            delivered: Link::rate(self.acked, ns),
            sent: self.sent_before,
            packets: self.acked / mtu.max(1),
            lost_permille: (self.lost * 1000 / (self.lost + self.acked)) as u32,
            most_ns: u64::from(self.most_ns),
            own_ns: 0,
            full: 2 * self.fulls >= self.echoes,
            port_ns,
            ns,
            acked: self.acked,
            missing: self.missing,
            app_limited: self.app_limited,
            marked: self.marks > self.echoes / 2,
            marked_all: u64::from(self.marks) > MARKED_ALL.of(self.echoes.into()),
        };
        self.sent_before = Link::rate(self.sent, ns);
        self.began = now;
        self.acked = 0;
        (self.lost, self.missing) = (0, 0);
        self.sent = 0;
        (self.echoes, self.marks, self.fulls) = (0, 0, 0);
        self.most_ns = 0;
        self.port_most = [self.port, self.port_most[0]];
        self.app_limited = app_limited;
        Some(round)
    }
}
