//! Engines behind sealing layers in virtual time: a network that loses, repeats, delays and
//! damages, and an attacker without the key that sends again whatever was ever sent, to either
//! host, also across restarts.

use srd_core::{
    AhId, CompletionKind, CqId, Endpoint, Engine, EngineConfig, Opcode, QpInit, QpModify, QpState,
    QpType, Qpn, RecvHandle, RecvRequest, Rng, Rx, RxMeta, SendRequest, Source, Span, Status,
    Target, Time, Transmit, TxSink, WrHandle,
};
use srd_seal::{End, Incoming, KeyRing, LayerConfig, Limits, Policy, Route, SealLayer, Suites};
use srd_wire::{AckBlock, CloseCode, Flags, HEADERS_BYTES_MAX, emit, parse, parse_checked};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

const KEY: &str = "7 01080f161d242b323940474e555c636a71787f868d949ba2a9b0b7bec5ccd3da";
const MTU: u16 = 1000;
const QKEY: u32 = 0x11;
const DEPTH: u32 = 64;
/// What every payload holds and no datagram may show.
const MARK: &[u8] = b"nobody may read this";
/// Short epochs, so that keys change all the time.
const LIMITS: Limits = Limits { epoch_bits: 5, failed_opens_max: 1 << 36 };

/// Random numbers from a seed (SplitMix64).
#[derive(Clone)]
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
    fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

fn ip_of(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, host as u8 + 1))
}

/// The content of message `number`.
fn content(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend_from_slice(MARK);
    let mut draw = Draw(number);
    bytes.extend((0..number % 700).map(|_| draw.next() as u8));
    bytes
}

struct Host {
    engine: Engine,
    layer: SealLayer,
    ring: KeyRing,
    ah: AhId,
    cq: CqId,
    qp: Qpn,
    sent: BTreeMap<WrHandle, Vec<u8>>,
    received: BTreeMap<RecvHandle, Vec<u8>>,
}

impl Host {
    fn new(host: usize, seed: u64, now: Time) -> Self {
        let mut cfg = EngineConfig::sockets(ip_of(host), 0, MTU);
        cfg.seals = true;
        cfg.contexts_max = 64;
        cfg.half_opens_max = 8;
        let own = End { ip: cfg.ip, port: cfg.port_base };
        let layer = LayerConfig {
            own,
            port_base: cfg.port_base,
            policy: Policy::Require,
            suites: Suites::default(),
            limits: LIMITS,
            contexts_max: cfg.contexts_max,
        };
        let mut draw = Draw(seed ^ 0xace);
        let entropy = move |bytes: &mut [u8; 32]| {
            bytes.fill_with(|| draw.next() as u8);
            true
        };
        let mut engine = Engine::new(cfg, Rng::from_seed(seed), now, ()).unwrap();
        let pd = engine.pd_create().unwrap();
        let cq = engine.cq_create(4 * DEPTH).unwrap();
        let kind = QpType::Srd;
        let (sq_depth, rq_depth) = (DEPTH, DEPTH);
        let init = QpInit {
            kind,
            pd,
            send_cq: cq,
            recv_cq: cq,
            sq_depth,
            rq_depth,
            unsolicited_write_recv: false,
        };
        let qp = engine.qp_create(now, init).unwrap();
        for m in [
            QpModify { state: Some(QpState::Init), qkey: Some(QKEY), rnr_retry: None },
            QpModify { state: Some(QpState::Rtr), ..QpModify::default() },
            QpModify { state: Some(QpState::Rts), qkey: None, rnr_retry: Some(7) },
        ] {
            engine.qp_modify(now, qp, m).unwrap();
        }
        for _ in 0..DEPTH {
            engine.post_recv(qp, &RecvRequest { wr_id: 0, len: u32::from(MTU) }).unwrap();
        }
        let ah = engine.ah_create(now, pd, ip_of(1 - host)).unwrap();
        let ring = KeyRing::parse(KEY.as_bytes()).unwrap();
        let layer = SealLayer::new(layer, entropy);
        let (sent, received) = (BTreeMap::new(), BTreeMap::new());
        Self { engine, layer, ring, ah, cq, qp, sent, received }
    }
}

