//! Two or more engines on a network in memory, in virtual time, with faults drawn from a seed.

pub mod door;
pub mod overload;
pub mod puppet;

use core::net::{IpAddr, Ipv4Addr};
use overload::Overload;
use srd_core::wire::{AckBlock, Packet};
use srd_core::*;
use std::collections::{BTreeMap, HashMap};

/// What the network does to packets.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Chances in 10,000.
    pub loss: u32,
    pub duplicate: u32,
    /// One-way delay: fixed part and random part.
    pub delay_ns: u64,
    pub jitter_ns: u64,
    /// Paths whose packets vanish, by sender's path number.
    pub black_paths: Vec<u8>,
    /// Everything vanishes.
    pub dead: bool,
    /// Hosts that were killed and never return: they neither send nor receive nor look at a clock.
    pub killed: Vec<usize>,
    /// Packets with more payload than this, or padded to as much, vanish: a path MTU that nobody
    /// tells.
    pub longer_lost: usize,
    /// Packets longer than this in all (UDP payload) vanish, but for handshakes.
    pub link_bytes: usize,
    /// Handshakes, too: otherwise those have passed before.
    pub opens_too: bool,
    /// The same on some paths only, by sender's path number.
    pub longer_lost_on: Option<(Vec<u8>, usize)>,
    /// Chance in 10,000 that bits flip on the way and UDP's checksum does not notice.
    pub damage: u32,
    /// How far the clock of the sender at this address has leapt back.
    pub clock_back: Option<(IpAddr, Span)>,
    /// Flags that every packet of an engine has when it arrives, as a driver sets them that has
    /// opened a seal.
    pub marks: u8,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            loss: 0,
            duplicate: 0,
            delay_ns: 5_000,
            jitter_ns: 0,
            black_paths: vec![],
            dead: false,
            killed: vec![],
            longer_lost: usize::MAX,
            link_bytes: usize::MAX,
            opens_too: false,
            longer_lost_on: None,
            damage: 0,
            clock_back: None,
            marks: 0,
        }
    }
}

/// A packet on its way.
#[derive(Clone)]
pub struct Flying {
    pub dst: Endpoint,
    src_ip: IpAddr,
    pub header: wire::Header,
    pub ack: Option<AckBlock>,
    pub body: wire::Body,
    payload: Vec<u8>,
    path: u8,
    pub padded_len: u16,
    /// Length in all.
    bytes: usize,
}

/// Buffers of one host, as its device would keep them.
#[derive(Default)]
struct Memory {
    wrs: HashMap<u32, Vec<u8>>,
    recvs: HashMap<(u16, u32), Vec<u8>>,
    regions: HashMap<u32, (u64, Vec<u8>)>,
}

/// One engine with its memory and its usual objects.
pub struct Host {
    pub engine: Engine,
    memory: Memory,
    pub ip: IpAddr,
    pub pd: PdId,
    pub cq: CqId,
    pub done: Vec<Completion>,
    pub events: Vec<AsyncEvent>,
    /// Contents of completed receives, in order of completion.
    pub received: Vec<Vec<u8>>,
    pub sent_packets: u64,
    pub paths_used: [u64; 256],
}

pub struct Net {
    pub now: Time,
    pub hosts: Vec<Host>,
    pub faults: Faults,
    pub overload: Option<Overload>,
    rng: Rng,
    flying: BTreeMap<(u64, u64), Flying>,
    serial: u64,
    pub dropped: u64,
    /// Packets in which bits flipped, and those of them that could still be read.
    pub damaged: (u64, u64),
    /// The most steps of work that one call of `handle_timeout` took.
    pub timer_steps_max: u64,
    /// Bytes of all probes that each address sent.
    pub probe_bytes: BTreeMap<IpAddr, u64>,
    /// The header of the last packet within a context that each address sent.
    overheard: BTreeMap<IpAddr, wire::Header>,
}

pub fn ip(i: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, ((i + 1) >> 8) as u8, (i + 1) as u8))
}

pub fn config(i: usize) -> EngineConfig {
    let mut c = EngineConfig::simulated(ip(i), 0, 1024, 12_500_000_000, Span::from_us(10));
    c.loss.unresponsive_after = Span::from_ms(200);
    c.loss.unreachable_after = Span::from_ms(100);
    c
}

