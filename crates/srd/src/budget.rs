//! Counted slots: how many work requests a queue or a completion queue still takes.
//!
//! Slots are taken at every post and given back at every completion, so what can be counted
//! without an atomic read-modify-write is: where one thread at a time changes a number, it loads
//! and stores.

use super::sync::atomic::{AtomicU32, Ordering};

/// Slots of a send or receive queue. Posts take them under the queue's lock, the engine's turn
/// gives them back under its own.
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

    /// Takes a slot that is free. Only under the queue's lock.
    #[inline]
    pub(crate) fn take(&self) {
        let taken = self.taken.load(Ordering::Relaxed);
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
    }

    /// Gives `n` slots back. Only under the engine's lock.
    #[inline]
    pub(crate) fn give(&self, n: u32) {
        let given = self.given.load(Ordering::Relaxed);
        self.given.store(given.wrapping_add(n), Ordering::Release);
    }

    /// How many there are.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Slots in use.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        // The order of the two loads matters: every slot given back had been taken before.
        let given = self.given.load(Ordering::Acquire);
        self.taken.load(Ordering::Acquire).wrapping_sub(given)
    }
}

/// Slots of a completion queue. Posts of many queues take them at the same time; who polls gives
/// them back under the reader's lock, and the engine gives back those of work without completion.
#[derive(Debug)]
pub(crate) struct CqSlots {
    /// Slots taken, less the slots that the engine has given back.
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
        // The count of polled slots is read first: a stale value yields fewer slots, never more.
        let polled = self.polled.load(Ordering::Acquire);
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| {
                (n.wrapping_sub(polled) < limit).then_some(n.wrapping_add(1))
            })
            .is_ok()
    }

    /// Takes one slot even if none is free: the engine promised it to a peer on its own account.
    pub(crate) fn take_anyway(&self) {
        self.taken.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives `n` slots back.
    pub(crate) fn give(&self, n: u32) {
        self.taken.fetch_sub(n, Ordering::AcqRel);
    }

    /// Gives the slots of `n` polled completions back. Only under the reader's lock.
    #[inline]
    pub(crate) fn polled(&self, n: u32) {
        let polled = self.polled.load(Ordering::Relaxed);
        self.polled.store(polled.wrapping_add(n), Ordering::Release);
    }

    /// How many there are.
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
