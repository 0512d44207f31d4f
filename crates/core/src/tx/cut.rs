//! Cutting work into packets: which request or read is next, and which bytes of it.

use crate::api::{Opcode, Status, WrHandle};
use crate::events::Observer;
use crate::lane::Lane;
use crate::limits::{RETRANSMITS_DOUBTED_MAX, RETRANSMITS_MAX};
use crate::objects::Objects;
use crate::objects::qp::QpState;
use crate::objects::wr::WrState;
use crate::peer::scoreboard::{Entry, Kind};
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
    #[inline]
    pub(crate) fn cut_next(&mut self) -> Option<u32> {
        let window = u32::from(self.peer.limits.window);
        if self.win.board.span() >= window + u32::from(planted!(WindowOneMore)) {
            return None;
        }
        if let Some(msg_id) = self.win.cancels.pop_front() {
            return Some(self.win.board.append(Entry::new(Kind::Cancel, 0, msg_id, 0)));
        }
        if !self.win.recuts.is_empty()
            && let Some(p) = self.recut_cut()
        {
            return Some(p);
        }
        // Reads being served and own requests take turns.
        let (serves, first) = (!self.win.jobs.is_empty(), self.win.job_cursor & 1 == 0);
        if serves
            && first
            && let Some(p) = self.job_cut()
        {
            return Some(p);
        }
        let cut = self.flow_cut();
        if cut.is_none() && serves && !first { self.job_cut() } else { cut }
    }

    /// The next segment of a region being served, jobs in turn.
    fn job_cut(&mut self) -> Option<u32> {
        let mtu = u32::from(self.mtu_of());
        let n = self.win.jobs.len();
        let at = (0..n)
            .map(|k| (self.win.job_cursor / 2 + k) % n)
            .find(|&j| self.win.jobs[j].has_to_send())?;
        self.win.job_cursor = 2 * (at + 1) + 1;
        let job = &mut self.win.jobs[at];
        job.open += 1;
        let entry = if job.error_owed {
            job.error_owed = false;
            Entry::new(Kind::ReadError, job.id, 0, 0)
        } else {
            let len = mtu.min(job.len - job.cut);
            let entry = Entry::new(Kind::ReadResp, job.id, job.cut, len as u16);
            job.cut += len;
            debug_assert!(len > 0 && job.cut <= job.len, "{job:?}");
            self.win.unsent_bytes -= u64::from(len);
            self.shared.counters.rdma_read_resp_bytes += u64::from(len);
            entry
        };
        Some(self.win.board.append(entry))
    }

    /// The next segment of an own request, queue pairs in turn.
    #[inline(always)]
    fn flow_cut(&mut self) -> Option<u32> {
        let (mut tried, mut turned) = (0, None);
        loop {
            self.win.job_cursor &= !1;
            let n = self.win.flows.len();
            if tried >= n {
                return None;
            }
            let at = self.win.flow_cursor % n;
            let wi = self.win.flows[at].queue.front().expect("an empty flow is removed at once");
            match self.admit(wi) {
                Admit::Yes => return Some(self.segment_cut(at, wi)),
                // It needs a credit since its packet has become several, and what holds that may
                // wait behind it.
                Admit::Later
                    if self.objects.wrs.get(wi).started && self.flow_turns(at, &mut turned) => {}
                Admit::Later => {
                    turned = None;
                    tried += 1;
                    self.win.flow_cursor = at + 1;
                }
                Admit::Refuse(status) => {
                    self.flow_pop(at);
                    self.wr_fail(wi, status);
                }
            }
        }
    }

    /// Puts the head of flow `at`, a write with immediate that was refused before, behind the
    /// others of it, unless all have had their turn. `turned`: the first that was put there.
    fn flow_turns(&mut self, at: usize, turned: &mut Option<WrHandle>) -> bool {
        let queue = &mut self.win.flows[at].queue;
        let wrs = &self.objects.wrs;
        let refused = |w: &crate::objects::wr::Wqe| w.started && w.wr.op == Opcode::WriteImm;
        let may = |wi: &WrHandle| refused(wrs.get(*wi)) && *turned != Some(*wi);
        let Some(wi) = queue.front().filter(may) else { return false };
        turned.get_or_insert(wi);
        queue.pop_front(&mut self.objects.wrs);
        queue.push_back(&mut self.objects.wrs, wi);
        true
    }

    /// After a segment was cut: the next flow has its turn.
    #[inline]
    fn flow_advance(&mut self) {
        let sprayed = self.shared.cfg.burst_packets == 1;
        self.win.flow_turn += 1;
        // A burst of one path stays with one flow where it can: equal sizes make one GSO send.
        if sprayed || self.win.flow_turn >= self.shared.cfg.burst_packets {
            self.win.flow_turn = 0;
            self.win.flow_cursor = self.win.flow_cursor.wrapping_add(1);
        }
    }

    /// Takes the head request out of flow `at`; an empty flow goes.
    #[inline]
    pub(crate) fn flow_pop(&mut self, at: usize) {
        self.win.flows[at].queue.pop_front(&mut self.objects.wrs);
        self.flow_end(at);
    }

    /// Flow `at` goes if it is empty.
    #[inline(always)]
    fn flow_end(&mut self, at: usize) {
        if self.win.flows[at].queue.is_empty() {
            self.win.flows.swap_remove(if planted!(FlowForgotten) { 0 } else { at });
        }
    }

    #[inline(always)]
    fn admit(&mut self, wi: WrHandle) -> Admit {
        let w = self.objects.wrs.get(wi);
        let again = w.started && (w.cut > 0 || w.credited || w.imm_only);
        if again {
            return Admit::Yes;
        }
        if !w.started && self.objects.qps.get(w.qp).is_some_and(|q| q.state == QpState::Sqd) {
            return Admit::Later;
        }
        let features = self.peer.limits.features;
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
            Opcode::WriteImm if w.wr.len > mtu && self.peer.limits.imms_max == 0 => {
                Admit::Refuse(Status::RemoteFeatureMismatch)
            }
            Opcode::Read
                if self.peer.reads_out >= self.peer.limits.reads_max
                    && !planted!(ReadCreditIgnored) =>
            {
                Admit::Later
            }
            Opcode::WriteImm
                if w.wr.len > mtu
                    && self.peer.imms_out >= self.peer.limits.imms_max
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
    fn segment_cut(&mut self, at: usize, wi: WrHandle) -> u32 {
        let mtu = u32::from(self.mtu_of());
        let Objects { wrs, qps, .. } = &mut *self.objects;
        let w = wrs.get_mut(wi);
        if !w.started {
            w.start(qps);
        }
        debug_assert!(w.state == WrState::Queued && w.ctx == self.ci, "of this peer, not cut yet");
        w.open += 1;
        let entry = match w.wr.op {
            Opcode::Read => {
                w.state = WrState::Sent;
                w.credited = true;
                self.peer.reads_out += 1;
                let len = u64::from(w.wr.len);
                self.win.unsent_bytes -= len;
                Entry::new(Kind::ReadReq, wi.0, 0, 0)
            }
            _ if w.imm_only => {
                w.state = WrState::Sent;
                Entry::new(Kind::ImmRetry, wi.0, 0, 0)
            }
            op => {
                if op == Opcode::WriteImm && w.wr.len > mtu && !w.credited {
                    w.credited = true;
                    self.peer.imms_out += 1;
                }
                let write = matches!(op, Opcode::Write | Opcode::WriteImm);
                // A message fits, or it would have been refused.
                let len = if write { mtu.min(w.wr.len - w.cut) } else { w.wr.len };
                let kind = if write { Kind::Write } else { Kind::Send };
                let entry = Entry::new(kind, wi.0, w.cut, len as u16);
                w.cut += len;
                debug_assert!(w.cut <= w.wr.len, "more was cut than there is");
                if w.cut == w.wr.len {
                    w.state = WrState::Sent;
                }
                let leaks = planted!(UnsentLeaks) && w.state == WrState::Queued;
                self.win.unsent_bytes -= if leaks { 0 } else { u64::from(len) };
                entry
            }
        };
        if w.state != WrState::Queued {
            self.win.flows[at].queue.pop_known(w);
            self.flow_end(at);
        }
        self.flow_advance();
        debug_assert!(
            self.win.board.span() < u32::from(self.peer.limits.window) || cfg!(planted_bugs),
            "the peer's window has room"
        );
        self.win.board.append(entry)
    }

    /// A lost PSN is about to leave again: if what it carried is gone, it becomes a tombstone.
    pub(crate) fn lost_refresh(&mut self, p: u32) {
        let mtu = self.mtu_of();
        let mut e = *self.win.board.get(p);
        if e.size_shown() > mtu && e.kind.recall() != e.kind {
            // It is a small packet from now on, with as many tries as any other.
            (e.kind, e.again) = (e.kind.recall(), 1);
            *self.win.board.get_mut(p) = e;
            self.shared.counters.recalls += 1;
        }
        if e.again > RETRANSMITS_DOUBTED_MAX && self.mtu_doubted(e.size_shown()) {
            // If no packet as large can arrive, that says nothing of the peer.
            self.win.board.get_mut(p).again -= 1;
        } else if e.again >= RETRANSMITS_MAX {
            return self.give_up(p);
        }
        let resp = matches!(e.kind, Kind::ReadResp | Kind::RecallResp);
        let gone = resp && !self.win.jobs.iter().any(|j| j.id == e.wr && !j.dead);
        if gone {
            let entry = self.win.board.get_mut(p);
            (entry.kind, entry.len) = (Kind::Tombstone, 0);
            self.job_segment_done(e.wr, None);
        }
    }

    /// A packet was sent too often: its request ends, and a tombstone takes its PSN.
    fn give_up(&mut self, p: u32) {
        let e = *self.win.board.get(p);
        match e.kind {
            kind if kind.is_own() => {
                self.wr_cancel(e.request(), Status::LocalUnrespRemote);
            }
            Kind::ReadResp | Kind::RecallResp => {
                let entry = self.win.board.get_mut(p);
                (entry.kind, entry.len) = (Kind::Tombstone, 0);
                self.job_fail(e.wr);
            }
            // It says nothing any more but that a PSN is over.
            _ => {
                if e.again >= 2 * RETRANSMITS_MAX {
                    self.win.deaf = true;
                    self.rearm_push();
                }
            }
        }
    }
}
