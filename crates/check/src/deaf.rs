//! Peers that are heard, but take no packet: what the Verdict oracle knows of them.

use rustc_hash::{FxHashMap, FxHashSet};
use srd_core::{Endpoint, limits};

/// Tombstones (packets without content) that one engine sent. A PSN is sent again only until the
/// peer takes it, so a context may be given up once a PSN went more than
/// [`limits::RETRANSMITS_MAX`] times as a tombstone, although its peer is heard.
#[derive(Debug, Default)]
pub struct Deaf {
    /// How often each PSN of a peer's present context went as a tombstone.
    sent: FxHashMap<(Endpoint, u32), u32>,
    /// Peers whose context has ended after enough of them, until the engine reports it.
    ended: FxHashSet<Endpoint>,
}

impl Deaf {
    /// Counts a tombstone that was sent to `peer`.
    pub fn tombstone(&mut self, peer: Endpoint, psn: u32) {
        *self.sent.entry((peer, psn)).or_default() += 1;
    }

    /// The context with `peer` ends, and its counts with it. Returns whether the engine may report
    /// that this peer takes nothing.
    ///
    /// A report of silence alone ends nothing: the requests end, but the context and its PSNs
    /// remain, and the engine goes on counting when the peer is heard again.
    pub fn context_end(&mut self, peer: Endpoint) -> bool {
        let mut most = 0;
        self.sent.retain(|&(to, _), n| {
            if to == peer {
                most = most.max(*n);
            }
            to != peer
        });
        let deaf = most > u32::from(limits::RETRANSMITS_MAX);
        if deaf {
            self.ended.insert(peer);
        }
        deaf
    }

    /// Whether the engine may report that `peer` takes nothing; once per context that ended so.
    pub fn report(&mut self, peer: Endpoint) -> bool {
        self.ended.remove(&peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn peer(n: u8) -> Endpoint {
        Endpoint { ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)), port: 7 }
    }

    #[test]
    fn a_peer_is_deaf_to_one_psn_of_one_context() {
        let most = u32::from(limits::RETRANSMITS_MAX);
        let mut d = Deaf::default();
        for psn in [5, 6] {
            (0..most).for_each(|_| d.tombstone(peer(1), psn));
        }
        assert!(!d.context_end(peer(1)) && !d.report(peer(1)), "two PSNs do not add up");
        d.tombstone(peer(1), 5);
        assert!(!d.context_end(peer(1)) && !d.report(peer(1)), "nor do two contexts");
        (0..=most).for_each(|_| d.tombstone(peer(1), 5));
        d.tombstone(peer(2), 5);
        assert!(!d.report(peer(1)), "its context lives");
        assert!(!d.context_end(peer(2)) && d.context_end(peer(1)));
        assert!(d.report(peer(1)) && !d.report(peer(1)), "reported once");
        assert!(!d.report(peer(2)));
    }
}
