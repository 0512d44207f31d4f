//! A token bucket that many share and none can empty: half of its tokens belong to cells, of which
//! each claimant has one.
//!
//! New tokens go to the cells in turn. What a cell has no room for goes to the other half, from
//! which everybody is served first. So who asks too often takes what nobody else wants, and his own
//! cell's token; any other claimant finds the token of its cell. Which claimants share a cell is
//! decided by a keyed hash and changes with each period, so nobody stays in the cell of another who
//! floods.

use crate::hash::Keyed;
use crate::time::{Span, Time};
use core::hash::{BuildHasher, Hash};

/// Cells, with one token each: the bits of a `u128`.
pub(crate) const CELLS: u32 = 128;

/// A bucket of tokens; see the module.
#[derive(Debug)]
pub(crate) struct FairBucket {
    /// Tokens that belong to nobody.
    common: u32,
    common_max: u32,
    /// The cells that have their token.
    cells: u128,
    /// The cell that the next token goes to.
    next: u32,
    every: Span,
    /// How long the claimants of a cell stay the same.
    period: Span,
    /// Time up to which new tokens have been added.
    counted_to: Time,
    keyed: Keyed,
}

impl FairBucket {
    /// A full bucket of `most` tokens, more than [`CELLS`], which gains one token each `every`.
    pub fn new(now: Time, most: u32, every: Span, period: Span, keyed: Keyed) -> Self {
        debug_assert!(most > CELLS && every.0 > 0 && period.0 > 0, "tokens for all, not at once");
        let common = most.saturating_sub(CELLS);
        let (common_max, cells) = (common, u128::MAX);
        Self { common, common_max, cells, next: 0, every, period, counted_to: now, keyed }
    }

    /// Whether a token is left for this claimant now.
    pub fn has_for(&mut self, now: Time, claimant: impl Hash) -> bool {
        self.refill(now);
        self.common > 0 || self.cells & self.cell_of(now, claimant) != 0
    }

    /// Takes a token of this claimant, if one is left.
    pub fn take(&mut self, now: Time, claimant: impl Hash) {
        debug_assert!(self.common <= self.common_max, "no more than it holds: {self:?}");
        if self.common > 0 {
            self.common -= 1;
        } else {
            self.cells &= !self.cell_of(now, claimant);
        }
    }

    fn cell_of(&self, now: Time, claimant: impl Hash) -> u128 {
        let hash = self.keyed.hash_one((now.0 / self.period.0, claimant));
        1 << (hash % u64::from(CELLS))
    }

    fn refill(&mut self, now: Time) {
        let more = now.since(self.counted_to).0 / self.every.0;
        self.counted_to += self.every.scale(more, 1);
        // After so many, all is full.
        let most = self.common_max + CELLS;
        for _ in 0..more.min(u64::from(2 * most)) {
            let cell = 1 << self.next;
            self.next = (self.next + 1) % CELLS;
            if self.cells & cell == 0 {
                self.cells |= cell;
            } else if self.common < self.common_max {
                self.common += 1;
            }
        }
        debug_assert!(self.next < CELLS, "a cell: {self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const MOST: u32 = 256;
    const EVERY: Span = Span::from_us(100);
    const PERIOD: Span = Span::from_secs(1);

    fn bucket() -> FairBucket {
        let keyed = Keyed::draw(&mut Rng::from_seed(3));
        FairBucket::new(Time(5), MOST, EVERY, PERIOD, keyed)
    }

    fn served(b: &mut FairBucket, now: Time, claimant: u64) -> bool {
        let has = b.has_for(now, claimant);
        b.take(now, claimant);
        has
    }

    #[test]
    fn all_together_get_what_the_bucket_holds() {
        let mut b = bucket();
        let all = |b: &mut FairBucket, now| (0..10_000).filter(|&c| served(b, now, c)).count();
        assert_eq!(all(&mut b, Time(5)), MOST as usize);
        assert_eq!(all(&mut b, Time(5) + EVERY.scale(100, 1)), 100);
        assert_eq!(all(&mut b, Time(5) + EVERY.scale(1_000_000, 1)), MOST as usize);
    }

    /// One claimant asks without end; most of the others are served all the same, and those that
    /// share its cell are in another period.
    #[test]
    fn one_that_floods_keeps_few_from_their_token() {
        let (mut b, mut now) = (bucket(), Time(5));
        let mut unserved: Vec<u64> = (1..=200).collect();
        let mut rounds = 0;
        while !unserved.is_empty() {
            let asked = unserved.len();
            unserved.retain(|&claimant| {
                now += EVERY.scale(u64::from(CELLS), 1);
                let flooded = (0..1000).filter(|_| served(&mut b, now, 0)).count();
                assert!(flooded as u32 >= CELLS / 2, "what nobody wants is for who asks");
                !served(&mut b, now, claimant)
            });
            assert!(unserved.len() <= asked / 16, "{unserved:?} of {asked}");
            now = Time((now.0 / PERIOD.0 + 1) * PERIOD.0);
            rounds += 1;
        }
        assert!(rounds <= 3, "{rounds} rounds");
    }

    #[test]
    fn one_that_is_alone_gets_all_that_comes() {
        let mut b = bucket();
        let first = (0..1000).filter(|_| served(&mut b, Time(5), 1)).count();
        assert_eq!(first, (MOST - CELLS + 1) as usize, "the other cells keep theirs");
        let now = Time(5) + EVERY.scale(100, 1);
        let then = (0..1000).filter(|_| served(&mut b, now, 1)).count();
        assert!((99..=100).contains(&then), "{then}");
    }
}
