//! An attacker on the network without a key: it sees every packet, keeps some, and sends what it
//! likes from any address.

use super::network::{Gram, Network, is_greeting, is_sealed};
use super::plan::{Plan, Threat};
use crate::draw::Draw;
use crate::scenario::stream;
use crate::stranger::open_of_stranger;
use srd_core::Endpoint;
use srd_core::wire::{
    self, Backlog, Body, CloseCode, Flags, HEADER_BYTES, Header, Message, Packet, PacketType,
};
use srd_seal::{CONTEXT_GONE, CONTEXT_QUERY, SEALED_CHALLENGE, SEALED_OPEN};
use std::net::IpAddr;

/// Every reason of a Reset.
const CODES: [CloseCode; 6] = [
    CloseCode::UnknownTag,
    CloseCode::UnknownTag,
    CloseCode::GoingAway,
    CloseCode::SealRequired,
    CloseCode::SealUnknown,
    CloseCode::KeyUnknown,
];
const PATH_AT: usize = 2;
const SLOT_AT: usize = 3;
const NUMBER_AT: usize = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct Attacker {
    draw: Draw,
}

/// A datagram that nobody but the attacker made.
fn own(src: IpAddr, dst: Endpoint, bytes: Vec<u8>) -> Gram {
    Gram { bytes, src, dst, honest: None, id: 0, at: 0, job: None }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
}

impl Attacker {
    pub fn new(seed: u64) -> Self {
        Self { draw: Draw::new(seed, stream::SEALED, 2) }
    }

    /// What becomes of a datagram that the attacker has seen, and what it sends beside it.
    pub fn act(
        &mut self,
        plan: &Plan,
        places: &[Endpoint],
        network: &Network,
        gram: Gram,
    ) -> Vec<Gram> {
        let threat = self.draw.pick(&plan.threats);
        let made = match threat {
            Threat::Replay => self.replay(network),
            Threat::Spoof => self.spoof(places, network),
            Threat::Forge => Some(self.forge(&gram)),
            Threat::Strip => Some(self.strip(&gram)),
            Threat::Reset => return self.reset(places, network, gram),
            Threat::Flood => Some(self.flood(places, network, &gram)),
            // The true packet is lost, so the changed one comes first.
            Threat::Tamper => {
                let changed = self.tamper(&gram);
                // So few that no silence comes of them.
                let lost = self.draw.percent((10 * plan.attack_each).min(50));
                return if lost { vec![changed] } else { vec![changed, gram] };
            }
        };
        core::iter::once(gram).chain(made).collect()
    }

    fn past(&mut self, network: &Network) -> Option<Gram> {
        let at = self.draw.below(network.past.len() as u64) as usize;
        network.past.get(at).cloned()
    }

    fn replay(&mut self, network: &Network) -> Option<Gram> {
        self.past(network)
    }

    /// A true packet from another address, or back to its sender.
    fn spoof(&mut self, places: &[Endpoint], network: &Network) -> Option<Gram> {
        // What opens or ends a context within another one is rare, and engines find the context
        // that it is about by the address.
        let opener = network.opener.as_ref().filter(|_| self.draw.percent(30));
        let mut gram = opener.cloned().or_else(|| self.past(network))?;
        let from = gram.honest.take()?;
        if gram.dst == places[from] {
            // To itself: back to its sender is where it goes anyway.
            gram.honest = Some(from);
        } else if self.draw.percent(50) {
            let back = gram.dst;
            (gram.src, gram.dst) = (back.ip, places[from]);
            // As it is, or with the tag that its sender takes.
            if self.draw.percent(70)
                && let Some(tag) = self.tag_of(places, network, back, places[from])
            {
                gram.bytes[4..8].copy_from_slice(&tag.to_be_bytes());
                gram.id = 0;
            }
        } else {
            let src = gram.src;
            gram.src = self.draw.pick(places).ip;
            if gram.src == src {
                gram.honest = Some(from);
            }
        }
        Some(gram)
    }

    /// The tag that `to` takes from `from`, if it has been seen.
    fn tag_of(
        &self,
        places: &[Endpoint],
        network: &Network,
        from: Endpoint,
        to: Endpoint,
    ) -> Option<u32> {
        let from = places.iter().position(|p| *p == from)?;
        network.tags.get(&(from, to)).copied()
    }

