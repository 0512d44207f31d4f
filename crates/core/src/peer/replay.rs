//! Transmission numbers already seen: each packet is taken at most once, whatever the network does.
//!
//! A number far beyond the newest would leave all that are under way behind the window. After a
//! long outage it is right, and from a forger it is meant to lock the peer out, or to spare him the
//! guess of a number; so it is never taken. When two come with none between that is taken, the peer
//! is asked for its own number (`engine/doubt.rs`), and what it proves puts the window right.
//!
//! What an acknowledgment says of the peer itself holds until one that was sent later says
//! otherwise. Which one is the newest is known here only ([`Replay::ack_take`]).

use crate::limits::REPLAY_WINDOW;
use crate::psn::TxNum;

const WORDS: usize = (REPLAY_WINDOW / 64) as usize;

/// Numbers far ahead in a row for which the peer is asked for its own.
const FAR_MAX: u8 = 2;

/// A sliding window of bits below the newest transmission number.
#[derive(Debug)]
pub(crate) struct Replay {
    newest: TxNum,
    /// Number of the newest packet of which the acknowledgment was taken, or one that is older than
    /// all that can still be taken.
    ack_newest: TxNum,
    bits: Box<[u64; WORDS]>,
    /// Numbers refused because they were far ahead, since one was taken.
    far: u8,
    /// Refused in a row.
    refused: u32,
}

