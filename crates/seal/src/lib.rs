//! Authenticated encryption for software SRD: [key file](KeyFile), [handshake](Initiator),
//! [sealed packets](Session), a [table of keys](KeySlots), and the [layer](SealLayer) that stands
//! between an engine without keys and the network.
//!
//! `docs/sealing.md` describes the design, every byte, and who can do what. The crate does no input
//! or output but for the key file, reads no clock, and takes every random byte of a handshake as an
//! argument. What a peer sends is refused with a [`Refusal`] or an [`OpenError`], never a panic.
//!
//! # Why these libraries
//!
//! All primitives are AWS-LC's, by `aws-lc-rs`. By
//! `cargo run --release --manifest-path bench/crypto/Cargo.toml`, whose figures are in
//! `docs/sealing.md`, it is the fastest for AES: AES-256-GCM seals 1400 bytes in three quarters of
//! the time that `ring` takes, and in a twentieth of RustCrypto's. It erases keys when they are
//! dropped, which `ring` does not. Its C and assembly need a C compiler, which on Linux is there
//! where Rust programs are linked.
//!
//! The handshake is Noise NNpsk0, written in `noise.rs` over AWS-LC's X25519, HKDF and
//! ChaCha20-Poly1305 and held to a published vector, rather than the crate `snow`, which leaves the
//! pre-shared key and the chaining keys in freed memory, takes a caller's ephemeral only as a
//! setting for tests, and needs more than twice the CPU.
#![forbid(unsafe_code)]

/// Whether a planted bug is on (see `planted`); a constant `false` in builds without planted bugs.
#[cfg(planted_bugs)]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::on($crate::planted::Bug::$bug)
    };
}
#[cfg(not(planted_bugs))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

mod capture_secret;
mod handshake;
mod key_file;
mod key_ring;
mod layer;
mod noise;
mod packet;
#[cfg(planted_bugs)]
pub mod planted;
mod query;
mod refusal;
mod secret;
mod slots;
mod suite;

pub use capture_secret::{CaptureSecret, CaptureSecretError};
pub use handshake::{
    Crossing, End, Ends, Greeting, HalfOpen, Initiator, Offer, PARAMS_BYTES, Proposal,
    SEALED_CHALLENGE, SEALED_CHALLENGE_BYTES, SEALED_OPEN, SEALED_OPEN_ACK, SEALED_OPEN_ACK_BYTES,
    SEALED_OPEN_BYTES, SessionKeys, crossing, sealed_open_tag,
};
pub use key_file::{KeyFile, KeyFileError, RingChange, Rotation, key_file_new, key_file_rotate};
pub use key_ring::{Key, KeyRing, KeyRingError, KeyRingFault, RING_KEYS_MAX};
pub use layer::{
    Entropy, Incoming, LayerConfig, LayerCounters, Outgoing, Policy, Route, SealLayer,
};
pub use noise::Ephemeral;
pub use packet::{
    Limits, NUMBER_END, OpenError, Opened, Receiver, SEALED_BYTES_MIN, SealError, Sender, Session,
};
pub use query::{CONTEXT_GONE, CONTEXT_QUERY, CONTEXT_QUERY_BYTES, Query};
pub use refusal::Refusal;
pub use secret::SECRET_BYTES;
pub use slots::{KeySlots, SlotError, SlotId, SlotOpened};
pub use suite::{Suite, Suites};
