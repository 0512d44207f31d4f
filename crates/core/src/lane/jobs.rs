//! Reads that are being served to the peer.

use crate::events::Observer;
use crate::lane::Lane;
use crate::peer::read_job::job_abort;
use srd_wire::Verdict;

impl<O: Observer> Lane<'_, O> {
    /// So many more reads are served to the peer.
    pub(crate) fn jobs_count(&mut self, more: i32) {
        let of_address = &mut self.way.jobs;
        *of_address = of_address.wrapping_add_signed(more);
        let leaks = planted!(JobsLeak) && more < 0;
        let more = if leaks { 0 } else { more };
        self.objects.jobs_live = self.objects.jobs_live.wrapping_add_signed(more);
        let (here, all) = (self.way.jobs, self.objects.jobs_live);
        debug_assert!(here <= all && all <= i32::MAX as u32, "reads served: {here} of {all}");
    }

    /// A response segment is resolved: by `verdict`, or given up (`None`).
    pub(crate) fn job_segment_done(&mut self, id: u32, verdict: Option<Verdict>) {
        let Some(at) = self.win.jobs.iter().position(|j| j.id == id) else { return };
        let job = &mut self.win.jobs[at];
        debug_assert!(job.open > 0, "a segment is resolved once: {job:?}");
        job.open -= 1;
        if verdict != Some(Verdict::Ok) {
            job_abort(job, &mut self.win.unsent_bytes);
        }
        if self.win.jobs[at].is_done() {
            self.win.jobs.remove(at);
            self.jobs_count(-1);
        }
    }

    /// Segment and job cannot be sent: the requester is told that the read has failed.
    pub(crate) fn job_fail(&mut self, id: u32) {
        if let Some(job) = self.win.jobs.iter_mut().find(|j| j.id == id) {
            job.error_owed |= !job.dead;
            job_abort(job, &mut self.win.unsent_bytes);
        }
        self.job_segment_done(id, None);
    }
}