/// What leaves a host: destination and datagram.
struct Leaving<'a> {
    layer: &'a mut SealLayer,
    ring: &'a KeyRing,
    sent: &'a BTreeMap<WrHandle, Vec<u8>>,
    out: Vec<(IpAddr, Vec<u8>)>,
}

impl TxSink for Leaving<'_> {
    fn push(&mut self, t: &Transmit<'_>) {
        let dst = End { ip: t.dst.ip, port: t.dst.port };
        let mut packet = t.packet;
        let mut bytes = vec![0; HEADERS_BYTES_MAX];
        match self.layer.route(dst, &t.packet) {
            Route::Withheld => {}
            Route::Plain => panic!("a packet without a seal: {t:?}"),
            Route::Sealed(slot) => {
                packet.header.flags.0 &= !Flags::CHECKED;
                let len = emit(&packet, &mut bytes);
                bytes.truncate(len);
                if let Some(p) = t.payload {
                    let Source::Wr(handle) = p.source else { panic!("no reads here") };
                    let from = p.offset as usize;
                    bytes.extend_from_slice(&self.sent[&handle][from..from + usize::from(p.len)]);
                }
                bytes.resize((bytes.len() + 16).max(usize::from(t.padded_len)), 0);
                if self.layer.seal(slot, &mut bytes) {
                    self.out.push((t.dst.ip, bytes));
                }
            }
            Route::Handshake => {
                let out = self.layer.handshake_out(self.ring, dst, &t.packet, t.padded_len);
                self.out.extend(out.datagrams.into_iter().map(|d| (t.dst.ip, d)));
                if out.plain {
                    let len = emit(&packet, &mut bytes);
                    bytes.truncate(len);
                    srd_wire::stamp(&mut bytes);
                    assert_eq!(bytes[0] & 31, 6, "only a Reset leaves without a seal");
                    self.out.push((t.dst.ip, bytes));
                }
            }
        }
    }
}

/// A datagram as it was sent: source, destination, bytes.
type Datagram = (IpAddr, IpAddr, Vec<u8>);

struct World {
    now: Time,
    hosts: Vec<Host>,
    draw: Draw,
    under_way: BTreeMap<(Time, u64), Datagram>,
    recorded: Vec<Datagram>,
    /// By receiver, tag and number: the datagram that had them.
    numbers: BTreeMap<(IpAddr, [u8; 8]), Vec<u8>>,
    count: u64,
    /// How often, one in so many datagrams, the attacker adds one. 0: never.
    attacks: u64,
    delivered: BTreeSet<u64>,
    ended: BTreeMap<u64, Status>,
}

impl World {
    fn new(seed: u64, attacks: u64) -> Self {
        let now = Time(1_000_000_000);
        let hosts = (0..2).map(|h| Host::new(h, seed * 2 + h as u64, now)).collect();
        Self {
            now,
            hosts,
            draw: Draw(seed),
            under_way: BTreeMap::new(),
            recorded: Vec::new(),
            numbers: BTreeMap::new(),
            count: 0,
            attacks,
            delivered: BTreeSet::new(),
            ended: BTreeMap::new(),
        }
    }

    fn travel(&mut self, datagram: Datagram) {
        self.count += 1;
        let at = self.now + Span::from_us(3 + self.draw.below(200));
        self.under_way.insert((at, self.count), datagram);
    }

