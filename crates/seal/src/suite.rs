//! The ciphers that seal packets, and one key of one of them.

use crate::secret::Secret;
use aws_lc_rs::aead::{
    AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use core::fmt;
use srd_wire::AEAD_TAG_BYTES;
use zeroize::Zeroizing;

/// Bytes of the list of suites in a handshake.
pub(crate) const SUITES_BYTES: usize = 4;
const NONCE_BYTES: usize = 12;

/// A cipher for packets, with its number in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Suite {
    /// AES-256-GCM: the fastest where the processor has instructions for AES.
    Aes256Gcm = 1,
    /// ChaCha20-Poly1305: the fastest where it has none.
    ChaCha20Poly1305 = 2,
}

impl Suite {
    /// All suites of this version, in the order of their numbers.
    pub const ALL: &[Self] = &[Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// The suite with this number, if this version has one.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|&suite| suite as u8 == number)
    }

    /// Name in logs and in the last line of a run.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

/// The suites that one side accepts, the preferred one first. Each suite is in it at most once, and
/// at least one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suites([u8; SUITES_BYTES]);

impl Default for Suites {
    /// All, AES first.
    fn default() -> Self {
        Self::new(Suite::ALL).expect("the list of all suites is valid")
    }
}

/// Whether the processor has instructions for AES and for the multiplication of GCM.
fn aes_is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

impl Suites {
    /// Accepts the suites of `order`, the preferred one first; `None` if the list is empty or names
    /// one twice.
    pub fn new(order: &[Suite]) -> Option<Self> {
        let mut bytes = [0; SUITES_BYTES];
        if order.is_empty() || order.len() > bytes.len() {
            return None;
        }
        for (at, suite) in order.iter().enumerate() {
            if order[..at].contains(suite) {
                return None;
            }
            bytes[at] = *suite as u8;
        }
        Some(Self(bytes))
    }

    /// All, the one first that is the fastest on this processor. A simulation takes the default
    /// instead, which is the same everywhere.
    pub fn of_this_machine() -> Self {
        let chacha_first = Self::new(&[Suite::ChaCha20Poly1305, Suite::Aes256Gcm]);
        if aes_is_fast() { Self::default() } else { chacha_first.expect("each is in it once") }
    }

    /// The list as it travels: numbers in order of preference, then zeros.
    pub(crate) const fn bytes(self) -> [u8; SUITES_BYTES] {
        self.0
    }

    /// The preferred suite.
    pub fn first(self) -> Suite {
        Suite::from_number(self.0[0]).expect("the list has one at least")
    }

    /// Whether the list has `suite`.
    pub fn contains(self, suite: Suite) -> bool {
        self.0.contains(&(suite as u8))
    }

    /// What a responder with this list takes from the initiator's: the first that both have.
    /// Numbers of later versions are passed over.
    pub(crate) fn choose(self, offered: [u8; SUITES_BYTES]) -> Option<Suite> {
        offered.into_iter().filter_map(Suite::from_number).find(|&suite| self.contains(suite))
    }
}

/// The key of one epoch of one direction, ready for use.
pub(crate) struct PacketKey {
    cipher: LessSafeKey,
    mask: Zeroizing<[u8; NONCE_BYTES]>,
}

impl fmt::Debug for PacketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PacketKey(..)")
    }
}

impl PacketKey {
    /// Derives the key and the mask of the nonces from the secret of an epoch.
    pub fn new(suite: Suite, secret: &Secret) -> Self {
        let key = secret.expand("key", suite as u8);
        let mut mask = Zeroizing::new([0; NONCE_BYTES]);
        secret.expand_into("mask", suite as u8, &mut mask[..]);
        let unbound = UnboundKey::new(suite.algorithm(), key.bytes());
        let cipher = LessSafeKey::new(unbound.expect("the key has the length of the cipher"));
        Self { cipher, mask }
    }

    /// The nonce of a transmission number: 32 zero bits and the number, big-endian, XOR the mask.
    fn nonce(&self, number: u64) -> Nonce {
        let mut bytes = *self.mask;
        for (byte, of_number) in bytes[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        Nonce::assume_unique_for_key(bytes)
    }

    /// Seals `text` in place and writes its tag. The caller sees to it that no number comes twice.
    #[inline]
    pub fn seal(&self, number: u64, head: &[u8], text: &mut [u8], tag: &mut [u8]) {
        let made = self
            .cipher
            .seal_in_place_separate_tag(self.nonce(number), Aad::from(head), text)
            .expect("a datagram is shorter than the limit of the cipher");
        tag.copy_from_slice(made.as_ref());
    }

    /// Opens `text` in place if the tag is right. Otherwise what `text` holds is undefined.
    #[inline]
    pub fn open(&self, number: u64, head: &[u8], text: &mut [u8], tag: &[u8]) -> bool {
        debug_assert_eq!(tag.len(), AEAD_TAG_BYTES);
        self.cipher
            .open_in_place_separate_tag(self.nonce(number), Aad::from(head), tag, text)
            .is_ok()
    }
}
