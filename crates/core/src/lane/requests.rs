//! How a work request ends: once, when every PSN is resolved, with a status from the verdicts.

use crate::api::{
    AhId, AsyncEvent, Completion, CompletionKind, CqId, Endpoint, Opcode, Qpn, SendRequest, Status,
    WrHandle,
};
use crate::events::Observer;
use crate::lane::Lane;
use crate::limits::RNR_RETRY_INFINITE;
use crate::objects::wr::{Wqe, WrState};
use crate::peer::scoreboard::Kind;
use crate::time::Span;
use crate::timer::TimerOf;
use srd_wire::Verdict;

/// A request to this engine itself that was refused so often for want of a receive, with longer and
/// longer pauses, has waited for some 0.15 s: nobody may have meant to receive it here.
const RNR_TOLD_ROUNDS: u16 = 16;

/// The EFA status of a request that ends with `verdict`.
pub(crate) const fn status_of(verdict: Verdict) -> Status {
    match verdict {
        Verdict::Ok => Status::Ok,
        Verdict::Rnr => Status::RemoteRnr,
        // EFA has no status for a Q_Key mismatch; as with an unknown queue pair, nobody accepts the
        // message.
        Verdict::BadQpn | Verdict::BadQkey => Status::RemoteBadDestQpn,
        Verdict::BadLength => Status::RemoteBadLength,
        Verdict::BadRkey => Status::RemoteBadAddress,
        Verdict::UnknownPeer => Status::RemoteUnknownPeer,
        Verdict::FeatureMismatch => Status::RemoteFeatureMismatch,
        Verdict::Busy | Verdict::NoRequest => Status::RemoteBadStatus,
    }
}

/// Whether an honest responder that refuses a (now resolved) packet of `w` with `verdict` expects
/// the request again. Any other "try again later" ends the request, because to obey it would put
/// the request into two queues at once.
fn may_come_again(w: &Wqe, kind: Kind, verdict: Verdict) -> bool {
    if w.failed.is_some() || w.state != WrState::Sent {
        return false;
    }
    match (w.wr.op, verdict) {
        (Opcode::Send | Opcode::SendImm, Verdict::Rnr) => w.open == 0,
        // The packet that completed the message found no receive; verdicts on others may be
        // outstanding.
        (Opcode::WriteImm, Verdict::Rnr) => {
            (kind == Kind::ImmRetry) == w.imm_only && (w.open == 0 || w.credited)
        }
        // A read of which bytes have arrived was accepted.
        (Opcode::Read, Verdict::Busy) => w.open == 0 && w.awaited == w.wr.len,
        _ => false,
    }
}

/// What the completion of an ended request says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retired {
    pub wr_id: u64,
    pub op: Opcode,
    pub len: u32,
    pub qp: Qpn,
    /// Its completion queue; `None` if the queue pair is gone.
    pub cq: Option<CqId>,
}

