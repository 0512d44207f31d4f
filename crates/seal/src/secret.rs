//! Secrets of 32 bytes: erased when dropped, never printed, and what is derived from them.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{hkdf, hmac};
use core::fmt;
use zeroize::{Zeroize as _, Zeroizing};

/// Bytes of a secret, of a pre-shared key and of a share of X25519.
pub const SECRET_BYTES: usize = 32;
/// Bytes of a keyed hash in a handshake packet.
pub(crate) const MAC_BYTES: usize = 16;

/// What every derived key is bound to. Another version of the design needs another word.
const DOMAIN: &[u8] = b"srd seal 1 ";

/// 32 secret bytes. They are overwritten with zeros when they are dropped. There is no `Clone`, so
/// that two owners of one secret are seen in the code.
pub(crate) struct Secret([u8; SECRET_BYTES]);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A secret to be written into.
    pub fn zeros() -> Self {
        Self([0; SECRET_BYTES])
    }

    /// Takes the bytes, and erases the caller's copy.
    pub fn take(bytes: &mut [u8; SECRET_BYTES]) -> Self {
        let secret = Self(*bytes);
        bytes.zeroize();
        secret
    }

    /// A second copy, for an owner that lives on its own.
    pub fn duplicate(&self) -> Self {
        Self(self.0)
    }

    pub fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// Fills `out` with HKDF-Expand-SHA-256 of this secret; the information is [`DOMAIN`], `label`
    /// and `number`. One call gives at most 8,160 bytes; here it gives 12 or 32.
    pub fn expand_into(&self, label: &str, number: u8, out: &mut [u8]) {
        let info = [DOMAIN, label.as_bytes(), &[number]];
        hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &self.0)
            .expand(&info, Length(out.len()))
            .and_then(|okm| okm.fill(out))
            .expect("HKDF gives 8,160 bytes");
    }

    /// The secret that follows from this one under `label` and `number`.
    pub fn expand(&self, label: &str, number: u8) -> Self {
        let mut out = Self::zeros();
        self.expand_into(label, number, &mut out.0);
        out
    }

    /// HKDF of the Noise specification (extract with this chaining key, then expand): three
    /// secrets, of which callers use the first two or all.
    pub fn noise_hkdf(&self, input: &[u8]) -> [Self; 3] {
        let mut bytes = Zeroizing::new([0u8; 3 * SECRET_BYTES]);
        hkdf::Salt::new(hkdf::HKDF_SHA256, &self.0)
            .extract(input)
            .expand(&[], Length(bytes.len()))
            .and_then(|okm| okm.fill(&mut bytes[..]))
            .expect("HKDF gives 8,160 bytes");
        let mut parts = [Self::zeros(), Self::zeros(), Self::zeros()];
        for (part, from) in parts.iter_mut().zip(bytes.chunks_exact(SECRET_BYTES)) {
            part.0.copy_from_slice(from);
        }
        parts
    }

    /// The first 16 bytes of HMAC-SHA-256 of `parts`, one after the other, under this key.
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        for part in parts {
            context.update(part);
        }
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&context.sign().as_ref()[..MAC_BYTES]);
        mac
    }

    /// Whether `mac` is the keyed hash of `parts`; takes the same time for every wrong one.
    pub fn mac_matches(&self, parts: &[&[u8]], mac: &[u8]) -> bool {
        verify_slices_are_equal(&self.mac(parts), mac).is_ok()
    }
}

/// A number of bytes that HKDF is asked for.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}
