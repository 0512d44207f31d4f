//! Counted slots: how many work requests a queue or a completion queue can still accept.
//!
//! Each post takes slots and each completion returns them, so counting avoids atomic
//! read-modify-write operations where possible: a number that one thread at a time changes is
//! loaded and stored.

use super::sync::atomic::{AtomicU32, Ordering};

/// Slots of a send or receive queue. Posts take slots under the queue's lock; the engine's turn
/// returns them under the engine's lock.
#[derive(Debug)]
pub(crate) struct QueueSlots {
    taken: AtomicU32,
    given: AtomicU32,
    limit: u32,
}

impl QueueSlots {
    /// All `limit` slots free.
    pub(crate) fn new(limit: u32) -> Self {
        Self { taken: AtomicU32::new(0), given: AtomicU32::new(0), limit }
    }

    /// Whether one is free.
    #[inline]
    pub(crate) fn any_free(&self) -> bool {
        self.used() < self.limit
    }

    /// Takes a free slot. Only under the queue's lock.
    #[inline]
    pub(crate) fn take(&self) {
        let taken = self.taken.load(Ordering::Relaxed);
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
    }

    /// Returns `n` slots. Only under the engine's lock.
    #[inline]
    pub(crate) fn give(&self, n: u32) {
        let given = self.given.load(Ordering::Relaxed);
        self.given.store(given.wrapping_add(n), Ordering::Release);
    }

    /// Number of slots.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Slots in use.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        // The order of the loads matters: every returned slot had been taken before.
        let given = self.given.load(Ordering::Acquire);
        self.taken.load(Ordering::Acquire).wrapping_sub(given)
    }
}

/// Slots of a completion queue. Posts of several queues take them concurrently; polls return them
/// under the reader's lock, and the engine returns those of requests without a completion.
#[derive(Debug)]
pub(crate) struct CqSlots {
    /// Slots taken, minus the slots that the engine returned.
    taken: AtomicU32,
    polled: AtomicU32,
    limit: u32,
}

impl CqSlots {
    /// All `limit` slots free.
    pub(crate) fn new(limit: u32) -> Self {
        Self { taken: AtomicU32::new(0), polled: AtomicU32::new(0), limit }
    }

    /// Takes one slot; false if none is free.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        let limit = self.limit;
        // The count of polled slots is read first: a stale value yields fewer free slots, never
        // more.
        let polled = self.polled.load(Ordering::Acquire);
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| {
                (n.wrapping_sub(polled) < limit).then_some(n.wrapping_add(1))
            })
            .is_ok()
    }

    /// Takes a slot even if none is free, for a completion that the engine owes a peer.
    pub(crate) fn take_anyway(&self) {
        self.taken.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns `n` slots.
    pub(crate) fn give(&self, n: u32) {
        self.taken.fetch_sub(n, Ordering::AcqRel);
    }

    /// Returns the slots of `n` polled completions. Only under the reader's lock.
    #[inline]
    pub(crate) fn polled(&self, n: u32) {
        let polled = self.polled.load(Ordering::Relaxed);
        self.polled.store(polled.wrapping_add(n), Ordering::Release);
    }

    /// Number of slots.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_beyond_the_limit() {
        let b = CqSlots::new(2);
        assert!(b.take() && b.take() && !b.take());
        b.take_anyway();
        b.give(1);
        assert!(!b.take(), "the slot taken anyway counts");
        b.polled(1);
        assert!(b.take() && !b.take());
        assert_eq!(b.limit(), 2);
    }

    #[test]
    fn queue_slots_come_back() {
        let q = QueueSlots::new(2);
        for round in 0..5 {
            assert!(q.any_free(), "round {round}");
            q.take();
            q.take();
            assert!(!q.any_free());
            q.give(1);
            assert_eq!(q.used(), 1);
            q.give(1);
        }
        assert_eq!(q.used(), 0);
    }

    #[test]
    fn never_oversold_between_threads() {
        let b = CqSlots::new(100);
        let sold: u32 = std::thread::scope(|s| {
            let hands: Vec<_> =
                (0..4).map(|_| s.spawn(|| (0..100).filter(|_| b.take()).count() as u32)).collect();
            hands.into_iter().map(|h| h.join().unwrap()).sum()
        });
        assert_eq!(sold, 100);
        b.polled(100);
        assert!(b.take());
    }
}
