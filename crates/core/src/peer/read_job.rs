//! The reads that are being served to one peer.

use crate::api::MrKey;
use crate::ids::{JobId, Place};
use crate::objects::places::PLACE_BYTES;
use crate::peer::scoreboard::{Entry, Kind, Work};

/// One read being served: a range of a region that is sent to its requester.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadJob {
    id: JobId,
    /// Place of the read in the table of all peers' reads
    /// ([`Places`](crate::objects::places::Places)); `None` once the read has failed, even while
    /// packets of it are unresolved.
    place: Option<Place>,
    /// Message id of the requester.
    msg_id: u32,
    key: MrKey,
    addr: u64,
    len: u32,
    /// Bytes that have PSNs.
    cut: u32,
    /// Unresolved PSNs.
    open: u32,
    /// The read has failed and its error response has no PSN yet.
    error_owed: bool,
    /// No more of the read is sent: either side has aborted it.
    dead: bool,
}

impl ReadJob {
    /// A read of `len` bytes at `addr` of region `key`, requested by message `msg_id`.
    pub fn new(id: JobId, place: Place, msg_id: u32, key: MrKey, addr: u64, len: u32) -> Self {
        debug_assert!(len > 0, "a read of nothing is over at once");
        let (place, error_owed, dead) = (Some(place), false, false);
        Self { id, place, msg_id, key, addr, len, cut: 0, open: 0, error_owed, dead }
    }

    /// Place of the read in the table of all peers' reads, until it fails.
    pub fn place(&self) -> Option<Place> {
        self.place
    }
    /// Message id of the requester.
    pub fn msg_id(&self) -> u32 {
        self.msg_id
    }
    /// The region that is read.
    pub fn key(&self) -> MrKey {
        self.key
    }
    /// Address of byte `off` of the read, in the region's address space.
    pub fn addr_of(&self, off: u32) -> u64 {
        debug_assert!(off < self.len, "a byte of the read: {off}, {self:?}");
        self.addr + u64::from(off)
    }

    /// Bytes that have no PSN yet.
    fn unsent(&self) -> u64 {
        debug_assert!(self.cut <= self.len, "{self:?}");
        u64::from(self.len - self.cut)
    }
    /// Whether a packet of the read waits to be sent.
    fn has_to_send(&self) -> bool {
        debug_assert!(!self.dead || self.cut == self.len, "nothing more to cut: {self:?}");
        self.error_owed || (!self.dead && self.cut < self.len)
    }
    /// Whether the read is over and can be removed.
    fn is_done(&self) -> bool {
        self.open == 0 && !self.has_to_send()
    }
}

/// The reads that are being served to one peer.
#[derive(Debug, Default)]
pub(crate) struct ReadJobs {
    jobs: Vec<ReadJob>,
    /// Index of the read whose turn it is, modulo their number.
    cursor: usize,
    /// Our own requests have their turn before the next read.
    requests_first: bool,
    /// Bytes of all reads that have no PSN yet.
    unsent_bytes: u64,
}

