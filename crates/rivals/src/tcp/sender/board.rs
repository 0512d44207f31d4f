//! The scoreboard of segments in flight: which are acknowledged selectively, lost or retransmitted,
//! and the order in which they were sent.

use super::sampler::Stamp;
use srd_fabric::Ps;
use std::collections::VecDeque;

/// Acknowledged selectively.
pub const SACKED: u8 = 1;
/// Marked lost.
pub const LOST: u8 = 2;
/// A retransmission of it is in flight.
pub const RETRANS: u8 = 4;
/// Retransmitted at least once.
pub const AGAIN: u8 = 8;
/// In the list ordered by time of sending.
const LISTED: u8 = 16;

const NIL: u32 = u32::MAX;

/// A segment in flight. Its boundaries never change, also when it is retransmitted.
#[derive(Clone, Copy, Debug)]
pub struct Seg {
    pub start: u64,
    /// When it was last sent.
    pub sent_ps: Ps,
    /// When the last transmission left the NIC.
    pub gone_ps: Ps,
    pub len: u32,
    /// Messages of the stream that end at or before the segment's end.
    pub messages: u32,
    /// Multipath TCP: its place in the connection's stream.
    pub dsn: u64,
    /// State of the connection when it was last sent.
    pub stamp: Stamp,
    prev: u32,
    next: u32,
    flags: u8,
}

impl Seg {
    pub const fn end(&self) -> u64 {
        self.start + self.len as u64
    }
    pub const fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The segments from SND.UNA to SND.NXT. Each has a number that never changes; `first` is the
/// number of the first one.
#[derive(Clone, Debug)]
pub struct Board {
    segs: VecDeque<Seg>,
    first: u32,
    /// Ends of the list ordered by time of sending: segments in flight and not yet acknowledged.
    oldest: u32,
    newest: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    /// No segment below this number waits for retransmission.
    resend_from: u32,
    /// One past the highest segment acknowledged selectively.
    sacked_end: u32,
    /// All segments below this number were evaluated by [`Board::lose_by_count`].
    judged: u32,
}

impl Board {
    /// Bytes of the list of segments.
    pub fn held_bytes(&self) -> usize {
        self.segs.capacity() * size_of::<Seg>()
    }

    pub const fn new() -> Self {
        Self {
            segs: VecDeque::new(),
            first: 0,
            oldest: NIL,
            newest: NIL,
            sacked: 0,
            lost: 0,
            retrans: 0,
            resend_from: 0,
            sacked_end: 0,
            judged: 0,
        }
    }

    pub fn len(&self) -> u32 {
        self.segs.len() as u32
    }
    pub const fn sacked(&self) -> u32 {
        self.sacked
    }
    pub const fn lost(&self) -> u32 {
        self.lost
    }
    pub const fn retrans(&self) -> u32 {
        self.retrans
    }
    /// Segments estimated to be in flight (RFC 6675's pipe).
    pub fn pipe(&self) -> u32 {
        (self.len() + self.retrans).saturating_sub(self.sacked + self.lost)
    }
    pub fn front(&self) -> Option<&Seg> {
        self.segs.front()
    }
    /// Number of the first segment; of the last if it is not empty: `first + len - 1`.
    pub const fn first(&self) -> u32 {
        self.first
    }
    pub fn last(&self) -> u32 {
        self.first + self.len() - 1
    }
    pub fn get(&self, no: u32) -> &Seg {
        &self.segs[(no - self.first) as usize]
    }
    fn at(&mut self, no: u32) -> &mut Seg {
        &mut self.segs[(no - self.first) as usize]
    }

    /// Adds a new segment, sent now.
    pub fn push(&mut self, start: u64, len: u32, messages: u32, sent_ps: Ps, gone_ps: Ps) {
        let no = self.first + self.len();
        let (stamp, prev, next) = (Stamp::default(), NIL, NIL);
        let seg =
            Seg { start, sent_ps, gone_ps, len, messages, dsn: 0, stamp, prev, next, flags: 0 };
        self.segs.push_back(seg);
        self.list_add(no);
    }

    /// Notes the place of a segment in the connection's stream.
    pub fn place(&mut self, no: u32, dsn: u64) {
        self.at(no).dsn = dsn;
    }

    /// Segments that are not acknowledged.
    pub fn unacked(&self) -> impl Iterator<Item = &Seg> {
        self.segs.iter().filter(|seg| !seg.is(SACKED))
    }

    /// Notes the state of the connection when a segment was last sent.
    pub fn stamp(&mut self, no: u32, stamp: Stamp) {
        self.at(no).stamp = stamp;
    }

    /// Records a retransmission.
    pub fn resent(&mut self, no: u32, sent_ps: Ps, gone_ps: Ps) {
        self.list_remove(no);
        let seg = self.at(no);
        (seg.sent_ps, seg.gone_ps) = (sent_ps, gone_ps);
        let was = seg.flags;
        seg.flags |= AGAIN | RETRANS;
        if was & RETRANS == 0 {
            self.retrans += 1;
        }
        self.list_add(no);
    }

    /// Removes and returns the first segment if it ends at or before `ack`.
    pub fn pop(&mut self, ack: u64) -> Option<Seg> {
        if self.segs.front()?.end() > ack {
            return None;
        }
        self.list_remove(self.first);
        let seg = self.segs.pop_front()?;
        self.first += 1;
        self.sacked -= u32::from(seg.is(SACKED));
        self.lost -= u32::from(seg.is(LOST));
        self.retrans -= u32::from(seg.is(RETRANS));
        Some(seg)
    }

