//! Strangers who know addresses and the format, and flood a member with packets.

use super::net::Gram;
use super::plan::ip_of;
use super::stage::Stage;
use crate::packet::CABLE_BYTES;
use crate::stranger::open_of_stranger;
use srd_core::config::Integrity;
use srd_core::wire::{self, Backlog, Body, CloseCode, Flags, Header, Packet};
use std::net::{IpAddr, Ipv4Addr};

impl Stage<'_> {
    /// Packets of strangers who know addresses and the format.
    pub(super) fn flood(&mut self) {
        let d = &mut self.draw;
        let checked = self.plan.config.integrity != Integrity::Off;
        for _ in 0..d.range(1, 4) {
            let word = d.bits() as u32;
            let known = ip_of(d.range(1, self.plan.honest as u64) as usize, 0);
            let any = IpAddr::V4(Ipv4Addr::from(0x0B00_0000 | (word & 0xFF_FFFF)));
            let forged = self.plan.forges() && d.percent(35);
            let src = if forged { known } else { any };
            let params = open_of_stranger(d, word);
            let (kind, dst_tag) = match d.below(4) {
                0 | 1 => (Body::Open(params), 0),
                2 => (Body::Reset { echo_tag: word, code: CloseCode::UnknownTag, nonce: 0 }, word),
                _ => (Body::Probe, word),
            };
            let header = Header {
                kind: kind.kind(),
                flags: Flags(if checked { Flags::CHECKED } else { 0 }),
                backlog: Backlog(0),
                path: 0,
                slot: if src == known { 0 } else { d.below(8) as u8 },
                dst_tag,
                tx_num: word,
                timestamp: word,
                psn: word,
                una_delta: 0,
                ack_echo: 0,
            };
            let packet = Packet { header, ack: None, body: kind, payload_len: 0 };
            let mut bytes = vec![0; packet.headers_len()];
            wire::emit(&packet, &mut bytes);
            if matches!(kind, Body::Open(_)) && d.percent(20) {
                let padded = usize::from(self.plan.config.open_padded_len);
                bytes.resize(bytes.len().max(padded), 0);
            }
            wire::stamp(&mut bytes);
            let dst = self.peers[0].at;
            self.said += 1;
            self.hostile_bytes += bytes.len() as u64 + CABLE_BYTES;
            let gram = Gram {
                bytes,
                src,
                dst,
                path: 0,
                honest: None,
                job: None,
                damaged: false,
                waits_since: None,
            };
            self.net.send(self.now, self.plan.honest + 1, 0, gram);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{Class, Classes};
    use crate::hostile::net::Event;
    use srd_core::wire::{AckBlock, PacketType};
    use std::collections::BTreeSet;

    #[test]
    fn strangers_know_the_format_and_no_tag() {
        let only = Classes::default().with(Class::Flood);
        let mut plan = (0..).find_map(|seed| crate::hostile::draw(seed, &[], only)).unwrap();
        (plan.config.integrity, plan.honest) = (Integrity::On, 2);
        let mut stage = Stage::new(&plan, 1, &[], false);
        (0..400).for_each(|_| stage.flood());
        let (mut said, mut kinds, mut sources) = (0, BTreeSet::new(), BTreeSet::new());
        while let Some((_, event)) = stage.net.next(u64::MAX) {
            let Event::Arrive(gram) = event else { continue };
            let mut ack = AckBlock::default();
            let (p, _) = wire::parse_checked(&gram.bytes, &mut ack).expect("well-formed");
            assert!(gram.honest.is_none() && gram.dst == stage.peers[0].at, "{gram:?}");
            assert_eq!(p.header.dst_tag == 0, p.body.kind() == PacketType::Open);
            said += 1;
            kinds.insert(format!("{:?}", p.body.kind()));
            sources.insert(gram.src);
        }
        assert!(said > 400 && said == stage.said, "{said} of {}", stage.said);
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["Open", "Probe", "Reset"]);
        assert!(sources.len() > 100, "from many addresses: {}", sources.len());
        assert_eq!(sources.contains(&ip_of(1, 0)), plan.forges(), "and of members, if they forge");
    }
}
