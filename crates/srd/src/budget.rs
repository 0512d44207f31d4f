//! Counted slots: how many work requests a queue, a completion queue or the device still takes.

use std::sync::atomic::{AtomicU32, Ordering};

/// A number of slots that threads take and give back without a lock.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicU32,
    limit: u32,
}

impl Budget {
    /// All `limit` slots free.
    pub(crate) const fn new(limit: u32) -> Self {
        Self { used: AtomicU32::new(0), limit }
    }

    /// Takes one slot; false if none is free.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        let limit = self.limit;
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| (n < limit).then_some(n + 1))
            .is_ok()
    }

    /// Takes one slot even if none is free: the engine promised it to a peer on its own account.
    pub(crate) fn take_anyway(&self) {
        self.used.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives `n` slots back.
    #[inline]
    pub(crate) fn give(&self, n: u32) {
        let before = self.used.fetch_sub(n, Ordering::AcqRel);
        debug_assert!(before >= n, "more slots given back than taken");
    }

    /// Slots in use.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Ordering::Acquire)
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
        let b = Budget::new(2);
        assert!(b.take() && b.take() && !b.take());
        b.take_anyway();
        b.give(1);
        assert!(!b.take(), "the slot taken anyway counts");
        b.give(1);
        assert!(b.take());
        assert_eq!((b.used(), b.limit()), (2, 2));
    }

    #[test]
    fn never_oversold_between_threads() {
        let b = Budget::new(100);
        let sold: u32 = std::thread::scope(|s| {
            let hands: Vec<_> =
                (0..4).map(|_| s.spawn(|| (0..100).filter(|_| b.take()).count() as u32)).collect();
            hands.into_iter().map(|h| h.join().unwrap()).sum()
        });
        assert_eq!((sold, b.used()), (100, 100));
    }
}