impl Replay {
    pub fn new() -> Self {
        let bits = Box::new([0; WORDS]);
        Self { newest: TxNum(0), ack_newest: TxNum(0), bits, far: 0, refused: 0 }
    }

    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        size_of_val(&*self.bits)
    }

    /// Nothing at or below `newest` is taken any more.
    pub fn reset(&mut self, newest: TxNum) {
        (self.newest, self.ack_newest) = (newest, newest);
        self.bits.fill(u64::MAX);
        (self.far, self.refused) = (0, 0);
    }

    /// The peer has proved that `newest` was the newest number that it had used, at some time since
    /// ours was `asked`. Where ours was one that it cannot have used, and keeps it out, or is so
    /// old that the peer would stay behind, it is put right. What is a little further may
    /// have overtaken the proof, and must not be taken twice.
    pub fn correct(&mut self, newest: TxNum, asked: TxNum) {
        let far = |from: TxNum, to: TxNum| to.diff(from) >= REPLAY_WINDOW as i64;
        if far(self.newest, newest) || far(newest, asked) {
            self.reset(newest);
        }
        debug_assert!(!far(self.newest, newest), "the peer is not kept out any more");
        (self.far, self.refused) = (0, 0);
    }

    /// Numbers refused since one was taken.
    pub fn refused(&self) -> u32 {
        self.refused
    }

    /// The newest number taken.
    pub fn newest(&self) -> TxNum {
        self.newest
    }

    /// The acknowledgment in packet `n`, which was taken, is valid. Whether it is the newest: none
    /// that the peer sent later has come before it.
    #[inline(always)]
    #[must_use]
    pub fn ack_take(&mut self, n: TxNum) -> bool {
        debug_assert!(self.newest.diff(n) >= 0, "its number was taken: {n:?}");
        let newest = n.diff(self.ack_newest) > 0;
        if newest {
            self.ack_newest = n;
        }
        newest
    }

    /// Whether the peer seems to be far ahead: what it sends is refused for that.
    pub fn is_behind(&self) -> bool {
        self.far >= FAR_MAX
    }

    /// Takes `n`; false if it was taken before, is too old to tell, or too far ahead to be
    /// believed.
    #[must_use]
    pub fn take(&mut self, n: TxNum) -> bool {
        if self.is_new(n) {
            debug_assert!(self.newest.diff(n) >= 0, "nothing that is taken is newer");
            (self.far, self.refused) = (0, 0);
            return true;
        }
        self.refused = self.refused.wrapping_add(1);
        false
    }

    fn is_new(&mut self, n: TxNum) -> bool {
        let ahead = n.diff(self.newest);
        if ahead == 1 {
            // Nearly always: the next one.
            let (w, b) = Self::place(n);
            self.bits[w] |= 1 << b;
            self.newest = n;
            return true;
        }
        if ahead > 0 {
            if ahead as u64 >= REPLAY_WINDOW {
                self.far = self.far.saturating_add(1);
                return false;
            }
            self.clear(self.newest.next(), ahead as u64);
            self.newest = n;
        } else if ahead.unsigned_abs() >= REPLAY_WINDOW {
            return false;
        }
        debug_assert!((0..REPLAY_WINDOW as i64).contains(&self.newest.diff(n)), "in the window");
        let (w, b) = Self::place(n);
        let seen = self.bits[w] >> b & 1 == 1;
        self.bits[w] |= 1 << b;
        !seen || planted!(ReplayTakesAll)
    }

    fn place(n: TxNum) -> (usize, u32) {
        let i = n.0 % REPLAY_WINDOW;
        ((i / 64) as usize, (i % 64) as u32)
    }

    /// Clears `count` bits from `n` on, up to the end of a word at a time: whoever sends one packet
    /// chooses how many they are.
    fn clear(&mut self, mut n: TxNum, mut count: u64) {
        debug_assert!(count < REPLAY_WINDOW, "no more than there are");
        while count > 0 {
            let (w, b) = Self::place(n);
            let some = count.min(u64::from(64 - b));
            self.bits[w] &= !(u64::MAX >> (64 - some) << b);
            n = n.plus(some);
            count -= some;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Replay {
        fn starts_at(newest: u64) -> Self {
            let mut r = Self::new();
            r.reset(TxNum(newest));
            r
        }
        fn takes(&mut self, n: u64) -> bool {
            self.take(TxNum(n))
        }
        fn is_corrected(&mut self, newest: u64, asked: u64) {
            self.correct(TxNum(newest), TxNum(asked));
        }
    }

    #[test]
    fn each_number_once() {
        let mut r = Replay::starts_at(99);
        assert!(!r.takes(99) && !r.takes(50));
        assert!(r.takes(100) && !r.takes(100));
        assert!(r.takes(105) && r.takes(103) && !r.takes(103) && r.takes(104));
        let newest = 104 + REPLAY_WINDOW;
        assert!(!r.takes(newest + 1), "far ahead");
        assert!(r.takes(newest) && !r.takes(newest - REPLAY_WINDOW));
        assert!(r.takes(newest + 1 - REPLAY_WINDOW + 1) && r.takes(newest - 1));
        assert!(!r.takes(newest - 1));
    }

    /// Leaps of any length against a plain set, over the wrap of the numbers.
    #[test]
    fn agrees_with_a_set() {
        let mut rng = crate::rng::Rng::from_seed(2);
        let mut newest = u64::MAX - 40_000;
        let mut r = Replay::starts_at(newest);
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
            assert_eq!(r.takes(n), new, "{n}");
            if new {
                seen.push(n);
            }
            if n.wrapping_sub(newest) as i64 > 0 {
                newest = n;
            }
        }
    }

    #[test]
    fn what_is_far_ahead_is_never_taken() {
        let mut r = Replay::starts_at(99);
        let far = 99 + REPLAY_WINDOW;
        for n in [far, far + 1, far, far + (1 << 40), far + 2] {
            assert!(!r.takes(n), "{n}");
        }
        assert!(r.is_behind() && r.takes(100) && r.refused() == 0);
        assert!(!r.is_behind(), "the peer is where it was");
        assert!(!r.takes(far + 1) && !r.is_behind(), "one alone says nothing");
        assert!(r.takes(101) && !r.takes(far + 2) && !r.is_behind(), "nor one now and then");
        r.is_corrected(far + 99, 101);
        assert!(r.takes(far + 100) && !r.takes(102), "the peer has proved it");
    }

    #[test]
    fn put_right_by_the_peer() {
        let mut r = Replay::starts_at(99);
        assert!(r.takes(100));
        r.is_corrected(5_000, 100);
        assert!(r.takes(101), "it was right: what is under way is taken");
        assert!(r.takes(300));
        r.is_corrected(200, 101);
        assert!(!r.takes(300) && r.takes(201), "it had overtaken the proof");
        assert!(r.takes(8_000) && r.takes(16_000));
        r.is_corrected(5_000, 300);
        assert!(!r.takes(16_000), "so had this, by more than the window");
        let far = 1 << 40;
        r.is_corrected(far, 201);
        assert!(!r.takes(16_001) && r.takes(far + 1) && !r.takes(102));
        r.is_corrected(200, far + 1);
        assert!(!r.takes(150) && !r.takes(200) && r.takes(201));
        r.is_corrected(200 + 10 * REPLAY_WINDOW, 201);
        assert!(!r.takes(300) && r.takes(201 + 10 * REPLAY_WINDOW));
    }
}
