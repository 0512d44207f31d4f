//! RDMA writes: checked against the region, placed at the address that each packet carries; the
//! immediate is delivered last.

use crate::api::{
    Access, AhId, CompletionKind, MrKey, Placement, QpType, Qpn, RecvHandle, Rx, Target,
};
use crate::events::Observer;
use crate::lane::Lane;
use crate::peer::write_imm::{ImmStep, Piece};
use crate::rx::deliver::Judgment;
use srd_wire::{Message, Rdma, Verdict};

impl<O: Observer> Lane<'_, O> {
    pub(crate) fn judge_write(&mut self, msg: &Message, rdma: &Rdma, len: u16) -> Judgment {
        match self.write_check(msg, rdma, len) {
            Ok(rx) => {
                self.shared.counters.rdma_write_recv_bytes += u64::from(len);
                Judgment::accept(rx)
            }
            Err(verdict) => Judgment::refuse(verdict),
        }
    }

    pub(crate) fn judge_write_imm(
        &mut self,
        msg: &Message,
        rdma: &Rdma,
        msg_len: u32,
        imm: u32,
        len: u16,
    ) -> Judgment {
        let imm_only = len == 0 && msg_len > 0;
        if imm_only {
            return self.judge_imm_retry(msg, msg_len, imm);
        }
        let rx = match self.write_check(msg, rdma, len) {
            Ok(rx) => rx,
            Err(verdict) => return Judgment::refuse(verdict),
        };
        let whole = u32::from(len) == msg_len;
        if whole {
            // A write of one packet is refused as a whole if no receive is posted for the
            // immediate.
            if !self.imm_deliver(msg, msg_len, imm) {
                return Judgment::refuse(Verdict::Rnr);
            }
            self.shared.counters.rdma_write_recv_bytes += u64::from(len);
            return Judgment::accept(rx);
        }
        let max = self.shared.cfg.write_imms_per_context_max;
        let imms = &mut self.win.imms;
        let (msg_id, key, addr) = (msg.msg_id, rdma.rkey, rdma.raddr);
        debug_assert!(len > 0, "what carries nothing was sent back before");
        let piece = Piece { msg_id, msg_len, key, addr, len: u32::from(len) };
        let step = imms.peek(&piece, max);
        match step {
            ImmStep::Contradiction => return Judgment::refuse(Verdict::BadLength),
            ImmStep::Full => return Judgment::refuse(Verdict::Busy),
            ImmStep::Cancelled => return Judgment::refuse(Verdict::NoRequest),
            ImmStep::More | ImmStep::Complete => {
                imms.add(&piece);
            }
        }
        self.shared.counters.rdma_write_recv_bytes += u64::from(len);
        if step == ImmStep::Complete {
            if !self.imm_deliver(msg, msg_len, imm) || planted!(ImmediateTwice) {
                // The bytes are placed; only the immediate is to be sent again.
                return Judgment { verdict: Verdict::Rnr, rx };
            }
            self.win.imms.remove(msg.msg_id);
        }
        debug_assert!(self.win.imms.awaits_imm(msg_id).is_none(), "no immediate is due any more");
        Judgment::accept(rx)
    }

    fn judge_imm_retry(&mut self, msg: &Message, msg_len: u32, imm: u32) -> Judgment {
        match self.win.imms.awaits_imm(msg.msg_id) {
            None => return Judgment::refuse(Verdict::NoRequest),
            Some(len) if len != msg_len => return Judgment::refuse(Verdict::BadLength),
            Some(_) => {}
        }
        if let Err(verdict) = self.qp_for(msg, QpType::Srd) {
            return Judgment::refuse(verdict);
        }
        if !self.imm_deliver(msg, msg_len, imm) {
            return Judgment::refuse(Verdict::Rnr);
        }
        self.win.imms.remove(msg.msg_id);
        debug_assert!(self.win.imms.awaits_imm(msg.msg_id).is_none(), "delivered once");
        Judgment::accept(Rx::Done)
    }

    /// Checks queue pair, key, region, rights, bounds and address handle. Returns where the payload
    /// is to be placed.
    fn write_check(&mut self, msg: &Message, rdma: &Rdma, len: u16) -> Result<Rx, Verdict> {
        let pd = self.qp_for(msg, QpType::Srd)?.init.pd;
        if !self.shared.cfg.rdma_write {
            return Err(Verdict::FeatureMismatch);
        }
        if self.shared.cfg.rdma_needs_ah && self.peer_ah() == AhId::UNKNOWN {
            return Err(Verdict::UnknownPeer);
        }
        if len == 0 {
            return Ok(Rx::Done);
        }
        let key = MrKey(rdma.rkey);
        let Some(mr) = self.objects.mrs.get(key) else {
            return Err(self.key_unknown(key));
        };
        let domain = mr.pd == pd || planted!(DomainUnchecked);
        let allowed =
            domain && (mr.access.allows(Access::REMOTE_WRITE) || planted!(RightsUnchecked));
        if !allowed || !mr.covers(rdma.raddr, u64::from(len)) {
            return Err(Verdict::BadRkey);
        }
        let target = Target::Region(key);
        let offset = rdma.raddr + u64::from(planted!(WriteShifted));
        Ok(Rx::Place(Placement { target, offset, len: u32::from(len) }))
    }

    /// No region has this key. If one had it before, the peer may not know yet that the region is
    /// gone. A key that no region ever had is a mistake or a guess; such keys are counted, each
    /// once.
    #[cold]
    pub(crate) fn key_unknown(&mut self, key: MrKey) -> Verdict {
        debug_assert!(self.objects.mrs.get(key).is_none(), "no region has it");
        let (guess, stand) = (!self.objects.mrs.has_had(key), self.objects.mrs.stand());
        if guess && self.win.wrong_keys.note(key.0, stand) {
            self.shared.counters.rkey_guesses += 1;
            // The first one may be a mistake.
            let again = self.peer.key_guess_note();
            let ip = self.peer.endpoint().ip;
            self.objects.guessers.note(ip);
            if again {
                self.objects.guesses.take();
            }
        }
        Verdict::BadRkey
    }

    /// Delivers the immediate: consumes a receive, or only a completion slot where the queue pair
    /// takes unsolicited writes. Returns false if there is none.
    fn imm_deliver(&mut self, msg: &Message, byte_len: u32, imm: u32) -> bool {
        let qpn = Qpn(msg.dst_qpn);
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return false };
        let recv_cq = qp.init.recv_cq;
        let (kind, wr_id) = if qp.init.unsolicited_write_recv {
            let Some(cq) = self.objects.cqs.get_mut(recv_cq) else { return false };
            if !planted!(UnsolicitedUnreserved) && !cq.reserve() {
                self.shared.counters.rnr_events += 1;
                return false;
            }
            (CompletionKind::RecvUnsolicited, 0)
        } else {
            let Some((index, recv)) = qp.rq.pop() else {
                self.shared.counters.rnr_events += 1;
                return false;
            };
            debug_assert!(qp.state.receives(), "it was asked whether it does");
            (CompletionKind::RecvRdmaImm(RecvHandle { qp: qpn, index }), recv.wr_id)
        };
        self.shared.counters.recv_wrs += 1;
        self.recv_completion_push(msg, recv_cq, kind, wr_id, Some(imm), byte_len);
        true
    }
}
