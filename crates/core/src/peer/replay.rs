//! Replay window: the transmission numbers already received, so that each packet is accepted at
//! most once whatever the network does.
//!
//! A number far beyond the newest is never accepted, because it would leave all numbers in flight
//! behind the window. After a long outage such a number is genuine; from a forger it is meant to
//! lock the peer out, or to save him from having to guess a number. When two come without an
//! accepted one in between, the peer is asked for its own number (`engine/doubt.rs`), and its
//! proven answer corrects the window.
//!
//! What an acknowledgment says of the peer itself holds until a newer one says otherwise. Only this
//! module knows which acknowledgment is the newest ([`Replay::ack_take`]).

use crate::limits::REPLAY_WINDOW;
use crate::psn::TxNum;

const WORDS: usize = (REPLAY_WINDOW / 64) as usize;

/// Numbers too far ahead in a row after which the peer is asked for its own number.
const FAR_MAX: u8 = 2;

/// A sliding window of bits below the newest transmission number.
#[derive(Debug)]
pub(crate) struct Replay {
    newest: TxNum,
    /// Number of the newest packet whose acknowledgment was accepted, or a number older than every
    /// one that can still be accepted.
    ack_newest: TxNum,
    bits: Box<[u64; WORDS]>,
    /// Numbers refused because they were too far ahead, since the last accepted one.
    far: u8,
    /// Numbers refused for any reason, since the last accepted one.
    refused: u32,
}

impl Replay {
    pub fn new() -> Self {
        let bits = Box::new([0; WORDS]);
        Self { newest: TxNum(0), ack_newest: TxNum(0), bits, far: 0, refused: 0 }
    }

    /// Memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        size_of_val(&*self.bits)
    }

    /// Starts over: no number at or below `newest` is accepted any more.
    pub fn reset(&mut self, newest: TxNum) {
        (self.newest, self.ack_newest) = (newest, newest);
        self.bits.fill(u64::MAX);
        (self.far, self.refused) = (0, 0);
    }

    /// Corrects the window by the peer's proven answer: `newest` was the newest number that it had
    /// used, at some time since our newest one was `asked`. The window moves in two cases. Either
    /// the answer lies a window or more ahead of our newest number, so that the peer's packets
    /// would be refused. Or `asked` lies a window or more ahead of the answer: the peer cannot have
    /// used that number, and it locks the peer out. Numbers a little beyond the answer may have
    /// overtaken it and must not be accepted twice.
    pub fn correct(&mut self, newest: TxNum, asked: TxNum) {
        let far = |from: TxNum, to: TxNum| to.diff(from) >= REPLAY_WINDOW as i64;
        if far(self.newest, newest) || far(newest, asked) {
            self.reset(newest);
        }
        debug_assert!(!far(self.newest, newest), "the peer is not kept out any more");
        (self.far, self.refused) = (0, 0);
    }

    /// Numbers refused since the last accepted one.
    pub fn refused(&self) -> u32 {
        self.refused
    }

    /// The newest number accepted.
    pub fn newest(&self) -> TxNum {
        self.newest
    }

    /// Notes the valid acknowledgment in the accepted packet `n`. Returns whether it is the newest,
    /// with none received yet that the peer sent later.
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

    /// Whether the peer seems to be far ahead of the window, so that its packets are refused.
    pub fn is_behind(&self) -> bool {
        self.far >= FAR_MAX
    }

    /// Accepts `n`; false if it was accepted before, is older than the window, or too far ahead to
    /// be believed.
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
            // The usual case: the next number.
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

    /// Clears `count` bits from `n` on, a word at a time, because the sender of a packet chooses
    /// how many there are.
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

    /// Steps of any length against a plain set, across the wrap of the numbers.
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
