//! Peers that are heard, but take no packet: what the Verdict oracle knows of them.

use rustc_hash::{FxHashMap, FxHashSet};
use srd_core::wire::{Body, Packet, ReadStatus};
use srd_core::{Endpoint, limits};

/// Packets without a request's content that one engine sent: tombstones, cancels, the errors that
/// end a read. A PSN is sent again only until the peer takes it, so a context may be given up once
/// a PSN went more than [`limits::RETRANSMITS_MAX`] times in such packets, although its peer is
/// heard.
#[derive(Debug, Default)]
pub struct Deaf {
    /// How often each PSN of a peer's present context went without content.
    sent: FxHashMap<(Endpoint, u32), u32>,
    /// Peers whose context has ended after enough of them, until the engine reports it.
    ended: FxHashSet<Endpoint>,
}

impl Deaf {
    /// Counts a packet that was sent to `peer`, if nothing but its PSN is left to be delivered.
    pub fn sent(&mut self, peer: Endpoint, packet: &Packet<'_>) {
        let bare = match &packet.body {
            Body::Tombstone | Body::Cancel { .. } => true,
            // A recall looks the same, but names no message.
            Body::ReadResp(r) => r.status == ReadStatus::RegionGone && r.msg_id != 0,
            _ => false,
        };
        if bare {
            *self.sent.entry((peer, packet.header.psn)).or_default() += 1;
        }
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
    use crate::tests::packet;
    use srd_core::wire::ReadResp;
    use std::net::{IpAddr, Ipv4Addr};

    fn peer(n: u8) -> Endpoint {
        Endpoint { ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)), port: 7 }
    }

    #[test]
    fn a_peer_is_deaf_to_one_psn_of_one_context() {
        let most = u32::from(limits::RETRANSMITS_MAX);
        let mut d = Deaf::default();
        let send = |d: &mut Deaf, to, psn| d.sent(peer(to), &packet(psn, Body::Tombstone, 0));
        for psn in [5, 6] {
            (0..most).for_each(|_| send(&mut d, 1, psn));
        }
        assert!(!d.context_end(peer(1)) && !d.report(peer(1)), "two PSNs do not add up");
        send(&mut d, 1, 5);
        assert!(!d.context_end(peer(1)) && !d.report(peer(1)), "nor do two contexts");
        (0..=most).for_each(|_| send(&mut d, 1, 5));
        send(&mut d, 2, 5);
        assert!(!d.report(peer(1)), "its context lives");
        assert!(!d.context_end(peer(2)) && d.context_end(peer(1)));
        assert!(d.report(peer(1)) && !d.report(peer(1)), "reported once");
        assert!(!d.report(peer(2)));
    }

    #[test]
    fn what_carries_nothing_of_a_request_counts_and_nothing_else() {
        let read = |msg_id, status| Body::ReadResp(ReadResp { msg_id, offset: 0, status });
        let cases = [
            (Body::Tombstone, true),
            (Body::Cancel { msg_id: 3 }, true),
            (read(3, ReadStatus::RegionGone), true),
            (read(0, ReadStatus::RegionGone), false),
            (read(3, ReadStatus::Ok), false),
            (Body::Probe, false),
        ];
        for (body, counts) in cases {
            let mut d = Deaf::default();
            let most = u32::from(limits::RETRANSMITS_MAX);
            (0..=most).for_each(|_| d.sent(peer(1), &packet(9, body, 0)));
            assert_eq!(d.context_end(peer(1)), counts, "{body:?}");
        }
    }
}
