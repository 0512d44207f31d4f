//! From scoreboard entry to packet: headers, numbers, the acknowledgment that rides along.

use crate::api::{MrKey, Opcode, Payload, Source, Status, Transmit, TxSink, WrHandle};
use crate::engine::Engine;
use crate::events::{Event, Observer};
use crate::path::Gate;
use crate::peer::scoreboard::{Kind, Sent};
use crate::time::Time;
use crate::tx::Out;
use srd_wire::{
    Backlog, Body, Flags, Header, Message, OVERHEAD_BYTES, Packet, PacketType, Rdma, ReadReq,
    ReadResp, ReadStatus,
};

impl<O: Observer> Engine<O> {
    /// Sends PSN `p` on `path`. Returns the bytes it takes on the wire (UDP payload).
    pub(crate) fn emit_reliable(
        &mut self,
        now: Time,
        ci: u32,
        p: u32,
        path: u8,
        out: &mut Out<'_, impl TxSink>,
    ) -> u32 {
        let entry = *self.contexts.get_mut(ci).act().board.get(p);
        let body = self.body_of(ci, &entry);
        let payload = self.payload_of(ci, &entry);
        let len = if entry.kind.recalled().is_some() { 0 } else { entry.len };
        let c = self.contexts.get_mut(ci);
        let tx_num = c.tx_num_take();
        let path_ctx = c.path_ctx;
        let plain_len = c.limits.head_bytes() + body.encoded_len() + usize::from(len);
        let a = c.act();
        a.board.mark_sent(p, path, tx_num, now, plain_len as u32);
        a.sent_log.note(now, tx_num, path, a.board.ring_len());
        a.loss.sent(now);
        let credited = self.granting(ci);
        let entry_pc = self.paths.get_mut(path_ctx);
        entry_pc.carrier = ci;
        let pc = &mut entry_pc.ctx;
        pc.on_sent(now, path, plain_len as u32, entry.again > 0, credited);
        let blocked = matches!(pc.gate(now, credited), Gate::Blocked);
        let a = self.contexts.get_mut(ci).act();
        let last = blocked || !a.has_to_send();
        let with_ack =
            (last || self.shared.cfg.burst_packets == 1) && self.ack_fits(now, ci, plain_len);
        let mut flags = if last { Flags::ACK_REQUEST } else { 0 };
        if with_ack {
            flags |= Flags::ACK_BLOCK;
        }
        let header = self.header_of(now, ci, body.kind(), flags, path, tx_num, p);
        let ack_bytes = if with_ack { self.shared.rx.scratch.encoded_len() } else { 0 };
        self.count_sent(&entry, plain_len + ack_bytes);
        let psn_event = Event::Sent {
            ctx: ci,
            psn: p,
            tx_num,
            path,
            bytes: plain_len as u32,
            retransmit: entry.again > 0,
        };
        self.shared.observer.event(now, psn_event);
        let ack = with_ack.then_some(&self.shared.rx.scratch);
        let packet = Packet { header, ack, body, payload_len: len };
        let dst = self.contexts.get(ci).peer;
        out.push(&Transmit { dst, path, packet, payload, padded_len: 0 });
        if with_ack {
            self.ack_left(now, ci, path, tx_num, None);
        }
        plain_len as u32
    }

    fn count_sent(&mut self, entry: &Sent, bytes: usize) {
        let n = &mut self.shared.counters;
        n.tx_pkts += 1;
        n.tx_bytes += bytes as u64;
        if entry.again > 0 {
            n.retrans_pkts += 1;
            n.retrans_bytes += bytes as u64;
        }
        if entry.kind == Kind::Tombstone {
            n.tombstone_pkts += 1;
        }
    }

    /// Builds the acknowledgment into the scratch block if one is pending and fits beside
    /// `plain_len` bytes of packet without leaving anything unsaid.
    fn ack_fits(&mut self, now: Time, ci: u32, plain_len: usize) -> bool {
        let a = self.contexts.get_mut(ci).act();
        if a.ack.is_quiet() {
            return false;
        }
        if self.ack_build(now, ci).is_some() {
            return false;
        }
        let (mtu, limits) = (self.mtu_of(ci), &self.contexts.get(ci).limits);
        // The checksum lies in the room that is kept for the tag of a seal.
        let budget =
            usize::from(mtu) + OVERHEAD_BYTES - srd_wire::AEAD_TAG_BYTES + limits.check_bytes();
        plain_len + self.shared.rx.scratch.encoded_len() <= budget
    }

    /// The common header of a packet of context `ci`. `psn`: its PSN, or the next one to be used.
    #[expect(clippy::too_many_arguments, reason = "each is one header field")]
    pub(crate) fn header_of(
        &mut self,
        now: Time,
        ci: u32,
        kind: PacketType,
        flags: u8,
        path: u8,
        tx_num: u64,
        psn: u32,
    ) -> Header {
        let slot = self.shared.cfg.slot;
        let c = self.contexts.get_mut(ci);
        let una = c.una();
        let backlog = c.active.as_ref().map_or(0, |a| {
            a.unsent_bytes.div_ceil(u64::from(c.limits.mtu.max(1))) + u64::from(a.board.lost_len())
        });
        Header {
            kind,
            flags: Flags(flags | c.limits.check_flag()),
            backlog: Backlog::from_packets(backlog),
            path,
            slot,
            dst_tag: c.peer_tag,
            tx_num: tx_num as u32,
            timestamp: now.to_wire(),
            psn,
            una_delta: if planted!(UnaAhead) { 0 } else { psn.wrapping_sub(una) as u16 },
            ack_echo: c.ack_echo,
        }
    }

