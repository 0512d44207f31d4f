//! Random numbers of the core: SplitMix64 for seeding, xoshiro256++ after that.
//!
//! Own code so that a replay never changes with a dependency. Algorithms: Blackman and Vigna,
//! "Scrambled linear pseudorandom number generators" (public domain reference).

/// xoshiro256++ generator. Not cryptographic: see [`Randomness`](crate::Randomness) for secrets.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

/// One step of SplitMix64.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// A generator seeded by one number, for simulations.
    pub fn from_seed(seed: u64) -> Self {
        let mut s = seed;
        Self(core::array::from_fn(|_| splitmix(&mut s)))
    }

    /// A generator seeded by 256 bits of entropy of the operating system, for devices. All zero is
    /// replaced.
    pub fn from_entropy(words: [u64; 4]) -> Self {
        if words == [0; 4] { Self::from_seed(0) } else { Self(words) }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
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

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number below `n` (`n` > 0), by multiplication: bias below 2^-32 for the sizes used here.
    pub fn below(&mut self, n: u32) -> u32 {
        let below = ((u64::from(self.next_u32()) * u64::from(n)) >> 32) as u32;
        debug_assert!(below < n, "there is no number below 0");
        below
    }
}
