//! Hashing under a key, where strangers choose what is hashed.

use crate::random::Random;
use core::hash::BuildHasher;
use siphasher::sip::SipHasher13;

/// A hash under a key that peers cannot guess.
#[derive(Clone, Debug)]
pub(crate) struct Keyed(u64, u64);

impl Keyed {
    /// With a key of its own.
    pub fn draw(rng: &mut impl Random) -> Self {
        Self(rng.next_u64(), rng.next_u64())
    }

    /// With this key.
    pub fn apart(key: (u64, u64)) -> Self {
        Self(key.0, key.1)
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}