struct Collect<'a> {
    memory: &'a Memory,
    src_ip: IpAddr,
    out: Vec<Flying>,
    paths_used: &'a mut [u64; 256],
}

impl TxSink for Collect<'_> {
    fn push(&mut self, t: &Transmit<'_>) {
        let payload = match t.payload {
            None => Vec::new(),
            Some(p) => {
                let (from, start) = match p.source {
                    Source::Wr(h) => (&self.memory.wrs[&h.0], p.offset as usize),
                    Source::Region(k) => {
                        let (addr, bytes) = &self.memory.regions[&k.0];
                        (bytes, (p.offset - addr) as usize)
                    }
                };
                from[start..start + usize::from(p.len)].to_vec()
            }
        };
        assert_eq!(payload.len(), usize::from(t.packet.payload_len));
        self.paths_used[usize::from(t.path)] += 1;
        // Through bytes and back: what is checked here is what would travel.
        let mut bytes = [0; wire::HEADERS_BYTES_MAX];
        let n = wire::emit(&t.packet, &mut bytes);
        let mut whole = bytes[..n].to_vec();
        whole.extend_from_slice(&payload);
        wire::stamp(&mut whole);
        let mut ack = AckBlock::default();
        let (p, at) =
            wire::parse_checked(&whole, &mut ack).expect("the core emits what can be parsed");
        assert_eq!(at, n);
        let (header, body, has_ack) = (p.header, p.body, p.ack.is_some());
        self.out.push(Flying {
            dst: t.dst,
            src_ip: self.src_ip,
            header,
            ack: has_ack.then_some(ack),
            body,
            payload,
            path: t.path,
            padded_len: t.padded_len,
            bytes: whole.len().max(t.padded_len.into()),
        });
    }
}

impl Host {
    pub fn new(cfg: EngineConfig, seed: u64, now: Time) -> Self {
        let ip = cfg.ip;
        let mut engine = Engine::new(cfg, Rng::from_seed(seed), now, ()).unwrap();
        let pd = engine.pd_create().unwrap();
        let cq = engine.cq_create(100_000).unwrap();
        Self::of(engine, (pd, cq), ip)
    }

    /// With this engine and its usual objects.
    pub fn of(engine: Engine, (pd, cq): (PdId, CqId), ip: IpAddr) -> Self {
        Self {
            engine,
            memory: Memory::default(),
            ip,
            pd,
            cq,
            done: vec![],
            events: vec![],
            received: vec![],
            sent_packets: 0,
            paths_used: [0; 256],
        }
    }

    pub fn qp(&mut self, now: Time, kind: QpType, unsolicited: bool) -> Qpn {
        let init = QpInit {
            kind,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            sq_depth: 4096,
            rq_depth: 4096,
            unsolicited_write_recv: unsolicited,
        };
        let qp = self.engine.qp_create(now, init).unwrap();
        self.qp_ready(now, qp, 7);
        qp
    }

    pub fn qp_ready(&mut self, now: Time, qp: Qpn, rnr_retry: u8) {
        let to = |state, qkey, rnr_retry| QpModify { state: Some(state), qkey, rnr_retry };
        self.engine.qp_modify(now, qp, to(QpState::Init, Some(0x11), None)).unwrap();
        self.engine.qp_modify(now, qp, to(QpState::Rtr, None, None)).unwrap();
        self.engine.qp_modify(now, qp, to(QpState::Rts, None, Some(rnr_retry))).unwrap();
    }

    pub fn ah(&mut self, now: Time, to: IpAddr) -> AhId {
        self.engine.ah_create(now, self.pd, to).unwrap()
    }

    pub fn region(&mut self, bytes: Vec<u8>, access: u8) -> (MrKey, u64) {
        let addr = 0x7000_0000_0000;
        let len = bytes.len() as u64;
        let key = self.engine.mr_register(self.pd, addr, len, Access(access)).unwrap();
        self.memory.regions.insert(key.0, (addr, bytes));
        (key, addr)
    }

