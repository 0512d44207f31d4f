//! `Noise_NNpsk0_25519_ChaChaPoly_SHA256`: the two messages of the Noise specification (revision
//! 34), for payloads of one size.
//!
//! Each side has one fresh share of X25519 (its *ephemeral*) and the pre-shared key. Both messages
//! carry a sealed payload: the first under a key that follows from the pre-shared key and the
//! initiator's share, the second under one that needs a private share besides. Every key of the
//! handshake seals one payload, so the nonce is always 0.
//!
//! Nothing here looks at the network, and a message that is refused changes nothing.

use crate::Refusal;
use crate::secret::{SECRET_BYTES, Secret};
use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::digest;
use srd_wire::AEAD_TAG_BYTES;

const NAME: &[u8] = b"Noise_NNpsk0_25519_ChaChaPoly_SHA256";
/// Bytes of a public share.
pub(crate) const SHARE_BYTES: usize = 32;
/// What a message has beyond its payload: a share and the tag of the seal.
pub(crate) const MESSAGE_OVERHEAD_BYTES: usize = SHARE_BYTES + AEAD_TAG_BYTES;

/// The random bytes of one handshake of one side. They come from outside, so that a simulation can
/// be replayed; a device takes them from the operating system. Whoever knows them reads what the
/// handshake protects. Bytes used twice would give two handshakes the same keys: there is no
/// `Clone`, and each handshake consumes its own.
#[derive(Debug)]
pub struct Ephemeral(Secret);

impl Ephemeral {
    /// Takes 32 bytes that nobody else knows and nothing else uses; the caller's copy is erased.
    pub fn take(bytes: &mut [u8; SECRET_BYTES]) -> Self {
        Self(Secret::take(bytes))
    }

    fn private(self) -> PrivateKey {
        PrivateKey::from_private_key(&X25519, self.0.bytes()).expect("any 32 bytes are a key")
    }
}

fn share_of(private: &PrivateKey) -> [u8; SHARE_BYTES] {
    let public = private.compute_public_key().expect("a key of X25519 has a public share");
    public.as_ref().try_into().expect("a share has 32 bytes")
}

/// The outcome: a secret for each direction.
#[derive(Debug)]
pub(crate) struct Split {
    pub from_initiator: Secret,
    pub from_responder: Secret,
    /// Hash of both messages and the prologue: equal at both ends, different in each handshake.
    pub hash: [u8; 32],
}

/// The symmetric state of the specification.
#[derive(Debug)]
struct Symmetric {
    hash: [u8; 32],
    chain: Secret,
    key: Secret,
}

impl Symmetric {
    fn new(prologue: &[u8], psk: &Secret) -> Self {
        let mut hash = digest_of(&[NAME]);
        let chain = Secret::take(&mut hash.clone());
        hash = digest_of(&[&hash, prologue]);
        let mut new = Self { hash, chain, key: Secret::zeros() };
        // The token `psk`.
        let [chain, mixed, key] = new.chain.noise_hkdf(psk.bytes());
        new.chain = chain;
        new.hash_mix(mixed.bytes());
        new.key = key;
        new
    }

    fn duplicate(&self) -> Self {
        let (chain, key) = (self.chain.duplicate(), self.key.duplicate());
        Self { hash: self.hash, chain, key }
    }

    fn hash_mix(&mut self, bytes: &[u8]) {
        self.hash = digest_of(&[&self.hash, bytes]);
    }

    fn key_mix(&mut self, input: &[u8]) {
        let [chain, key, _] = self.chain.noise_hkdf(input);
        (self.chain, self.key) = (chain, key);
    }

    /// The token `e`; with a pre-shared key the share goes into the keys, too.
    fn share_mix(&mut self, share: &[u8]) {
        self.hash_mix(share);
        self.key_mix(share);
    }

