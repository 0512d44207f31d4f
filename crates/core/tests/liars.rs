//! A peer that holds the tag and lies: well-formed packets of every type, honest ones, mutated
//! ones and random ones. Whatever it says, the engine neither panics nor loops, places nothing
//! beyond what was posted, and ends each request exactly once.
//!
//! `LIAR_SEEDS=FIRST..END` runs other seeds than the usual.

use crate::common::*;
use srd_core::wire::{
    AckBlock, Backlog, Body, CloseCode, Echo, Features, Flags, Header, Message, OpenParams, Others,
    Packet, PacketType, Rdma, ReadReq, ReadResp, ReadStatus, Verdict, VerdictEntry,
};
use srd_core::*;
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Tag of the liar's end of the context.
const LIAR_TAG: u32 = 0x11A2_0001;
const VERDICTS: [Verdict; 9] = [
    Verdict::Rnr,
    Verdict::Busy,
    Verdict::BadQpn,
    Verdict::BadQkey,
    Verdict::BadLength,
    Verdict::BadRkey,
    Verdict::UnknownPeer,
    Verdict::FeatureMismatch,
    Verdict::NoRequest,
];
/// Packets that one moment of virtual time may bring at most.
const PACKETS_AT_ONCE_MAX: usize = 20_000;
/// Moments without progress of virtual time.
const MOMENTS_MAX: usize = 200;

/// A read that the liar was asked for.
#[derive(Clone, Copy)]
struct Asked {
    msg_id: u32,
    len: u32,
    told: u32,
}

/// The liar's state: an honest responder at heart.
struct Liar {
    rng: Rng,
    /// Lies in 256 statements.
    lies: u32,
    /// The victim's tag, as its Open or OpenAck said.
    tag: u32,
    incarnation: u64,
    psn: u32,
    tx_num: u32,
    /// What the victim sent lately.
    heard: Vec<Body>,
    cum: Option<u32>,
    arrived: BTreeSet<u32>,
    echoes: Vec<Echo>,
    asked: Vec<Asked>,
    /// What was judged other than OK.
    refused: Vec<VerdictEntry>,
    rkeys: Vec<(u32, u64)>,
    qps: Vec<u16>,
}