    pub fn region_bytes(&self, key: MrKey) -> &[u8] {
        &self.memory.regions[&key.0].1
    }

    pub fn region_remove(&mut self, key: MrKey) {
        self.engine.mr_deregister(key).unwrap();
        self.memory.regions.remove(&key.0);
    }

    pub fn recv(&mut self, qp: Qpn, wr_id: u64, len: u32) {
        let h = self.engine.post_recv(qp, &RecvRequest { wr_id, len }).unwrap();
        self.memory.recvs.insert((h.qp.0, h.index), vec![0; len as usize]);
    }

    pub fn post(
        &mut self,
        now: Time,
        qp: Qpn,
        wr: SendRequest,
        data: Vec<u8>,
    ) -> Result<WrHandle, PostRefusal> {
        let h = self.engine.post_send(now, qp, &wr)?;
        self.memory.wrs.insert(h.0, data);
        Ok(h)
    }

    pub fn wr_bytes(&self, h: WrHandle) -> &[u8] {
        &self.memory.wrs[&h.0]
    }

    /// Lets up to 64 packets leave.
    pub fn transmit(&mut self, now: Time) -> Vec<Flying> {
        let mut sink = Collect {
            memory: &self.memory,
            src_ip: self.ip,
            out: vec![],
            paths_used: &mut self.paths_used,
        };
        let n = self.engine.poll_transmit(now, 64, &mut sink);
        let out = sink.out;
        self.sent_packets += n as u64;
        self.collect();
        out
    }

    /// Hands one packet over, and puts its payload where the engine says.
    pub fn receive(&mut self, now: Time, meta: &RxMeta, packet: &Packet<'_>, payload: &[u8]) {
        if let Rx::Place(p) = self.engine.handle(now, meta, packet) {
            self.place(p, payload);
        }
        self.engine.rx_burst_end(now);
        self.collect();
    }

    fn place(&mut self, p: Placement, payload: &[u8]) {
        let len = p.len as usize;
        assert_eq!(len, payload.len());
        let (to, at) = match p.target {
            Target::Recv(h) => {
                (self.memory.recvs.get_mut(&(h.qp.0, h.index)).unwrap(), p.offset as usize)
            }
            Target::Region(k) => {
                let (addr, bytes) = self.memory.regions.get_mut(&k.0).unwrap();
                (bytes, (p.offset - *addr) as usize)
            }
            Target::Wr(h) => (self.memory.wrs.get_mut(&h.0).unwrap(), p.offset as usize),
        };
        to[at..at + len].copy_from_slice(payload);
    }

    pub fn collect(&mut self) {
        while let Some(c) = self.engine.cq_poll(self.cq) {
            self.engine.cq_release(self.cq, 1);
            if let CompletionKind::Recv(h) = c.kind
                && c.status == Status::Ok
            {
                let buffer = &self.memory.recvs[&(h.qp.0, h.index)];
                self.received.push(buffer[..c.byte_len as usize].to_vec());
            }
            self.done.push(c);
        }
        while let Some(e) = self.engine.poll_event() {
            self.events.push(e);
        }
    }

    pub fn statuses(&self) -> Vec<Status> {
        let sends = self.done.iter().filter(|c| matches!(c.kind, CompletionKind::Send(..)));
        sends.map(|c| c.status).collect()
    }

    pub fn sends_done(&self) -> usize {
        self.statuses().len()
    }
}

/// A send request to queue pair `dst` behind `ah`.
pub fn send_wr(wr_id: u64, ah: AhId, dst: Qpn, len: usize) -> SendRequest {
    SendRequest {
        wr_id,
        op: Opcode::Send,
        ah,
        dst_qpn: dst,
        qkey: 0x11,
        len: len as u32,
        rkey: 0,
        raddr: 0,
        imm: 0,
    }
}

pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::from_seed(seed);
    (0..len).map(|_| rng.next_u32() as u8).collect()
}

