//! Segmentation: which request or served read is next, and which of its bytes form the next packet.

use crate::api::{Opcode, Status, WrHandle};
use crate::events::Observer;
use crate::lane::Lane;
use crate::limits::{RETRANSMITS_DOUBTED_MAX, RETRANSMITS_MAX};
use crate::objects::Objects;
use crate::objects::qp::{Qp, QpState};
use crate::objects::wr::WrState;
use crate::peer::scoreboard::{Entry, Kind, Work};
use crate::peer::send_queues::FlowAt;
use crate::psn::Psn;
use crate::tuning::FLOW_TURN_PKTS;
use srd_wire::{Features, PacketType};

/// Whether the request at the head of a flow may be segmented.
enum Admit {
    Yes,
    /// Not now: the peer's limits are reached, or the queue pair is draining.
    Later,
    /// Never: the request ends with this status.
    Refuse(Status),
}

/// Bytes of the type-specific header of a message.
fn body_bytes_of(op: Opcode) -> usize {
    let kind = if op == Opcode::SendImm { PacketType::SendImm } else { PacketType::Send };
    kind.body_bytes()
}

impl<O: Observer> Lane<'_, O> {
    /// Gives the next segment a PSN. `None`: nothing can be sent now.
    #[inline(always)]
    pub(crate) fn cut_next(&mut self) -> Option<Psn> {
        let window = u32::from(self.peer.limits().window);
        if self.win.board.span() >= window + u32::from(planted!(WindowOneMore)) {
            return None;
        }
        if let Some(msg_id) = self.win.queues.cancel_pop() {
            return Some(self.win.board.append(Entry::new(Kind::Cancel, Work::NONE, msg_id, 0)));
        }
        if self.win.queues.recuts_len() > 0
            && let Some(p) = self.recut_cut()
        {
            return Some(p);
        }
        // Responses to reads and own requests take turns.
        let (serves, own_first) = (!self.win.jobs.is_empty(), self.win.jobs.requests_first());
        if serves
            && !own_first
            && let Some(p) = self.job_cut()
        {
            return Some(p);
        }
        let cut = self.flow_cut();
        if cut.is_none() && serves && own_first { self.job_cut() } else { cut }
    }

    /// The next segment of a read response; the reads being served take turns.
    fn job_cut(&mut self) -> Option<Psn> {
        let entry = self.win.jobs.cut(self.mtu_of())?;
        debug_assert!(entry.kind.is_served(), "a segment of a read: {entry:?}");
        self.shared.counters.rdma_read_resp_bytes += u64::from(entry.len);
        Some(self.win.board.append(entry))
    }

    /// The next segment of an own request; the queue pairs take turns.
    #[inline(always)]
    fn flow_cut(&mut self) -> Option<Psn> {
        let (mut tried, mut turned) = (0, None);
        loop {
            self.win.jobs.requests_turned();
            if tried >= self.win.queues.flows_len() {
                return None;
            }
            let (at, wi) = self.win.queues.flow_next();
            match self.admit(wi) {
                Admit::Yes => return Some(self.segment_cut(at, wi)),
                // The path MTU has shrunk, so the request became one of several packets and needs a
                // credit. Requests that hold credits may wait behind it in the flow.
                Admit::Later
                    if self.objects.wrs.get(wi).started
                        && self.win.queues.flow_turn(at, &mut self.objects.wrs, &mut turned) => {}
                Admit::Later => {
                    turned = None;
                    tried += 1;
                    self.win.queues.flow_pass(at);
                }
                Admit::Refuse(status) => {
                    self.win.queues.flow_pop(at, &mut self.objects.wrs);
                    self.wr_fail(wi, status);
                }
            }
        }
    }

    #[inline(always)]
    fn admit(&mut self, wi: WrHandle) -> Admit {
        let w = self.objects.wrs.get(wi);
        debug_assert!(w.state == WrState::Queued && !w.withdrawn, "who is first waits: {w:?}");
        debug_assert!(w.failed.is_none(), "what has failed is in no queue: {w:?}");
        let again = w.started && (w.cut > 0 || w.credited || w.imm_only);
        if again {
            return Admit::Yes;
        }
        let holds = self.peer.handshake().is_held() && !planted!(DrainBegins);
        let drains = |q: &Qp| q.state == QpState::Sqd;
        if !w.started && (holds || self.objects.qps.get(w.qp).is_some_and(drains)) {
            return Admit::Later;
        }
        let features = self.peer.limits().features;
        let mtu = u32::from(self.mtu_of());
        match w.wr.op {
            Opcode::Send | Opcode::SendImm
                if w.wr.len > u32::from(self.message_max(body_bytes_of(w.wr.op))) =>
            {
                Admit::Refuse(Status::LocalBadLength)
            }
            Opcode::Read if !features.has(Features::RDMA_READ) => {
                Admit::Refuse(Status::RemoteFeatureMismatch)
            }
            Opcode::Write | Opcode::WriteImm if !features.has(Features::RDMA_WRITE) => {
                Admit::Refuse(Status::RemoteFeatureMismatch)
            }
            // The peer accepts no such message at all, so the request would wait for ever.
            Opcode::WriteImm if w.wr.len > mtu && self.peer.limits().imms_max == 0 => {
                Admit::Refuse(Status::RemoteFeatureMismatch)
            }
            Opcode::Read
                if !self.win.outstanding.may_read(self.peer.limits())
                    && !planted!(ReadCreditIgnored) =>
            {
                Admit::Later
            }
            Opcode::WriteImm
                if w.wr.len > mtu
                    && !self.win.outstanding.may_imm(self.peer.limits())
                    && !planted!(ImmediateCreditIgnored) =>
            {
                Admit::Later
            }
            _ => Admit::Yes,
        }
    }

    /// The first packet of `wi` is sent: from now on its queue pair counts as drained only after
    /// the request has ended.
    pub(crate) fn wr_started(&mut self, wi: WrHandle) {
        let Objects { wrs, qps, .. } = &mut *self.objects;
        let w = wrs.get_mut(wi);
        if !w.started {
            w.start(qps);
        }
    }

    /// Gives the next segment of request `wi`, the first of flow `at`, a PSN.
    #[inline(always)]
    fn segment_cut(&mut self, at: FlowAt, wi: WrHandle) -> Psn {
        let mtu = u32::from(self.mtu_of());
        let Objects { wrs, qps, .. } = &mut *self.objects;
        let w = wrs.get_mut(wi);
        if !w.started {
            w.start(qps);
        }
        debug_assert!(w.state == WrState::Queued && w.ctx == self.ci, "of this peer, not cut yet");
        w.open += 1;
        debug_assert!(w.open <= u32::from(self.peer.limits().window) || cfg!(planted_bugs));
        let work = Work::of_request(wi);
        let entry = match w.wr.op {
            Opcode::Read => {
                debug_assert!(!w.credited && w.cut == 0 && w.open == 1, "one packet asks: {w:?}");
                w.state = WrState::Sent;
                w.credited = true;
                self.win.outstanding.read_begin();
                self.win.queues.unsent_take(w.wr.len);
                Entry::new(Kind::ReadReq, work, 0, 0)
            }
            _ if w.imm_only => {
                debug_assert!(w.wr.op == Opcode::WriteImm && w.cut == w.wr.len, "{w:?}");
                w.state = WrState::Sent;
                Entry::new(Kind::ImmRetry, work, 0, 0)
            }
            op => {
                if op == Opcode::WriteImm && w.wr.len > mtu && !w.credited {
                    w.credited = true;
                    self.win.outstanding.imm_begin();
                }
                let write = matches!(op, Opcode::Write | Opcode::WriteImm);
                // A message fits into one packet, or it would have been refused.
                let len = if write { mtu.min(w.wr.len - w.cut) } else { w.wr.len };
                let kind = if write { Kind::Write } else { Kind::Send };
                let entry = Entry::new(kind, work, w.cut, len as u16);
                w.cut += len;
                debug_assert!(w.cut <= w.wr.len, "more was cut than there is");
                if w.cut == w.wr.len {
                    w.state = WrState::Sent;
                }
                let leaks = planted!(UnsentLeaks) && w.state == WrState::Queued;
                self.win.queues.unsent_take(if leaks { 0 } else { len });
                entry
            }
        };
        if w.state != WrState::Queued {
            self.win.queues.flow_pop_known(at, w);
        }
        self.win.queues.flow_advance(self.shared.cfg.burst_packets.min(FLOW_TURN_PKTS));
        debug_assert!(
            self.win.board.span() < u32::from(self.peer.limits().window) || cfg!(planted_bugs),
            "the peer's window has room"
        );
        self.win.board.append(entry)
    }

    /// Prepares a lost PSN for retransmission: it may be recalled or given up, and if its content
    /// is no longer needed, it becomes a tombstone.
    pub(crate) fn lost_refresh(&mut self, p: Psn) {
        let mtu = self.mtu_of();
        let e = self.win.board.get(p);
        if e.size_shown() > mtu && e.kind.recall() != e.kind {
            // The packet is too large for the path MTU: a small recall takes its PSN.
            self.win.board.recall(p);
            self.shared.counters.recalls += 1;
        }
        let e = *self.win.board.get(p);
        debug_assert!(e.again > 0, "it was sent before: {e:?}");
        if e.again > RETRANSMITS_DOUBTED_MAX && self.mtu_doubted(e.size_shown()) {
            // While packets of this size may be unable to arrive, the count says nothing about the
            // peer.
            self.win.board.try_excuse(p);
        } else if e.again >= RETRANSMITS_MAX {
            return self.give_up(p);
        }
        if planted!(DeafEarly) && matches!(e.kind, Kind::Tombstone) && e.again >= 20 {
            self.win.loss.deafen();
            self.rearm_push();
        }
        let response = matches!(e.kind, Kind::ReadResp | Kind::RecallResp);
        if response && !self.win.jobs.lives(e.job()) {
            self.win.board.bury(p);
            self.job_segment_done(e.job(), None);
        }
    }

    /// A packet was retransmitted too often: its request ends, and a tombstone takes its PSN.
    fn give_up(&mut self, p: Psn) {
        let e = *self.win.board.get(p);
        match e.kind {
            kind if kind.is_own() => {
                self.wr_cancel(e.request(), Status::LocalUnrespRemote);
            }
            Kind::ReadResp | Kind::RecallResp => {
                self.win.board.bury(p);
                self.job_fail(e.job());
            }
            // A packet without content, which only completes its PSN.
            _ => {
                if e.again >= 2 * RETRANSMITS_MAX {
                    self.win.loss.deafen();
                    self.rearm_push();
                }
            }
        }
    }
}