    /// A host has sent a datagram.
    fn leave(&mut self, host: usize, dst: IpAddr, bytes: Vec<u8>) {
        assert!(!bytes.windows(MARK.len()).any(|w| w == MARK), "payload that anybody can read");
        assert!(bytes.len() <= usize::from(MTU) + srd_wire::OVERHEAD_BYTES);
        if bytes[1] & Flags::SEALED != 0 && !(9..=13).contains(&(bytes[0] & 31)) {
            let key = (dst, *bytes[4..].first_chunk().unwrap());
            let before = self.numbers.insert(key, bytes.clone());
            assert!(before.is_none(), "a number twice under one key");
        }
        let datagram = (ip_of(host), dst, bytes);
        self.recorded.push(datagram.clone());
        if self.draw.once_in(12) {
            self.travel(datagram.clone());
        }
        if !self.draw.once_in(12) {
            self.travel(datagram);
        }
        if self.attacks > 0 && self.draw.once_in(self.attacks) {
            let at = self.draw.below(self.recorded.len() as u64) as usize;
            let (src, dst, mut bytes) = self.recorded[at].clone();
            match self.draw.below(4) {
                0 => {}
                1 => {
                    let bit = self.draw.below(bytes.len() as u64 * 8) as usize;
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
                // The flags of the seal are stripped.
                2 => bytes[1] &= !(Flags::SEALED | Flags::KEY_PHASE),
                _ => bytes = self.forged_reset(&bytes),
            }
            self.travel((src, dst, bytes));
        }
    }

    /// A Reset that claims that the context of a recorded packet is gone.
    fn forged_reset(&mut self, of: &[u8]) -> Vec<u8> {
        let mut bytes = of[..24].to_vec();
        (bytes[0], bytes[1]) = (1 << 5 | 6, 0);
        bytes.extend_from_slice(&of[4..8]);
        bytes.extend_from_slice(&[1, 0, 0, 0]);
        bytes.extend_from_slice(&self.draw.next().to_be_bytes());
        bytes
    }

    fn arrive(&mut self, (src, dst, mut bytes): Datagram) {
        let Some(at) = (0..2).find(|&h| ip_of(h) == dst) else { return };
        let now = self.now;
        let Host { engine, layer, ring, received, .. } = &mut self.hosts[at];
        let from = Endpoint { ip: src, port: engine.config().port_base + u16::from(bytes[3]) };
        let meta = RxMeta { src_ip: src, ce: false, rxq_drops: 0, waited: Span::ZERO };
        let mut ack = AckBlock::default();
        let incoming = layer.receive(ring, src, &mut bytes);
        let plain = matches!(incoming, Incoming::Plain);
        let (sealed, read) = match incoming {
            Incoming::Dropped => return,
            Incoming::Unknown(tag) => return engine.sealed_stranger(now, from, tag),
            Incoming::Refuse(tag, code) => {
                assert!(matches!(code, CloseCode::KeyUnknown | CloseCode::SealRequired));
                return engine.seal_refuse(now, from, tag, code);
            }
            Incoming::Plain => (&bytes[..], parse_checked(&bytes, &mut ack)),
            Incoming::Opened(len) => (&bytes[..len], parse(&bytes[..len], &mut ack)),
            Incoming::Made => (layer.made(), parse(layer.made(), &mut ack)),
        };
        let Ok((mut packet, start)) = read else { return };
        // An Open within a context is as long when it is opened: its seal takes of the padding.
        if !plain {
            packet.header.flags.0 |= Flags::SEALED;
        }
        if let Rx::Place(p) = engine.handle(now, &meta, &packet) {
            assert!(packet.header.flags.has(Flags::SEALED), "payload that was not sealed");
            let Target::Recv(handle) = p.target else { panic!("only receives") };
            received.insert(handle, sealed[start..start + p.len as usize].to_vec());
        }
    }

    fn send(&mut self, host: usize, number: u64) {
        let now = self.now;
        let h = &mut self.hosts[host];
        let bytes = content(number);
        let wr = SendRequest {
            wr_id: number,
            op: Opcode::Send,
            ah: h.ah,
            dst_qpn: Qpn(0),
            qkey: QKEY,
            len: bytes.len() as u32,
            rkey: 0,
            raddr: 0,
            imm: 0,
        };
        let handle = h.engine.post_send(now, h.qp, &wr).unwrap();
        h.sent.insert(handle, bytes);
    }

    fn completions(&mut self, host: usize) {
        let h = &mut self.hosts[host];
        while let Some(c) = h.engine.cq_poll(h.cq) {
            h.engine.cq_release(h.cq, 1);
            match c.kind {
                CompletionKind::Send(..) => {
                    assert!(self.ended.insert(c.wr_id, c.status).is_none(), "ended twice");
                }
                CompletionKind::Recv(handle) => {
                    let bytes = h.received.remove(&handle).expect("placed before");
                    let number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
                    assert_eq!(bytes, content(number), "what arrives is what was sent");
                    assert!(self.delivered.insert(number), "message {number} arrived twice");
                    let again = RecvRequest { wr_id: 0, len: u32::from(MTU) };
                    h.engine.post_recv(h.qp, &again).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        while h.engine.poll_event().is_some() {}
    }

    /// Runs until `done` holds, at most `most` of virtual time.
    fn run(&mut self, most: Span, done: impl Fn(&Self) -> bool) {
        let end = self.now + most;
        let mut tick = self.now + Span::from_secs(1);
        while !done(self) {
            assert!(
                self.now < end,
                "{} ended, {} delivered",
                self.ended.len(),
                self.delivered.len()
            );
            for host in 0..2 {
                let h = &mut self.hosts[host];
                if h.engine.next_timeout() <= self.now {
                    h.engine.handle_timeout(self.now);
                }
                let Host { engine, layer, ring, sent, .. } = h;
                let mut sink = Leaving { layer, ring, sent, out: Vec::new() };
                engine.poll_transmit(self.now, 64, &mut sink);
                for (dst, bytes) in sink.out {
                    self.leave(host, dst, bytes);
                }
                self.completions(host);
            }
            if self.now >= tick {
                tick = self.now + Span::from_secs(1);
                for Host { engine, layer, ring, .. } in &mut self.hosts {
                    layer.tick(ring, |tag| engine.has_context(tag));
                }
            }
            let arrival = self.under_way.first_key_value().map_or(Time::NEVER, |(k, _)| k.0);
            let timer = self.hosts.iter().map(|h| h.engine.next_timeout()).min().unwrap();
            self.now = self.now.max(arrival.min(timer).min(tick));
            while let Some(first) = self.under_way.first_entry()
                && first.key().0 <= self.now
            {
                let datagram = first.remove();
                self.arrive(datagram);
            }
        }
    }
}

#[test]
fn each_message_arrives_once_through_everything() {
    for seed in 0..12 {
        let mut w = World::new(seed, 4);
        for round in 0..10 {
            for host in 0..2 {
                (0..20).for_each(|i| w.send(host, host as u64 * 1000 + round * 20 + i));
            }
            let wanted = (round as usize + 1) * 40;
            w.run(Span::from_secs(60), |w| w.ended.len() == wanted);
        }
        assert!(w.ended.values().all(|&s| s == Status::Ok), "seed {seed}: {:?}", w.ended);
        assert_eq!(w.delivered.len(), 400);
        let refused = |h: &Host| h.layer.counters().not_opened.iter().sum::<u64>();
        assert!(w.hosts.iter().all(|h| refused(h) > 0), "the attacker was heard");
    }
}

#[test]
fn lives_end_when_the_next_is_proven_and_replays_end_none() {
    for seed in 0..12 {
        let mut w = World::new(100 + seed, 3);
        let mut number = 0;
        for life in 0..6_u64 {
            for _ in 0..3 {
                let before = w.ended.len();
                for host in 0..2 {
                    (0..5).for_each(|_| {
                        w.send(host, number);
                        number += 1;
                    });
                }
                w.run(Span::from_secs(60), |w| w.ended.len() == before + 10);
            }
            // Without a restart in this life nothing ends but well, once both sides have met anew.
            let last = w.ended.iter().rev().take(10).all(|(_, &s)| s == Status::Ok);
            assert!(last, "seed {seed}, life {life}: {:?}", w.ended);
            let host = (life % 2) as usize;
            w.completions(host);
            w.hosts[host] = Host::new(host, 7777 + seed * 10 + life, w.now);
        }
        let bad: Vec<_> = w.ended.values().filter(|&&s| s != Status::Ok).collect();
        assert!(bad.iter().all(|&&s| s == Status::RemoteAbort), "{bad:?}");
    }
}

#[test]
fn both_open_at_once_and_one_context_is_left() {
    for seed in 0..40 {
        let mut w = World::new(200 + seed, 0);
        (0..2).for_each(|host| w.send(host, host as u64));
        w.run(Span::from_secs(60), |w| w.ended.len() == 2);
        assert!(w.ended.values().all(|&s| s == Status::Ok) && w.delivered.len() == 2);
        w.run(Span::from_secs(60), |w| w.now > Time(4_000_000_000));
        assert!(w.hosts.iter().all(|h| h.layer.contexts() == 1), "keys of one context");
        let sealed = |h: &Host| h.engine.context_stats().iter().all(|c| c.sealed);
        assert!(w.hosts.iter().all(sealed));
    }
}
