//! RDMA reads at both ends: requests at the responder, and placement of responses at the requester.

use crate::api::{Access, AhId, MrKey, Opcode, Placement, QpType, Rx, Status, Target};
use crate::events::Observer;
use crate::lane::Lane;
use crate::limits::RDMA_BYTES_MAX;
use crate::objects::wr::WrState;
use crate::rx::deliver::Judgment;
use srd_wire::{Message, ReadReq, ReadResp, ReadStatus, Verdict};

impl<O: Observer> Lane<'_, O> {
    pub(crate) fn judge_read_req(&mut self, msg: &Message, req: &ReadReq) -> Judgment {
        match self.read_check(msg, req) {
            Ok(()) => {}
            Err(verdict) => return Judgment::refuse(verdict),
        }
        debug_assert!(req.len <= RDMA_BYTES_MAX, "it was checked");
        if req.len > 0 {
            self.job_begin(msg, req);
        }
        Judgment::accept(Rx::Done)
    }

    fn read_check(&mut self, msg: &Message, req: &ReadReq) -> Result<(), Verdict> {
        let pd = self.qp_for(msg, QpType::Srd)?.init.pd;
        if !self.shared.cfg.rdma_read {
            return Err(Verdict::FeatureMismatch);
        }
        if self.shared.cfg.rdma_needs_ah && self.peer_ah() == AhId::UNKNOWN {
            return Err(Verdict::UnknownPeer);
        }
        if req.len == 0 {
            return Ok(());
        }
        if req.len > RDMA_BYTES_MAX {
            return Err(Verdict::BadLength);
        }
        let key = MrKey(req.rkey);
        let Some(mr) = self.objects.mrs.get(key) else {
            return Err(self.key_unknown(key));
        };
        let domain = mr.pd == pd || planted!(DomainUnchecked);
        let allowed =
            domain && (mr.access.allows(Access::REMOTE_READ) || planted!(RightsUnchecked));
        if !allowed || !mr.covers(req.raddr, u64::from(req.len)) {
            return Err(Verdict::BadRkey);
        }
        // Twice the announced number: the requester counts a read as done before its last
        // acknowledgment has reached us.
        let many = self.win.jobs.len() >= 2 * usize::from(self.shared.cfg.reads_per_context_max);
        if many && !planted!(ReadsUnshared) {
            return Err(Verdict::Busy);
        }
        if !self.place_is_free() {
            // The request may find a place when it is retried.
            self.slow_reads_look();
            return Err(Verdict::Busy);
        }
        Ok(())
    }

    pub(crate) fn judge_read_resp(&mut self, resp: &ReadResp, len: u16) -> Judgment {
        let Some(wi) = self.objects.wrs.by_msg_id(resp.msg_id, self.ci) else {
            return Judgment::refuse(Verdict::NoRequest);
        };
        let w = self.objects.wrs.get_mut(wi);
        debug_assert!(w.ctx == self.ci || cfg!(planted_bugs), "a response to another's request");
        // The read must have been sent: no response is valid for one that waits to be sent, or to
        // be sent again after a refusal.
        if w.wr.op != Opcode::Read || w.failed.is_some() || w.state != WrState::Sent {
            return Judgment::refuse(Verdict::NoRequest);
        }
        if resp.status == ReadStatus::RegionGone {
            self.wr_fail(wi, Status::RemoteBadAddress);
            return Judgment::accept(Rx::Done);
        }
        let (offset, len) = (u64::from(resp.offset), u32::from(len));
        if offset + u64::from(len) > u64::from(w.wr.len) || len > w.awaited || len == 0 {
            return Judgment::refuse(Verdict::BadLength);
        }
        debug_assert!(w.awaited <= w.wr.len, "no more than was asked for: {w:?}");
        w.awaited -= len;
        w.arrived.add(self.objects.tilings, resp.offset, len);
        // As many bytes as requested have come, but some came twice, so others never came.
        let hole = w.awaited == 0 && !w.arrived.covers(self.objects.tilings, w.wr.len);
        if hole && !planted!(ReadHoleTaken) {
            self.wr_fail(wi, Status::RemoteBadStatus);
            return Judgment::refuse(Verdict::BadLength);
        }
        self.shared.counters.rdma_read_bytes += u64::from(len);
        let offset = if planted!(ReadAtStart) { 0 } else { offset };
        let target = Target::Wr(wi);
        let rx = Rx::Place(Placement { target, offset, len });
        self.wr_check_done(wi);
        Judgment::accept(rx)
    }
}