    fn message_of(&self, wi: u32) -> Message {
        let w = self.objects.wrs.get(wi);
        Message { src_qpn: w.qp.0, dst_qpn: w.wr.dst_qpn.0, qkey: w.wr.qkey, msg_id: w.msg_id }
    }

    fn body_of(&mut self, ci: u32, e: &Sent) -> Body {
        match e.kind {
            Kind::Send => {
                let (msg, w) = (self.message_of(e.wr), &self.objects.wrs.get(e.wr).wr);
                match w.op {
                    Opcode::SendImm => Body::SendImm(msg, w.imm),
                    _ => Body::Send(msg),
                }
            }
            Kind::Write => {
                let (msg, w) = (self.message_of(e.wr), &self.objects.wrs.get(e.wr).wr);
                let rdma = Rdma { rkey: w.rkey, raddr: w.raddr.wrapping_add(u64::from(e.off)) };
                match w.op {
                    Opcode::WriteImm => Body::WriteImm { msg, rdma, msg_len: w.len, imm: w.imm },
                    _ => Body::Write(msg, rdma),
                }
            }
            Kind::ImmRetry => {
                let (msg, w) = (self.message_of(e.wr), &self.objects.wrs.get(e.wr).wr);
                let rdma = Rdma { rkey: w.rkey, raddr: w.raddr };
                Body::WriteImm { msg, rdma, msg_len: w.len, imm: w.imm }
            }
            Kind::ReadReq => {
                let (msg, w) = (self.message_of(e.wr), &self.objects.wrs.get(e.wr).wr);
                Body::ReadReq(msg, ReadReq { rkey: w.rkey, raddr: w.raddr, len: w.len })
            }
            Kind::ReadResp | Kind::ReadError => {
                let a = self.contexts.get_mut(ci).act();
                let job = a.jobs.iter().find(|j| j.id == e.wr).expect("open segments keep the job");
                let status = match e.kind {
                    Kind::ReadResp => ReadStatus::Ok,
                    _ => ReadStatus::RegionGone,
                };
                Body::ReadResp(ReadResp { msg_id: job.msg_id, offset: e.off, status })
            }
            Kind::RecallSend | Kind::RecallWrite | Kind::RecallResp => {
                Body::ReadResp(ReadResp { msg_id: 0, offset: 0, status: ReadStatus::RegionGone })
            }
            Kind::Tombstone => Body::Tombstone,
            Kind::Cancel => Body::Cancel { msg_id: e.off },
        }
    }

    fn payload_of(&mut self, ci: u32, e: &Sent) -> Option<Payload> {
        if e.len == 0 {
            return None;
        }
        let (source, offset) = match e.kind {
            Kind::Send | Kind::Write => (Source::Wr(WrHandle(e.wr)), u64::from(e.off)),
            Kind::ReadResp => {
                let a = self.contexts.get_mut(ci).act();
                let job = a.jobs.iter().find(|j| j.id == e.wr)?;
                let key: MrKey = job.key;
                (Source::Region(key), job.addr + u64::from(e.off))
            }
            _ => return None,
        };
        Some(Payload { source, offset, len: e.len })
    }

    /// Sends one unreliable datagram and completes it.
    pub(crate) fn emit_ud(&mut self, now: Time, wi: u32, out: &mut Out<'_, impl TxSink>) {
        self.wr_started(wi);
        let w = *self.objects.wrs.get(wi);
        let (ci, len) = (w.ctx, w.wr.len as u16);
        let msg = self.message_of(wi);
        let body = match w.wr.op {
            Opcode::SendImm => Body::UdImm(msg, w.wr.imm),
            _ => Body::Ud(msg),
        };
        let path_ctx = self.contexts.get(ci).path_ctx;
        let pc = &mut self.paths.get_mut(path_ctx).ctx;
        let path = pc.path_choose(now, ci, None, &mut self.shared.rng);
        let head_bytes = self.contexts.get(ci).limits.head_bytes();
        let bytes = head_bytes + body.encoded_len() + usize::from(len);
        pc.on_datagram_sent(now, path, bytes as u32);
        let c = self.contexts.get_mut(ci);
        let tx_num = c.tx_num_take();
        let psn = c.psn_next();
        let header = self.header_of(now, ci, body.kind(), 0, path, tx_num, psn);
        let packet = Packet { header, ack: None, body, payload_len: len };
        let source = Source::Wr(WrHandle(wi));
        let payload = (len > 0).then_some(Payload { source, offset: 0, len });
        self.shared.counters.tx_pkts += 1;
        self.shared.counters.tx_bytes += bytes as u64;
        let dst = self.contexts.get(ci).peer;
        out.push(&Transmit { dst, path, packet, payload, padded_len: 0 });
        self.wr_end(wi, Status::Ok);
    }
}
