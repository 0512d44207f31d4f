//! Compares an engine's reaction to a packet with the model's.

use crate::emit::brief;
use crate::ledger::{Ledger, Oracle, ReqState, Tamper};
use crate::mirror::Expected;
use crate::node::Node;
use crate::packet::{Content, Datagram, Owner};
use srd_core::config::PORT_BASE_DEFAULT;
use srd_core::counters::DropReason;
use srd_core::wire::{self, Body, Packet, PacketType, ReadStatus, Verdict};
use srd_core::{Endpoint, Opcode, Placement, Rx, RxMeta, Span, Target};
use srd_fabric::Ps;

impl Node {
    /// Passes one datagram to the engine and executes the result; it has waited since `since`, with
    /// `more` packets behind it.
    pub fn deliver(
        &mut self,
        led: &mut Ledger,
        ce: bool,
        d: &Datagram,
        (since, more): (Ps, usize),
    ) {
        let now = self.clock.read(led.now);
        let n = d.head.len();
        let len = n + usize::from(d.tail_len);
        self.buffer[..n].copy_from_slice(&d.head);
        self.buffer[n..len].fill(0);
        let mut ack = core::mem::take(&mut self.ack);
        let parsed = wire::parse(&self.buffer[..len], &mut ack);
        if let Ok((packet, _)) = parsed {
            let meta = RxMeta {
                src_ip: d.src,
                ce,
                rxq_drops: self.queue_drops,
                waited: Span((led.now - since) / 1000),
            };
            let id = self.id;
            led.note(|| format!("engine {id} < {} {}", d.src, brief(&packet)));
            self.counts.0 += 1;
            led.tally.received += 1;
            self.ring_tell(led.now, 0);
            let rx = self.engine.handle(now, &meta, &packet);
            if let Rx::Place(place) = rx {
                self.ring_tell(led.now, place.len);
            }
            let peer =
                Endpoint { ip: d.src, port: PORT_BASE_DEFAULT + u16::from(packet.header.slot) };
            self.examine(led, d, &packet, rx);
            self.newest_check(led, peer, &packet, rx);
        } else if !d.forged {
            led.fail(Oracle::Judgment, format!("{parsed:?}: emitted, but cannot be parsed"));
        }
        ack.clear();
        self.ack = ack;
        if more == 0 {
            self.engine.rx_burst_end(now);
        }
        self.observed(led);
    }

    /// Compares the result with the model's.
    fn examine(&mut self, led: &mut Ledger, d: &Datagram, p: &Packet<'_>, rx: Rx) {
        let r = self.engine.observer();
        let (judged, twice) = (r.judged.take(), r.judged_twice);
        let id = self.id;
        if let Rx::Dropped(why) = rx {
            led.note(|| format!("engine {id}: dropped, {why:?}"));
        }
        led.require(!twice, Oracle::Judgment, || "two judgments in one call".into());
        let touched = judged.is_some() || matches!(rx, Rx::Place(_));
        if d.forged && touched {
            return led.fail(Oracle::Judgment, format!("engine {id} accepts a forgery: {p:?}"));
        }
        let key = (id, p.header.dst_tag);
        let unheard = [
            DropReason::UnknownTag,
            DropReason::BadState,
            DropReason::Replay,
            DropReason::BadHandshake,
        ];
        let more =
            [DropReason::NoRoom, DropReason::BadSource, DropReason::TooLong, DropReason::Unchecked];
        let unheard = unheard.iter().chain(&more);
        let peer = Endpoint { ip: d.src, port: PORT_BASE_DEFAULT + u16::from(p.header.slot) };
        let handshake = matches!(
            p.header.kind,
            PacketType::Open
                | PacketType::OpenAck
                | PacketType::Challenge
                | PacketType::Reset
                | PacketType::CloseAck
        );
        if !handshake && unheard.into_iter().all(|&why| rx != Rx::Dropped(why)) {
            self.heard.insert(peer, self.clock.read(led.now));
        }
        // The numbers of a handshake are no lower edge: a Reset has none, and the answer to an Open
        // of a former context has those of another one.
        if let Some(j) = self.judgments.get_mut(&peer)
            && !handshake
            && j.tag == p.header.dst_tag
            && (p.header.una().wrapping_sub(j.una) as i32) > 0
        {
            j.una = p.header.una();
        }
        if touched {
            let life = led.tags.get(&key).copied();
            led.require(life == Some(self.epoch), Oracle::Epoch, || {
                format!("engine {id} accepts {p:?} of incarnation {life:?}")
            });
        }
        match (judged, rx) {
            (Some((_, psn, verdict)), _) => {
                led.require(psn.0 == p.header.psn, Oracle::Judgment, || {
                    format!("psn {}: {p:?}", psn.0)
                });
                self.remember(led, peer, p, verdict);
                self.judgment(led, d, p, verdict, rx);
            }
            (None, Rx::Place(place)) => self.datagram(led, d, p, place),
            _ => {}
        }
    }

