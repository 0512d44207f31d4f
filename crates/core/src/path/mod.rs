//! Paths to one remote address, and what is known of sending to it: the path and rate context.

use crate::config::{LossConfig, PathConfig, RateConfig};
use crate::events::LossRule;
use crate::rng::Rng;
use crate::time::{Span, Time};

/// What a tool shows of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathStats {
    /// Index: the source-port entropy.
    pub path: u8,
    /// Smoothed RTT in ns (0 = no sample yet).
    pub rtt_ns_smoothed: u64,
    /// Least RTT seen in ns.
    pub rtt_ns_min: u64,
    /// Packets sent on it.
    pub packets_sent: u64,
    /// Packets sent on it that were declared lost.
    pub packets_lost: u64,
    /// Packets acknowledged with the CE mark.
    pub packets_ce: u64,
    /// "live", "penalised", "retired" or "probing".
    pub state: &'static str,
}

/// Whether data may be sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Now: up to this many bytes in a row on one path, always room for one packet.
    Open {
        /// Bytes of packets, at least one MTU.
        bytes: u32,
    },
    /// Paced: ask again then.
    Until(Time),
    /// Inflight cap or credits: an acknowledgment will open it.
    Blocked,
}

/// A path was retired or returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// Which path.
    pub path: u8,
    /// Whether it is in use now.
    pub live: bool,
}

/// The path and rate context of one remote IP address.
#[derive(Debug)]
pub struct PathContext {
    paths: u16,
    cursor: u16,
    ack_cursor: u16,
    mtu: u16,
    inflight: u64,
    cap: u64,
    srtt: Span,
    rtt_min: Span,
    rate: u64,
    next: Time,
    loss: LossConfig,
}

impl PathContext {
    /// A context to a peer of which nothing is known yet.
    pub fn new(
        _now: Time,
        path: &PathConfig,
        rate: &RateConfig,
        loss: &LossConfig,
        mtu: u16,
        rng: &mut Rng,
    ) -> Self {
        Self {
            paths: path.paths,
            cursor: rng.below(u32::from(path.paths)) as u16,
            ack_cursor: 0,
            mtu,
            inflight: 0,
            cap: 1 << 20,
            srtt: rate.rtt_initial,
            rtt_min: rate.rtt_initial,
            rate: rate.line_bytes_per_sec,
            next: Time(0),
            loss: *loss,
        }
    }

    /// Whether data may be sent now.
    pub fn gate(&self, now: Time) -> Gate {
        if self.inflight + u64::from(self.mtu) > self.cap {
            Gate::Blocked
        } else if self.next > now {
            Gate::Until(self.next)
        } else {
            Gate::Open { bytes: u32::from(self.mtu) * 8 }
        }
    }

    /// The path of the next packet or burst of reliability context `flow`, not `avoid` if possible.
    pub fn path_choose(&mut self, _: Time, _flow: u32, avoid: Option<u8>, _: &mut Rng) -> u8 {
        loop {
            self.cursor = (self.cursor + 1) & (self.paths - 1);
            if avoid != Some(self.cursor as u8) || self.paths == 1 {
                return self.cursor as u8;
            }
        }
    }

    /// The path of the next packet that carries only acknowledgments.
    pub fn ack_path_choose(&mut self, _: Time, _: &mut Rng) -> u8 {
        self.ack_cursor = (self.ack_cursor + 1) & (self.paths - 1);
        self.ack_cursor as u8
    }

    /// A pure acknowledgment left; `tx_num_low`: low bits of its transmission number.
    pub fn ack_sent(&mut self, _path: u8, _tx_num_low: u16) {}

    /// The peer saw the acknowledgment with these low bits.
    pub fn ack_echoed(&mut self, _tx_num_low: u16) {}

    /// A reliable packet left.
    pub fn on_sent(&mut self, now: Time, _path: u8, bytes: u32, _retransmit: bool) {
        self.inflight += u64::from(bytes);
        self.next = now.max(self.next) + Span(u64::from(bytes) * 1_000_000_000 / self.rate);
    }

    /// A packet left that does not count as in flight (acknowledgment, probe, UD).
    pub fn on_uncounted_sent(&mut self, _now: Time, _path: u8, _bytes: u32) {}