impl<O: Observer> Lane<'_, O> {
    /// Notes that one PSN of request `wi` is resolved with `verdict`.
    #[inline(always)]
    pub(crate) fn wr_segment_done(&mut self, wi: WrHandle, kind: Kind, verdict: Verdict) {
        let w = self.objects.wrs.get_mut(wi);
        debug_assert!(w.open > 0 || cfg!(planted_bugs), "a segment is resolved once: {w:?}");
        w.open -= 1;
        let (over, plain) = (w.open == 0, w.failed.is_none());
        if verdict != Verdict::Ok {
            return self.wr_segment_refused(wi, kind, verdict);
        }
        // The usual case: the whole request has succeeded.
        if over && plain && w.state == WrState::Sent && w.awaited == 0 {
            return self.wr_complete(wi, Status::Ok);
        }
        if over || planted!(FirstSegmentCompletes) {
            self.wr_check_done(wi);
        }
    }

    #[cold]
    fn wr_segment_refused(&mut self, wi: WrHandle, kind: Kind, verdict: Verdict) {
        let w = self.objects.wrs.get(wi);
        let again = may_come_again(w, kind, verdict);
        debug_assert!(verdict != Verdict::Ok, "a refusal");
        // A receive that is posted a little later is usual.
        if !again || w.rnr_round >= RNR_TOLD_ROUNDS {
            self.refusal_note();
        }
        let w = self.objects.wrs.get_mut(wi);
        match verdict {
            Verdict::Rnr if again && w.rnr_retries() => {
                if w.rnr_left < RNR_RETRY_INFINITE && !planted!(RnrUncounted) {
                    w.rnr_left -= 1;
                }
                self.wr_back_off(wi, kind);
            }
            Verdict::Busy if again && self.busy_bear(wi) => self.wr_back_off(wi, kind),
            // Busy for too long counts as a lack of resources, like RNR.
            Verdict::Busy if again => self.wr_fail(wi, Status::RemoteRnr),
            refused => self.wr_fail(wi, status_of(refused)),
        }
    }

    /// Ends the request if all of its PSNs are resolved and nothing more is to be sent or awaited.
    pub(crate) fn wr_check_done(&mut self, wi: WrHandle) {
        let w = self.objects.wrs.get(wi);
        if w.open > 0 && !planted!(FirstSegmentCompletes) {
            return;
        }
        if let Some(status) = w.failed {
            return self.wr_end(wi, status);
        }
        if w.state == WrState::Sent && w.awaited == 0 {
            self.wr_end(wi, Status::Ok);
        }
    }

    /// Whether read `wi`, refused as busy, is tried again: any number of times, but for a bounded
    /// time.
    fn busy_bear(&mut self, wi: WrHandle) -> bool {
        let w = self.objects.wrs.get_mut(wi);
        w.busy_since = w.busy_since.min(self.now);
        debug_assert!(w.wr.op == Opcode::Read, "nothing else is refused as busy and comes again");
        self.now.since(w.busy_since) < self.shared.cfg.loss.busy_after
    }

    /// Parks a refused request, which is sent again later with a new PSN and the same message id.
    fn wr_back_off(&mut self, wi: WrHandle, kind: Kind) {
        let cfg = self.shared.cfg.rnr;
        let w = self.objects.wrs.get_mut(wi);
        debug_assert!(w.failed.is_none(), "what has failed does not come again");
        let full = cfg.delay_first.scale(1 << w.rnr_round.min(20), 1).0.min(cfg.delay_max.0);
        // Half fixed, half random, so that peers that collided do not collide again.
        let random = (u64::from(self.shared.rng.next_u32()) * (full / 2)) >> 32;
        let at = self.now + Span(full / 2 + random);
        w.rnr_round = w.rnr_round.saturating_add(1);
        match kind {
            Kind::Write | Kind::ImmRetry => {
                w.imm_only = w.cut > 0 && w.credited && !planted!(RnrWholeAgain);
            }
            _ => {}
        }
        let single = !w.imm_only;
        if single {
            // The whole request is sent again.
            let again = if w.wr.op == Opcode::Read { w.wr.len } else { w.cut };
            self.win.queues.unsent_add(again);
            w.cut = 0;
            if w.credited {
                w.credited = false;
                debug_assert!(w.wr.op == Opcode::Read, "a message keeps its credit: {w:?}");
                self.win.outstanding.read_end();
            }
        }
        debug_assert_eq!(w.state, WrState::Sent, "all of it had left");
        w.state = WrState::Backoff;
        self.shared.timers.arm(TimerOf::Backoff(wi).number(), at);
    }

    /// Ends the back-off of request `wi`: it is queued again at the front of its flow.
    pub(crate) fn backoff_end(&mut self, wi: WrHandle) {
        let w = self.objects.wrs.get_mut(wi);
        debug_assert_eq!(w.state, WrState::Backoff, "its timer was armed for that");
        debug_assert_eq!(w.ctx, self.ci, "a request comes back in the lane of its context");
        w.state = WrState::Queued;
        let qp = w.qp;
        self.win.queues.flow(qp).push_front(&mut self.objects.wrs, wi);
        if planted!(RnrBackoffForgotten) {
            let others =
                self.objects.wrs.select(|w| w.ctx == self.ci && w.state == WrState::Backoff);
            others.iter().for_each(|&o| self.shared.timers.disarm(TimerOf::Backoff(o).number()));
        }
        self.ready_push();
    }

    /// Fails the request: it ends with `status` (the first one given) once its PSNs are resolved,
    /// and no more of it is sent.
    pub(crate) fn wr_fail(&mut self, wi: WrHandle, status: Status) {
        debug_assert!(status != Status::Ok, "a failure says why");
        self.wr_uncut(wi);
        let w = self.objects.wrs.get_mut(wi);
        if w.failed.is_none() {
            w.failed = Some(status);
        }
        w.awaited = 0;
        w.state = WrState::Sent;
        self.wr_check_done(wi);
    }

    /// Removes the part of the request that has no PSN yet from the queues.
    pub(crate) fn wr_uncut(&mut self, wi: WrHandle) {
        let w = *self.objects.wrs.get(wi);
        debug_assert_eq!(w.ctx, self.ci, "in the lane of its context");
        match w.state {
            WrState::Sent => return,
            WrState::Backoff => self.shared.timers.disarm(TimerOf::Backoff(wi).number()),
            WrState::Queued => self.win.queues.remove(w.qp, wi, &mut self.objects.wrs),
        }
        if !w.imm_only {
            self.win.queues.unsent_take(w.wr.len - w.cut);
        }
    }

    /// Ends the request now: retires its slot and delivers its completion.
    pub(crate) fn wr_end(&mut self, wi: WrHandle, status: Status) {
        self.wr_complete(wi, status);
    }

    /// See [`Self::wr_end`].
    #[inline(always)]
    fn wr_complete(&mut self, wi: WrHandle, status: Status) {
        let w = self.wr_retire(wi);
        self.count_ended(w.op, status);
        let Some(cq) = w.cq.and_then(|cq| self.objects.cqs.get_mut(cq)) else { return };
        cq.push(Completion {
            wr_id: w.wr_id,
            status,
            kind: CompletionKind::Send(wi, w.op),
            qpn: w.qp,
            byte_len: w.len,
            imm: None,
            src_qpn: Qpn(0),
            src_ah: AhId::UNKNOWN,
            src_ip: None,
        });
    }

    /// Retires the request's slot and updates every count that included it. No PSN may refer to it.
    #[inline(always)]
    pub(crate) fn wr_retire(&mut self, wi: WrHandle) -> Retired {
        let w = self.objects.wrs.get(wi);
        debug_assert_eq!(w.ctx, self.ci, "a request ends in the lane of its context");
        debug_assert!(w.open == 0 || cfg!(planted_bugs), "a PSN refers to it: {w:?}");
        let Wqe { state, credited, started, msg_id, qp: qpn, .. } = *w;
        let failed = w.failed.is_some();
        let SendRequest { wr_id, op, len, .. } = w.wr;
        self.win.live.unlink(&mut self.objects.wrs, wi);
        self.objects.wrs.retire(wi);
        if state == WrState::Backoff {
            self.shared.timers.disarm(TimerOf::Backoff(wi).number());
        }
        if !(planted!(OutstandingLeaks) && op == Opcode::Read) {
            self.win.outstanding.end();
        }
        debug_assert_eq!(
            self.win.outstanding.is_empty(),
            self.win.live.front().is_none(),
            "requests outstanding are the live ones"
        );
        if credited {
            match op {
                Opcode::Read if planted!(ReadCreditLost) => {}
                Opcode::Read => self.win.outstanding.read_end(),
                // The peer still tracks a message that failed: the credit is returned with the
                // Cancel.
                _ if failed => self.win.queues.cancel_push(msg_id),
                _ => self.win.outstanding.imm_end(),
            }
            self.ready_push();
        }
        let mut cq = None;
        if let Some(qp) = self.objects.qps.get_mut(qpn) {
            qp.sq_used -= 1;
            qp.sq_started -= u32::from(started);
            debug_assert!(qp.sq_started <= qp.sq_used, "what has left was posted");
            cq = Some(qp.init.send_cq);
            if qp.sq_started == 0 && qp.drain_event {
                qp.drain_event = false;
                self.shared.event_push(AsyncEvent::SqDrained(qpn));
            }
        }
        Retired { wr_id, op, len, qp: qpn, cq }
    }

    #[inline]
    fn count_ended(&mut self, op: Opcode, status: Status) {
        if status == Status::Ok {
            return;
        }
        match op {
            Opcode::Read => self.shared.counters.rdma_read_wr_err += 1,
            Opcode::Write | Opcode::WriteImm => self.shared.counters.rdma_write_wr_err += 1,
            Opcode::Send | Opcode::SendImm => {}
        }
    }

    /// Tells the user, once, if this engine has refused a request of its own: the user may have
    /// meant another process.
    pub(crate) fn refusal_note(&mut self) {
        let own = Endpoint {
            ip: self.shared.cfg.ip,
            port: self.shared.cfg.port_base + u16::from(self.shared.cfg.slot),
        };
        if self.peer.endpoint() == own && self.peer.own_tell() {
            self.shared.event_push(AsyncEvent::PeerIsSelf(own));
        }
    }
}