    /// A packet with some part changed.
    fn tamper(&mut self, gram: &Gram) -> Gram {
        let d = &mut self.draw;
        let mut bytes = gram.bytes.clone();
        let number = u32_at(&bytes, NUMBER_AT);
        match d.below(9) {
            0 | 1 => bytes[PATH_AT] ^= 1 << d.below(8),
            2 => bytes[SLOT_AT] ^= 1 << d.below(8),
            3 => {
                let step = d.pick(&[1, 32, 128, 1 << 20, 1 << 31, u32::MAX]);
                bytes[NUMBER_AT..NUMBER_AT + 4]
                    .copy_from_slice(&number.wrapping_add(step).to_be_bytes());
            }
            4 => bytes[1] ^= 1 << d.below(8),
            5 => bytes.truncate(bytes.len() - d.range(1, bytes.len() as u64 - 2) as usize),
            6 => bytes.resize(bytes.len() + d.range(1, 32) as usize, 0),
            7 => {
                // Everything but the number and the tag of the context: time, PSN, lower edge.
                let at = d.range(12, HEADER_BYTES as u64 - 1) as usize;
                bytes[at] ^= 1 << d.below(8);
            }
            _ => {
                let at = d.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << d.below(8);
            }
        }
        own(gram.src, gram.dst, bytes)
    }

    /// A packet with a true header, often of a number that has not come yet, and any content.
    fn forge(&mut self, gram: &Gram) -> Gram {
        let d = &mut self.draw;
        let mut bytes = gram.bytes.clone();
        let number = u32_at(&bytes, NUMBER_AT);
        let ahead = d.pick(&[0, 1, 16, 64, 200, 4_000, 1 << 30, (1 << 31) - 1]);
        bytes[NUMBER_AT..NUMBER_AT + 4].copy_from_slice(&number.wrapping_add(ahead).to_be_bytes());
        if is_sealed(&bytes) && !is_greeting(&bytes) {
            bytes[1] ^= if d.percent(30) { Flags::KEY_PHASE } else { 0 };
        }
        bytes[HEADER_BYTES..].fill_with(|| d.bits() as u8);
        own(gram.src, gram.dst, bytes)
    }

    /// A packet without a seal for the context of a sealed one: sound in every field that can be
    /// read in the true one.
    fn strip(&mut self, gram: &Gram) -> Gram {
        let d = &mut self.draw;
        let mut bytes = gram.bytes.clone();
        if d.percent(20) || !is_sealed(&bytes) {
            bytes[1] &= !(Flags::SEALED | Flags::KEY_PHASE);
            return own(gram.src, gram.dst, bytes);
        }
        let msg = Message {
            msg_id: d.bits() as u32 & 0xFFFF,
            src_qpn: 0,
            dst_qpn: 0,
            qkey: super::member::QKEY,
        };
        let bodies = [Body::Probe, Body::Send(msg), Body::Close, Body::CloseAck];
        let body = d.pick(&bodies);
        let header = Header {
            kind: body.kind(),
            flags: Flags(Flags::CHECKED | Flags::ACK_REQUEST),
            backlog: Backlog(0),
            path: bytes[PATH_AT],
            slot: bytes[SLOT_AT],
            dst_tag: u32_at(&bytes, 4),
            tx_num: u32_at(&bytes, NUMBER_AT).wrapping_add(d.range(1, 20) as u32),
            timestamp: u32_at(&bytes, 12),
            psn: u32_at(&bytes, 16).wrapping_add(d.below(3) as u32),
            una_delta: 0,
            ack_echo: 0,
        };
        let payload = if matches!(body, Body::Send(_)) { 9 } else { 0 };
        own(gram.src, gram.dst, packet_bytes(header, body, payload))
    }

