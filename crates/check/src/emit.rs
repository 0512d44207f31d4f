//! Checks of each packet that an engine emits, before the network gets it.

use crate::deaf::Deaf;
use crate::ledger::{Carried, Ledger, NO_CREDIT, Oracle, ReqState};
use crate::mirror::Mirror;
use crate::node::{AckDeadline, Bucket, Judgments, Node};
use crate::packet::{Content, Datagram, Owner, Pkt, host_of};
use rustc_hash::FxHashMap;
use srd_core::config::{PORT_BASE_DEFAULT, RatePolicy};
use srd_core::time::Time;
use srd_core::wire::{
    self, AckBlock, Body, Header, Message, Packet, PacketType, ReadStatus, VerdictEntry,
};
use srd_core::{Endpoint, EngineConfig, Opcode, PathMask, Qpn, Source, Span, Transmit, TxSink};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

/// Noise that an engine is told of at most, exclusive; beyond half of it nothing changes.
const HANDOVER_NS_MAX: u64 = 100_000;

/// Receives the packets of one poll.
pub struct Emitter<'a> {
    led: &'a mut Ledger,
    mirror: &'a Mirror,
    wrs: &'a [Option<u32>],
    judgments: &'a mut FxHashMap<Endpoint, Judgments>,
    contexts: &'a FxHashMap<Endpoint, u32>,
    engagements: &'a FxHashMap<Endpoint, u32>,
    deaf: &'a mut Deaf,
    denied: &'a BTreeMap<IpAddr, PathMask>,
    buckets: &'a mut FxHashMap<IpAddr, Bucket>,
    /// Time of the engine's clock.
    now: Time,
    counts: &'a mut (u64, u64, u64),
    ack_deadline: &'a AckDeadline,
    cfg: &'a EngineConfig,
    /// What each acknowledgment must tell of what waits.
    depth: u16,
    id: u16,
    epoch: u32,
    slots: &'a [u8],
    hosts: u32,
    /// The emitted packets.
    pub out: &'a mut Vec<Pkt>,
}

impl Node {
    /// Polls the engine for up to `batch` packets. Returns how many it emitted.
    pub fn poll_transmit(
        &mut self,
        led: &mut Ledger,
        (hosts, slots): (u32, &[u8]),
        batch: usize,
        out: &mut Vec<Pkt>,
    ) -> usize {
        let now = self.clock.read(led.now);
        let depth = self.ring_depth();
        let mut sink = Emitter {
            led,
            mirror: &self.mirror,
            wrs: &self.wrs,
            judgments: &mut self.judgments,
            contexts: &self.contexts,
            engagements: &self.engagements,
            deaf: &mut self.deaf,
            denied: &self.denied,
            buckets: &mut self.buckets,
            now,
            counts: &mut self.counts,
            ack_deadline: &self.ack_deadline,
            cfg: &self.cfg,
            depth,
            id: self.id,
            epoch: self.epoch,
            slots,
            hosts,
            out,
        };
        let n = self.engine.poll_transmit(now, batch, &mut sink);
        led.require(n <= batch, Oracle::Limits, || format!("{n} packets for a batch of {batch}"));
        if n > 0 {
            // Any noise will do: from none to twice what counts at most.
            self.engine.handover_note(|| Span(now.0 % HANDOVER_NS_MAX));
        }
        self.observed(led);
        n
    }

    /// Evaluates what the recorder saw outside of [`Node::deliver`].
    pub fn observed(&mut self, led: &mut Ledger) {
        let id = self.id;
        let r = self.engine.observer();
        let judged = r.judged.take();
        if let Some(what) = r.paths_check() {
            led.fail(Oracle::Paths, format!("engine {id}: {what}"));
        }
        if r.moves.is_empty() && r.lines.is_empty() && judged.is_none() {
            return;
        }
        for line in r.lines.drain(..) {
            led.note(|| format!("engine {id}: {line}"));
        }
        if let Some(j) = judged {
            led.fail(Oracle::Judgment, format!("engine {id} judged {j:?} without a packet"));
        }
        for (peer, from, to) in core::mem::take(&mut r.moves) {
            // A peer whose packets were lost for this long may still regard the context as open.
            led.disturbed |= (from, to) == ("HalfOpen", "Closed");
            if to == "Forgotten" {
                // A reset will tell the peer that its outstanding requests are lost.
                led.disturbed = true;
                self.silent(led, peer);
                continue;
            }
            // A peer that took nothing is told that the context is gone.
            led.disturbed |= to == "Closed" && self.deaf.context_end(peer);
            if from.is_empty() {
                *self.contexts.entry(peer).or_default() += 1;
            }
            if matches!(to, "Opening" | "HalfOpen" | "Closed") {
                self.judgments.remove(&peer);
                self.newest_forget(peer);
                *self.engagements.entry(peer).or_default() += 1;
            }
        }
    }
}

