//! A set of small numbers that many threads add to and the engine's turn empties.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bit set with atomic insertion; whatever was written before [`DirtySet::insert`] is seen by the
/// one who takes the number out.
#[derive(Debug)]
pub(crate) struct DirtySet {
    words: Box<[AtomicU64]>,
}

impl DirtySet {
    /// An empty set of numbers below `n`.
    pub(crate) fn new(n: usize) -> Self {
        Self { words: (0..n.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Adds `i`.
    #[inline]
    pub(crate) fn insert(&self, i: usize) {
        self.words[i / 64].fetch_or(1 << (i % 64), Ordering::SeqCst);
    }

    /// Whether there is anything in it.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.words.iter().any(|w| w.load(Ordering::SeqCst) != 0)
    }

    /// Empties the set; `each` gets every number that was in it, ascending.
    #[inline]
    pub(crate) fn drain(&self, mut each: impl FnMut(usize)) {
        for (index, word) in self.words.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                each(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drains_what_was_inserted_once() {
        let set = DirtySet::new(200);
        assert!(!set.any());
        for i in [0, 63, 64, 199, 64] {
            set.insert(i);
        }
        assert!(set.any());
        let mut seen = Vec::new();
        set.drain(|i| seen.push(i));
        assert_eq!(seen, [0, 63, 64, 199]);
        assert!(!set.any());
    }
}
