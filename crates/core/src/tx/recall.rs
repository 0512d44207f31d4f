//! Losses that start a search for the path MTU, and packets in flight that exceed a reduced path
//! MTU.
//!
//! A packet that was sent may have arrived, even if its acknowledgment was lost. So its PSN gets no
//! other content, and its bytes get no new PSN, before the peer has said what happened: a *recall*
//! is sent with the same PSN, and the peer refuses it if the original had not arrived (no request
//! awaits a response to message 0). Only then are the bytes segmented again. So each byte is placed
//! at most once.

use crate::api::{Opcode, Status};
use crate::events::Observer;
use crate::lane::Lane;
use crate::peer::ContextState;
use crate::peer::recut::Recut;
use crate::peer::scoreboard::{Entry, Kind};
use crate::psn::Psn;
use srd_wire::Verdict;

impl<O: Observer> Lane<'_, O> {
    /// The packet `e` was lost. If too many large packets were lost, a search for the path MTU
    /// begins.
    pub(crate) fn mtu_lost(&mut self, e: &Entry) {
        if !self.shared.cfg.mtu_search || e.kind.recalled().is_some() {
            return;
        }
        let (full, size) = (self.mtu_of(), e.size_shown());
        if size <= full && self.way.mtu.on_lost(self.now, size, self.way.ip) {
            self.way.mtu.search_begin(self.now, self.ci, full);
            let full = (self.peer.state() == ContextState::Open).then_some(self.peer.limits().mtu);
            self.shared.mtu_round(self.now, self.way, full);
        }
        self.shared.sizes.recount(self.way);
    }

    /// The peer has answered a recall.
    #[cold]
    pub(crate) fn recall_resolved(&mut self, p: Psn, verdict: Verdict) {
        let was = *self.win.board.get(p);
        let kind = was.kind.recalled().unwrap_or(was.kind);
        if verdict != Verdict::NoRequest && !planted!(RecallUnheard) {
            // The original packet had arrived.
            debug_assert!(kind != was.kind, "a recall was answered: {was:?}");
            match kind {
                Kind::ReadResp => self.job_segment_done(was.job(), Some(verdict)),
                _ => self.wr_segment_done(was.request(), kind, verdict),
            }
            return;
        }
        debug_assert!(kind != was.kind || cfg!(planted_bugs), "only recalls are told: {was:?}");
        match kind {
            Kind::Send => {
                self.objects.wrs.get_mut(was.request()).open -= 1;
                self.wr_fail(was.request(), Status::LocalBadLength);
            }
            _ => {
                self.win.queues.recut_push(Recut::of(&was));
                self.ready_push();
            }
        }
    }

    /// Forms the next packet from ranges of bytes that were taken back.
    pub(crate) fn recut_cut(&mut self) -> Option<Psn> {
        let mtu = self.mtu_of();
        for _ in 0..self.win.queues.recuts_len() {
            let r = self.win.queues.recut_pop()?;
            if !self.recut_lives(&r) {
                self.recut_drop(&r);
                continue;
            }
            if self.recut_refused(&r) {
                self.wr_fail(r.request(), Status::RemoteFeatureMismatch);
                self.recut_drop(&r);
                continue;
            }
            if !self.recut_credit(&r) {
                self.win.queues.recut_push(r);
                continue;
            }
            let (entry, rest) = r.cut(mtu);
            if let Some(rest) = rest {
                self.win.queues.recut_push_front(rest);
                self.recut_open(&r);
            }
            return Some(self.win.board.append(entry));
        }
        None
    }

    /// Whether the request or read that the range belongs to has not ended.
    fn recut_lives(&self, r: &Recut) -> bool {
        if r.is_write() {
            return self.objects.wrs.get(r.request()).failed.is_none();
        }
        self.win.jobs.lives(r.job())
    }

    /// Whether a write with immediate of one packet would now need several, which the peer does not
    /// support.
    fn recut_refused(&self, r: &Recut) -> bool {
        if !r.is_write() {
            return false;
        }
        let w = self.objects.wrs.get(r.request());
        w.wr.op == Opcode::WriteImm && !w.credited && self.peer.limits().imms_max == 0
    }

    /// Takes the credit that a write with immediate needs when it grows from one packet to several.
    /// Returns false if there is no credit now.
    fn recut_credit(&mut self, r: &Recut) -> bool {
        if !r.is_write() {
            return true;
        }
        let w = self.objects.wrs.get_mut(r.request());
        if w.wr.op != Opcode::WriteImm || w.credited {
            return true;
        }
        if !self.win.outstanding.may_imm(self.peer.limits()) {
            return false;
        }
        self.win.outstanding.imm_begin();
        debug_assert!(w.open > 0, "what was taken back is open: {w:?}");
        w.credited = true;
        true
    }

    /// Counts one more open packet of the request or read.
    fn recut_open(&mut self, r: &Recut) {
        if r.is_write() {
            self.objects.wrs.get_mut(r.request()).open += 1;
        } else {
            self.win.jobs.segment_more(r.job());
        }
    }

    /// The request or read that the range belongs to has ended: drops the range.
    fn recut_drop(&mut self, r: &Recut) {
        if !r.is_write() {
            return self.job_segment_done(r.job(), None);
        }
        let w = self.objects.wrs.get_mut(r.request());
        debug_assert!(w.open > 0 && w.failed.is_some(), "what was taken back is open: {w:?}");
        w.open -= 1;
        self.wr_check_done(r.request());
    }
}
