//! RDMA reads, both ends: the responder's jobs, and the placement of responses at the requester.

use crate::api::{
    Access, AhId, MrKey, Opcode, Placement, QpType, Qpn, Rx, Status, Target, WrHandle,
};
use crate::engine::Engine;
use crate::events::Observer;
use crate::limits::RDMA_BYTES_MAX;
use crate::objects::wr::WrState;
use crate::peer::read_job::{ReadJob, job_abort};
use crate::rx::deliver::Judged;
use srd_wire::{Message, ReadReq, ReadResp, ReadStatus, Verdict};

impl<O: Observer> Engine<O> {
    pub(crate) fn judge_read_req(&mut self, ci: u32, msg: &Message, req: &ReadReq) -> Judged {
        match self.read_check(ci, msg, req) {
            Ok(()) => {}
            Err(verdict) => return Judged::refuse(verdict),
        }
        if req.len > 0 {
            let id = self.objects.job_id_take();
            self.jobs_count(ci, 1);
            let job = ReadJob {
                id,
                msg_id: msg.msg_id,
                qp: Qpn(msg.dst_qpn),
                key: MrKey(req.rkey),
                addr: req.raddr,
                len: req.len,
                cut: 0,
                open: 0,
                error_owed: false,
                dead: false,
            };
            let a = self.contexts.get_mut(ci).act();
            a.jobs.push(job);
            a.unsent_bytes += u64::from(req.len);
            self.shared.out.ready_push(ci);
        }
        Judged::accept(Rx::Done)
    }

    fn read_check(&mut self, ci: u32, msg: &Message, req: &ReadReq) -> Result<(), Verdict> {
        let pd = self.qp_for(msg, QpType::Srd)?.init.pd;
        if !self.shared.cfg.rdma_read {
            return Err(Verdict::FeatureMismatch);
        }
        if self.shared.cfg.rdma_needs_ah && self.peer_ah(ci) == AhId::UNKNOWN {
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
            return Err(self.key_unknown(ci, key));
        };
        let domain = mr.pd == pd || planted!(DomainUnchecked);
        let allowed =
            domain && (mr.access.allows(Access::REMOTE_READ) || planted!(RightsUnchecked));
        if !allowed || !mr.covers(req.raddr, u64::from(req.len)) {
            return Err(Verdict::BadRkey);
        }
        // Twice the promise: the requester counts a read done before our last acknowledgment is in.
        let c = self.contexts.get_mut(ci);
        let path_ctx = c.path_ctx;
        let many = c.act().jobs.len() >= 2 * usize::from(self.shared.cfg.reads_per_context_max);
        // And each address no more places than are left: whoever takes all it can get leaves some
        // for the next (dynamic thresholds; Choudhury and Hahne 1998).
        let left = self.shared.cfg.reads_max.saturating_sub(self.objects.jobs_live);
        let greedy = self.paths.get(path_ctx).jobs >= left;
        if left == 0 || (many || greedy) && !planted!(ReadsUnshared) {
            return Err(Verdict::Busy);
        }
        Ok(())
    }

    pub(crate) fn judge_read_resp(&mut self, ci: u32, resp: &ReadResp, len: u16) -> Judged {
        let Some(wi) = self.objects.wrs.by_msg_id(resp.msg_id, ci) else {
            return Judged::refuse(Verdict::NoRequest);
        };
        let w = self.objects.wrs.get_mut(wi);
        // Nothing answers a read that has not left yet, or that was refused and has not left again.
        if w.wr.op != Opcode::Read || w.failed.is_some() || w.state != WrState::Sent {
            return Judged::refuse(Verdict::NoRequest);
        }
        if resp.status == ReadStatus::RegionGone {
            self.wr_fail(wi, Status::RemoteBadAddress);
            return Judged::accept(Rx::Done);
        }
        let (offset, len) = (u64::from(resp.offset), u32::from(len));
        if offset + u64::from(len) > u64::from(w.wr.len) || len > w.awaited || len == 0 {
            return Judged::refuse(Verdict::BadLength);
        }
        w.awaited -= len;
        w.arrived.add(self.objects.tilings, resp.offset, len);
        // A byte that came twice stands for one that never came.
        let hole = w.awaited == 0 && !w.arrived.covers(self.objects.tilings, w.wr.len);
        if hole && !planted!(ReadHoleTaken) {
            self.wr_fail(wi, Status::RemoteBadStatus);
            return Judged::refuse(Verdict::BadLength);
        }
        self.shared.counters.rdma_read_bytes += u64::from(len);
        let offset = if planted!(ReadAtStart) { 0 } else { offset };
        let target = Target::Wr(WrHandle(wi));
        let rx = Rx::Place(Placement { target, offset, len });
        self.wr_check_done(wi);
        Judged::accept(rx)
    }

    /// So many more reads are served to the peer of `ci`.
    pub(crate) fn jobs_count(&mut self, ci: u32, more: i32) {
        let path_ctx = self.contexts.get(ci).path_ctx;
        let of_address = &mut self.paths.get_mut(path_ctx).jobs;
        *of_address = of_address.wrapping_add_signed(more);
        self.objects.jobs_live = self.objects.jobs_live.wrapping_add_signed(more);
    }

    /// A response segment is resolved: by `verdict`, or given up (`None`).
    pub(crate) fn job_segment_done(&mut self, ci: u32, id: u32, verdict: Option<Verdict>) {
        let a = self.contexts.get_mut(ci).act();
        let Some(at) = a.jobs.iter().position(|j| j.id == id) else { return };
        let job = &mut a.jobs[at];
        job.open -= 1;
        if verdict != Some(Verdict::Ok) {
            job_abort(job, &mut a.unsent_bytes);
        }
        if a.jobs[at].is_done() {
            a.jobs.remove(at);
            self.jobs_count(ci, -1);
        }
    }

    /// Segment and job cannot be sent: the requester is told that the read has failed.
    pub(crate) fn job_fail(&mut self, ci: u32, id: u32) {
        let a = self.contexts.get_mut(ci).act();
        if let Some(job) = a.jobs.iter_mut().find(|j| j.id == id) {
            job.error_owed |= !job.dead;
            job_abort(job, &mut a.unsent_bytes);
        }
        self.job_segment_done(ci, id, None);
    }

    /// The region `key` goes away: each read of it ends with an error at its requester.
    pub(crate) fn jobs_region_gone(&mut self, key: MrKey) {
        self.jobs_fail(|j| j.key == key);
    }

    /// The queue pair `qpn` takes no requests any more: so do the reads that came through it.
    pub(crate) fn jobs_qp_gone(&mut self, qpn: Qpn) {
        self.jobs_fail(|j| j.qp == qpn);
    }

    /// Each read that `gone` picks ends with an error at its requester.
    fn jobs_fail(&mut self, gone: impl Fn(&ReadJob) -> bool) {
        if self.objects.jobs_live == 0 {
            return;
        }
        for ci in 0..self.contexts.slots() {
            let Some(c) = self.contexts.find_mut(ci) else { continue };
            let Some(a) = c.active.as_mut() else { continue };
            let mut owed = false;
            for job in a.jobs.iter_mut().filter(|j| gone(j) && !j.dead) {
                job_abort(job, &mut a.unsent_bytes);
                job.error_owed = true;
                owed = true;
            }
            if owed {
                self.shared.out.ready_push(ci);
            }
        }
    }
}