    /// The token `ee`. A share of small order, which would give the same secret whatever our own
    /// share is, is refused.
    fn agreement_mix(&mut self, own: &PrivateKey, share: &[u8]) -> Result<(), Refusal> {
        let peer = UnparsedPublicKey::new(&X25519, share);
        agree(own, peer, Refusal::Share, |secret| {
            self.key_mix(secret);
            Ok(())
        })
    }

    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&CHACHA20_POLY1305, self.key.bytes());
        LessSafeKey::new(key.expect("the key has the length of the cipher"))
    }

    /// Seals the payload in `out`, whose last 16 bytes are room for the tag.
    fn seal(&mut self, out: &mut [u8]) {
        let (payload, room) = out.split_at_mut(out.len() - AEAD_TAG_BYTES);
        let tag = self
            .cipher()
            .seal_in_place_separate_tag(nonce(), Aad::from(&self.hash), payload)
            .expect("a payload of a handshake is short");
        room.copy_from_slice(tag.as_ref());
        self.hash_mix(out);
    }

    /// Opens `sealed` into `payload`, which is 16 bytes shorter.
    fn open(&mut self, sealed: &[u8], payload: &mut [u8]) -> Result<(), Refusal> {
        let (text, tag) = sealed.split_at(payload.len());
        payload.copy_from_slice(text);
        self.cipher()
            .open_in_place_separate_tag(nonce(), Aad::from(&self.hash), tag, payload)
            .map_err(|_| Refusal::Seal)?;
        self.hash_mix(sealed);
        Ok(())
    }

    fn split(self) -> Split {
        let [from_initiator, from_responder, _] = self.chain.noise_hkdf(&[]);
        Split { from_initiator, from_responder, hash: self.hash }
    }
}

fn digest_of(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    context.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// The initiator between its message and the answer.
#[derive(Debug)]
pub(crate) struct Opening {
    state: Symmetric,
    private: PrivateKey,
}

impl Opening {
    /// Writes the first message into `out`, which is [`MESSAGE_OVERHEAD_BYTES`] longer than
    /// `payload`.
    pub fn new(
        psk: &Secret,
        prologue: &[u8],
        ephemeral: Ephemeral,
        payload: &[u8],
        out: &mut [u8],
    ) -> Self {
        let mut state = Symmetric::new(prologue, psk);
        let private = ephemeral.private();
        let share = share_of(&private);
        state.share_mix(&share);
        message_fill(&mut state, &share, payload, out);
        Self { state, private }
    }

    /// Reads the answer. A refused one leaves everything as it was: a true one may follow.
    pub fn finish(&self, message: &[u8], payload: &mut [u8]) -> Result<Split, Refusal> {
        let (share, sealed) = message.split_at(SHARE_BYTES);
        let mut state = self.state.duplicate();
        state.share_mix(share);
        state.agreement_mix(&self.private, share)?;
        state.open(sealed, payload)?;
        Ok(state.split())
    }
}

/// The responder between the initiator's message and its own.
#[derive(Debug)]
pub(crate) struct Received {
    state: Symmetric,
    share: [u8; SHARE_BYTES],
}

impl Received {
    /// Reads the first message. This takes hashes and one opened seal, but no Diffie-Hellman.
    pub fn new(
        psk: &Secret,
        prologue: &[u8],
        message: &[u8],
        payload: &mut [u8],
    ) -> Result<Self, Refusal> {
        let mut state = Symmetric::new(prologue, psk);
        let (share, sealed) = message.split_first_chunk().ok_or(Refusal::Truncated)?;
        state.share_mix(share);
        state.open(sealed, payload)?;
        Ok(Self { state, share: *share })
    }

    /// Writes the second message into `out`.
    pub fn answer(
        mut self,
        ephemeral: Ephemeral,
        payload: &[u8],
        out: &mut [u8],
    ) -> Result<Split, Refusal> {
        let private = ephemeral.private();
        let share = share_of(&private);
        self.state.share_mix(&share);
        self.state.agreement_mix(&private, &self.share)?;
        message_fill(&mut self.state, &share, payload, out);
        Ok(self.state.split())
    }
}

fn message_fill(state: &mut Symmetric, share: &[u8], payload: &[u8], out: &mut [u8]) {
    let (head, rest) = out.split_at_mut(SHARE_BYTES);
    head.copy_from_slice(share);
    rest[..payload.len()].copy_from_slice(payload);
    state.seal(rest);
}

#[cfg(test)]
#[path = "noise_tests.rs"]
mod tests;
