//! Reads that are being served to the peer.

use crate::api::{MrKey, Qpn};
use crate::events::Observer;
use crate::ids::{JobId, Place};
use crate::lane::Lane;
use crate::limits::{READ_BYTES_PER_SEC_MIN, READ_LINE_SHARE};
use crate::networks::{Networks, Prefix};
use crate::objects::places::{Places, Served};
use crate::path::table::PathEntry;
use crate::peer::read_job::ReadJob;
use srd_wire::{Message, ReadReq, Verdict};

/// Frees the place of a read that has ended, or that has failed and waits without a place until its
/// packets are resolved.
pub(crate) fn place_leave(
    places: &mut Places,
    networks: &mut Networks,
    way: &mut PathEntry,
    place: Place,
) {
    debug_assert!(way.jobs > 0 || cfg!(planted_bugs), "a read of this address has the place");
    places.end(place);
    way.jobs -= 1;
    networks.jobs_count(way.network, false);
}

impl<O: Observer> Lane<'_, O> {
    /// Begins to serve the read `req` of the peer.
    pub(crate) fn job_begin(&mut self, msg: &Message, req: &ReadReq) {
        let (ctx, job) = (self.ci, self.objects.job_id_take());
        let (qp, key) = (Qpn(msg.dst_qpn), MrKey(req.rkey));
        let place = self.objects.places.begin(self.now, Served { ctx, job }, key, qp);
        self.way.jobs += 1;
        self.shared.networks.jobs_count(self.way.network, true);
        debug_assert!(self.way.jobs <= self.objects.places.taken(), "some of all");
        self.win.jobs.begin(ReadJob::new(job, place, msg.msg_id, key, req.raddr, req.len));
        self.ready_push();
    }

    /// Whether the peer's address (for IPv6 its network, because addresses there cost nothing) may
    /// have another place: nobody gets more places than are still free, so that whoever takes all
    /// it can get leaves some for the next (dynamic thresholds; Choudhury and Hahne 1998).
    pub(crate) fn place_is_free(&self) -> bool {
        let left = self.shared.cfg.reads_max.saturating_sub(self.objects.places.taken());
        let here = match Prefix::of(self.way.ip) {
            Prefix::V4(_) => self.way.jobs,
            Prefix::V6(_) => self.shared.networks.jobs(self.way.network),
        };
        left > 0 && (here < left || planted!(ReadsUnshared))
    }

    /// Called when a place is wanted: looks for reads that make too little progress, which lose
    /// their places.
    pub(crate) fn slow_reads_look(&mut self) {
        let cfg = &self.shared.cfg;
        let equal = cfg.rate.line_bytes_per_sec / u64::from(cfg.reads_max.max(1));
        let least = READ_BYTES_PER_SEC_MIN.min(equal / READ_LINE_SHARE);
        self.objects.places.slow_look(self.now, least);
    }

    /// Notes that a response segment of read `id` is resolved, by `verdict` or because it was given
    /// up (`None`).
    #[inline]
    pub(crate) fn job_segment_done(&mut self, id: JobId, verdict: Option<Verdict>) {
        let good = verdict == Some(Verdict::Ok);
        if good && let Some(place) = self.win.jobs.find(id).and_then(ReadJob::place) {
            self.objects.places.progress(place, self.peer.limits().mtu);
        }
        let left = match self.win.jobs.segment_done(id, good) {
            Some(over) => over.place(),
            None if good => None,
            None => self.win.jobs.place_take(id),
        };
        if let Some(place) = left {
            place_leave(&mut self.objects.places, &mut self.shared.networks, self.way, place);
        }
    }

    /// Fails read `id`, one segment of which cannot be sent: the requester is told that the read
    /// has failed.
    pub(crate) fn job_fail(&mut self, id: JobId) {
        self.win.jobs.fail(id);
        self.job_segment_done(id, None);
    }

    /// Drops all reads that are being served to the peer.
    pub(crate) fn jobs_forget(&mut self) {
        for place in self.win.jobs.drain() {
            place_leave(&mut self.objects.places, &mut self.shared.networks, self.way, place);
        }
        debug_assert!(self.win.jobs.is_empty(), "none is served any more");
    }
}
