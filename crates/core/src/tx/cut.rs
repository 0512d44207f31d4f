//! Cutting work into packets: which request or read is next, and which bytes of it.

use crate::api::{Opcode, Status, WrHandle};
use crate::events::Observer;
use crate::lane::Lane;
use crate::limits::{RETRANSMITS_DOUBTED_MAX, RETRANSMITS_MAX};
use crate::objects::Objects;
use crate::objects::qp::QpState;
use crate::objects::wr::WrState;
use crate::peer::scoreboard::{Entry, Kind, Work};
use crate::peer::send_queues::FlowAt;
use crate::psn::Psn;
use srd_wire::{Features, PacketType};

/// May the request at the head of a flow be cut?
enum Admit {
    Yes,
    /// Not now (peer's credits used up, queue pair draining).
    Later,
    /// Never: it ends with this status.
    Refuse(Status),
}

/// Bytes of the type header of a message.
fn body_bytes_of(op: Opcode) -> usize {
    let kind = if op == Opcode::SendImm { PacketType::SendImm } else { PacketType::Send };
    kind.body_bytes()
}

impl<O: Observer> Lane<'_, O> {
    /// Gives the next piece of work a PSN. `None`: nothing can be cut now.
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
        // Reads being served and own requests take turns.
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

    /// The next segment of a region being served, jobs in turn.
    fn job_cut(&mut self) -> Option<Psn> {
        let entry = self.win.jobs.cut(self.mtu_of())?;
        debug_assert!(entry.kind.is_served(), "a segment of a read: {entry:?}");
        self.shared.counters.rdma_read_resp_bytes += u64::from(entry.len);
        Some(self.win.board.append(entry))
    }

    /// The next segment of an own request, queue pairs in turn.
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
                // It needs a credit since its packet has become several, and what holds that may
                // wait behind it.
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
        if !w.started && self.objects.qps.get(w.qp).is_some_and(|q| q.state == QpState::Sqd) {
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
            // It takes none at a time: to wait for the end of another would be for ever.
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

    /// Something of `wi` leaves: from now on its queue pair is not drained before it ends.
    pub(crate) fn wr_started(&mut self, wi: WrHandle) {
        let Objects { wrs, qps, .. } = &mut *self.objects;
        let w = wrs.get_mut(wi);
        if !w.started {
            w.start(qps);
        }
    }

    /// Gives the next bytes of request `wi`, the first of flow `at`, a PSN.
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
                // A message fits, or it would have been refused.
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
        self.win.queues.flow_advance(self.shared.cfg.burst_packets);
        debug_assert!(
            self.win.board.span() < u32::from(self.peer.limits().window) || cfg!(planted_bugs),
            "the peer's window has room"
        );
        self.win.board.append(entry)
    }

    /// A lost PSN is about to leave again: if what it carried is gone, it becomes a tombstone.
    pub(crate) fn lost_refresh(&mut self, p: Psn) {
        let mtu = self.mtu_of();
        let e = self.win.board.get(p);
        if e.size_shown() > mtu && e.kind.recall() != e.kind {
            // It is a small packet from now on.
            self.win.board.recall(p);
            self.shared.counters.recalls += 1;
        }
        let e = *self.win.board.get(p);
        debug_assert!(e.again > 0, "it was sent before: {e:?}");
        if e.again > RETRANSMITS_DOUBTED_MAX && self.mtu_doubted(e.size_shown()) {
            // If no packet as large can arrive, that says nothing of the peer.
            self.win.board.try_excuse(p);
        } else if e.again >= RETRANSMITS_MAX {
            return self.give_up(p);
        }
        let response = matches!(e.kind, Kind::ReadResp | Kind::RecallResp);
        if response && !self.win.jobs.lives(e.job()) {
            self.win.board.bury(p);
            self.job_segment_done(e.job(), None);
        }
    }

    /// A packet was sent too often: its request ends, and a tombstone takes its PSN.
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
            // It says nothing any more but that a PSN is over.
            _ => {
                if e.again >= 2 * RETRANSMITS_MAX {
                    self.win.loss.deafen();
                    self.rearm_push();
                }
            }
        }
    }
}
