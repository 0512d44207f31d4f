//! The receiving end of a connection, and the credits of a host.

use super::{UeConfig, UePacket};
use srd_fabric::Ps;
use std::collections::VecDeque;

/// A receiving end.
#[derive(Clone, Debug, Default)]
pub(super) struct Incoming {
    expected: u64,
    kept: VecDeque<bool>,
    early: u32,
    silent: u32,
    /// Credit that the sender wants, and that it was granted, in bytes since the start.
    wanted: u64,
    granted: u64,
    /// In the queue of senders that want credit.
    queued: bool,
    pub duplicates: u64,
}

/// A data packet or probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub conn: u32,
    pub psn: u64,
    pub len: u32,
    pub entropy: u16,
    pub ask: bool,
    pub marked: bool,
}

impl Incoming {
    /// Sum of all credit granted, in bytes.
    pub const fn granted(&self) -> u64 {
        self.granted
    }

    /// Handles a packet: the acknowledgment, if one is due, and whether the payload is new.
    pub fn on_data(&mut self, p: &Arrived, config: &UeConfig) -> (Option<UePacket>, bool) {
        let probe = p.len == 0;
        let mut new = false;
        if !probe && p.psn >= self.expected {
            let at = (p.psn - self.expected) as usize;
            if self.kept.len() <= at {
                self.kept.resize(at + 1, false);
            }
            new = !std::mem::replace(&mut self.kept[at], true);
            self.early += u32::from(new);
            while self.kept.front() == Some(&true) {
                self.kept.pop_front();
                self.expected += 1;
                self.early -= 1;
            }
        }
        self.duplicates += u64::from(!new && !probe);
        self.silent += 1;
        let due = p.marked || p.ask || !new || self.silent >= config.ack_every;
        let ack = due.then(|| self.ack(p, probe));
        if due {
            self.silent = 0;
        }
        (ack, new)
    }

    fn ack(&self, p: &Arrived, probe: bool) -> UePacket {
        // All that arrived early, where it fits; otherwise around the packet itself.
        let first = self.expected + 1;
        let fits = probe || self.kept.len() <= 65;
        let base = if fits { first } else { p.psn.saturating_sub(31).max(first) };
        let arrived = |i: u64| {
            let at = (base + i - self.expected) as usize;
            u64::from(self.kept.get(at).copied().unwrap_or(false)) << i
        };
        UePacket::Ack {
            conn: p.conn,
            expected: self.expected,
            psn: p.psn,
            base,
            bits: (0..64).map(arrived).sum(),
            early: self.early,
            entropy: p.entropy,
            marked: p.marked,
            probe,
        }
    }
}

/// Credits of a host: one after another of its senders gets some, at just under the link's rate.
#[derive(Clone, Debug, Default)]
pub(super) struct Pacer {
    turn: VecDeque<(u32, u32)>,
    /// When the next credit may be granted.
    pub next_at: Ps,
}

impl Pacer {
    /// A sender wants credit.
    pub fn want(&mut self, key: (u32, u32), incoming: &mut Incoming, wanted: u64) {
        incoming.wanted = incoming.wanted.max(wanted);
        if incoming.wanted > incoming.granted && !incoming.queued {
            incoming.queued = true;
            self.turn.push_back(key);
        }
    }

    /// Whether a sender waits for credit.
    pub fn waits(&self) -> bool {
        !self.turn.is_empty()
    }

    /// The sender whose turn it is.
    pub fn next(&mut self) -> Option<(u32, u32)> {
        self.turn.pop_front()
    }

    /// Grants credit to a sender; its sum.
    pub fn grant(
        &mut self,
        now: Ps,
        key: (u32, u32),
        incoming: &mut Incoming,
        config: &UeConfig,
    ) -> u64 {
        let portion = u64::from(config.credit_packets * config.wire_bytes());
        let bytes = portion.min(incoming.wanted.saturating_sub(incoming.granted));
        incoming.granted += bytes;
        incoming.queued = incoming.granted < incoming.wanted;
        if incoming.queued {
            self.turn.push_back(key);
        }
        let ps = bytes.max(1) as f64 * 8e12 / (config.line_bps * config.credit_share);
        self.next_at = self.next_at.max(now) + ps as Ps;
        incoming.granted
    }
}