    /// Resets, Challenges, and the answer to a question.
    fn reset(&mut self, places: &[Endpoint], network: &Network, gram: Gram) -> Vec<Gram> {
        let d = &mut self.draw;
        let from = places.iter().position(|p| *p == gram.dst);
        let sender = gram.honest.map_or(gram.dst, |id| places[id]);
        let own_tag = u32_at(&gram.bytes, 4);
        let seen = from.and_then(|from| network.tags.get(&(from, sender))).copied();
        let mut out = Vec::new();
        // Who asks shows the number of the question to everybody.
        if let Some(asked) = network.asked.as_ref().filter(|_| d.percent(50))
            && let Some(asker) = asked.honest
        {
            let mut bytes = asked.bytes.clone();
            bytes[0] = wire::VERSION << 5 | CONTEXT_GONE;
            bytes[4..8].fill(0);
            bytes[SLOT_AT] = slot_of(asked.dst);
            let code = HEADER_BYTES + 16;
            bytes[code] = CloseCode::UnknownTag as u8;
            bytes[code + 8..].fill_with(|| d.bits() as u8);
            let nonce = u64::from(u32_at(&bytes, HEADER_BYTES + 8)) << 32
                | u64::from(u32_at(&bytes, HEADER_BYTES + 12));
            let echo_tag = u32_at(&bytes, HEADER_BYTES + 4);
            out.push(own(asked.dst.ip, places[asker], bytes));
            let body = Body::Reset { echo_tag, code: CloseCode::UnknownTag, nonce };
            let header = header_of(body, slot_of(asked.dst), 0, 0);
            out.push(own(asked.dst.ip, places[asker], packet_bytes(header, body, 0)));
        }
        let code = d.pick(&CODES);
        let echo_tag = seen.unwrap_or(own_tag);
        let body = match d.below(4) {
            0 => Body::Challenge { echo_tag: own_tag, cookie: d.bits() },
            _ => Body::Reset { echo_tag, code, nonce: d.pick(&[0, 0, 77]) },
        };
        let header = header_of(body, slot_of(sender), own_tag, u32_at(&gram.bytes, NUMBER_AT));
        out.push(own(gram.src, gram.dst, packet_bytes(header, body, 0)));
        out.push(gram);
        out
    }

    /// Requests for contexts: plain ones, those of the past that were changed, and any bytes of
    /// their types.
    fn flood(&mut self, places: &[Endpoint], network: &Network, gram: &Gram) -> Gram {
        let past = network.past.iter().filter(|g| is_greeting(&g.bytes)).count() as u64;
        let at = self.draw.below(past.max(1)) as usize;
        let greeting = network.past.iter().filter(|g| is_greeting(&g.bytes)).nth(at).cloned();
        let d = &mut self.draw;
        let src = d.pick(places);
        match (d.below(4), greeting) {
            (0 | 1, Some(mut g)) => {
                let at = d.range(HEADER_BYTES as u64, g.bytes.len() as u64 - 1) as usize;
                g.bytes[at] ^= 1 << d.below(8);
                own(g.src, g.dst, g.bytes)
            }
            (2, _) => {
                let kind = d.range(u64::from(SEALED_OPEN), u64::from(CONTEXT_GONE)) as u8;
                let len = match kind {
                    SEALED_CHALLENGE => 52,
                    CONTEXT_QUERY | CONTEXT_GONE => 64,
                    _ => 160,
                };
                let mut bytes: Vec<u8> = (0..len).map(|_| d.bits() as u8).collect();
                (bytes[0], bytes[1]) = (wire::VERSION << 5 | kind, Flags::SEALED);
                if kind == SEALED_OPEN {
                    bytes[4..8].fill(0);
                    bytes[28..32].copy_from_slice(&7_u32.to_be_bytes());
                }
                own(src.ip, gram.dst, bytes)
            }
            _ => {
                let word = d.bits() as u32;
                let body = Body::Open(open_of_stranger(d, word));
                let header = header_of(body, slot_of(src), 0, word);
                own(src.ip, gram.dst, packet_bytes(header, body, 0))
            }
        }
    }
}

fn slot_of(at: Endpoint) -> u8 {
    (at.port - srd_core::config::PORT_BASE_DEFAULT) as u8
}

fn header_of(body: Body, slot: u8, dst_tag: u32, tx_num: u32) -> Header {
    let kind: PacketType = body.kind();
    Header {
        kind,
        flags: Flags(Flags::CHECKED),
        backlog: Backlog(0),
        path: 0,
        slot,
        dst_tag,
        tx_num,
        timestamp: tx_num,
        psn: tx_num,
        una_delta: 0,
        ack_echo: 0,
    }
}

/// A packet with a good checksum.
fn packet_bytes(header: Header, body: Body, payload: u16) -> Vec<u8> {
    let packet = Packet { header, ack: None, body, payload_len: payload };
    let mut bytes = vec![0; packet.headers_len() + usize::from(payload)];
    wire::emit(&packet, &mut bytes);
    wire::stamp(&mut bytes);
    bytes
}
