//! Posts that wait for a moment, so that several leave with one system call.
//!
//! Programs that use libfabric's provider ring the doorbell after every request. The first post
//! after a poll leaves at once. Posts that follow while packets to the same peer are in flight may
//! stay in their ring until the next poll, until they fill a burst, or until a post finds that the
//! first of them has waited for [`WAIT_MAX`]. They wait only in programs that were seen to poll
//! soon after they post; where a poll comes late, none waits for some time.

use crate::{nic::Nic, shard::Shard};
use srd_core::{Span, Time};
use std::sync::atomic::Ordering;

/// Longest time that a post waits for further posts: a fraction of a round trip over a network, and
/// several posts of libfabric's provider.
const WAIT_MAX: Span = Span::from_us(8);
/// A poll that comes this long after a post that left at once, or later, is late. Longer than the
/// system call of that post, and than most interrupts for packets of the peer, during which a
/// program is no later than it would be in any case. After a post that waited, which took no system
/// call, a poll is late from [`WAIT_MAX`] on, and from this time on no post waits for a while.
const LATE: Span = Span::from_us(20);
/// Each poll that comes soon after a post adds one to the trust, and one that comes late leaves a
/// quarter of it. So much lets posts wait: a program that computes in each of its steps does not
/// reach it by some tens of small operations between.
const TRUST_MIN: u32 = 64;
/// What a poll takes that comes from [`WAIT_MAX`] to [`LATE`] after a post that waited: where each
/// does, one post of 33 waits.
const TRUST_LITTLE: u32 = TRUST_MIN / 2;
/// The most: one late poll, as when another process took the processor, is no reason to learn anew.
const TRUST_MAX: u32 = 4 * TRUST_MIN;
/// For how long no post waits after a late poll, in times of what it was late: some 6 % of the time
/// is lost so at most.
const PAUSE_FACTOR: u64 = 16;
/// The least such time, and the most. It doubles each time.
const PAUSE_MIN: Span = Span::from_ms(1);
const PAUSE_MAX: Span = Span::from_secs(1);
/// The doubling ends after so many times the pause without a late poll.
const PAUSES_FORGET: u64 = 4;
/// Most bytes that wait, headers included: what one burst sends on one path.
const BYTES_MAX: u32 = 65_000;
/// Most posts that wait, counted with the one that sends them: what one burst sends.
const POSTS_MAX: usize = 64;
/// Headers of a packet, at most, as they count in `BYTES_MAX`.
const HEADERS_BYTES: u32 = 128;

/// What a device knows of the posts that wait, and of when the program polls.
#[derive(Debug, Default)]
pub(crate) struct Cork {
    waiting: Option<Waiting>,
    /// When the last post since the last poll came, if that tells when the program polls.
    posted_at: Option<Time>,
    /// That a poll comes soon after a post; see [`TRUST_MIN`].
    trust: u32,
    /// No post waits before this time.
    from: Time,
    /// How long no post waited after the last late poll.
    pause: Span,
}

/// Posts that wait in the ring of one queue pair.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    qp: usize,
    posts: usize,
    bytes: u32,
    since: Time,
}

impl Cork {
    /// Whether the program polls soon after it posts.
    #[inline]
    fn is_learnt(&self, now: Time) -> bool {
        self.trust >= TRUST_MIN && now >= self.from
    }

    /// Number of posts of the queue pair that wait; `None` if those of another one do.
    #[inline]
    fn posts_of(&self, qp: usize) -> Option<usize> {
        match self.waiting {
            None => Some(0),
            Some(waiting) => (waiting.qp == qp).then_some(waiting.posts),
        }
    }

    /// Has another post wait, if there is time, and room for a further one like it.
    #[inline]
    fn add(&mut self, now: Time, qp: usize, len: u32) -> bool {
        let mut all = self.waiting.unwrap_or(Waiting { qp, posts: 0, bytes: 0, since: now });
        all.posts += 1;
        let bytes = len.saturating_add(HEADERS_BYTES);
        all.bytes = all.bytes.saturating_add(bytes);
        if all.posts >= POSTS_MAX
            || all.bytes.saturating_add(bytes) > BYTES_MAX
            || now.since(all.since) >= WAIT_MAX
        {
            return false;
        }
        (self.waiting, self.posted_at) = (Some(all), Some(now));
        true
    }

    /// A poll has come that drives the device.
    #[inline]
    fn polled(&mut self, now: Time) {
        if let Some(at) = self.posted_at.take() {
            self.learn(now.since(at) < LATE);
        }
    }