impl Liar {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed ^ 0x11A2);
        let lies = [0, 2, 10, 40, 120, 256][rng.below(6) as usize];
        Self {
            lies,
            tag: 0,
            incarnation: rng.next_u64(),
            psn: if rng.below(4) == 0 { u32::MAX - 20 } else { rng.next_u32() },
            tx_num: rng.next_u32() >> 1,
            rng,
            heard: vec![],
            cum: None,
            arrived: BTreeSet::new(),
            echoes: vec![],
            asked: vec![],
            refused: vec![],
            rkeys: vec![],
            qps: vec![],
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.below(n.max(1) as u32) as usize
    }

    /// Whether this statement is a lie.
    fn lies(&mut self) -> bool {
        self.rng.below(256) < self.lies
    }

    /// A number near `honest`, or any.
    fn number(&mut self, honest: u32) -> u32 {
        if !self.lies() {
            return honest;
        }
        match self.below(5) {
            0 => self.rng.next_u32(),
            1 => honest.wrapping_add(self.rng.below(1 << 16)).wrapping_sub(1 << 15),
            2 => honest.wrapping_add(1 << 31).wrapping_sub(self.rng.below(4)),
            3 => 0,
            _ => honest.wrapping_add(self.rng.below(9)).wrapping_sub(4),
        }
    }

    fn message_id(&mut self) -> u32 {
        let ids: Vec<u32> = self.heard.iter().filter_map(message).collect();
        let known = if ids.is_empty() { 0 } else { ids[self.below(ids.len())] };
        self.number(known)
    }

    /// Takes notice of a packet of the victim.
    fn hear(&mut self, f: &Flying) {
        match f.body {
            Body::Open(p) => self.tag = p.tag,
            Body::OpenAck(p) if p.echo_tag == LIAR_TAG => self.tag = p.tag,
            _ => {}
        }
        if let Body::Open(p) | Body::OpenAck(p) = f.body {
            self.cum.get_or_insert(p.psn_start);
        }
        self.heard.push(f.body);
        if self.heard.len() > 400 {
            self.heard.drain(..200);
        }
        let echo = Echo {
            tx_num: f.header.tx_num,
            timestamp: f.header.timestamp,
            delay: 1,
            path: f.header.path,
            ce: false,
        };
        self.echoes.push(echo);
        if !f.header.kind.is_reliable() {
            return;
        }
        let psn = f.header.psn;
        if !self.arrived.insert(psn) {
            return;
        }
        if let Body::ReadReq(msg, req) = f.body {
            self.asked.push(Asked { msg_id: msg.msg_id, len: req.len, told: 0 });
        }
        // Some requests are refused, with a verdict that an honest responder could give or not.
        let verdict = match f.body {
            Body::ReadReq(..) if self.below(6) == 0 => Some(Verdict::Busy),
            Body::Send(_) | Body::SendImm(..) | Body::WriteImm { .. } if self.below(4) == 0 => {
                Some(Verdict::Rnr)
            }
            _ if self.lies() => Some(VERDICTS[self.below(9)]),
            _ => None,
        };
        if let Some(verdict) = verdict {
            self.refused.push(VerdictEntry::one(psn, verdict));
        }
        while let Some(cum) = self.cum.filter(|c| self.arrived.remove(c)) {
            self.cum = Some(cum.wrapping_add(1));
        }
        while self.refused.len() > 60 {
            self.refused.remove(0);
        }
    }

    fn header(&mut self, kind: PacketType, flags: u8) -> Header {
        self.tx_num = self.tx_num.wrapping_add(1 + u32::from(self.lies()) * self.rng.below(50));
        let psn = self.psn;
        if kind.is_reliable() {
            self.psn = psn.wrapping_add(1);
        }
        let path = self.rng.below(256) as u8;
        Header {
            kind,
            flags: Flags(flags),
            backlog: Backlog(self.rng.below(16) as u8),
            path,
            slot: 0,
            dst_tag: self.tag,
            tx_num: self.tx_num,
            timestamp: self.rng.next_u32(),
            psn: self.number(psn),
            una_delta: if self.lies() { self.rng.next_u32() as u16 } else { 0 },
            ack_echo: self.rng.next_u32() as u16,
        }
    }

    fn verdict_list(&mut self) -> Vec<VerdictEntry> {
        let mut list: Vec<_> = self.refused.iter().rev().take(14).copied().collect();
        while self.lies() && list.len() < 16 {
            let near = self.cum.unwrap_or(0).wrapping_sub(20).wrapping_add(self.rng.below(80));
            let psn = self.number(near);
            let others = match self.below(3) {
                0 => Others::Run(1 + (self.rng.next_u32() >> (16 + self.below(16))) as u16 / 2),
                1 => Others::Mask(1 + (self.rng.next_u32() >> (9 + self.below(23)))),
                _ => Others::Run(1),
            };
            list.push(VerdictEntry { psn, verdict: VERDICTS[self.below(9)], others });
        }
        list.sort_by_key(|v| v.psn);
        list.dedup_by_key(|v| v.psn);
        list
    }

    fn ack(&mut self) -> AckBlock {
        let cum = self.cum.unwrap_or(0);
        let mut a = AckBlock { cum: self.number(cum), ..AckBlock::default() };
        a.base = self.number(cum);
        for k in 0..self.below(9) as u32 {
            let bit = |p: u32| u64::from(self.arrived.contains(&p));
            let word = (0..64).fold(0, |w, b| w | bit(cum.wrapping_add(64 * k + b)) << b);
            let lie = self.rng.next_u64() & self.rng.next_u64();
            a.words.push(if self.lies() { lie } else { word });
        }
        a.partial = self.below(3) == 0;
        for v in self.verdict_list() {
            a.verdicts.push(v);
        }
        for mut e in core::mem::take(&mut self.echoes).into_iter().rev().take(8) {
            if self.lies() {
                e.tx_num = self.number(e.tx_num);
                e.timestamp = self.number(e.timestamp);
                e.delay = self.rng.next_u32() as u16;
                e.path = self.rng.next_u32() as u8;
                e.ce = self.below(2) == 0;
            }
            a.echoes.push(e);
        }
        a.rx_budget = if self.lies() { self.rng.next_u32() >> self.below(32) } else { u32::MAX };
        a.credit = self.rng.next_u32() >> self.below(32);
        a.rxq_drops = if self.lies() { self.rng.next_u32() } else { 0 };
        a.ce_count = self.rng.next_u32();
        a
    }

    fn params(&mut self, echo_tag: u32) -> OpenParams {
        OpenParams {
            tag: self.number(LIAR_TAG).max(1),
            incarnation: self.incarnation.wrapping_add(u64::from(self.lies())),
            echo_tag,
            psn_start: self.psn,
            tx_num_start: u64::from(self.tx_num.wrapping_add(1)),
            window: if self.lies() { self.rng.next_u32() as u16 } else { 1024 },
            mtu: if self.lies() { self.rng.next_u32() as u16 } else { 1024 },
            reads_max: self.rng.below(20) as u16,
            write_imms_max: self.rng.below(20) as u16,
            rx_budget: if self.lies() { self.rng.below(10_000) } else { u32::MAX },
            features: Features(if self.lies() { self.rng.next_u32() } else { 0b1111 }),
            cookie: 0,
        }
    }

    fn message(&mut self) -> Message {
        let k = self.below(self.qps.len());
        let dst_qpn = self.qps.get(k).copied().unwrap_or(0);
        let dst_qpn = if self.lies() { self.rng.next_u32() as u16 } else { dst_qpn };
        Message {
            src_qpn: self.rng.below(3) as u16,
            dst_qpn,
            qkey: self.number(0x11),
            msg_id: if self.below(2) == 0 { self.rng.below(8) } else { self.message_id() },
        }
    }

    fn rdma(&mut self) -> (u32, u64) {
        let k = self.below(self.rkeys.len());
        let (rkey, addr) = self.rkeys.get(k).copied().unwrap_or((0, 0));
        let far = if self.lies() { self.rng.next_u64() } else { u64::from(self.rng.below(9000)) };
        (self.number(rkey), addr.wrapping_add(far))
    }

    fn read_response(&mut self) -> (Body, u16) {
        let gone = self.below(12) == 0;
        let status = if gone { ReadStatus::RegionGone } else { ReadStatus::Ok };
        let n = self.asked.len();
        let lie = ReadResp { msg_id: self.message_id(), offset: self.rng.below(5000), status };
        let k = self.below(n);
        let Some(read) = self.asked.get_mut(k).copied() else {
            return (Body::ReadResp(lie), if gone { 0 } else { self.rng.below(1025) as u16 });
        };
        let (mut offset, mut len) = (read.told, (read.len - read.told).min(1024));
        self.asked[k].told += len;
        if self.asked[k].told == read.len {
            self.asked.swap_remove(k);
        }
        if self.lies() {
            offset = self.number(offset);
            len = self.rng.below(1025);
        }
        let msg_id = self.number(read.msg_id);
        (Body::ReadResp(ReadResp { msg_id, offset, status }), if gone { 0 } else { len as u16 })
    }

    /// A packet of its own. Rare kinds are those that end the context.
    fn body(&mut self) -> (Body, u16) {
        let len = self.rng.below(1025) as u16;
        let msg = self.message();
        let (rkey, raddr) = self.rdma();
        let rdma = Rdma { rkey, raddr };
        let rare = self.lies() && self.below(8) == 0;
        match self.below(24) {
            0..8 => (Body::Ack, 0),
            8..13 => self.read_response(),
            13 => (Body::Probe, 0),
            14 => (Body::Send(msg), len),
            15 => (Body::SendImm(msg, 7), len),
            16 => (Body::Write(msg, rdma), len),
            17 | 18 => {
                let times = self.rng.below(4);
                let msg_len = self.number(u32::from(len) * times);
                let len = if self.below(4) == 0 { 0 } else { len };
                (Body::WriteImm { msg, rdma, msg_len, imm: 3 }, len)
            }
            19 => {
                let len = self.rng.below(9000) >> self.below(14);
                (Body::ReadReq(msg, ReadReq { rkey, raddr, len: self.number(len) }), 0)
            }
            20 => (Body::Tombstone, 0),
            21 => (Body::Cancel { msg_id: self.message_id() }, 0),
            22 => (Body::Ud(msg), len),
            _ if !rare => (Body::UdImm(msg, 1), len),
            _ => match self.below(6) {
                0 => (Body::Close, 0),
                1 => (Body::CloseAck, 0),
                2 => (Body::Reset { echo_tag: LIAR_TAG, code: CloseCode::UnknownTag, nonce: 0 }, 0),
                3 => (Body::Open(self.params(0)), 0),
                4 => (Body::OpenAck(self.params(self.tag)), 0),
                _ => (Body::Challenge { echo_tag: self.tag, cookie: 9 }, 0),
            },
        }
    }
}