impl TxSink for Emitter<'_> {
    fn push(&mut self, t: &Transmit<'_>) {
        let mut head = vec![0; t.packet.headers_len()];
        let n = wire::emit(&t.packet, &mut head);
        let len = (n + usize::from(t.packet.payload_len)).max(usize::from(t.padded_len));
        self.counts.1 += 1;
        self.counts.2 += len as u64;
        self.led.tally.packets += 1;
        let to = self.engine_at(t.dst);
        if let Some(ack) = t.packet.ack {
            self.ack_check(t.dst, ack);
            let (id, depth, told) = (self.id, self.depth, ack.rxq_depth);
            self.led.require(told == depth, Oracle::Limits, || {
                format!("engine {id} tells that {told} packets wait, not {depth}")
            });
        }
        if self.denied.get(&t.dst.ip).is_some_and(|mask| mask.has(t.path)) {
            let (id, what) = (self.id, brief(&t.packet));
            self.led.fail(Oracle::Paths, format!("engine {id} sends on a denied path: {what}"));
        }
        self.tag_note(&t.packet);
        let request = self.body_check(t, to);
        self.deaf.sent(t.dst, &t.packet);
        if let Some(to) = to {
            let life = (self.epoch, self.contexts.get(&t.dst).copied().unwrap_or(0));
            self.numbers_check(&t.packet, (to, life), request);
        }
        self.pace(t, len);
        let content = t.payload.and_then(|p| match p.source {
            Source::Wr(_) => request.map(Owner::Request),
            Source::Region(key) => self.mirror.mrs.get(&key.0).map(|r| Owner::Region(r.id)),
        });
        let content = content.zip(t.payload);
        let pkt = Rc::new(Datagram {
            head,
            tail_len: (len - n) as u16,
            content: content.map(|(owner, p)| Content { owner, offset: p.offset, len: p.len }),
            request,
            forged: false,
            src: self.cfg.ip,
            dst: t.dst,
            sport: 20_000u16.wrapping_add(u16::from_be_bytes([self.cfg.slot, t.path])),
        });
        let (id, now) = (self.id, self.led.now);
        if let Some(trace) = &mut self.led.trace {
            trace.line(now, format!("engine {id} > {} {}", t.dst.ip, brief(&t.packet)));
            trace.packet(now, &pkt);
        }
        self.out.push(pkt);
    }
}

/// A packet as one line of text.
pub fn brief(p: &Packet<'_>) -> String {
    let h = &p.header;
    let mut s =
        format!("{:?} psn {} una {} n {} path {}", h.kind, h.psn, h.una(), h.tx_num, h.path);
    if let Some(m) = p.body.message() {
        s += &format!(" msg {:x} qp {}>{}", m.msg_id, m.src_qpn, m.dst_qpn);
    }
    match p.body {
        Body::Write(_, r) | Body::WriteImm { rdma: r, .. } => s += &format!(" at {:x}", r.raddr),
        Body::ReadResp(r) => s += &format!(" msg {:x} off {} {:?}", r.msg_id, r.offset, r.status),
        Body::Open(o) | Body::OpenAck(o) => s += &format!(" {o:?}"),
        Body::Reset { .. } | Body::Challenge { .. } => s += &format!(" {:?}", p.body),
        _ => {}
    }
    s += &format!(" len {} tag {:x}", p.payload_len, h.dst_tag);
    if let Some(a) = p.ack {
        s += &format!(" ack {} base {} {:x?} {:?}", a.cum, a.base, a.words, a.verdicts);
    }
    s
}

/// Whether an acknowledgment block reports `p` as received.
fn speaks_of(a: &AckBlock, p: u32) -> bool {
    if (p.wrapping_sub(a.cum) as i32) < 0 {
        return true;
    }
    let k = p.wrapping_sub(a.base);
    let word = a.words.get((k / 64) as usize);
    (p.wrapping_sub(a.base) as i32) >= 0 && word.is_some_and(|w| w >> (k % 64) & 1 == 1)
}