    /// Records a verdict for later acknowledgments.
    fn remember(&mut self, led: &mut Ledger, peer: Endpoint, p: &Packet<'_>, v: Verdict) {
        let (psn, tag, id) = (p.header.psn, p.header.dst_tag, self.id);
        led.tally.judged += 1;
        let j = self.judgments.entry(peer).or_default();
        if j.tag != tag {
            *j = crate::node::Judgments { tag, una: p.header.una(), ..Default::default() };
        }
        let before = j.verdicts.insert(psn, v);
        if v != Verdict::Ok {
            j.owed.push((psn, v));
        }
        j.unsaid_since.get_or_insert(led.now);
        led.require(before.is_none(), Oracle::Judgment, || {
            format!("engine {id} judged psn {psn} twice: {before:?}, then {v:?}")
        });
    }

    /// Checks a verdict on a reliable packet.
    fn judgment(
        &mut self,
        led: &mut Ledger,
        d: &Datagram,
        p: &Packet<'_>,
        verdict: Verdict,
        rx: Rx,
    ) {
        let id = self.id;
        if let Some(right) = self.mirror.verdict(d.src, p, d.request) {
            led.require(verdict == right, Oracle::Judgment, || {
                format!("engine {id} judged {verdict:?}, right is {right:?}: {}", brief(p))
            });
        }
        if let (Body::Cancel { .. }, Some(req)) = (p.body, d.request) {
            self.mirror.imm_bytes.remove(&req);
            self.mirror.cancelled.insert(req);
        } else if let Some(req) = d.request {
            led.judged(req, verdict);
            let state = led.reqs[req as usize].state;
            led.note(|| format!("engine {id}: request {req} ({state:?}) judged {verdict:?}"));
        }
        let (ok, len) = (verdict == Verdict::Ok, u32::from(p.payload_len));
        let place = if let Rx::Place(place) = rx { Some(place) } else { None };
        match p.body {
            Body::Send(m) | Body::SendImm(m, _) if ok => {
                let handle = self.mirror.qp(srd_core::Qpn(m.dst_qpn)).and_then(|q| {
                    q.receives.front().map(|f| srd_core::RecvHandle { qp: q.qpn, index: f.0 })
                });
                let right = handle.map(|h| Placement { target: Target::Recv(h), offset: 0, len });
                led.require(place == right, Oracle::Placement, || {
                    format!("engine {id} places at {place:?}, right is {right:?}: {}", brief(p))
                });
                self.message(led, d, p, len, false);
                self.copy(led, d, place);
            }
            Body::Write(_, r) if ok => self.written(led, d, place, r.raddr, len),
            Body::WriteImm { msg_len, rdma, .. } => {
                self.write_imm(led, d, p, (verdict, place), (msg_len, rdma.raddr));
            }
            Body::ReadReq(..) => {
                // If the model permits several: accepted, or refused as busy.
                let open = self.mirror.verdict(d.src, p, d.request).is_none();
                let fine = !open || matches!(verdict, Verdict::Ok | Verdict::Busy);
                led.require(fine && place.is_none(), Oracle::Judgment, || {
                    format!("engine {id} judged {verdict:?}: {}", brief(p))
                });
            }
            Body::ReadResp(r) => self.response(led, d, &r, (verdict, place)),
            _ => {
                let none = place.is_none();
                led.require(none, Oracle::Placement, || {
                    format!("engine {id}: {place:?} for {p:?}")
                });
            }
        }
    }