    #[inline]
    fn learn(&mut self, soon: bool) {
        self.trust = if soon { TRUST_MAX.min(self.trust + 1) } else { self.trust / 4 };
    }

    /// What waits is taken from its ring now, by a poll, a post, or whoever takes a turn. Returns
    /// whether there was anything.
    #[inline]
    pub(crate) fn taken(&mut self, now: Time) -> bool {
        let some = self.waiting.take().is_some();
        if some && let Some(at) = self.posted_at {
            self.judge(now, now.since(at));
        }
        some
    }

    /// The last of those that waited has done so for this long.
    fn judge(&mut self, now: Time, waited: Span) {
        if waited >= LATE {
            let long = Span(waited.0.saturating_mul(PAUSE_FACTOR));
            self.pause = Span(self.pause.0 * 2).max(long).clamp(PAUSE_MIN, PAUSE_MAX);
            self.from = now + self.pause;
            self.posted_at = None;
            self.learn(false);
        } else if waited >= WAIT_MAX {
            // Messages are late, if only by a little. An interrupt now and then is no reason to
            // learn anew, a program that does this each time is one.
            self.posted_at = None;
            self.trust = self.trust.saturating_sub(TRUST_LITTLE);
        } else if now >= self.from + Span(self.pause.0 * PAUSES_FORGET) {
            self.pause = Span::ZERO;
        }
    }
}

impl Nic {
    /// A queue pair has new posts: they leave at once, or wait.
    #[inline]
    pub(crate) fn posts_come(&mut self, shared: &Shard, qp_index: usize) {
        let now = Self::now();
        // Not the first one after a poll, which may be an answer that no other follows.
        let follows = shared.post_follows.load(Ordering::Relaxed);
        if follows && self.cork.is_learnt(now) && self.post_waits(shared, now, qp_index) {
            shared.corked.store(true, Ordering::Relaxed);
            return;
        }
        let alone = self.cork.waiting.is_none();
        self.send_posts(shared, now);
        // Several take a call so long that it says nothing of when the program polls.
        self.cork.posted_at = alone.then_some(now);
        shared.post_follows.store(true, Ordering::Relaxed);
    }

    /// Sends the posts that wait.
    pub(crate) fn uncork(&mut self, shared: &Shard) {
        if self.cork.waiting.is_some() {
            let now = Self::now();
            self.send_posts(shared, now);
            self.polled(shared, now);
        }
    }

    /// A poll has come that drives the device.
    #[inline]
    pub(crate) fn polled(&mut self, shared: &Shard, now: Time) {
        shared.post_follows.store(false, Ordering::Relaxed);
        self.cork.polled(now);
    }

    /// Whether the post that has come waits: one request, to a peer to which packets are in flight,
    /// of a program whose polls drive.
    fn post_waits(&mut self, shared: &Shard, now: Time, qp_index: usize) -> bool {
        let Self { engine, tables, cork, .. } = self;
        let Some(Some(qp)) = tables.qps.get_mut(qp_index) else { return false };
        let posts = qp.sends.slots();
        if qp.held || cork.posts_of(qp_index).is_none_or(|waiting| waiting + 1 != posts) {
            return false;
        }
        let core = &qp.core;
        let armed = [&core.send_cq, &core.recv_cq].map(|cq| cq.armed.load(Ordering::Relaxed));
        if armed != [false; 2] || !shared.driving.callers.drive() {
            return false;
        }
        let Ok(ring) = qp.sends.read_chunk(posts) else { return false };
        let (first, rest) = ring.as_slices();
        let Some(last) = rest.last().or(first.last()) else { return false };
        engine.has_in_flight(last.wr.ah, last.wr.dst_qpn) && cork.add(now, qp_index, last.wr.len)
    }
}

impl Shard {
    /// A poll has come, whether it will drive or not: sends the posts that wait, unless another
    /// thread drives, which sends them.
    #[inline]
    pub(crate) fn uncork(&self) {
        // Looked at first, since to write it takes it from the thread that posts.
        if self.post_follows.load(Ordering::Relaxed) {
            self.post_follows.store(false, Ordering::Relaxed);
        }
        if self.corked.load(Ordering::Relaxed) {
            self.uncork_now();
        }
    }

    #[inline(never)]
    fn uncork_now(&self) {
        if !self.is_left()
            && let Some(mut nic) = self.try_nic()
        {
            nic.uncork(self);
        }
    }
}

#[cfg(test)]
#[path = "cork_tests.rs"]
mod tests;