impl Emitter<'_> {
    /// The engine that receives at endpoint `e`, if there is one.
    fn engine_at(&self, e: Endpoint) -> Option<u16> {
        let host = host_of(e.ip, self.hosts)?;
        let slot = e.port.checked_sub(PORT_BASE_DEFAULT)?;
        let k = self.slots.iter().position(|&s| u16::from(s) == slot)?;
        Some(host as u16 * self.slots.len() as u16 + k as u16)
    }

    /// Records the incarnation of the engine that assigned a tag.
    fn tag_note(&mut self, p: &Packet<'_>) {
        if let Body::Open(o) | Body::OpenAck(o) = p.body {
            self.led.tags.insert((self.id, o.tag), self.epoch);
        }
    }

    /// Everything that a block acknowledges must have been judged (which includes delivery and
    /// copying) with that verdict, and every verdict that the peer needs must be reported.
    fn ack_check(&mut self, peer: Endpoint, a: &AckBlock) {
        let bits: u32 = a.words.iter().map(|w| w.count_ones()).sum();
        let Some(j) = self.judgments.get_mut(&peer) else {
            let quiet = bits == 0 && a.verdicts.is_empty();
            let id = self.id;
            return self.led.require(quiet, Oracle::Ack, || {
                format!("engine {id} acknowledges to {peer:?} packets that it never judged: {a:?}")
            });
        };
        let (led, id) = (&mut *self.led, self.id);
        if let Some(since) = j.unsaid_since.take() {
            let missed = self.ack_deadline.is_missed(since, led.now);
            led.require(!missed, Oracle::Ack, || {
                format!(
                    "engine {id} is late to acknowledge to {peer:?} a packet judged at {since} ps"
                )
            });
        }
        let first = led.directions.get(&(id, j.tag)).and_then(|d| d.psn_first);
        let mut p = j.cum.or(first).unwrap_or(a.cum);
        while (p.wrapping_sub(a.cum) as i32) < 0 {
            if !j.verdicts.contains_key(&p) {
                led.fail(
                    Oracle::Ack,
                    format!("engine {id} acknowledges psn {p}, not judged: {a:?}"),
                );
                return;
            }
            p = p.wrapping_add(1);
        }
        if j.cum.is_none_or(|c| (c.wrapping_sub(a.cum) as i32) < 0) {
            j.cum = Some(a.cum);
        }
        for (k, &word) in a.words.iter().enumerate() {
            let mut w = word;
            while w != 0 {
                let p = a.base.wrapping_add(64 * k as u32 + w.trailing_zeros());
                w &= w - 1;
                let known = (p.wrapping_sub(a.cum) as i32) < 0 || j.verdicts.contains_key(&p);
                led.require(known, Oracle::Ack, || {
                    format!("engine {id} acknowledges psn {p} by bit, not judged: {a:?}")
                });
            }
        }
        for e in &a.verdicts {
            let VerdictEntry { psn, verdict, .. } = e;
            let other = e.psns().map(|p| j.verdicts.get(&p)).find(|v| *v != Some(verdict));
            led.require(other.is_none(), Oracle::Ack, || {
                format!("engine {id} reports {verdict:?} from psn {psn} on, but judged {other:?}")
            });
        }
        let una = j.una;
        j.owed.retain(|o| (o.0.wrapping_sub(una) as i32) >= 0);
        for &(psn, v) in &j.owed {
            let said = a.verdict(psn).is_none_or(|said| said == v);
            led.require(said || !speaks_of(a, psn), Oracle::Ack, || {
                format!("engine {id} acknowledges psn {psn} without its verdict {v:?}: {a:?}")
            });
        }
    }

    /// A request's packets must match the request; its memory may be read while the engine owns it.
    fn body_check(&mut self, t: &Transmit<'_>, to: Option<u16>) -> Option<u32> {
        if let Some(p) = t.payload
            && p.len != t.packet.payload_len
        {
            self.led.fail(Oracle::Bounds, format!("payload length is wrong: {t:?}"));
        }
        if let Body::ReadResp(r) = t.packet.body {
            self.response_check(t, r.status);
            return None;
        }
        if let Body::Cancel { msg_id } = t.packet.body {
            return self.led.messages.get(&(self.id, self.epoch, msg_id)).copied();
        }
        let m = *t.packet.body.message()?;
        let id = self.wrs.get((m.msg_id & 0xFFFF) as usize).copied().flatten();
        let Some(id) = id else {
            self.led.fail(Oracle::Destroyed, format!("packet of a request that has ended: {t:?}"));
            return None;
        };
        let req = &self.led.reqs[id as usize];
        let wr = &req.wr;
        let msg = Message { msg_id: m.msg_id, ..message_of(req.qpn.0, wr) };
        let offset = t.payload.map_or(0, |p| p.offset);
        let from = matches!(t.payload.map(|p| p.source), None | Some(Source::Wr(_)));
        let whole = u32::from(t.packet.payload_len) == wr.len;
        let rdma_ok =
            |r: &wire::Rdma| r.rkey == wr.rkey && r.raddr == wr.raddr.wrapping_add(offset);
        let body_ok = match &t.packet.body {
            Body::Send(_) | Body::Ud(_) => wr.op == Opcode::Send && whole,
            Body::SendImm(_, imm) | Body::UdImm(_, imm) => {
                wr.op == Opcode::SendImm && whole && *imm == wr.imm
            }
            Body::Write(_, r) => wr.op == Opcode::Write && rdma_ok(r),
            Body::WriteImm { rdma, msg_len, imm, .. } => {
                let same = *msg_len == wr.len && *imm == wr.imm;
                wr.op == Opcode::WriteImm && rdma_ok(rdma) && same
            }
            Body::ReadReq(_, r) => {
                let same = r.rkey == wr.rkey && r.raddr == wr.raddr && r.len == wr.len;
                wr.op == Opcode::Read && same
            }
            _ => false,
        };
        let inside = offset + u64::from(t.packet.payload_len) <= u64::from(wr.len);
        let to_ok = req.dst == to && req.state == ReqState::Live;
        if m != msg || !body_ok || !inside || !from || !to_ok {
            let what = format!("packet does not match request {id} {wr:?}: {t:?}");
            self.led.fail(Oracle::Placement, what);
        }
        if matches!(t.packet.body, Body::WriteImm { .. }) {
            self.led.messages.insert((self.id, self.epoch, m.msg_id), id);
        }
        self.credit_check(t, id);
        Some(id)
    }

    /// Reads and multi-packet messages take a credit each. All engines of a world offer the same
    /// number of credits.
    fn credit_check(&mut self, t: &Transmit<'_>, id: u32) {
        let (op, most) = match t.packet.body {
            Body::ReadReq(..) => (Opcode::Read, self.cfg.reads_per_context_max),
            Body::WriteImm { msg_len, .. } if msg_len > u32::from(t.packet.payload_len) => {
                (Opcode::WriteImm, self.cfg.write_imms_per_context_max)
            }
            _ => return,
        };
        let engagement = self.engagements.get(&t.dst).copied().unwrap_or(0);
        self.led.reqs[id as usize].credit.get_or_insert(engagement);
        let dst = self.led.reqs[id as usize].dst;
        let ready = |q: Qpn| {
            self.mirror.qps.iter().any(|m| m.qpn == q && m.state != srd_core::QpState::Err)
        };
        let taken = self.wrs.iter().flatten().filter(|&&r| {
            let r = &self.led.reqs[r as usize];
            r.wr.op == op && r.dst == dst && r.holds_credit(engagement) && ready(r.qpn)
        });
        let taken = taken.count();
        let id = self.id;
        self.led.require(taken <= usize::from(most), Oracle::Window, || {
            format!(
                "engine {id}: {taken} of {op:?} outstanding to {:?}, above the {most} offered",
                t.dst
            )
        });
    }

    /// A response must be read from a registered region.
    fn response_check(&mut self, t: &Transmit<'_>, status: ReadStatus) {
        let Some(p) = t.payload else {
            let ok = status == ReadStatus::RegionGone;
            return self
                .led
                .require(ok, Oracle::Bounds, || format!("response without data: {t:?}"));
        };
        let Source::Region(key) = p.source else {
            return self
                .led
                .fail(Oracle::Bounds, format!("a response with a request's payload: {t:?}"));
        };
        let end = u128::from(p.offset) + u128::from(p.len);
        let inside = |r: &crate::mirror::MrModel| {
            p.offset >= r.addr && end <= u128::from(r.addr) + u128::from(r.len)
        };
        match self.mirror.mrs.get(&key.0) {
            None => {
                self.led.fail(Oracle::Destroyed, format!("read from a deregistered region: {t:?}"))
            }
            Some(r) if !inside(r) => {
                self.led.fail(Oracle::Bounds, format!("read outside the region: {t:?}"));
            }
            Some(_) => {}
        }
    }

    /// A PSN's content never changes, transmission numbers never repeat, and the window is
    /// respected.
    fn numbers_check(
        &mut self,
        p: &Packet<'_>,
        (to, life): (u16, (u32, u32)),
        request: Option<u32>,
    ) {
        let h: &Header = &p.header;
        let handshake = matches!(
            h.kind,
            PacketType::Open | PacketType::OpenAck | PacketType::Challenge | PacketType::Reset
        );
        if handshake || h.kind == PacketType::CloseAck || h.dst_tag == 0 {
            return;
        }
        let id = self.id;
        let window = self.led.public[usize::from(to)].window;
        if h.kind.is_reliable() && h.una_delta >= window {
            self.led.fail(Oracle::Window, format!("engine {id}: beyond {window} PSNs: {p:?}"));
        }
        let dir = self.led.directions.entry((to, h.dst_tag)).or_default();
        let before = dir.tx_num.replace((life, h.tx_num));
        if before.is_some_and(|b| b.0 != life) {
            (dir.psn_first, dir.psns) = (None, FxHashMap::default());
        }
        let newer = before.is_none_or(|b| b.0 != life || (h.tx_num.wrapping_sub(b.1) as i32) > 0);
        let mut wrong = None;
        if h.kind.is_reliable() {
            dir.psn_first.get_or_insert(h.psn);
            let now = match p.body {
                Body::Tombstone => Carried::Nothing,
                // Message 0 stands for a response that no request awaits.
                Body::ReadResp(r)
                    if r.msg_id == 0
                        && r.status == ReadStatus::RegionGone
                        && self.cfg.mtu_search =>
                {
                    Carried::Recall
                }
                Body::ReadResp(r) => Carried::Data(Some(r.msg_id), r.offset, h.kind as u8),
                Body::Cancel { msg_id } => Carried::Data(Some(msg_id), 0, h.kind as u8),
                Body::Write(_, r) | Body::WriteImm { rdma: r, .. } => {
                    Carried::Data(request, r.raddr as u32, h.kind as u8)
                }
                _ => Carried::Data(request, 0, h.kind as u8),
            };
            let was = dir.psns.insert(h.psn, now);
            let ends = matches!(now, Carried::Nothing | Carried::Recall);
            if was.is_some_and(|w| w != now && !ends) {
                wrong = was;
            }
            // If the request's slot is empty, it may have ended without being polled yet; otherwise
            // it takes a new credit when it is retransmitted.
            let theirs = [PacketType::ReadResp as u8, PacketType::Cancel as u8];
            if now == Carried::Nothing
                && let Some(Carried::Data(Some(request), _, kind)) = was
                && !theirs.contains(&kind)
            {
                let credit = &mut self.led.reqs[request as usize].credit;
                *credit = credit.filter(|&c| c == NO_CREDIT);
            }
        }
        if let Some(was) = wrong {
            let what = format!("engine {id}: psn {} was {was:?} and is {:?}", h.psn, p.body);
            self.led.fail(Oracle::Window, what);
        }
        self.led.require(newer, Oracle::Window, || {
            format!("engine {id}: transmission number {} after {before:?}", h.tx_num)
        });
    }

    /// Data must not leave faster than the rate, except for bursts of the configured size. Time is
    /// that of the engine's clock: a leap counts as waiting time.
    fn pace(&mut self, t: &Transmit<'_>, len: usize) {
        let kind = t.packet.header.kind;
        if !kind.is_reliable() && !matches!(kind, PacketType::Ud | PacketType::UdImm) {
            return;
        }
        let r = &self.cfg.rate;
        let rate = match r.policy {
            RatePolicy::Fixed => r.rate_fixed_bytes_per_sec,
            RatePolicy::Srd => r.line_bytes_per_sec,
        };
        let burst = r.burst_bytes.max(u32::from(self.cfg.mtu)) + 512;
        let full = f64::from(2 * burst) + f64::from(self.cfg.mtu) + 512.0;
        let b = self.buckets.entry(t.dst.ip).or_insert(Bucket { room: full, at: self.now });
        let filled = self.now.since(b.at).0 as f64 * rate as f64 / 1e9;
        // Piggybacked acknowledgments are not paced.
        let paced = len - t.packet.ack.map_or(0, AckBlock::encoded_len);
        b.room = (b.room + filled).min(full) - paced as f64;
        b.at = self.now;
        if b.room < 0.0 {
            let id = self.id;
            self.led.fail(Oracle::Pacing, format!("engine {id} exceeds {rate} bytes/s: {t:?}"));
            self.buckets.remove(&t.dst.ip);
        }
    }
}

fn message_of(src_qpn: u16, wr: &srd_core::SendRequest) -> Message {
    Message { src_qpn, dst_qpn: wr.dst_qpn.0, qkey: wr.qkey, msg_id: 0 }
}
