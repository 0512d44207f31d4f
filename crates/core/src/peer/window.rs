//! The receive window: which PSNs have arrived, so that each is delivered at most once.

use crate::psn::Psn;

/// Result of looking up a PSN in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It has not arrived before.
    New,
    /// It has arrived before.
    Duplicate,
    /// It lies beyond the window, so the sender does not respect the window.
    TooFar,
}

/// Receive window: all PSNs below `cum` have arrived; a ring of bits says which of those from `cum`
/// on have.
#[derive(Debug)]
pub(crate) struct RxWindow {
    cum: Psn,
    /// One past the highest PSN seen.
    top: Psn,
    bits: Vec<u64>,
}

impl RxWindow {
    /// An empty window of `size` PSNs (a power of two, at least 64) from `cum` on.
    pub fn new(cum: Psn, size: u16) -> Self {
        debug_assert!(size >= 64, "one word at least");
        Self { cum, top: cum, bits: vec![0; usize::from(size).div_ceil(64)] }
    }
    /// Starts over at `cum` with no bit set.
    pub fn reset(&mut self, cum: Psn) {
        debug_assert!(self.bits.len().is_power_of_two(), "places are lower bits of PSNs");
        (self.cum, self.top) = (cum, cum);
        self.bits.fill(0);
    }
    /// Memory held by the ring, in bytes.
    pub fn held_bytes(&self) -> usize {
        size_of_val(&*self.bits)
    }
    fn size(&self) -> u32 {
        self.bits.len() as u32 * 64
    }
    /// Every PSN below this has arrived.
    pub fn cum(&self) -> Psn {
        self.cum
    }
    /// One past the highest PSN that has arrived.
    pub fn top(&self) -> Psn {
        self.top
    }
    /// Whether some PSN below `top` is missing.
    pub fn has_gap(&self) -> bool {
        debug_assert!(!self.top.is_before(self.cum) || cfg!(planted_bugs), "edges in order");
        debug_assert!(!self.bit(self.cum) || cfg!(planted_bugs), "what is at the edge is missing");
        self.cum != self.top
    }

    /// Word and bit of PSN `p`.
    #[inline(always)]
    fn place(&self, p: Psn) -> (usize, u32) {
        let i = p.place(64 * self.bits.len());
        (i / 64, i as u32 % 64)
    }

    fn bit(&self, p: Psn) -> bool {
        let (word, bit) = self.place(p);
        self.bits[word] >> bit & 1 == 1
    }

    /// Looks `p` up, without a change of state.
    pub fn check(&self, p: Psn) -> Seen {
        let d = p.diff(self.cum);
        if d < 0 && planted!(DedupForgetsOld) {
            Seen::New
        } else if d < 0 {
            Seen::Duplicate
        } else if d as u32 >= self.size() {
            Seen::TooFar
        } else if self.bit(p) && !planted!(DedupIgnoresBits) {
            Seen::Duplicate
        } else {
            Seen::New
        }
    }

    /// Notes the arrival of `p`, which must be new.
    pub fn insert(&mut self, p: Psn) {
        debug_assert_eq!(self.check(p), Seen::New);
        if !p.is_before(self.top) {
            self.top = p.next();
        }
        debug_assert!(!self.top.is_before(self.cum) || cfg!(planted_bugs), "edges in order");
        if p != self.cum {
            let (word, bit) = self.place(p);
            self.bits[word] |= 1 << bit;
            return;
        }
        self.cum = p.next();
        while self.cum != self.top && self.bit(self.cum) {
            let (word, bit) = self.place(self.cum);
            if !planted!(WindowKeepsBits) {
                self.bits[word] &= !(1 << bit);
            }
            self.cum = self.cum.next();
        }
        debug_assert!(self.top.since(self.cum) <= self.size(), "the window holds what came");
    }

    /// The 64 bits from `base` on: 1 = arrived. PSNs below `cum` read as arrived.
    pub fn word(&self, base: Psn) -> u64 {
        let mut w = 0;
        for k in 0..64 {
            let p = base.plus(k);
            let arrived = p.is_before(self.cum) || (p.is_before(self.top) && self.bit(p));
            w |= u64::from(arrived) << k;
        }
        w
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_set_across_the_wrap() {
        for seed in 0..50 {
            let mut rng = Rng::from_seed(seed);
            let start = Psn(u32::MAX - 100);
            let mut w = RxWindow::new(start, 256);
            let mut seen = BTreeSet::new();
            for _ in 0..2000 {
                let base = i64::from(w.cum().diff(start));
                let offset = base - 20 + i64::from(rng.below(300));
                if offset < 0 {
                    continue;
                }
                let p = start.plus(offset as u32);
                let expected = if seen.contains(&offset) {
                    Seen::Duplicate
                } else if offset - base >= 256 {
                    Seen::TooFar
                } else {
                    Seen::New
                };
                assert_eq!(w.check(p), expected, "seed {seed}");
                if expected == Seen::New {
                    w.insert(p);
                    seen.insert(offset);
                }
                let cum = (0..).find(|k| !seen.contains(k)).unwrap();
                assert_eq!(i64::from(w.cum().diff(start)), cum);
                let word = w.word(w.cum());
                for k in 0..64 {
                    assert_eq!(word >> k & 1 == 1, seen.contains(&(cum + i64::from(k))));
                }
            }
        }
    }
}
