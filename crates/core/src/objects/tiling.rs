//! Checks in 24 bytes of state that the pieces of a read's response cover each byte exactly once.
//!
//! Pieces may have any size and come in any order, because a responder cuts them to the packet size
//! of the moment. Each piece has a start and an end. The pieces cover `0..len` exactly once if and
//! only if the ends together with 0 are the same multiset as the starts together with `len`: where
//! the coverage count changes, one multiset has a number that the other lacks. Two multisets of
//! numbers `x` are equal if and only if the polynomials `product of (k + x)` are equal (multiset
//! check of memories; Blum et al. 1991). The polynomials are compared at one secret `k`: different
//! polynomials of degree `n` agree for at most `n` of its 2^60 values. A peer that does not know
//! `k` passes a read of a gigabyte in a million wrong pieces with a probability of at most 2^-40.

/// The Mersenne prime that is the modulus of the arithmetic.
const PRIME: u64 = (1 << 61) - 1;

/// The secret `k` of an engine, at which its polynomials are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TilingKey(u64);

impl TilingKey {
    /// The key from 64 random bits. It stays below [`PRIME`] with an offset added.
    pub fn new(random: u64) -> Self {
        Self(random >> 4)
    }
}

/// The bytes from `start` up to but not including `end`.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u32,
    end: u32,
}

/// The pieces of one range that have come so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiling {
    starts: u64,
    ends: u64,
    /// The newest pieces that follow each other without a gap, merged into one.
    run: Run,
}

impl Tiling {
    /// The state before the first piece.
    pub const EMPTY: Self = Self { starts: 1, ends: 1, run: Run { start: 0, end: 0 } };

    /// Adds a piece of `len` bytes (not 0) at `offset`.
    #[inline]
    pub fn add(&mut self, key: TilingKey, offset: u32, len: u32) {
        debug_assert!(len > 0, "a piece of nothing");
        if offset != self.run.end {
            self.run_end(key);
            self.run.start = offset;
        }
        self.run.end = offset + len;
    }

    /// Whether the pieces cover `0..len` exactly once.
    pub fn covers(mut self, key: TilingKey, len: u32) -> bool {
        debug_assert!(len > 0, "a range of nothing");
        self.run_end(key);
        times(self.ends, key.0) == times(self.starts, key.0 + u64::from(len))
    }

    fn run_end(&mut self, key: TilingKey) {
        self.starts = times(self.starts, key.0 + u64::from(self.run.start));
        self.ends = times(self.ends, key.0 + u64::from(self.run.end));
    }
}

/// The product modulo [`PRIME`]; both factors are below it.
fn times(a: u64, b: u64) -> u64 {
    debug_assert!(a < PRIME && b < PRIME, "numbers modulo the prime");
    let product = u128::from(a) * u128::from(b);
    let sum = (product as u64 & PRIME) + (product >> 61) as u64;
    if sum >= PRIME { sum - PRIME } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn products_are_those_of_plain_arithmetic() {
        let mut rng = Rng::from_seed(3);
        for _ in 0..10_000 {
            let (a, b) = (rng.next_u64() % PRIME, rng.next_u64() % PRIME);
            let plain = u128::from(a) * u128::from(b) % u128::from(PRIME);
            assert_eq!(u128::from(times(a, b)), plain);
        }
        assert_eq!(times(PRIME - 1, PRIME - 1), 1);
    }

    /// Pieces of a range in any order, and the same with one piece changed, against a plain count
    /// per byte.
    #[test]
    fn agrees_with_a_count_per_byte() {
        let mut rng = Rng::from_seed(4);
        let (mut covered, mut holes) = (0, 0);
        for round in 0..2000 {
            let key = TilingKey::new(rng.next_u64());
            let len = 1 + rng.below(200);
            let mut cuts: Vec<u32> = (0..rng.below(9)).map(|_| rng.below(len)).collect();
            cuts.extend([0, len]);
            cuts.sort_unstable();
            cuts.dedup();
            let mut pieces: Vec<_> = cuts.windows(2).map(|w| (w[0], w[1] - w[0])).collect();
            for i in (1..pieces.len()).rev() {
                pieces.swap(i, rng.below(i as u32 + 1) as usize);
            }
            if round % 2 == 1 {
                let from = rng.below(pieces.len() as u32) as usize;
                let to = rng.below(pieces.len() as u32) as usize;
                pieces[to].0 = pieces[from].0.min(len - pieces[to].1);
            }
            let mut times_covered = vec![0u32; len as usize];
            let mut tiling = Tiling::EMPTY;
            for &(offset, n) in &pieces {
                tiling.add(key, offset, n);
                times_covered[offset as usize..][..n as usize].iter_mut().for_each(|t| *t += 1);
            }
            let whole = times_covered.iter().all(|&t| t == 1);
            assert_eq!(tiling.covers(key, len), whole, "{pieces:?} of {len}");
            covered += u32::from(whole);
            holes += u32::from(!whole);
        }
        assert!(covered > 1000 && holes > 500, "{covered} whole, {holes} with holes");
    }
}
