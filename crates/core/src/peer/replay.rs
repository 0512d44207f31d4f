//! Transmission numbers already seen: each packet is taken at most once, whatever the network does.
//!
//! A number far beyond the newest would leave all that are under way behind the window. After a
//! long outage it is right, and from a forger it is meant to lock the peer out; so it is taken only
//! when the number before or after it has arrived as well.

use crate::limits::REPLAY_WINDOW;

const WORDS: usize = (REPLAY_WINDOW / 64) as usize;

/// Numbers far ahead that are remembered: after an outage, packets of several paths come in any
/// order.
const FAR_MAX: usize = 8;

/// A sliding window of bits below the newest transmission number.
#[derive(Debug)]
pub(crate) struct Replay {
    newest: u64,
    bits: Box<[u64; WORDS]>,
    /// Numbers far ahead that came without a neighbour, and the place of the next.
    far: [u64; FAR_MAX],
    far_next: u8,
    /// Refused in a row.
    refused: u32,
}

impl Replay {
    pub fn new() -> Self {
        let bits = Box::new([0; WORDS]);
        Self { newest: 0, bits, far: [0; FAR_MAX], far_next: 0, refused: 0 }
    }

    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        size_of_val(&*self.bits)
    }

    /// Nothing at or below `newest` is taken any more.
    pub fn reset(&mut self, newest: u64) {
        self.newest = newest;
        self.bits.fill(u64::MAX);
        self.far.fill(newest);
        self.refused = 0;
    }

    /// The peer has proved that `newest` was the newest number that it had used, at some time since
    /// ours was `asked`. Where ours was one that it cannot have used, and keeps it out, or is so
    /// old that the peer would stay behind, it is put right. What is a little further may
    /// have overtaken the proof, and must not be taken twice.
    pub fn correct(&mut self, newest: u64, asked: u64) {
        let far = |from: u64, to: u64| to.wrapping_sub(from) as i64 >= REPLAY_WINDOW as i64;
        if far(self.newest, newest) || far(newest, asked) {
            self.reset(newest);
        }
        self.refused = 0;
    }

    /// Numbers refused since one was taken.
    pub fn refused(&self) -> u32 {
        self.refused
    }

    /// The newest number taken.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// For looking ahead.
    pub fn ahead(&self, n: u64) -> u64 {
        self.bits[Self::place(n).0]
    }

    /// Takes `n`; false if it was taken before, is too old to tell, or too far ahead to be believed
    /// alone.
    #[must_use]
    pub fn take(&mut self, n: u64) -> bool {
        if self.is_new(n) {
            self.refused = 0;
            return true;
        }
        self.refused = self.refused.wrapping_add(1);
        false
    }

    fn is_new(&mut self, n: u64) -> bool {
        let ahead = n.wrapping_sub(self.newest) as i64;
        if ahead == 1 {
            // Nearly always: the next one.
            let (w, b) = Self::place(n);
            self.bits[w] |= 1 << b;
            self.newest = n;
            return true;
        }
        if ahead > 0 {
            if ahead as u64 >= REPLAY_WINDOW {
                if !self.has_neighbour(n) {
                    return false;
                }
                self.bits.fill(0);
            } else {
                self.clear(self.newest.wrapping_add(1), ahead as u64);
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

    /// Whether the number before or after `n`, which is far ahead, has come, too.
    #[cold]
    fn has_neighbour(&mut self, n: u64) -> bool {
        let near = |&f: &u64| f.wrapping_add(1) == n || n.wrapping_add(1) == f;
        let found = self.far.iter().any(near);
        if !found {
            self.far[usize::from(self.far_next)] = n;
            self.far_next = (self.far_next + 1) % FAR_MAX as u8;
        }
        found
    }

    fn place(n: u64) -> (usize, u32) {
        let i = n % REPLAY_WINDOW;
        ((i / 64) as usize, (i % 64) as u32)
    }

    /// Clears `count` bits from `n` on, up to the end of a word at a time: whoever sends one packet
    /// chooses how many they are.
    fn clear(&mut self, mut n: u64, mut count: u64) {
        while count > 0 {
            let (w, b) = Self::place(n);
            let some = count.min(u64::from(64 - b));
            self.bits[w] &= !(u64::MAX >> (64 - some) << b);
            n = n.wrapping_add(some);
            count -= some;
        }
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
        assert!(!r.take(105 + REPLAY_WINDOW * 3 - 1), "far ahead and alone");
        assert!(r.take(105 + REPLAY_WINDOW * 3));
        assert!(!r.take(105 + REPLAY_WINDOW * 2));
        assert!(r.take(105 + REPLAY_WINDOW * 2 + 1));
        assert!(!r.take(105 + REPLAY_WINDOW * 2 + 1));
    }

    /// Leaps of any length against a plain set, over the wrap of the numbers.
    #[test]
    fn agrees_with_a_set() {
        let mut rng = crate::rng::Rng::from_seed(2);
        let mut r = Replay::new();
        let mut newest = u64::MAX - 40_000;
        r.reset(newest);
        let mut seen: Vec<u64> = vec![];
        for _ in 0..3000 {
            let n = match rng.below(4) {
                0 => newest.wrapping_add(1 + u64::from(rng.below(REPLAY_WINDOW as u32 - 1))),
                1 => newest.wrapping_add(1 + u64::from(rng.below(130))),
                _ => newest.wrapping_sub(u64::from(rng.below(REPLAY_WINDOW as u32 + 50))),
            };
            let old = newest.wrapping_sub(n) as i64 >= REPLAY_WINDOW as i64;
            let before = n.wrapping_sub(u64::MAX - 40_000) as i64 <= 0;
            let new = !old && !before && !seen.contains(&n);
            assert_eq!(r.take(n), new, "{n}");
            if new {
                seen.push(n);
            }
            if n.wrapping_sub(newest) as i64 > 0 {
                newest = n;
            }
        }
    }

    #[test]
    fn far_ahead_needs_a_neighbour() {
        let mut r = Replay::new();
        r.reset(99);
        let far = 99 + REPLAY_WINDOW;
        for n in (far..far + 200).step_by(3) {
            assert!(!r.take(n), "{n}");
        }
        assert!(!r.take(far), "its neighbour has not come");
        assert!(r.take(100) && r.refused() == 0);
        // In any order, a few apart, and only once.
        assert!(!r.take(far + 1_000) && !r.take(far + 1_005) && !r.take(far + 1_002));
        assert!(r.take(far + 1_004) && !r.take(far + 1_004) && r.take(far + 1_003));
        assert!(!r.take(101), "behind the window now");
        assert_eq!(r.refused(), 1);
    }

    #[test]
    fn put_right_by_the_peer() {
        let mut r = Replay::new();
        r.reset(99);
        assert!(r.take(100));
        r.correct(5_000, 100);
        assert!(r.take(101), "it was right: what is under way is taken");
        assert!(r.take(300));
        r.correct(200, 101);
        assert!(!r.take(300) && r.take(201), "it had overtaken the proof");
        assert!(r.take(8_000) && r.take(16_000));
        r.correct(5_000, 300);
        assert!(!r.take(16_000), "so had this, by more than the window");
        let far = 1 << 40;
        assert!(!r.take(far) && r.take(far + 1) && !r.take(102));
        r.correct(200, far + 1);
        assert!(!r.take(150) && !r.take(200) && r.take(201));
        r.correct(200 + 10 * REPLAY_WINDOW, 201);
        assert!(!r.take(300) && r.take(201 + 10 * REPLAY_WINDOW));
    }
}
