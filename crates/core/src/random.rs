//! Sources of random numbers: secrets come from a cipher, everything else from a fast generator.
//!
//! Peers must not be able to compute secret numbers (cookie keys, hash keys, tags of other peers)
//! from the random numbers that they see (tags, first PSNs and transmission numbers, the
//! incarnation, region keys). With the fast generator they could: its outputs are nearly linear in
//! its state. So a device draws both kinds from ChaCha20, seeded by the operating system, and seeds
//! the fast generator (choice of paths, jitter of back-offs) separately. Simulations draw all
//! numbers from one generator, in one order, so that a seed replays a run.

use crate::rng::Rng;
use chacha20::{
    ChaCha20Rng,
    rand_core::{Rng as _, SeedableRng as _},
};

/// A source of random numbers.
pub(crate) trait Random {
    /// 64 random bits.
    fn next_u64(&mut self) -> u64;
    /// 32 random bits.
    fn next_u32(&mut self) -> u32;
}

impl Random for Rng {
    fn next_u64(&mut self) -> u64 {
        Self::next_u64(self)
    }
    fn next_u32(&mut self) -> u32 {
        Self::next_u32(self)
    }
}

/// An engine's source of random numbers, for [`Engine::new`](crate::Engine::new). A source made
/// from an [`Rng`] can be replayed, and is for simulations and tests only.
#[derive(Debug)]
pub struct Randomness {
    pub(crate) fast: Rng,
    pub(crate) secrets: Secrets,
}

impl Randomness {
    /// For devices, from entropy of the operating system: `secret` for numbers that peers must not
    /// guess, `fast` for the others. Neither may be used twice, and they must be independent of
    /// each other.
    pub fn from_entropy(secret: [u8; 32], fast: [u64; 4]) -> Self {
        let cipher = ChaCha20Rng::from_seed(secret);
        let secrets = Secrets(Some(Box::new(cipher)));
        Self { fast: Rng::from_entropy(fast), secrets }
    }
}

impl From<Rng> for Randomness {
    fn from(rng: Rng) -> Self {
        Self { fast: rng, secrets: Secrets(None) }
    }
}

/// The cipher that secrets come from; `None` where runs are replayed.
#[derive(Debug)]
pub(crate) struct Secrets(Option<Box<ChaCha20Rng>>);

impl Secrets {
    /// A source of secrets: the cipher, or `replayed` where runs are replayed.
    pub fn or<'a>(&'a mut self, replayed: &'a mut Rng) -> Secret<'a> {
        Secret { secrets: self, replayed }
    }

    /// A byte that no other draw depends on; 0 where runs are replayed.
    pub fn byte_apart(&mut self) -> u8 {
        self.0.as_mut().map_or(0, |cipher| cipher.next_u32() as u8)
    }

    /// A key that no other draw depends on. Where runs are replayed, it leaves `replayed` as it is.
    pub fn key_apart(&mut self, replayed: &Rng) -> HashKey {
        match &mut self.0 {
            Some(cipher) => HashKey { low: cipher.next_u64(), high: cipher.next_u64() },
            None => HashKey::draw(&mut Rng::from_seed(replayed.clone().next_u64())),
        }
    }
}

/// A secret of 128 bits, under which something is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashKey {
    pub low: u64,
    pub high: u64,
}

impl HashKey {
    pub fn draw(rng: &mut impl Random) -> Self {
        Self { low: rng.next_u64(), high: rng.next_u64() }
    }
}

/// See [`Secrets::or`].
pub(crate) struct Secret<'a> {
    secrets: &'a mut Secrets,
    replayed: &'a mut Rng,
}

impl Random for Secret<'_> {
    fn next_u64(&mut self) -> u64 {
        match &mut self.secrets.0 {
            Some(cipher) if !planted!(SecretsFast) => cipher.next_u64(),
            _ => self.replayed.next_u64(),
        }
    }
    fn next_u32(&mut self) -> u32 {
        match &mut self.secrets.0 {
            Some(cipher) if !planted!(SecretsFast) => cipher.next_u32(),
            _ => self.replayed.next_u32(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_depend_on_the_secret_seed_alone() {
        let draw = |secret: [u8; 32], fast: [u64; 4]| {
            let Randomness { mut fast, mut secrets } = Randomness::from_entropy(secret, fast);
            let before = fast.clone().next_u64();
            let mut from = secrets.or(&mut fast);
            let drawn = (from.next_u64(), from.next_u32());
            let key = secrets.key_apart(&fast);
            assert_eq!(fast.next_u64(), before, "the fast generator is left alone");
            (drawn, key)
        };
        assert_eq!(draw([1; 32], [1; 4]), draw([1; 32], [2; 4]));
        let (a, b) = (draw([1; 32], [1; 4]), draw([2; 32], [1; 4]));
        assert_ne!(a.0, b.0);
        assert_ne!(a.1, b.1);
    }

    #[test]
    fn what_is_replayed_is_one_sequence() {
        let (mut plain, replayed) = (Rng::from_seed(7), Randomness::from(Rng::from_seed(7)));
        let Randomness { mut fast, mut secrets } = replayed;
        assert_eq!(secrets.or(&mut fast).next_u64(), plain.next_u64());
        secrets.key_apart(&fast);
        assert_eq!(secrets.or(&mut fast).next_u32(), plain.next_u32());
        assert_eq!(fast.next_u64(), plain.next_u64());
    }

    /// The first block of ChaCha20 with a zero key and nonce (RFC 8439, appendix A.1, vector 1).
    #[test]
    fn the_cipher_is_chacha20() {
        let Randomness { mut fast, mut secrets } = Randomness::from_entropy([0; 32], [1; 4]);
        let mut from = secrets.or(&mut fast);
        let block = [from.next_u32(), from.next_u32(), from.next_u32(), from.next_u32()];
        assert_eq!(
            block.map(u32::swap_bytes),
            [0x76b8_e0ad, 0xa0f1_3d90, 0x405d_6ae5, 0x5386_bd28]
        );
    }
}