    fn write_imm(
        &mut self,
        led: &mut Ledger,
        d: &Datagram,
        p: &Packet<'_>,
        (verdict, place): (Verdict, Option<Placement>),
        (msg_len, raddr): (u32, u64),
    ) {
        let len = u32::from(p.payload_len);
        let Some(req) = d.request else { return };
        let whole = len == msg_len;
        let bytes = self.mirror.imm_bytes.get(&req).copied().unwrap_or(0);
        let last = bytes + len == msg_len;
        // The last segment may be refused for its immediate alone: its bytes are placed.
        let taken = verdict == Verdict::Ok || (verdict == Verdict::Rnr && !whole && len > 0);
        if taken && len > 0 {
            self.written(led, d, place, raddr, len);
            self.mirror.imm_bytes.insert(req, bytes + len);
        } else {
            led.require(place.is_none(), Oracle::Placement, || format!("{place:?} for {p:?}"));
        }
        if verdict == Verdict::Ok && last {
            self.message(led, d, p, msg_len, true);
        }
    }

    /// Checks an accepted segment of a write.
    fn written(
        &mut self,
        led: &mut Ledger,
        d: &Datagram,
        place: Option<Placement>,
        raddr: u64,
        len: u32,
    ) {
        let id = self.id;
        if len == 0 {
            return led.require(place.is_none(), Oracle::Placement, || {
                format!("engine {id} places no bytes at {place:?}")
            });
        }
        let Some(Placement { target: Target::Region(key), offset, len: placed }) = place else {
            return led
                .fail(Oracle::Placement, format!("engine {id}: a write is placed at {place:?}"));
        };
        let (wanted, base) = d.request.map_or((0, 0), |r| {
            let wr = &led.reqs[r as usize].wr;
            (wr.rkey, wr.raddr)
        });
        let end = u128::from(offset) + u128::from(placed);
        let inside = self
            .mirror
            .mrs
            .get(&key.0)
            .is_some_and(|r| offset >= r.addr && end <= u128::from(r.addr) + u128::from(r.len));
        led.require(inside, Oracle::Bounds, || format!("engine {id} writes outside: {place:?}"));
        let at = raddr.wrapping_sub(base);
        let from = d.content.is_some_and(|c| c.offset == at);
        led.require(
            key.0 == wanted && offset == raddr && placed == len && from,
            Oracle::Placement,
            || format!("engine {id} places {:?} at {place:?}, right is {raddr:x}", d.content),
        );
        self.copy(led, d, place);
    }

    /// Checks a segment of a read response.
    fn response(
        &mut self,
        led: &mut Ledger,
        d: &Datagram,
        r: &wire::ReadResp,
        (verdict, place): (Verdict, Option<Placement>),
    ) {
        let id = self.id;
        let handle = r.msg_id & 0xFFFF;
        let req = self.wrs.get(handle as usize).copied().flatten();
        if verdict != Verdict::Ok {
            return led.require(place.is_none(), Oracle::Placement, || {
                format!("engine {id} places a refused response: {place:?}")
            });
        }
        let Some(req) = req else {
            return led.fail(Oracle::Destroyed, format!("response to an ended read: {r:?}"));
        };
        if r.status == ReadStatus::RegionGone {
            led.reqs[req as usize].region_gone = true;
            return;
        }
        let wr = led.reqs[req as usize].wr;
        let (Some(place), Some(c)) = (place, d.content) else {
            return led.fail(Oracle::Placement, format!("response not placed: {r:?}"));
        };
        let dst = led.reqs[req as usize].dst;
        let source = match c.owner {
            Owner::Region(from) => {
                let of = led.regions.get(from as usize);
                of.is_some_and(|&(engine, key)| Some(engine) == dst && key == wr.rkey)
            }
            Owner::Request(_) => false,
        };
        let right = place.target == Target::Wr(srd_core::WrHandle(handle))
            && place.offset == u64::from(r.offset)
            && place.len == u32::from(c.len)
            && c.offset == wr.raddr + u64::from(r.offset)
            && wr.op == Opcode::Read
            && led.reqs[req as usize].state == ReqState::Live;
        led.require(right && source, Oracle::Placement, || {
            format!("engine {id}, read {wr:?}: {c:?} goes to {place:?}")
        });
        self.copy_bytes(led, req, r.offset, place.len);
    }

