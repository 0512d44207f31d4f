//! Keyed hashing, for tables whose keys peers can choose.

use crate::random::{HashKey, Random};
use core::hash::BuildHasher;
use siphasher::sip::SipHasher13;

/// A hash under a key that peers cannot guess.
#[derive(Clone, Debug)]
pub(crate) struct Keyed(HashKey);

impl Keyed {
    /// A hash with a new random key.
    pub fn draw(rng: &mut impl Random) -> Self {
        Self(HashKey::draw(rng))
    }

    /// A hash with the given key.
    pub fn apart(key: HashKey) -> Self {
        Self(key)
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0.low, self.0.high)
    }
}