    /// Marks the segments within `from..to` as acknowledged selectively; calls `newly` with the
    /// previous state of each that was not yet marked.
    pub fn sack(&mut self, from: u64, to: u64, mut newly: impl FnMut(&Seg)) {
        let start = self.segs.partition_point(|s| s.start < from);
        for i in start..self.segs.len() {
            let seg = &mut self.segs[i];
            if seg.end() > to {
                break;
            }
            if seg.is(SACKED) {
                continue;
            }
            newly(seg);
            let was = seg.flags;
            seg.flags = (was | SACKED) & !(LOST | RETRANS);
            self.sacked += 1;
            self.lost -= u32::from(was & LOST != 0);
            self.retrans -= u32::from(was & RETRANS != 0);
            let no = self.first + i as u32;
            self.sacked_end = self.sacked_end.max(no + 1);
            self.list_remove(no);
        }
    }

    /// End of the highest byte acknowledged selectively, if any is above SND.UNA.
    pub fn sacked_end(&self) -> Option<u64> {
        let no = self.sacked_end.checked_sub(1)?;
        (no >= self.first && no < self.first + self.len()).then(|| self.get(no).end())
    }

    /// Marks a segment lost, or its retransmission if there is one.
    pub fn lose(&mut self, no: u32) {
        self.list_remove(no);
        let seg = self.at(no);
        let was = seg.flags;
        seg.flags = (was | LOST) & !RETRANS;
        self.lost += u32::from(was & LOST == 0);
        self.retrans -= u32::from(was & RETRANS != 0);
        self.resend_from = self.resend_from.min(no);
    }

    /// Marks as lost all segments below `threshold` selectively acknowledged ones (RFC 6675).
    /// Returns whether there were any.
    pub fn lose_by_count(&mut self, threshold: u32) -> bool {
        let mut left = threshold;
        let mut no = self.sacked_end.min(self.first + self.len());
        while left > 0 && no > self.first {
            no -= 1;
            left -= u32::from(self.get(no).is(SACKED));
        }
        if left > 0 {
            return false;
        }
        let mut any = false;
        for n in self.judged.max(self.first)..no {
            if !self.get(n).is(SACKED | LOST | RETRANS) {
                self.lose(n);
                any = true;
            }
        }
        self.judged = self.judged.max(no);
        any
    }

    /// After a timeout all segments may be evaluated again.
    pub const fn judge_anew(&mut self) {
        self.judged = self.first;
    }

    /// The first lost segment that was not retransmitted yet.
    pub fn resend_next(&mut self) -> Option<u32> {
        if self.lost == 0 {
            return None;
        }
        let end = self.first + self.len();
        let mut no = self.resend_from.max(self.first);
        while no < end {
            let seg = self.get(no);
            if seg.is(LOST) && !seg.is(RETRANS) {
                self.resend_from = no;
                return Some(no);
            }
            no += 1;
        }
        self.resend_from = end;
        None
    }

    /// Clears all loss marks, which were spurious.
    pub fn unlose(&mut self) {
        for i in 0..self.segs.len() {
            let seg = &mut self.segs[i];
            if seg.is(LOST) {
                seg.flags &= !LOST;
                let no = self.first + i as u32;
                if !self.segs[i].is(LISTED) {
                    self.list_add(no);
                }
            }
        }
        self.lost = 0;
    }

    /// Counts a duplicate ack without SACK as one more arrival, at most all segments but one.
    pub fn dupack(&mut self) {
        if self.sacked + self.lost + 1 < self.len() {
            self.sacked += 1;
        }
    }

    /// Removes counted duplicates when an ack covers `acked` segments: all but the missing one had
    /// caused duplicate acks.
    pub fn dupacks_eat(&mut self, acked: u32) {
        self.sacked = self.sacked.saturating_sub(acked.saturating_sub(1));
        self.sacked = self.sacked.min(self.len().saturating_sub(self.lost));
    }

    /// Clears the counted duplicates.
    pub const fn dupacks_clear(&mut self) {
        self.sacked = 0;
    }

    /// The segment that was sent longest ago and is not acknowledged.
    pub const fn oldest(&self) -> Option<u32> {
        if self.oldest == NIL { None } else { Some(self.oldest) }
    }

    /// The segment sent next after `no`.
    pub fn later(&self, no: u32) -> Option<u32> {
        let next = self.get(no).next;
        (next != NIL).then_some(next)
    }

    fn list_add(&mut self, no: u32) {
        let newest = self.newest;
        let seg = self.at(no);
        (seg.prev, seg.next) = (newest, NIL);
        seg.flags |= LISTED;
        if newest == NIL {
            self.oldest = no;
        } else {
            self.at(newest).next = no;
        }
        self.newest = no;
    }

    fn list_remove(&mut self, no: u32) {
        let seg = self.at(no);
        if !seg.is(LISTED) {
            return;
        }
        seg.flags &= !LISTED;
        let (prev, next) = (seg.prev, seg.next);
        if prev == NIL {
            self.oldest = next;
        } else {
            self.at(prev).next = next;
        }
        if next == NIL {
            self.newest = prev;
        } else {
            self.at(next).prev = prev;
        }
    }
}
