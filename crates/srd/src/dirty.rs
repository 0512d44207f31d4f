//! A set of small numbers to which many threads add and which the engine's turn empties.

use super::sync::atomic::{AtomicU64, Ordering};

/// A bit set with atomic insertion. Everything written before [`DirtySet::insert`] is visible to
/// the thread that removes the number.
///
/// The set is one word, because every turn checks every set. Numbers that are equal modulo 64 share
/// a bit and are returned together.
#[derive(Debug, Default)]
pub(crate) struct DirtySet(AtomicU64);

impl DirtySet {
    /// Adds `i`.
    #[inline]
    pub(crate) fn insert(&self, i: usize) {
        self.0.fetch_or(1 << (i % 64), Ordering::SeqCst);
    }

    /// Whether it is not empty.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// As [`DirtySet::any`], for the thread that empties the set.
    #[inline]
    pub(crate) fn to_drain(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Empties the set. `each` is called with every number below `n` that was in it, and perhaps
    /// with others that share its bit.
    #[inline]
    pub(crate) fn drain(&self, n: usize, mut each: impl FnMut(usize)) {
        if !self.to_drain() {
            return;
        }
        let mut bits = self.0.swap(0, Ordering::SeqCst);
        while bits != 0 {
            let mut i = bits.trailing_zeros() as usize;
            while i < n {
                each(i);
                i += 64;
            }
            bits &= bits - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drains_what_was_inserted_once() {
        let set = DirtySet::default();
        assert!(!set.any());
        for i in [0, 63, 64, 199, 64] {
            set.insert(i);
        }
        assert!(set.any());
        let mut seen = Vec::new();
        set.drain(200, |i| seen.push(i));
        assert_eq!(seen, [0, 64, 128, 192, 7, 71, 135, 199, 63, 127, 191]);
        set.drain(200, |_| unreachable!());
        assert!(!set.any());
        set.insert(5);
        set.drain(3, |_| unreachable!("numbers that do not exist"));
    }
}