impl Net {
    pub fn new(seed: u64, configs: Vec<EngineConfig>) -> Self {
        let hosts = configs
            .into_iter()
            .enumerate()
            .map(|(i, c)| Host::new(c, seed * 100 + i as u64, Time(1)));
        Self {
            now: Time(1),
            hosts: hosts.collect(),
            faults: Faults::default(),
            overload: None,
            rng: Rng::from_seed(seed ^ 0xFA),
            flying: BTreeMap::new(),
            serial: 0,
            dropped: 0,
            damaged: (0, 0),
            timer_steps_max: 0,
            probe_bytes: BTreeMap::new(),
            overheard: BTreeMap::new(),
        }
    }

    /// Hands host `to` a packet that claims to come from host `from`, and whose header is that of
    /// the last packet that `from` sent in a context, with `change` made to it.
    pub fn forge(
        &mut self,
        (from, to): (usize, usize),
        body: wire::Body,
        change: impl FnOnce(&mut wire::Header),
    ) {
        let src_ip = self.hosts[from].ip;
        let mut header = self.overheard[&src_ip];
        header.kind = body.kind();
        header.flags = wire::Flags(0);
        change(&mut header);
        let packet = Packet { header, ack: None, body, payload_len: 0 };
        let meta = RxMeta { src_ip, ce: false, rxq_drops: 0, waited: Span::ZERO };
        self.hosts[to].receive(self.now, &meta, &packet, &[]);
    }

    /// The tag that the last packet of host `from` was for.
    pub fn tag_for(&self, from: usize) -> u32 {
        self.overheard[&self.hosts[from].ip].dst_tag
    }

    pub fn pair(seed: u64) -> Self {
        Self::new(seed, vec![config(0), config(1)])
    }

    /// Replaces host `i` by a fresh one: a process that was killed and started again.
    pub fn restart(&mut self, i: usize, seed: u64) {
        let cfg = self.hosts[i].engine.config().clone();
        self.hosts[i] = Host::new(cfg, seed, self.now);
    }

    fn launch(&mut self, f: Flying) {
        if f.header.kind == wire::PacketType::Probe {
            *self.probe_bytes.entry(f.src_ip).or_default() += f.bytes as u64;
        }
        if f.header.dst_tag != 0 && f.header.kind != wire::PacketType::Reset {
            self.overheard.insert(f.src_ip, f.header);
        }
        let f1 = &self.faults;
        let padded = usize::from(f.padded_len).saturating_sub(wire::OVERHEAD_BYTES);
        let asks = f1.opens_too || f.header.kind == wire::PacketType::Probe;
        let size = f.payload.len().max(if asks { padded } else { 0 });
        let there = f1.longer_lost_on.as_ref().filter(|(paths, _)| paths.contains(&f.path));
        let opens = matches!(f.header.kind, wire::PacketType::Open | wire::PacketType::OpenAck);
        let long = size > f1.longer_lost.min(there.map_or(usize::MAX, |t| t.1))
            || !opens && f.bytes > f1.link_bytes;
        if f1.dead || long || f1.black_paths.contains(&f.path) || self.rng.below(10_000) < f1.loss {
            self.dropped += 1;
            return;
        }
        if self.overload.as_mut().is_some_and(|o| !o.fits(&f)) {
            self.dropped += 1;
            return;
        }
        let copies = if self.rng.below(10_000) < self.faults.duplicate { 2 } else { 1 };
        for _ in 0..copies {
            let jitter = match self.faults.jitter_ns {
                0 => 0,
                j => u64::from(self.rng.below(j as u32)),
            };
            self.serial += 1;
            let at = self.now.0 + self.faults.delay_ns + jitter;
            self.flying.insert((at, self.serial), f.clone());
        }
    }

    /// Whether host `i` does something now.
    fn runs(&self, i: usize) -> bool {
        let halted = |o: &Overload| o.halted(i, self.now).is_some();
        !self.faults.killed.contains(&i) && !self.overload.as_ref().is_some_and(halted)
    }

    /// Lets every host send what it has now.
    fn transmit(&mut self) {
        for i in 0..self.hosts.len() {
            if !self.runs(i) {
                continue;
            }
            loop {
                let out = self.hosts[i].transmit(self.now);
                if out.is_empty() {
                    break;
                }
                for f in out {
                    self.launch(f);
                }
            }
        }
    }

