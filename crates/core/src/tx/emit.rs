//! Building packets from scoreboard entries: headers, numbers, piggybacked acknowledgments.

use crate::api::{Opcode, Payload, SendRequest, Source, Status, Transmit, TxSink, WrHandle};
use crate::events::{Event, Observer};
use crate::lane::Lane;
use crate::path::GRANTS_ASKED_MIN;
use crate::peer::Numbered;
use crate::peer::scoreboard::{Entry, Kind};
use crate::psn::{Psn, TxNum};
use crate::tuning::FULL_PACKET;
use crate::tx::Out;
use srd_wire::{
    Body, Flags, Header, Message, OVERHEAD_BYTES, Packet, PacketType, Rdma, ReadReq, ReadResp,
    ReadStatus,
};

impl<O: Observer> Lane<'_, O> {
    /// Sends PSN `p` on `path`. Returns the bytes it takes on the wire (UDP payload).
    /// `flying_max`: with more bytes in flight, the peer has no room for another packet.
    pub(crate) fn emit_reliable(
        &mut self,
        p: Psn,
        path: u8,
        flying_max: u64,
        out: &mut Out<'_, impl TxSink>,
    ) -> u32 {
        debug_assert!(!self.win.loss.is_stalled(), "to a stalled peer only probes leave");
        let entry = *self.win.board.get(p);
        let (body, payload) = (self.body_of(&entry), self.payload_of(&entry));
        let len = if entry.kind.recalled().is_some() { 0 } else { entry.len };
        debug_assert!(len == 0 || payload.is_some(), "bytes come from somewhere: {entry:?}");
        let tx_num = self.peer.tx_num_take();
        let plain_len = self.peer.limits().head_bytes() + body.encoded_len() + usize::from(len);
        self.win.board.mark_sent(p, path, tx_num, self.now, plain_len as u32);
        let full = u64::from(len) >= FULL_PACKET.of(self.mtu_of().into());
        self.win.sent_log.note(self.now, tx_num, path, full, self.win.board.ring_len());
        self.win.loss.sent(self.now);
        let credited = self.granting();
        self.way.carrier = self.ci;
        self.way.paths.awake(self.now).on_sent(path, plain_len as u32, entry.again > 0, credited);
        let blocked = self.way.paths.is_blocked(credited);
        let spent = self.win.board.in_flight_bytes() > flying_max;
        let last = blocked || spent || !self.win.has_to_send();
        let asks = self.way.paths.share_asks(plain_len as u32, last);
        // A retransmission gets no acknowledgment block while a search for the path MTU is under
        // way, so that it is not longer than necessary.
        let bare = entry.again > 0 && self.shared.sizes.awake > 0;
        let with_ack =
            (last || self.shared.cfg.burst_packets == 1) && !bare && self.ack_fits(plain_len);
        let mut flags = if asks { Flags::ACK_REQUEST } else { 0 };
        if with_ack {
            flags |= Flags::ACK_BLOCK;
        }
        let header = self.header_of(body.kind(), flags, path, tx_num, p);
        let ack_bytes = if with_ack { self.shared.rx.scratch.encoded_len() } else { 0 };
        self.count_sent(&entry, plain_len + ack_bytes);
        let psn_event = Event::Sent {
            ctx: self.ci,
            psn: p,
            tx_num,
            path,
            bytes: plain_len as u32,
            retransmit: entry.again > 0,
        };
        self.shared.observer.event(self.now, psn_event);
        out.push(&Transmit {
            dst: self.peer.endpoint(),
            path,
            packet: Packet {
                header,
                ack: with_ack.then_some(&self.shared.rx.scratch),
                body,
                payload_len: len,
            },
            payload,
            padded_len: 0,
        });
        self.win.ack.note_answer(self.now, self.shared.cfg.ack.delay_requested);
        if with_ack {
            self.ack_left(path, tx_num, None);
        }
        self.inflight_check();
        plain_len as u32
    }

    fn count_sent(&mut self, entry: &Entry, bytes: usize) {
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

    /// Builds the pending acknowledgment into the scratch block. Returns whether there is one that
    /// fits, complete, into a packet with `plain_len` other bytes.
    fn ack_fits(&mut self, plain_len: usize) -> bool {
        if self.win.ack.is_quiet() {
            return false;
        }
        if self.ack_build().is_some() {
            return false;
        }
        let (mtu, limits) = (self.mtu_of(), self.peer.limits());
        // The checksum takes the room that is reserved for an AEAD tag.
        let budget =
            usize::from(mtu) + OVERHEAD_BYTES - srd_wire::AEAD_TAG_BYTES + limits.check_bytes();
        plain_len + self.shared.rx.scratch.encoded_len() <= budget
    }

    /// The common header of a packet. `psn`: its PSN, or the next one to be used.
    pub(crate) fn header_of(
        &self,
        kind: PacketType,
        flags: u8,
        path: u8,
        tx_num: TxNum,
        psn: Psn,
    ) -> Header {
        let una = self.win.board.una();
        debug_assert!(!psn.is_before(una) || cfg!(planted_bugs), "not below the lower edge");
        let mut backlog = self.win.backlog_packets(self.peer.limits().mtu);
        if backlog > GRANTS_ASKED_MIN && self.granting() {
            backlog = backlog.min(self.way.paths.grants_asked(self.way.active).into());
        }
        let number = Numbered { path, tx_num, psn, una, backlog };
        self.peer.header(self.now, self.shared.cfg.slot, kind, flags, &number)
    }

    /// Request `wi`, and what its packets say of it.
    #[inline(always)]
    fn message_of(&self, wi: WrHandle) -> (Message, &SendRequest) {
        let w = self.objects.wrs.get(wi);
        debug_assert_eq!(w.ctx, self.ci, "a message to the peer of its context");
        let (src_qpn, dst_qpn) = (w.qp.0, w.wr.dst_qpn.0);
        (Message { src_qpn, dst_qpn, qkey: w.wr.qkey, msg_id: w.msg_id }, &w.wr)
    }

    #[inline(always)]
    fn body_of(&self, e: &Entry) -> Body {
        match e.kind {
            Kind::Send => {
                let (msg, w) = self.message_of(e.request());
                match w.op {
                    Opcode::SendImm => Body::SendImm(msg, w.imm),
                    _ => Body::Send(msg),
                }
            }
            Kind::Write => {
                let (msg, w) = self.message_of(e.request());
                let rdma = Rdma { rkey: w.rkey, raddr: w.raddr.wrapping_add(u64::from(e.off)) };
                match w.op {
                    Opcode::WriteImm => Body::WriteImm { msg, rdma, msg_len: w.len, imm: w.imm },
                    _ => Body::Write(msg, rdma),
                }
            }
            Kind::ImmRetry => {
                let (msg, w) = self.message_of(e.request());
                let rdma = Rdma { rkey: w.rkey, raddr: w.raddr };
                Body::WriteImm { msg, rdma, msg_len: w.len, imm: w.imm }
            }
            Kind::ReadReq => {
                let (msg, w) = self.message_of(e.request());
                Body::ReadReq(msg, ReadReq { rkey: w.rkey, raddr: w.raddr, len: w.len })
            }
            Kind::ReadResp | Kind::ReadError => {
                let job = self.win.jobs.find(e.job()).expect("open segments keep the job");
                let status = match e.kind {
                    Kind::ReadResp => ReadStatus::Ok,
                    _ => ReadStatus::RegionGone,
                };
                Body::ReadResp(ReadResp { msg_id: job.msg_id(), offset: e.off, status })
            }
            Kind::RecallSend | Kind::RecallWrite | Kind::RecallResp => {
                Body::ReadResp(ReadResp { msg_id: 0, offset: 0, status: ReadStatus::RegionGone })
            }
            Kind::Tombstone => Body::Tombstone,
            Kind::Cancel => Body::Cancel { msg_id: e.off },
        }
    }

    #[inline]
    fn payload_of(&self, e: &Entry) -> Option<Payload> {
        if e.len == 0 {
            return None;
        }
        let (source, offset) = match e.kind {
            Kind::Send | Kind::Write => (Source::Wr(e.request()), u64::from(e.off)),
            Kind::ReadResp => {
                let job = self.win.jobs.find(e.job())?;
                (Source::Region(job.key()), job.addr_of(e.off))
            }
            _ => return None,
        };
        Some(Payload { source, offset, len: e.len })
    }

    /// Sends one unreliable datagram and completes it.
    pub(crate) fn emit_ud(&mut self, wi: WrHandle, out: &mut Out<'_, impl TxSink>) {
        self.wr_started(wi);
        debug_assert!(self.objects.wrs.get(wi).open == 0, "a datagram has no PSN");
        let w = *self.objects.wrs.get(wi);
        let len = w.wr.len as u16;
        debug_assert!(u32::from(len) == w.wr.len, "a datagram is one packet");
        let (msg, _) = self.message_of(wi);
        let body = match w.wr.op {
            Opcode::SendImm => Body::UdImm(msg, w.wr.imm),
            _ => Body::Ud(msg),
        };
        let path = self.way.paths.awake(self.now).path_choose(self.ci, None, &mut self.shared.rng);
        let head_bytes = self.peer.limits().head_bytes();
        let bytes = head_bytes + body.encoded_len() + usize::from(len);
        self.way.paths.awake(self.now).on_datagram_sent(path, bytes as u32);
        let tx_num = self.peer.tx_num_take();
        let psn = self.win.board.next();
        let header = self.header_of(body.kind(), 0, path, tx_num, psn);
        let packet = Packet { header, ack: None, body, payload_len: len };
        let source = Source::Wr(wi);
        let payload = (len > 0).then_some(Payload { source, offset: 0, len });
        self.shared.counters.tx_pkts += 1;
        self.shared.counters.tx_bytes += bytes as u64;
        let dst = self.peer.endpoint();
        out.push(&Transmit { dst, path, packet, payload, padded_len: 0 });
        self.wr_end(wi, Status::Ok);
    }
}
