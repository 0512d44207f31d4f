//! Counts of contexts that peers opened, by network of the peer, so that a peer which can receive
//! at many addresses of one network cannot fill the whole table.

use crate::config::EngineConfig;
use crate::hash::Keyed;
use crate::networks::{Prefix, step};
use core::net::IpAddr;
use hashbrown::HashMap;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    inbound: u32,
    half_open: u32,
}

/// Counts of contexts per network of the peer; at most one entry per context.
#[derive(Debug)]
pub(crate) struct Origins {
    counts: HashMap<Prefix, Count, Keyed>,
    half_open: u32,
}

impl Origins {
    pub fn new(keyed: Keyed) -> Self {
        Self { counts: HashMap::with_hasher(keyed), half_open: 0 }
    }

    /// Whether a peer that opens a context from `ip` must prove that it receives there, because too
    /// many contexts are half open, in total or from the same network.
    pub fn asks_proof(&self, ip: IpAddr, cfg: &EngineConfig) -> bool {
        let of_network = (cfg.half_opens_max / 4).min(cfg.inbound_per_prefix_max / 2).max(1);
        self.half_open >= cfg.half_opens_max || self.count(ip).half_open >= of_network
    }

    /// Whether the network of `ip` has reached its maximum number of contexts.
    pub fn is_full(&self, ip: IpAddr, cfg: &EngineConfig) -> bool {
        self.count(ip).inbound >= cfg.inbound_per_prefix_max
    }

    /// Whether the network of `ip` has three quarters of its maximum number of contexts.
    pub fn is_nearly_full(&self, ip: IpAddr, cfg: &EngineConfig) -> bool {
        let most = cfg.inbound_per_prefix_max;
        self.count(ip).inbound >= most - most / 4
    }

    /// Counts a context that a peer at `ip` opened, when it begins or ends.
    pub fn inbound(&mut self, ip: IpAddr, begins: bool) {
        self.change(ip, |n| step(&mut n.inbound, begins));
    }

    /// Counts a context with `ip` that becomes half open, or is no longer.
    pub fn half_open(&mut self, ip: IpAddr, begins: bool) {
        step(&mut self.half_open, begins);
        self.change(ip, |n| step(&mut n.half_open, begins));
        debug_assert!(self.half_open >= self.count(ip).half_open, "all, and those of one network");
    }

    fn count(&self, ip: IpAddr) -> Count {
        self.counts.get(&Prefix::of(ip)).copied().unwrap_or_default()
    }

    fn change(&mut self, ip: IpAddr, change: impl FnOnce(&mut Count)) {
        let prefix = Prefix::of(ip);
        let count = self.counts.entry(prefix).or_default();
        change(count);
        if count.inbound == 0 && count.half_open == 0 {
            self.counts.remove(&prefix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn ip(s: &str) -> IpAddr {
        s.parse().unwrap()
    }

    #[test]
    fn what_begins_and_ends_leaves_nothing() {
        let mut cfg = EngineConfig::sockets(ip("10.0.0.1"), 0, 1024);
        (cfg.half_opens_max, cfg.inbound_per_prefix_max) = (8, 4);
        let mut o = Origins::new(Keyed::draw(&mut Rng::from_seed(1)));
        let (a, b, c) = (ip("10.1.2.3"), ip("10.1.2.4"), ip("10.1.3.3"));
        for who in [a, b] {
            assert!(!o.asks_proof(a, &cfg));
            o.inbound(who, true);
            o.half_open(who, true);
        }
        // A quarter of eight are from one network.
        assert!(o.asks_proof(a, &cfg) && !o.asks_proof(c, &cfg));
        o.half_open(b, false);
        assert!(!o.asks_proof(a, &cfg));
        o.inbound(a, true);
        assert!(o.is_nearly_full(b, &cfg) && !o.is_full(b, &cfg));
        o.inbound(b, true);
        assert!(o.is_full(a, &cfg) && !o.is_full(c, &cfg));
        for _ in 0..4 {
            o.inbound(a, false);
        }
        o.half_open(a, false);
        assert_eq!((o.counts.len(), o.half_open), (0, 0));
    }
}