fn message(b: &Body) -> Option<u32> {
    match *b {
        Body::Send(m) | Body::SendImm(m, _) | Body::Write(m, _) | Body::ReadReq(m, _) => {
            Some(m.msg_id)
        }
        Body::WriteImm { msg, .. } => Some(msg.msg_id),
        Body::Cancel { msg_id } => Some(msg_id),
        Body::ReadResp(r) => Some(r.msg_id),
        _ => None,
    }
}

/// One engine under attack.
struct Scene {
    now: Time,
    victim: Host,
    liar: Liar,
    rng: Rng,
    qps: Vec<Qpn>,
    ah: AhId,
    posted: u64,
    keys: Vec<MrKey>,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let now = Time(1_000_000);
        let mut rng = Rng::from_seed(seed);
        let mut cfg = match rng.below(2) {
            0 => config(0),
            _ => EngineConfig::sockets(ip(0), 0, 1024),
        };
        cfg.window = [64, 256, 4096][rng.below(3) as usize];
        cfg.rate.credits = rng.below(3) == 0;
        cfg.rdma_needs_ah = rng.below(2) == 0;
        cfg.loss.unresponsive_after = Span::from_ms(200);
        cfg.loss.unreachable_after = Span::from_ms(100);
        let mut victim = Host::new(cfg, seed, now);
        let mut qps = vec![];
        for k in 0..2 {
            qps.push(victim.qp(now, QpType::Srd, k == 1));
        }
        qps.push(victim.qp(now, QpType::Ud, false));
        let ah = victim.ah(now, ip(1));
        let mut s =
            Self { now, victim, liar: Liar::new(seed), rng, qps, ah, posted: 0, keys: vec![] };
        s.liar.qps = s.qps.iter().map(|q| q.0).collect();
        s.region();
        s
    }

    fn region(&mut self) {
        let (key, addr) = self.victim.region(vec![9; 8192], 7);
        self.keys.push(key);
        self.liar.rkeys.push((key.0, addr));
    }

    /// The victim's program does something.
    fn work(&mut self) {
        let now = self.now;
        let qp = self.qps[self.rng.below(self.qps.len() as u32) as usize];
        match self.rng.below(40) {
            0..26 => {
                let op = [
                    Opcode::Send,
                    Opcode::SendImm,
                    Opcode::Write,
                    Opcode::WriteImm,
                    Opcode::Read,
                    Opcode::Read,
                ][self.rng.below(6) as usize];
                let max = if matches!(op, Opcode::Send | Opcode::SendImm) { 1025 } else { 49_000 };
                let len = self.rng.below(max) >> self.rng.below(12);
                let mut wr = send_wr(self.posted, self.ah, Qpn(0), len as usize);
                (wr.op, wr.rkey, wr.raddr) = (op, 5, 0x1000);
                let posted = self.victim.post(now, qp, wr, vec![0; len as usize]);
                self.posted += u64::from(posted.is_ok());
            }
            26..36 => {
                self.victim.recv(qp, 1, self.rng.below(2000));
            }
            36 => self.region(),
            37 => {
                if let Some(key) = self.keys.pop() {
                    self.victim.region_remove(key);
                }
            }
            38 if self.rng.below(20) == 0 && self.qps.len() > 1 => {
                let error = QpModify { state: Some(QpState::Err), ..QpModify::default() };
                self.victim.engine.qp_modify(now, qp, error).unwrap();
                self.qps.retain(|&q| q != qp);
            }
            39 if self.rng.below(20) == 0 && self.qps.len() > 1 => {
                self.victim.engine.qp_destroy(now, qp).unwrap();
                self.qps.retain(|&q| q != qp);
            }
            // The local link shrinks: packets under way are taken back.
            _ => self.victim.engine.path_too_long(now, ip(1), 1000, Some(200 + self.posted as u16)),
        }
        self.victim.collect();
    }

    /// The liar says something.
    fn say(&mut self, body: Body, payload_len: u16, with_ack: bool) {
        let kind = body.kind();
        let may = !matches!(kind, PacketType::Open | PacketType::Challenge | PacketType::Reset);
        let ack = (may && (with_ack || kind == PacketType::Ack)).then(|| self.liar.ack());
        let mut flags = if ack.is_some() { Flags::ACK_BLOCK } else { 0 };
        flags |= if self.liar.below(4) == 0 { Flags::ACK_REQUEST } else { 0 };
        let mut header = self.liar.header(kind, flags);
        if kind == PacketType::Open {
            header.dst_tag = 0;
        }
        let packet = Packet { header, ack: ack.as_ref(), body, payload_len };
        // Through bytes and back: only what is well-formed is said.
        let mut bytes = [0; wire::HEADERS_BYTES_MAX];
        let n = wire::emit(&packet, &mut bytes);
        let payload = vec![1; usize::from(payload_len)];
        let whole = [&bytes[..n], &payload[..]].concat();
        let mut read = AckBlock::default();
        let (packet, _) = wire::parse(&whole, &mut read).expect("the liar is well-formed");
        let waited = Span::ZERO;
        let ce = self.liar.lies();
        let meta = RxMeta { src_ip: ip(1), ce, rxq_drops: 0, waited };
        self.victim.receive(self.now, &meta, &packet, &payload);
    }

    fn speak(&mut self) {
        if self.liar.tag == 0 {
            return;
        }
        let (body, len) = self.liar.body();
        let with_ack = self.liar.below(2) == 0;
        self.say(body, len, with_ack);
    }

    /// Everything that the victim wants to send now; the liar hears most of it.
    fn drain(&mut self, heard: bool) {
        let mut packets = 0;
        loop {
            let out = self.victim.transmit(self.now);
            if out.is_empty() {
                return;
            }
            packets += out.len();
            assert!(packets < PACKETS_AT_ONCE_MAX, "no end of packets at {:?}", self.now);
            for f in &out {
                if heard && self.liar.below(20) != 0 {
                    self.liar.hear(f);
                    if let Body::Open(p) = f.body {
                        let echo = OpenParams { echo_tag: p.tag, ..self.liar.params(p.tag) };
                        self.say(Body::OpenAck(echo), 0, false);
                    }
                }
            }
        }
    }

    /// Virtual time until `end`: every timer fires when it is due.
    fn pass(&mut self, end: Time, heard: bool) {
        let mut moments = 0;
        loop {
            self.drain(heard);
            let due = self.victim.engine.next_timeout();
            if due > end {
                break;
            }
            moments = if due > self.now { 0 } else { moments + 1 };
            assert!(moments < MOMENTS_MAX, "timers fire without end at {:?}", self.now);
            self.now = self.now.max(due);
            self.victim.engine.handle_timeout(self.now);
            self.victim.collect();
        }
        self.now = self.now.max(end);
    }

    /// Every request ended once, and the engine holds nothing of them.
    fn finish(&mut self) {
        // The liar falls silent: what is open ends.
        for _ in 0..20 {
            let end = self.now + Span::from_ms(50);
            self.pass(end, false);
        }
        let sends = self.victim.done.iter().filter(|c| matches!(c.kind, CompletionKind::Send(..)));
        let ids: Vec<u64> = sends.map(|c| c.wr_id).collect();
        let unlike: HashSet<u64> = ids.iter().copied().collect();
        assert_eq!(unlike.len(), ids.len(), "a request ended twice");
        let released = |e: &&AsyncEvent| matches!(e, AsyncEvent::WrReleased(_));
        let released = self.victim.events.iter().filter(released).count();
        let stats = self.victim.engine.context_stats();
        let ended = (ids.len() + released) as u64;
        assert_eq!(ended, self.posted, "requests without an end: {stats:#?}");
        assert!(stats.iter().all(|s| s.outstanding == 0), "{stats:#?}");
    }
}

