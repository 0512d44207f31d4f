//! Work given up that may be of several peers: of a queue pair, an address handle, a region.

use crate::api::{AhId, Completion, CompletionKind, MrKey, Qpn, RecvHandle, Status, WrHandle};
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::Ctx;
use crate::lane::Ending;
use crate::peer::read_job::{ReadJob, job_abort};
use crate::time::Time;

impl<O: Observer> Engine<O> {
    /// Ends the requests `list` now, whatever is in flight of them.
    pub(crate) fn wrs_cancel(&mut self, now: Time, list: &[WrHandle], ending: Ending) {
        // Out of queues first, and out of each scoreboard in one pass.
        let mut open = Vec::new();
        for &wi in list {
            let Some(ci) = self.context_of(wi) else { continue };
            let psns = self.lane(now, ci).wr_withdraw(wi);
            if psns > 0 {
                open.push((ci, psns));
            }
        }
        open.sort_unstable();
        for of_context in open.chunk_by(|a, b| a.0 == b.0) {
            let psns = of_context.iter().map(|o| o.1).sum();
            self.lane(now, of_context[0].0).board_withdraw(psns);
        }
        for &wi in list {
            let Some(ci) = self.context_of(wi) else { continue };
            self.lane(now, ci).wr_cancelled(wi, ending);
        }
    }

    /// The context of a request, if that is live.
    fn context_of(&self, wi: WrHandle) -> Option<Ctx> {
        self.objects.wrs.find(wi).map(|w| w.ctx)
    }

    /// Flushes a queue pair: sends and receives end with `status`.
    pub(crate) fn qp_flush(&mut self, now: Time, qpn: Qpn, status: Status) {
        let list = self.objects.wrs.select(|w| w.qp == qpn);
        self.wrs_cancel(now, &list, Ending::Complete(status));
        self.recvs_flush(qpn, status);
    }

    /// Every posted receive ends with `status`.
    fn recvs_flush(&mut self, qpn: Qpn, status: Status) {
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return };
        let recv_cq = qp.init.recv_cq;
        while let Some((index, recv)) = qp.rq.pop() {
            let Some(cq) = self.objects.cqs.get_mut(recv_cq) else { continue };
            cq.push(Completion {
                wr_id: recv.wr_id,
                status,
                kind: CompletionKind::Recv(RecvHandle { qp: qpn, index }),
                qpn,
                byte_len: 0,
                imm: None,
                src_qpn: Qpn(0),
                src_ah: AhId::UNKNOWN,
                src_ip: None,
            });
        }
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
        for ci in self.contexts.numbers() {
            let Some(c) = self.contexts.find_mut(ci) else { continue };
            let Some(a) = c.win_mut() else { continue };
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
