//! Transmission numbers already seen: each packet is taken at most once, whatever the network does.

use crate::limits::REPLAY_WINDOW;

const WORDS: usize = (REPLAY_WINDOW / 64) as usize;

/// A sliding window of bits below the newest transmission number.
#[derive(Debug)]
pub(crate) struct Replay {
    newest: u64,
    bits: Box<[u64; WORDS]>,
}

impl Replay {
    pub fn new() -> Self {
        Self { newest: 0, bits: Box::new([0; WORDS]) }
    }

    /// Nothing at or below `newest` is taken any more.
    pub fn reset(&mut self, newest: u64) {
        self.newest = newest;
        self.bits.fill(u64::MAX);
    }

    /// The newest number taken.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// For looking ahead.
    pub fn ahead(&self, n: u64) -> u64 {
        self.bits[Self::place(n).0]
    }

    /// Takes `n`; false if it was taken before or is too old to tell.
    #[must_use]
    pub fn take(&mut self, n: u64) -> bool {
        let ahead = n.wrapping_sub(self.newest) as i64;
        if ahead > 0 {
            if ahead as u64 >= REPLAY_WINDOW {
                self.bits.fill(0);
            } else {
                for k in 1..=ahead as u64 {
                    self.clear(self.newest.wrapping_add(k));
                }
            }
            self.newest = n;
        } else if ahead.unsigned_abs() >= REPLAY_WINDOW {
            return false;
        }
        let (w, b) = Self::place(n);
        let seen = self.bits[w] >> b & 1 == 1;
        self.bits[w] |= 1 << b;
        !seen || planted!(ReplayTakesAll)
    }

    fn place(n: u64) -> (usize, u32) {
        let i = n % REPLAY_WINDOW;
        ((i / 64) as usize, (i % 64) as u32)
    }

    fn clear(&mut self, n: u64) {
        let (w, b) = Self::place(n);
        self.bits[w] &= !(1 << b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_once() {
        let mut r = Replay::new();
        r.reset(99);
        assert!(!r.take(99) && !r.take(50));
        assert!(r.take(100) && !r.take(100));
        assert!(r.take(105) && r.take(103) && !r.take(103) && r.take(104));
        assert!(r.take(105 + REPLAY_WINDOW * 3));
        assert!(!r.take(105 + REPLAY_WINDOW * 2));
        assert!(r.take(105 + REPLAY_WINDOW * 2 + 1));
        assert!(!r.take(105 + REPLAY_WINDOW * 2 + 1));
    }
}
