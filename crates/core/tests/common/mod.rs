//! Two or more engines on a network in memory, in virtual time, with faults drawn from a seed.

pub mod door;
mod faults;
mod host;
pub mod overload;
mod pair;
pub mod puppet;

pub use faults::Faults;
pub use host::{Flying, Host};
pub use pair::Pair;

use core::net::{IpAddr, Ipv4Addr};
use overload::Overload;
use srd_core::wire::{AckBlock, Packet};
use srd_core::*;
use std::collections::BTreeMap;

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
        let rails = f1.rail_loss.iter().zip(&self.hosts).find(|(_, h)| h.ip == f.src_ip);
        let rail_loss = rails.map_or(0, |(loss, _)| loss[usize::from(f.path % 2)]);
        if f1.dead
            || long
            || f1.black_paths.contains(&f.path)
            || self.rng.below(10_000) < f1.loss
            || rail_loss > 0 && self.rng.below(10_000) < rail_loss
        {
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
            let rail = self.faults.rail_delay_ns[usize::from(f.path % 2)];
            let at = self.now.0 + self.faults.delay_ns + rail + jitter;
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

    /// Brings a packet that arrived at `at`, and waited in the socket, to its host now.
    pub fn hand_over_late(&mut self, f: Flying, at: Time) {
        let to = self.hosts.iter().position(|h| h.ip == f.dst.ip).expect("one of the hosts");
        self.receive(to, &f, at, 0);
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