impl ReadJobs {
    /// Memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.jobs.capacity() * size_of::<ReadJob>() + 2 * self.jobs.len() * PLACE_BYTES
    }
    /// Largest value of [`Self::held_bytes`], where the handshake promised the peer `promised`
    /// reads at the same time.
    pub fn held_bytes_max(promised: usize) -> usize {
        // Twice as many reads as promised are served, and lists grow by doubling.
        2 * promised.max(4).next_power_of_two() * (size_of::<ReadJob>() + 2 * PLACE_BYTES)
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
    pub fn len(&self) -> usize {
        self.jobs.len()
    }
    /// Whether a packet of any read waits to be sent.
    #[inline(always)]
    pub fn has_to_send(&self) -> bool {
        debug_assert!(self.unsent_bytes == 0 || !self.jobs.is_empty(), "bytes of nothing");
        self.jobs.iter().any(ReadJob::has_to_send)
    }
    /// Bytes of all reads that have no PSN yet.
    #[inline(always)]
    pub fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }
    /// The read with the number `id`.
    pub fn find(&self, id: JobId) -> Option<&ReadJob> {
        self.jobs.iter().find(|j| j.id == id)
    }
    fn find_mut(&mut self, id: JobId) -> Option<&mut ReadJob> {
        self.jobs.iter_mut().find(|j| j.id == id)
    }
    /// Whether read `id` exists and is not aborted.
    pub fn lives(&self, id: JobId) -> bool {
        let job = self.find(id);
        debug_assert!(
            job.is_none_or(|j| j.dead || j.place.is_some()),
            "what goes on has a place: {job:?}"
        );
        job.is_some_and(|j| !j.dead)
    }

    /// Adds a read.
    pub fn begin(&mut self, job: ReadJob) {
        debug_assert!(self.find(job.id).is_none(), "a number of its own");
        debug_assert!(job.place.is_some() && job.unsent() == u64::from(job.len), "{job:?}");
        self.unsent_bytes += job.unsent();
        self.jobs.push(job);
    }
    /// Removes all reads. The turn among reads stays.
    pub fn clear(&mut self) {
        self.drain().for_each(drop);
    }
    /// Removes all reads and returns their places.
    pub fn drain(&mut self) -> impl Iterator<Item = Place> {
        self.unsent_bytes = 0;
        self.jobs.drain(..).filter_map(|j| j.place)
    }
    /// Takes the place of an aborted read.
    pub fn place_take(&mut self, id: JobId) -> Option<Place> {
        let job = self.find_mut(id)?;
        debug_assert!(job.dead, "what goes on keeps its place: {job:?}");
        job.place.take()
    }
    /// Number of reads that have a place.
    #[cfg(debug_assertions)]
    pub fn placed(&self) -> u32 {
        self.jobs.iter().filter(|j| j.place.is_some()).count() as u32
    }

    /// Whether our own requests have their turn before the next read.
    #[inline(always)]
    pub fn requests_first(&self) -> bool {
        self.requests_first
    }
    /// Notes that our own requests have had their turn.
    #[inline(always)]
    pub fn requests_turned(&mut self) {
        self.requests_first = false;
    }
    /// The next segment of at most `mtu` bytes, of the reads in turn; `None`: nothing waits.
    pub fn cut(&mut self, mtu: u16) -> Option<Entry> {
        let n = self.jobs.len();
        let turns = (0..n).map(|k| (self.cursor + k) % n);
        let at = turns.clone().find(|&j| self.jobs[j].has_to_send())?;
        (self.cursor, self.requests_first) = (at + 1, true);
        let job = &mut self.jobs[at];
        job.open += 1;
        let work = Work::of_job(job.id);
        if core::mem::take(&mut job.error_owed) {
            return Some(Entry::new(Kind::ReadError, work, 0, 0));
        }
        debug_assert!(job.place.is_some() && !job.dead, "what goes on has a place: {job:?}");
        let len = u32::from(mtu).min(job.len - job.cut);
        let entry = Entry::new(Kind::ReadResp, work, job.cut, len as u16);
        job.cut += len;
        debug_assert!(len > 0 && job.cut <= job.len, "{job:?}");
        self.unsent_bytes -= u64::from(len);
        Some(entry)
    }
    /// Counts one more unresolved segment of the read, one of which was cut into two.
    pub fn segment_more(&mut self, id: JobId) {
        if let Some(job) = self.find_mut(id) {
            debug_assert!(job.open > 0, "a segment of it is open: {job:?}");
            job.open += 1;
        }
    }
    /// Notes that a segment is resolved; unless it was accepted (`good`), the read is aborted.
    /// Returns the read if it is over.
    #[must_use]
    pub fn segment_done(&mut self, id: JobId, good: bool) -> Option<ReadJob> {
        let at = self.jobs.iter().position(|j| j.id == id)?;
        let job = &mut self.jobs[at];
        debug_assert!(job.open > 0, "a segment is resolved once: {job:?}");
        job.open -= 1;
        if !good {
            abort(job, &mut self.unsent_bytes);
        }
        self.jobs[at].is_done().then(|| self.jobs.remove(at))
    }
    /// Fails the read: the requester is told, unless the read was aborted before.
    pub fn fail(&mut self, id: JobId) {
        let Some(job) = self.jobs.iter_mut().find(|j| j.id == id) else { return };
        job.error_owed |= !job.dead;
        abort(job, &mut self.unsent_bytes);
    }
    /// Checks the sum against the reads. Returns the unresolved segments of all reads.
    #[cfg(debug_assertions)]
    pub fn audit(&self) -> u32 {
        let unsent: u64 = self.jobs.iter().map(ReadJob::unsent).sum();
        assert_eq!(self.unsent_bytes, unsent, "bytes of reads that have no PSN");
        assert!(self.jobs.iter().all(|j| !j.is_done()), "what is over is forgotten");
        self.jobs.iter().map(|j| j.open).sum()
    }
}

