//! Strangers: packets of whoever has no context with an engine, and those who open one.

use super::*;
use core::net::{IpAddr, Ipv4Addr};
use srd_core::wire::{AckBlock, Backlog, Body, Features, Flags, Header, OpenParams, Packet};

/// A packet of somebody with whom there may be no context.
pub fn stranger(kind: Body, slot: u8, dst_tag: u32) -> Packet<'static> {
    let header = Header {
        kind: kind.kind(),
        flags: Flags(0),
        backlog: Backlog(0),
        path: 0,
        slot,
        dst_tag,
        tx_num: 9,
        timestamp: 0,
        psn: 0,
        una_delta: 0,
        ack_echo: 0,
    };
    Packet { header, ack: None, body: kind, payload_len: 0 }
}

/// Where it comes from.
pub fn from(src_ip: IpAddr) -> RxMeta {
    RxMeta { src_ip, ce: false, rxq_drops: 0, waited: Span::ZERO }
}

/// An Open with this tag.
pub fn open(tag: u32, cookie: u64) -> Body {
    Body::Open(OpenParams {
        tag,
        incarnation: 5,
        echo_tag: 0,
        psn_start: 1,
        tx_num_start: 1,
        window: 64,
        mtu: 1024,
        reads_max: 1,
        write_imms_max: 1,
        rx_budget: u32::MAX,
        features: Features(0),
        cookie,
    })
}

/// An engine, and who opens contexts to it.
pub struct Door {
    pub host: Host,
    pub now: Time,
    pub tag: u32,
}

impl Door {
    pub fn new(tune: impl FnOnce(&mut EngineConfig)) -> Self {
        let mut cfg = config(0);
        tune(&mut cfg);
        let now = Time(1_000_000);
        Self { host: Host::new(cfg, 3, now), now, tag: 1 }
    }

    /// An Open; the tag that came back, or the cookie.
    pub fn open(&mut self, ip: IpAddr, slot: u8, cookie: u64) -> Result<u32, Option<u64>> {
        self.tag += 1;
        let packet = stranger(open(self.tag, cookie), slot, 0);
        self.host.receive(self.now, &from(ip), &packet, &[]);
        let port = self.host.engine.config().port_base + u16::from(slot);
        let mut answer = Err(None);
        loop {
            let out = self.host.transmit(self.now);
            if out.is_empty() {
                return answer;
            }
            for f in out.iter().filter(|f| f.dst == Endpoint { ip, port }) {
                match f.body {
                    Body::OpenAck(a) => answer = Ok(a.tag),
                    Body::Challenge { cookie, .. } => answer = Err(Some(cookie)),
                    _ => {}
                }
            }
        }
    }

    /// An honest peer opens a context: it answers a Challenge, and confirms.
    pub fn enter(&mut self, ip: IpAddr, slot: u8) -> bool {
        let mut answer = self.open(ip, slot, 0);
        if let Err(Some(cookie)) = answer {
            self.tag -= 1;
            answer = self.open(ip, slot, cookie);
        }
        let Ok(tag) = answer else { return false };
        let mut packet = stranger(Body::Probe, slot, tag);
        (packet.header.tx_num, packet.header.psn) = (1, 1);
        self.host.receive(self.now, &from(ip), &packet, &[]);
        true
    }

    pub fn contexts(&self) -> usize {
        self.host.engine.context_stats().len()
    }
}

/// The `i`-th of many networks.
pub fn network(i: u32) -> IpAddr {
    Ipv4Addr::from(0x2000_0001 + (i << 8)).into()
}

/// Who has opened a context, and says what a test tells it to say.
pub struct Guest {
    pub ip: IpAddr,
    pub slot: u8,
    tag: u32,
    psn: u32,
    tx_num: u32,
    /// What the host behind the door sent to it, and it has not looked at.
    pub heard: Vec<Flying>,
}

impl Guest {
    /// It opens a context.
    pub fn new(d: &mut Door, ip: IpAddr, slot: u8) -> Self {
        let tag = d.open(ip, slot, 0).expect("nobody has to prove anything");
        let mut guest = Self { ip, slot, tag, psn: 1, tx_num: 1, heard: vec![] };
        guest.say(d, Body::Probe, 0, None);
        guest
    }

    /// Says that it has more to come than it shows.
    pub fn say(&mut self, d: &mut Door, body: Body, payload_len: u16, ack: Option<&AckBlock>) {
        let mut packet = stranger(body, self.slot, self.tag);
        let h = &mut packet.header;
        (h.psn, h.tx_num, h.backlog) = (self.psn, self.tx_num, Backlog(15));
        h.flags.0 |= Flags::ACK_REQUEST | if ack.is_some() { Flags::ACK_BLOCK } else { 0 };
        self.psn += u32::from(h.kind.is_reliable());
        self.tx_num += 1;
        (packet.payload_len, packet.ack) = (payload_len, ack);
        d.host.receive(d.now, &from(self.ip), &packet, &vec![1; payload_len.into()]);
    }
}

impl Door {
    /// What the host sends now goes to those of `guests` for whom it is; `span` passes.
    pub fn pass<'a>(&mut self, span: Span, guests: impl IntoIterator<Item = &'a mut Guest>) {
        let end = self.now + span;
        let mut sent = vec![];
        loop {
            loop {
                let out = self.host.transmit(self.now);
                if out.is_empty() {
                    break;
                }
                sent.extend(out);
            }
            let due = self.host.engine.next_timeout();
            if due > end {
                break;
            }
            self.now = self.now.max(due);
            self.host.engine.handle_timeout(self.now);
            self.host.collect();
        }
        self.now = end;
        let base = self.host.engine.config().port_base;
        for g in guests {
            let at = Endpoint { ip: g.ip, port: base + u16::from(g.slot) };
            g.heard.extend(sent.iter().filter(|f| f.dst == at).cloned());
        }
    }
}
