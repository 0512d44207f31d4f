//! Cancellation of work that may concern several peers: that of a queue pair, an address handle or
//! a region.

use crate::api::{AhId, Completion, CompletionKind, MrKey, Qpn, RecvHandle, Status, WrHandle};
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::Ctx;
use crate::lane::{Ending, place_leave};
use crate::objects::places::Served;
use crate::time::Time;

impl<O: Observer> Engine<O> {
    /// Ends the requests in `list` now, even if packets of them are in flight.
    pub(crate) fn wrs_cancel(&mut self, now: Time, list: &[WrHandle], ending: Ending) {
        // First remove the requests from the queues, then from each scoreboard in one pass.
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
            debug_assert!(psns > 0, "those of whom nothing is open were left out");
            self.lane(now, of_context[0].0).board_withdraw(psns);
        }
        for &wi in list {
            let Some(ci) = self.context_of(wi) else { continue };
            self.lane(now, ci).wr_cancelled(wi, ending);
        }
        debug_assert!(list.iter().all(|&wi| self.context_of(wi).is_none()), "they have ended");
    }

    /// The context of request `wi`, if the request is live.
    fn context_of(&self, wi: WrHandle) -> Option<Ctx> {
        self.objects.wrs.find(wi).map(|w| w.ctx)
    }

    /// Flushes a queue pair: its sends and receives end with `status`.
    pub(crate) fn qp_flush(&mut self, now: Time, qpn: Qpn, status: Status) {
        let list = self.objects.wrs.select(|w| w.qp == qpn);
        self.wrs_cancel(now, &list, Ending::Complete(status));
        self.recvs_flush(qpn, status);
    }

    /// Ends every posted receive of a queue pair with `status`.
    fn recvs_flush(&mut self, qpn: Qpn, status: Status) {
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return };
        let recv_cq = qp.init.recv_cq;
        debug_assert!(!qp.state.posts_recv(), "none is posted any more");
        while let Some((index, recv)) = qp.rq.pop() {
            let Some(cq) = self.objects.cqs.get_mut(recv_cq) else { continue };
            debug_assert!(cq.reserved() > 0 || cfg!(planted_bugs), "each receive has its slot");
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

    /// Fails every read of region `key`, which was deregistered; each requester gets an error.
    pub(crate) fn jobs_region_gone(&mut self, key: MrKey) {
        while let Some(served) = self.objects.places.of_region(key) {
            self.read_end(served);
        }
        debug_assert!(self.objects.mrs.get(key).is_none(), "no read of it can begin any more");
    }

    /// Fails every read that came through queue pair `qpn`, which accepts no requests any more.
    pub(crate) fn jobs_qp_gone(&mut self, qpn: Qpn) {
        while let Some(served) = self.objects.places.of_qp(qpn) {
            self.read_end(served);
        }
    }

    /// Fails the reads that made too little progress while other reads found no place.
    #[inline]
    pub(crate) fn slow_reads_end(&mut self) {
        while let Some(served) = self.objects.places.slow_take() {
            // The read may have ended since it was noted.
            let context = self.contexts.find(served.ctx).and_then(|c| c.win());
            let job = context.and_then(|win| win.jobs.find(served.job));
            if job.is_some_and(|j| j.place().is_some()) {
                self.shared.counters.reads_slow += 1;
                self.read_end(served);
            }
        }
    }

    /// Fails a read that is being served: frees its place and tells its requester.
    fn read_end(&mut self, Served { ctx, job }: Served) {
        self.shared.counters.read_steps += 1;
        let c = self.contexts.get_mut(ctx);
        let way = self.paths.get_mut(c.way());
        let jobs = &mut c.act().jobs;
        jobs.fail(job);
        debug_assert!(jobs.find(job).is_some(), "what has a place is known to its peer");
        let place = jobs.place_take(job).expect("what is listed has a place");
        place_leave(&mut self.objects.places, &mut self.shared.networks, way, place);
        self.shared.out.ready_push(ctx);
    }
}