/// Aborts a read: no more of it is cut into packets.
fn abort(job: &mut ReadJob, unsent_bytes: &mut u64) {
    if !job.dead {
        debug_assert!(*unsent_bytes >= job.unsent(), "some of all: {job:?}");
        *unsent_bytes -= job.unsent();
        job.dead = true;
        job.cut = job.len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lens: &[u32]) -> ReadJobs {
        let mut jobs = ReadJobs::default();
        for (i, &len) in lens.iter().enumerate() {
            let id = JobId(i as u32);
            jobs.begin(ReadJob::new(id, Place(7), 70 + id.0, MrKey(id.0), 1_000, len));
        }
        jobs
    }

    fn is_last(jobs: &mut ReadJobs, id: u32, good: bool) -> bool {
        jobs.segment_done(JobId(id), good).is_some()
    }

    #[test]
    fn reads_take_turns_and_end_when_all_is_resolved() {
        let mut jobs = of(&[1_500, 900]);
        let mut cut = Vec::new();
        while let Some(e) = jobs.cut(1_000) {
            assert!(jobs.requests_first());
            jobs.requests_turned();
            cut.push((e.job().0, e.off, e.len));
        }
        assert_eq!(cut, [(0, 0, 1_000), (1, 0, 900), (0, 1_000, 500)]);
        assert_eq!((jobs.unsent_bytes(), jobs.has_to_send(), jobs.audit()), (0, false, 3));
        assert!(!is_last(&mut jobs, 0, true) && is_last(&mut jobs, 1, true));
        assert!(is_last(&mut jobs, 0, true) && jobs.is_empty());
        assert!(!is_last(&mut jobs, 0, true), "it is over once");
    }

    #[test]
    fn what_fails_is_told_once_and_sends_nothing_more() {
        let mut jobs = of(&[5_000, 5_000]);
        assert_eq!(jobs.find(JobId(1)).map(|j| (j.msg_id(), j.addr_of(7))), Some((71, 1_007)));
        let _ = jobs.cut(1_000);
        jobs.fail(JobId(0));
        assert_eq!((jobs.place_take(JobId(0)), jobs.place_take(JobId(0))), (Some(Place(7)), None));
        assert!(!jobs.lives(JobId(0)) && jobs.lives(JobId(1)));
        jobs.fail(JobId(0));
        assert_eq!((jobs.unsent_bytes(), jobs.audit()), (5_000, 1));
        jobs.fail(JobId(1));
        let told = [jobs.cut(1_000), jobs.cut(1_000), jobs.cut(1_000)];
        let mut told: Vec<_> = told.into_iter().flatten().map(|e| (e.kind, e.job().0)).collect();
        told.sort_by_key(|t| t.1);
        assert_eq!(told, [(Kind::ReadError, 0), (Kind::ReadError, 1)]);
        assert!(!is_last(&mut jobs, 0, false) && is_last(&mut jobs, 0, true));
    }

    #[test]
    fn a_segment_that_is_refused_ends_the_read_once_the_others_are_resolved() {
        let mut jobs = of(&[3_000]);
        let _ = (jobs.cut(1_000), jobs.cut(1_000));
        jobs.segment_more(JobId(0));
        assert!(!is_last(&mut jobs, 0, false));
        assert_eq!((jobs.unsent_bytes(), jobs.cut(1_000).is_none()), (0, true));
        assert!(!is_last(&mut jobs, 0, true) && is_last(&mut jobs, 0, true));
    }
}
