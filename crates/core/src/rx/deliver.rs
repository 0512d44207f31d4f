//! Delivery of reliable packets: each is judged once, first by the receive window, then by its
//! queue pair.

use crate::api::{
    AhId, Completion, CompletionKind, CqId, Placement, QpType, Qpn, RecvHandle, Rx, Status, Target,
};
use crate::counters::DropReason;
use crate::events::{Event, Observer};
use crate::lane::Lane;
use crate::limits::GRH_BYTES;
use crate::objects::qp::Qp;
use crate::peer::ContextState;
use crate::peer::window::Seen;
use crate::psn::Psn;
use crate::time::Span;
use srd_wire::{Body, Flags, Message, Packet, Verdict};

/// The decision on one packet, and what to do with its payload.
pub(crate) struct Judgment {
    pub verdict: Verdict,
    pub rx: Rx,
}

impl Judgment {
    pub fn refuse(verdict: Verdict) -> Self {
        debug_assert!(verdict != Verdict::Ok, "a refusal says why");
        Self { verdict, rx: Rx::Done }
    }
    pub fn accept(rx: Rx) -> Self {
        Self { verdict: Verdict::Ok, rx }
    }
}

impl<O: Observer> Lane<'_, O> {
    pub(crate) fn reliable_received(&mut self, packet: &Packet<'_>) -> Result<Rx, DropReason> {
        let p = Psn(packet.header.psn);
        let cfg = self.shared.cfg.ack;
        // A correct sender stays within the window above its own lower edge, which bounds the
        // verdicts kept for it.
        let window = i32::from(self.shared.cfg.window);
        let ahead = p.diff(self.peer.rx_una());
        if ahead >= window.max(64) && !planted!(PsnFarTaken) {
            return Err(DropReason::TooFar);
        }
        match self.win.rx_window.check(p) {
            Seen::New => {}
            Seen::Duplicate => {
                // The sender missed the acknowledgment (and verdict), which is sent again.
                self.shared.counters.dup_pkts += 1;
                self.win.ack.note_psn(self.now, p, &cfg);
                self.win.ack.note_missed();
                self.win.ack.hasten(self.now, cfg.delay_requested);
                return Err(DropReason::Duplicate);
            }
            Seen::TooFar => return Err(DropReason::TooFar),
        }
        // A close for a context to follow stays: the peer lets no other request begin, either.
        if self.peer.state() == ContextState::Closing && !self.peer.handshake().is_draining() {
            self.shared.close_withdraw(self.now, self.ci, self.peer, true);
        }
        if self.peer.has_guessed()
            && asks_memory(&packet.body)
            && self.objects.guesses.is_empty(self.now)
        {
            // The packet is neither judged nor acknowledged, so a peer that guesses keys learns
            // nothing.
            return Err(DropReason::KeyGuessing);
        }
        if matches!(packet.body, Body::Cancel { .. })
            && self.win.imms.is_full_for(p, self.win.rx_window.cum())
        {
            return Err(DropReason::TooFar);
        }
        debug_assert!(packet.header.kind.is_reliable(), "it has a PSN of its own: {packet:?}");
        let judged = self.judge(packet);
        let places = matches!(judged.rx, Rx::Place(_));
        let late = matches!(packet.body, Body::WriteImm { .. }) && judged.verdict == Verdict::Rnr;
        debug_assert!(!places || judged.verdict == Verdict::Ok || late, "only what is taken");
        self.win.rx_window.insert(p);
        self.win.ack.note_psn(self.now, p, &cfg);
        let h = &packet.header;
        if h.backlog.0 == 0 && h.flags.has(Flags::ACK_REQUEST) {
            self.win.ack.note_end(p);
        }
        // The last packet of a burst is often not the last to arrive.
        if self.win.ack.end_reached(self.win.rx_window.cum()) {
            self.win.ack.hasten_end(self.now, cfg.delay_requested);
        }
        if judged.verdict != Verdict::Ok && !planted!(VerdictNotKept) {
            self.win.verdicts.insert(p, judged.verdict);
            self.win.ack.hasten(self.now, Span::ZERO);
        }
        // A message refused because no receive is posted counts as wanted traffic; other refused
        // packets do not.
        let wanted = matches!(judged.rx, Rx::Place(_)) || judged.verdict == Verdict::Rnr;
        let paid = if wanted { packet.payload_len } else { 0 };
        self.shared.rx.flows.note(self.now, self.ci, h.backlog.0 > 0, paid);
        self.shared
            .observer
            .event(self.now, Event::Judged { ctx: self.ci, psn: p, verdict: judged.verdict });
        Ok(judged.rx)
    }

    #[inline]
    fn judge(&mut self, packet: &Packet<'_>) -> Judgment {
        let len = packet.payload_len;
        match &packet.body {
            Body::Send(msg) => self.judge_send(msg, None, len),
            Body::SendImm(msg, imm) => self.judge_send(msg, Some(*imm), len),
            Body::Write(msg, rdma) => self.judge_write(msg, rdma, len),
            Body::WriteImm { msg, rdma, msg_len, imm } => {
                self.judge_write_imm(msg, rdma, *msg_len, *imm, len)
            }
            Body::ReadReq(msg, req) => self.judge_read_req(msg, req),
            Body::ReadResp(resp) => self.judge_read_resp(resp, len),
            Body::Cancel { msg_id } => {
                self.win.imms.cancel(*msg_id, Psn(packet.header.psn), self.win.rx_window.cum());
                Judgment::accept(Rx::Done)
            }
            _ => Judgment::accept(Rx::Done),
        }
    }

    /// The destination queue pair of a request, if it exists, is ready to receive and has this
    /// Q_Key.
    pub(crate) fn qp_for(&mut self, msg: &Message, kind: QpType) -> Result<&mut Qp, Verdict> {
        let qp = self.objects.qps.get_mut(Qpn(msg.dst_qpn)).ok_or(Verdict::BadQpn)?;
        if !qp.state.receives() || qp.init.kind != kind {
            return Err(Verdict::BadQpn);
        }
        if qp.qkey != msg.qkey && !planted!(QkeyUnchecked) {
            self.shared.counters.qkey_viol += 1;
            return Err(Verdict::BadQkey);
        }
        Ok(qp)
    }

    #[inline]
    fn judge_send(&mut self, msg: &Message, imm: Option<u32>, len: u16) -> Judgment {
        let qp = match self.qp_for(msg, QpType::Srd) {
            Ok(qp) => qp,
            Err(verdict) => return Judgment::refuse(verdict),
        };
        let Some((index, recv)) = qp.rq.front() else {
            self.shared.counters.rnr_events += 1;
            return Judgment::refuse(Verdict::Rnr);
        };
        if u32::from(len) > recv.len {
            if planted!(TooLongConsumes) {
                qp.rq.pop();
            }
            return Judgment::refuse(Verdict::BadLength);
        }
        let consumed = qp.rq.pop();
        debug_assert_eq!(consumed.map(|(i, r)| (i, r.wr_id)), Some((index, recv.wr_id)));
        let cq = qp.init.recv_cq;
        self.recv_complete(msg, cq, index, recv.wr_id, imm, u32::from(len));
        let index = index ^ u32::from(planted!(ReceiveNeighbour));
        let target = Target::Recv(RecvHandle { qp: Qpn(msg.dst_qpn), index });
        Judgment::accept(Rx::Place(Placement { target, offset: 0, len: u32::from(len) }))
    }

    pub(crate) fn ud_received(
        &mut self,
        packet: &Packet<'_>,
        msg: &Message,
        imm: Option<u32>,
    ) -> Result<Rx, DropReason> {
        let len = u32::from(packet.payload_len);
        let qp = self.qp_for(msg, QpType::Ud).map_err(|_| DropReason::UdUndeliverable)?;
        match qp.rq.front() {
            Some((_, recv)) if len + GRH_BYTES <= recv.len => {}
            _ => return Err(DropReason::UdUndeliverable),
        }
        let (index, recv) = qp.rq.pop().expect("there is a front");
        let cq = qp.init.recv_cq;
        self.recv_complete(msg, cq, index, recv.wr_id, imm, len + GRH_BYTES);
        debug_assert!(len + GRH_BYTES <= recv.len, "it fits behind the header area");
        let target = Target::Recv(RecvHandle { qp: Qpn(msg.dst_qpn), index });
        let offset = if planted!(DatagramAtStart) { 0 } else { u64::from(GRH_BYTES) };
        Ok(Rx::Place(Placement { target, offset, len }))
    }

    /// Completes the receive that a send or a datagram consumed.
    #[inline(always)]
    fn recv_complete(
        &mut self,
        msg: &Message,
        cq: CqId,
        index: u32,
        wr_id: u64,
        imm: Option<u32>,
        byte_len: u32,
    ) {
        self.shared.counters.recv_wrs += 1;
        self.shared.counters.recv_bytes += u64::from(byte_len);
        let qpn = Qpn(msg.dst_qpn);
        let kind = CompletionKind::Recv(RecvHandle { qp: qpn, index });
        self.recv_completion_push(msg, cq, kind, wr_id, imm, byte_len);
    }

    /// Puts a completion of the receiving side into its completion queue; its slot was reserved
    /// before.
    #[inline(always)]
    pub(crate) fn recv_completion_push(
        &mut self,
        msg: &Message,
        cq: CqId,
        kind: CompletionKind,
        wr_id: u64,
        imm: Option<u32>,
        byte_len: u32,
    ) {
        let qpn = Qpn(msg.dst_qpn);
        let src_ah = self.peer_ah();
        let src_ip = self.peer.endpoint().ip;
        let Some(cq) = self.objects.cqs.get_mut(cq) else { return };
        cq.push(Completion {
            wr_id,
            status: Status::Ok,
            kind,
            qpn,
            byte_len,
            imm,
            src_qpn: Qpn(msg.src_qpn),
            src_ah,
            src_ip: Some(src_ip),
        });
    }

    /// The local address handle for the peer, or `AhId::UNKNOWN`.
    #[inline(always)]
    pub(crate) fn peer_ah(&mut self) -> AhId {
        self.peer.ah(&self.objects.ahs)
    }
}

/// Whether a request names a local memory region.
fn asks_memory(body: &Body) -> bool {
    matches!(body, Body::Write(..) | Body::WriteImm { .. } | Body::ReadReq(..))
}