    /// A packet sent at `sent` was acknowledged.
    pub fn on_acked(&mut self, _now: Time, _path: u8, bytes: u32, _sent: Time) {
        self.inflight = self.inflight.saturating_sub(u64::from(bytes));
    }

    /// RTT sample of one packet without the receiver's delay.
    pub fn on_echo(&mut self, _now: Time, _path: u8, rtt: Span, _ce: bool) {
        self.rtt_min = self.rtt_min.min(rtt);
        self.srtt = Span((self.srtt.0 * 7 + rtt.0) / 8);
    }

    /// An acknowledgment block was handled.
    pub fn on_ack_end(&mut self, _now: Time, _newly_acked_bytes: u32, _app_limited: bool) {}

    /// A packet was declared lost.
    pub fn on_lost(&mut self, _now: Time, _path: u8, bytes: u32, _rule: LossRule) {
        self.inflight = self.inflight.saturating_sub(u64::from(bytes));
    }

    /// A loss on `path` turned out to be none.
    pub fn on_spurious(&mut self, _now: Time, _path: u8) {}

    /// A packet in flight was given up without a verdict on its path.
    pub fn on_forgotten(&mut self, bytes: u32) {
        self.inflight = self.inflight.saturating_sub(u64::from(bytes));
    }

    /// The peer's receive queue dropped packets: lowers the cap, blames no path.
    pub fn on_receiver_drops(&mut self, _now: Time, _drops: u32) {}

    /// The peer's receive buffer for us, in bytes; `u32::MAX` = not a limit.
    pub fn on_rx_budget(&mut self, bytes: u32) {
        self.cap = self.cap.min(u64::from(bytes)).max(4 * u64::from(self.mtu));
    }

    /// All paths are silent: path health stays as it is until [`Self::thaw`].
    pub fn freeze(&mut self, _now: Time) {}

    /// First sign of life.
    pub fn thaw(&mut self, _now: Time) {}

    /// Smoothed RTT over all paths.
    pub fn srtt(&self) -> Span {
        self.srtt
    }

    /// Windowed minimum of the RTT.
    pub fn rtt_min(&self) -> Span {
        self.rtt_min
    }

    /// Retransmission timeout of a packet on `path`.
    pub fn rto(&self, _path: u8) -> Span {
        self.srtt.scale(4, 1).max(self.loss.rto_min).min(self.loss.rto_max)
    }

    /// How much later than a packet another one of its path must have been sent to prove it lost.
    pub fn reorder_slack_same_path(&self, _path: u8) -> Span {
        self.srtt.scale(1, 4)
    }

    /// The same for packets of other paths.
    pub fn reorder_slack_cross(&self) -> Span {
        self.srtt.scale(1, 2).max(self.loss.reorder_min)
    }

    /// Silence after which the tail of a burst is probed for loss.
    pub fn tlp_delay(&self) -> Span {
        self.srtt.scale(3, 2).max(self.loss.tlp_min)
    }

    /// When [`Self::probe_poll`] has something to do next.
    pub fn probe_next(&self) -> Time {
        Time::NEVER
    }

    /// A retired path that is to be probed now.
    pub fn probe_poll(&mut self, _now: Time) -> Option<u8> {
        None
    }

    /// A change of state that nobody was told of yet.
    pub fn change_take(&mut self) -> Option<PathChange> {
        None
    }

    /// Whether the peer grants credits that must be obeyed.
    pub fn credits_set(&mut self, _on: bool) {}

    /// The peer's counter of granted bytes, in units of 64, wrapping.
    pub fn on_credit(&mut self, _granted_64b: u32) {}

    /// Bytes in flight.
    pub fn inflight(&self) -> u64 {
        self.inflight
    }

    /// Most bytes in flight.
    pub fn inflight_max(&self) -> u64 {
        self.cap
    }

    /// Paced rate.
    pub fn rate_bytes_per_sec(&self) -> u64 {
        self.rate
    }

    /// Nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.inflight == 0
    }

    /// Gives the state of the paths back; a summary stays. Does nothing unless idle.
    pub fn shrink(&mut self) {}

    /// Appends what is known of each path.
    pub fn stats(&self, out: &mut Vec<PathStats>) {
        out.extend((0..self.paths).map(|p| PathStats {
            path: p as u8,
            state: "live",
            ..PathStats::default()
        }));
    }
}
