//! Random choices of a scenario, from a seed or from a fuzzer's byte string.

use srd_fabric::Rng;

/// A stream of choices. A byte string is consumed first, two bytes per choice; then a generator
/// continues.
#[derive(Clone, Debug)]
pub struct Draw {
    bytes: Vec<u8>,
    at: usize,
    rng: Rng,
}

impl Draw {
    /// The stream `(kind, id)` of a seed.
    pub fn new(seed: u64, kind: u64, id: u64) -> Self {
        Self { bytes: Vec::new(), at: 0, rng: Rng::stream(seed, kind, id) }
    }

    /// The same stream, preceded by the choices of `bytes`.
    pub fn with_bytes(seed: u64, kind: u64, id: u64, bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::new(seed, kind, id) }
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Uniform in `0..n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if let Some(pair) = self.bytes.get(self.at..self.at + 2) {
            self.at += 2;
            return u64::from(u16::from_le_bytes([pair[0], pair[1]])) % n.max(1);
        }
        self.rng.below(n)
    }

    /// Uniform in `lo..=hi`.
    pub fn range(&mut self, lo: u64, hi: u64) -> u64 {
        lo + self.below(hi.saturating_sub(lo) + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// Weighted random index; 0 if all weights are 0.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let sum: u64 = weights.iter().map(|&w| u64::from(w)).sum();
        let mut at = self.below(sum);
        for (i, &w) in weights.iter().enumerate() {
            if at < u64::from(w) {
                return i;
            }
            at -= u64::from(w);
        }
        0
    }
}