    /// Flips up to three bits of a packet; what still can be read of it, if anything.
    fn damage(&mut self, f: &Flying) -> Option<Flying> {
        self.damaged.0 += 1;
        let mut f = f.clone();
        let payload_len = f.payload.len() as u16;
        let packet = Packet { header: f.header, ack: f.ack.as_ref(), body: f.body, payload_len };
        let mut bytes = vec![0; packet.headers_len()];
        wire::emit(&packet, &mut bytes);
        bytes.extend_from_slice(&f.payload);
        wire::stamp(&mut bytes);
        let at = self.rng.below(bytes.len() as u32 * 8) as usize;
        for k in 0..=self.rng.below(3) as usize {
            let bit = (at + 11 * k) % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let mut ack = AckBlock::default();
        let (p, start) = wire::parse_checked(&bytes, &mut ack).ok()?;
        let has_ack = p.ack.is_some();
        (f.header, f.body) = (p.header, p.body);
        f.payload = bytes[start..start + usize::from(p.payload_len)].to_vec();
        f.ack = has_ack.then_some(ack);
        self.damaged.1 += 1;
        Some(f)
    }

    fn deliver(&mut self, mut f: Flying) {
        if self.faults.damage > 0 && self.rng.below(10_000) < self.faults.damage {
            let Some(readable) = self.damage(&f) else { return };
            f = readable;
        }
        if let Some((_, leap)) = self.faults.clock_back.filter(|(from, _)| *from == f.src_ip) {
            f.header.timestamp = f.header.timestamp.wrapping_sub(Time(leap.0).to_wire());
        }
        let killed = &self.faults.killed;
        let mut living = self.hosts.iter().enumerate().filter(|(i, _)| !killed.contains(i));
        let Some((i, _)) = living.find(|(_, h)| {
            let c = h.engine.config();
            h.ip == f.dst.ip && c.port_base + u16::from(c.slot) == f.dst.port
        }) else {
            return;
        };
        match &mut self.overload {
            Some(o) => o.arrive(self.now, i, f),
            None => self.receive(i, &f, self.now, 0),
        }
    }

    /// Host `i` takes a packet that arrived at `at`.
    fn receive(&mut self, i: usize, f: &Flying, at: Time, rxq_drops: u32) {
        let waited = self.now.since(at);
        let meta = RxMeta { src_ip: f.src_ip, ce: false, rxq_drops, waited };
        let mut packet = Packet {
            header: f.header,
            ack: f.ack.as_ref(),
            body: f.body,
            payload_len: f.payload.len() as u16,
        };
        // As the parser does: how long these are is what they prove.
        if matches!(f.header.kind, wire::PacketType::Open | wire::PacketType::OpenAck) {
            packet.payload_len = f.padded_len.saturating_sub(packet.headers_len() as u16);
        }
        packet.header.flags.0 |= self.faults.marks;
        self.hosts[i].receive(self.now, &meta, &packet, &f.payload);
    }

    /// Brings a packet to its host now.
    pub fn hand_over(&mut self, f: Flying) {
        self.deliver(f);
    }

    /// One step to the next thing that happens. False: nothing will.
    pub fn step(&mut self) -> bool {
        self.step_until(Time(Time::NEVER.0 - 1))
    }

    /// The same unless it comes after `end`.
    fn step_until(&mut self, end: Time) -> bool {
        self.transmit();
        let packets = self.flying.keys().next().map_or(Time::NEVER, |k| Time(k.0));
        let next = self.timers_next().min(packets);
        if next > end {
            return false;
        }
        self.now = self.now.max(next);
        if let Some(o) = &mut self.overload {
            o.advance(self.now);
        }
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > self.now.0 {
                break;
            }
            let f = entry.remove();
            self.deliver(f);
        }
        for i in 0..self.hosts.len() {
            if self.runs(i) {
                self.turn(i);
            }
        }
        true
    }

    /// When a host has something to do by itself.
    fn timers_next(&self) -> Time {
        let living = self.hosts.iter().enumerate();
        let living = living.filter(|(i, _)| !self.faults.killed.contains(i));
        let o = self.overload.as_ref();
        let timers = living.map(|(i, h)| {
            let wakes = o.and_then(|o| o.halted(i, self.now));
            h.engine.next_timeout().max(wakes.unwrap_or(Time(0)))
        });
        timers.min().unwrap().min(o.map_or(Time::NEVER, |o| o.next(self.now)))
    }

