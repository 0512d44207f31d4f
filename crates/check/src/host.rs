//! What waits between the card of an engine and the memory of its host, as the engine is told and
//! has to tell; and what it believes of what others tell.

use crate::draw::Draw;
use crate::ledger::{Ledger, Oracle};
use crate::node::Node;
use crate::scenario::{Scenario, stream};
use srd_core::config::{EngineConfig, HostPolicy};
use srd_core::counters::DropReason;
use srd_core::wire::{Packet, PacketType};
use srd_core::{Endpoint, Rx, RxWaiting};
use srd_fabric::Ps;

/// Draws the policy of all engines of a world.
pub fn policy_draw(seed: u64) -> HostPolicy {
    let all = [HostPolicy::Budget, HostPolicy::StopGo, HostPolicy::StopGo, HostPolicy::Off];
    Draw::new(seed, stream::HOST, 0).pick(&all)
}

/// A ring that placements fill and that drains at a constant rate.
#[derive(Debug, Default)]
pub struct Ring {
    /// Bytes per second; 0: the host takes any rate.
    rate: u64,
    limit: u64,
    waiting: u64,
    at: Ps,
    /// What the engine was told last.
    told: RxWaiting,
    /// When the faults end, and with them the host's slowness.
    heal_at: Ps,
}

impl Ring {
    /// Draws the ring of an engine. In half of the worlds the hosts take any rate.
    pub fn draw(s: &Scenario, cfg: &EngineConfig, id: u16) -> Self {
        let mut d = Draw::new(s.seed, stream::HOST, 1);
        if d.percent(50) {
            return Self::default();
        }
        let mut d = Draw::new(s.seed, stream::HOST, 2 + u64::from(id));
        let rate = cfg.rate.line_bytes_per_sec / d.pick(&[1, 2, 10, 100]);
        let limit = u64::from(cfg.mtu) * d.pick(&[2, 8, 32]);
        Self { rate: rate.max(1), limit, heal_at: s.heal_at, ..Self::default() }
    }

    fn drain(&mut self, now: Ps) {
        let ps = u128::from(now - self.at);
        let drained = ps * u128::from(self.rate) / 1_000_000_000_000;
        if drained > 0 || self.waiting == 0 {
            self.at = now;
        }
        let left = u128::from(self.waiting).saturating_sub(drained) as u64;
        self.waiting = if now < self.heal_at { left } else { 0 };
    }
}

/// The newest acknowledgment of a peer that was handled, or may have been.
#[derive(Clone, Copy, Debug)]
pub struct Newest {
    /// Our tag, which a new context changes.
    tag: u32,
    number: u32,
    /// Bytes that may be in flight to the peer; none: not known.
    budget: Option<u32>,
}

impl Node {
    /// Tells the engine what waits now, after `placed` more bytes.
    pub fn ring_tell(&mut self, now: Ps, placed: u32) {
        if self.ring.rate == 0 {
            return;
        }
        self.ring.drain(now);
        self.ring.waiting += u64::from(placed);
        let Ring { waiting, limit, .. } = self.ring;
        let told = RxWaiting { bytes: waiting, limit_bytes: limit, handled: true };
        if told != self.ring.told || placed > 0 {
            self.ring.told = told;
            self.engine.rx_waiting(self.clock.read(now), &told);
        }
    }

    /// Depth that each acknowledgment must tell.
    pub fn ring_depth(&self) -> u16 {
        let packets = self.ring.told.bytes.div_ceil(u64::from(self.cfg.mtu));
        u16::try_from(packets).unwrap_or(u16::MAX)
    }

    /// What may be in flight to a peer is what the newest of its acknowledgments says, which is the
    /// one in the packet with the highest number.
    pub fn newest_check(&mut self, led: &mut Ledger, peer: Endpoint, p: &Packet<'_>, rx: Rx) {
        if matches!(p.header.kind, PacketType::Open | PacketType::OpenAck) {
            // Its sender may begin anew, or put numbers right.
            self.newest_forget(peer);
        }
        let Some(ack) = p.ack else { return };
        let (tag, number) = (p.header.dst_tag, p.header.tx_num);
        let budget = match rx {
            Rx::Dropped(DropReason::Duplicate | DropReason::UdUndeliverable) => Some(ack.rx_budget),
            // Refused before its acknowledgment was looked at, or for it. What is known stays: were
            // it forgotten, an older acknowledgment that comes next would pass for the newest.
            Rx::Dropped(
                DropReason::UnknownTag
                | DropReason::Replay
                | DropReason::BadAck
                | DropReason::BadHandshake
                | DropReason::BadSource
                | DropReason::TooLong
                | DropReason::Unchecked,
            ) => return,
            // Refused before or after its acknowledgment was handled.
            Rx::Dropped(_) => None,
            _ => Some(ack.rx_budget),
        };
        let before = self.newest.get(&peer).copied().filter(|n| n.tag == tag);
        let older = before.is_some_and(|n| (number.wrapping_sub(n.number) as i32) < 0);
        let newest = match before {
            Some(known) if older => known,
            _ => Newest { tag, number, budget },
        };
        self.newest.insert(peer, newest);
        let Some(told) = newest.budget else { return };
        // Nothing to be seen where it says what was said before.
        let seen = if older { Some(ack.rx_budget) } else { before.and_then(|n| n.budget) };
        if seen == Some(told) {
            return;
        }
        let stats = self.engine.context_stats();
        let held = stats.iter().find(|c| c.peer == peer).map(|c| c.rx_budget);
        let id = self.id;
        led.require(held.is_none_or(|b| b == told), Oracle::Belief, || {
            format!(
                "engine {id} may have {held:?} bytes in flight to {peer:?} after packet {number}, \
                 but the newest, {}, says {told}",
                newest.number
            )
        });
    }

    /// What the newest acknowledgment of the peer says may not hold any more. Its number is kept:
    /// the engine may have kept it, too.
    pub fn newest_forget(&mut self, peer: Endpoint) {
        if let Some(newest) = self.newest.get_mut(&peer) {
            newest.budget = None;
        }
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