    /// Checks a message or an immediate that completes a receive.
    fn message(&mut self, led: &mut Ledger, d: &Datagram, p: &Packet<'_>, len: u32, rdma: bool) {
        let id = self.id;
        let Some(m) = p.body.message() else { return };
        let Some(completion) = self.mirror.consume(d.src, m, len, p.body.imm(), rdma) else {
            return led.fail(Oracle::Judgment, format!("engine {id} completes no receive: {p:?}"));
        };
        self.mirror.expected.push_back(Expected { completion, request: d.request });
        let Some(req) = d.request else { return };
        led.reqs[req as usize].delivered += 1;
        let times = led.reqs[req as usize].delivered;
        led.require(times == 1, Oracle::Receive, || {
            format!("request {req} was delivered {times} times")
        });
    }

    /// Checks an accepted unreliable datagram.
    fn datagram(&mut self, led: &mut Ledger, d: &Datagram, p: &Packet<'_>, place: Placement) {
        let id = self.id;
        let len = u32::from(p.payload_len);
        if !matches!(p.header.kind, PacketType::Ud | PacketType::UdImm) {
            return led.fail(Oracle::Judgment, format!("engine {id} places, not judged: {p:?}"));
        }
        let Some(m) = p.body.message() else { return };
        let right = self
            .mirror
            .qp(srd_core::Qpn(m.dst_qpn))
            .filter(|q| q.kind == srd_core::QpType::Ud && q.state.receives() && q.qkey == m.qkey);
        let front = right.and_then(|q| {
            let fits = q.receives.front().filter(|f| f.2 >= len + 40);
            fits.map(|f| srd_core::RecvHandle { qp: q.qpn, index: f.0 })
        });
        let right = front.map(|h| Placement { target: Target::Recv(h), offset: 40, len });
        led.require(Some(place) == right, Oracle::Placement, || {
            format!("engine {id} places a datagram at {place:?}, expected {right:?}")
        });
        self.message(led, d, p, len + 40, false);
        self.copy(led, d, Some(place));
    }

    /// Copies the payload at once, as the datapath does (unless the harness is tampered with).
    fn copy(&mut self, led: &mut Ledger, d: &Datagram, place: Option<Placement>) {
        let (Some(place), Some(req)) = (place, d.request) else { return };
        let Some(Content { owner, offset, len }) = d.content else {
            let empty = place.len == 0;
            return led.require(empty, Oracle::Placement, || format!("no payload for {place:?}"));
        };
        let own = owner == Owner::Request(req) && u32::from(len) == place.len;
        led.require(own, Oracle::Placement, || format!("{owner:?} placed for request {req}"));
        self.copy_bytes(led, req, offset as u32, place.len);
    }

    fn copy_bytes(&mut self, led: &mut Ledger, req: u32, at: u32, len: u32) {
        let now_and_then = led.tally.received.is_multiple_of(16);
        match led.tamper {
            Tamper::CopyDropped if now_and_then => {}
            Tamper::WrongBytes if now_and_then => led.place(req, at + 1, len),
            Tamper::CopyLate => self.late.push((req, at, len)),
            _ => led.place(req, at, len),
        }
    }
}

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