    /// Host `i` reads its socket and looks at the clock.
    fn turn(&mut self, i: usize) {
        let mut read_until = self.now;
        if let Some(o) = &mut self.overload {
            let (taken, drops) = o.take(self.now, i);
            read_until = o.read_until(i, self.now);
            for (at, f) in taken {
                self.receive(i, &f, at, drops);
            }
        }
        let h = &mut self.hosts[i];
        let before = h.engine.counters().timer_steps;
        h.engine.handle_timeout_unread(self.now, read_until);
        let steps = h.engine.counters().timer_steps - before;
        self.timer_steps_max = self.timer_steps_max.max(steps);
        h.collect();
    }

    /// Runs for `span` of virtual time.
    pub fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end && self.step_until(end) {}
        self.now = end;
    }

    /// Runs until `done` says so; false if `limit` passed first.
    pub fn run_until(&mut self, limit: Span, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now + limit;
        while self.now < end {
            if done(self) {
                return true;
            }
            if !self.step() {
                break;
            }
        }
        done(self)
    }
}

/// Two hosts with one SRD queue pair each and address handles both ways.
pub struct Pair {
    pub net: Net,
    pub qp: [Qpn; 2],
    pub ah: [AhId; 2],
}

impl Pair {
    pub fn with(seed: u64, configs: Vec<EngineConfig>) -> Self {
        let mut net = Net::new(seed, configs);
        let now = net.now;
        let qp = [0, 1].map(|i: usize| net.hosts[i].qp(now, QpType::Srd, false));
        let to = [net.hosts[1].ip, net.hosts[0].ip];
        let ah = [0, 1].map(|i: usize| net.hosts[i].ah(now, to[i]));
        Self { net, qp, ah }
    }
    pub fn new(seed: u64) -> Self {
        Self::with(seed, vec![config(0), config(1)])
    }
    /// A pair whose context is open: one message of some bytes went from host 0 to host 1.
    pub fn opened(seed: u64, bytes: usize) -> Self {
        let mut p = Self::new(seed);
        p.net.hosts[1].recv(p.qp[1], 1, bytes as u32);
        p.send(0, 1, vec![1; bytes]).unwrap();
        assert!(p.net.run_until(Span::from_ms(50), |n| n.hosts[0].sends_done() == 1));
        p
    }
    /// Sends one batch of messages of some bytes from host 0 to host 1, and waits for them for no
    /// longer than `limit`. Their statuses.
    pub fn batch(&mut self, messages: usize, bytes: usize, limit: Span) -> Vec<Status> {
        for i in 0..messages as u64 {
            self.net.hosts[1].recv(self.qp[1], i, bytes as u32);
            self.send(0, i, vec![1; bytes]).unwrap();
        }
        self.net.run_until(limit, |n| n.hosts[0].done.len() == messages);
        let statuses = self.net.hosts[0].statuses();
        self.net.hosts[0].done.clear();
        statuses
    }
    /// Sends `n` more messages of 500 bytes from host 0 to host 1, which has receives for them: all
    /// succeed, within 150 ms.
    pub fn work(&mut self, n: usize) {
        let before = self.net.hosts[0].sends_done();
        for i in 0..n {
            self.send(0, i as u64, vec![1; 500]).unwrap();
        }
        let all = |net: &Net| net.hosts[0].sends_done() == before + n;
        let done = self.net.run_until(Span::from_ms(150), all);
        assert!(done, "{:#?}", self.net.hosts[0].engine.context_stats());
        assert!(self.net.hosts[0].statuses().iter().all(|s| *s == Status::Ok));
    }
    /// Posts `data` from host `from` to the other.
    pub fn send(
        &mut self,
        from: usize,
        wr_id: u64,
        data: Vec<u8>,
    ) -> Result<WrHandle, PostRefusal> {
        let wr = send_wr(wr_id, self.ah[from], self.qp[1 - from], data.len());
        let now = self.net.now;
        self.net.hosts[from].post(now, self.qp[from], wr, data)
    }
}
