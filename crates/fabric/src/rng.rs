//! Random streams. Every component (a link's loss, a link's jitter, a switch's seed …) has its own
//! stream, derived from the world's seed and the component's name, so that the draws of one
//! component never change those of another. The generators are implemented here so that a recorded
//! run replays after every dependency update.

/// Odd constant of SplitMix64 (the golden ratio in 64 bits).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's finaliser: every input bit reaches every output bit.
#[inline]
pub const fn mix64(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Seed of the stream `(kind, id)` of a world.
pub const fn stream_seed(seed: u64, kind: u64, id: u64) -> u64 {
    let a = mix64(seed.wrapping_add(GOLDEN));
    let b = mix64(a ^ kind.wrapping_mul(GOLDEN));
    mix64(b.wrapping_add(id.wrapping_mul(0xD6E8_FEB8_6659_FD93)).wrapping_add(GOLDEN))
}

/// A probability as a threshold on 64 random bits, so that a draw is one comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance(u64);

impl Chance {
    /// Probability 0.
    pub const NEVER: Self = Self(0);
    /// Converts a probability. Values outside `0..=1` and NaN give `None`.
    pub fn new(p: f64) -> Option<Self> {
        const ONE: f64 = (1u64 << 63) as f64;
        (0.0..=1.0).contains(&p).then_some(Self((p * ONE) as u64))
    }
    /// Whether the probability is above 0.
    pub const fn possible(self) -> bool {
        self.0 != 0
    }
    /// The outcome for 64 uniform bits.
    #[inline]
    pub const fn hit(self, bits: u64) -> bool {
        bits >> 1 < self.0
    }
}

/// SplitMix64: 8 bytes of state, for the many small streams.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// A generator for a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// 64 uniform bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix64(self.0)
    }
    /// Draws an outcome with this probability. A probability of 0 draws nothing from the stream.
    #[inline]
    pub const fn chance(&mut self, chance: Chance) -> bool {
        chance.possible() && chance.hit(self.next_u64())
    }
    /// Uniform in `0..n`; 0 if `n` is 0.
    #[inline]
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }
}

/// xoshiro256++ (Blackman and Vigna): the generator for workloads and tests.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// A generator for a seed; any seed is suitable.
    pub const fn new(seed: u64) -> Self {
        let mut m = SplitMix::new(seed);
        Self { s: [m.next_u64(), m.next_u64(), m.next_u64(), m.next_u64()] }
    }
    /// The generator of the stream `(kind, id)` of a world's seed.
    pub const fn stream(seed: u64, kind: u64, id: u64) -> Self {
        Self::new(stream_seed(seed, kind, id))
    }
    /// 64 uniform bits.
    pub const fn next_u64(&mut self) -> u64 {
        let s = &mut self.s;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }
    /// Uniform in `0..n`; 0 if `n` is 0. Bias below `n / 2^64`.
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }
    /// Uniform in `lo..=hi`; `lo` if `hi < lo`.
    pub const fn range(&mut self, lo: u64, hi: u64) -> u64 {
        lo + self.below(hi.saturating_sub(lo).saturating_add(1))
    }
    /// Uniform in `[0, 1)`.
    pub const fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// True with probability `p` (values outside `0..=1` are clamped).
    pub const fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }
    /// Shuffles in place (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xoshiro_matches_the_reference_sequence() {
        // First outputs of the authors' C code for the state 1, 2, 3, 4.
        let mut rng = Rng { s: [1, 2, 3, 4] };
        let got: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(got, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn splitmix_matches_the_reference_sequence() {
        let mut m = SplitMix::new(1_234_567);
        assert_eq!(m.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(m.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn chances_are_what_they_say() {
        assert!(Chance::new(-0.1).is_none() && Chance::new(1.1).is_none());
        assert!(Chance::new(f64::NAN).is_none());
        let never = Chance::new(0.0).expect("valid");
        let always = Chance::new(1.0).expect("valid");
        let tenth = Chance::new(0.1).expect("valid");
        let mut m = SplitMix::new(7);
        let mut hits = 0;
        for _ in 0..100_000 {
            let bits = m.next_u64();
            assert!(!never.hit(bits) && always.hit(bits));
            hits += u32::from(tenth.hit(bits));
        }
        // Five standard deviations of a binomial (100,000, 0.1) are 474.
        assert!((9_526..=10_474).contains(&hits), "{hits}");
    }

    #[test]
    fn ranges_are_inclusive_and_streams_differ() {
        let mut rng = Rng::new(3);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[(rng.range(10, 14) - 10) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.range(9, 3), 9);
        let mut items: Vec<u32> = (0..50).collect();
        rng.shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
        assert_ne!(stream_seed(1, 1, 2), stream_seed(1, 2, 1));
        assert_ne!(stream_seed(1, 1, 1), stream_seed(2, 1, 1));
    }
}