fn life(seed: u64) {
    let mut s = Scene::new(seed);
    if s.rng.below(2) == 0 {
        let open = s.liar.params(0);
        s.say(Body::Open(open), 0, false);
    }
    for _ in 0..400 {
        for _ in 0..s.rng.below(3) {
            s.work();
        }
        for _ in 0..s.liar.below(5) {
            s.speak();
        }
        let step = match s.rng.below(40) {
            0 => Span::from_ms(30),
            1..10 => Span::from_us(500),
            _ => Span::from_us(10),
        };
        let end = s.now + step;
        s.pass(end, true);
    }
    s.finish();
}

/// What the watcher looks at: the seed that runs, and how many have ended.
static SEED: AtomicU64 = AtomicU64::new(0);
static LIVES: AtomicU64 = AtomicU64::new(0);

/// An engine that never returns from a call says nothing. A minute without the end of a seed that
/// takes milliseconds is an endless loop; no limit is set to the time of one that ends.
#[expect(clippy::disallowed_methods, reason = "watches from outside; no engine sees its clock")]
fn watch() {
    let mut lives = u64::MAX;
    loop {
        std::thread::sleep(Duration::from_secs(60));
        let now = LIVES.load(Ordering::Relaxed);
        if now == lives {
            eprintln!("endless loop: seed {}", SEED.load(Ordering::Relaxed));
            std::process::abort();
        }
        lives = now;
    }
}

#[expect(clippy::disallowed_methods, reason = "the thread of the watcher, not of an engine")]
fn watcher_start() {
    std::thread::spawn(watch);
}

#[test]
fn no_liar_makes_the_engine_panic_loop_or_lose_a_request() {
    let range = std::env::var("LIAR_SEEDS").unwrap_or_default();
    let mut ends = range.split("..").filter_map(|n| n.parse::<u64>().ok());
    let (first, end) = (ends.next().unwrap_or(0), ends.next().unwrap_or(100));
    watcher_start();
    let mut failed = 0;
    for seed in first..end {
        SEED.store(seed, Ordering::Relaxed);
        let result = std::panic::catch_unwind(|| life(seed));
        LIVES.fetch_add(1, Ordering::Relaxed);
        if result.is_err() {
            eprintln!("liar: LIAR_SEEDS={seed}..{}", seed + 1);
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "seeds {first}..{end}");
}
