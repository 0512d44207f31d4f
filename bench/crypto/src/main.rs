//! The libraries that `crates/seal` could use, beside each other:
//! `cargo run --release --manifest-path bench/crypto/Cargo.toml`.
//!
//! Each seals in place, with 24 bytes of associated data and a new nonce for each packet; CPU time
//! of one thread by the kernel's clock, the best of five runs.
#![forbid(unsafe_code)]

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;

/// CPU time of this thread in nanoseconds.
fn cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// CPU nanoseconds of one call, the best of five runs of at least 50 ms.
fn cost_ns(mut call: impl FnMut(u64)) -> f64 {
    let mut number = 0;
    let mut run = || {
        let (start, first) = (cpu_ns(), number);
        while cpu_ns() - start < 50_000_000 {
            for _ in 0..500 {
                number += 1;
                call(number);
            }
        }
        (cpu_ns() - start) as f64 / (number - first) as f64
    };
    (0..5).map(|_| run()).fold(f64::MAX, f64::min)
}

fn nonce(number: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Times `seal`, which is given a number, the header, the text, and room for the tag.
fn row(name: &str, bytes: usize, mut seal: impl FnMut(u64, &[u8], &mut [u8], &mut [u8])) {
    let mut packet = vec![0x5a; 24 + bytes + 16];
    let ns = cost_ns(|number| {
        let (head, rest) = black_box(&mut packet[..]).split_at_mut(24);
        let (text, tag) = rest.split_at_mut(bytes);
        seal(number, head, text, tag);
    });
    println!("{name:32} {bytes:6} {ns:8.0} {:8.2}", bytes as f64 / ns);
}

/// `ring` and `aws-lc-rs` have the same interface.
macro_rules! ring_like {
    ($library:ident, $bytes:expr, $($suite:ident),+) => {$({
        use $library::aead::{$suite, Aad, LessSafeKey, Nonce, UnboundKey};
        let key = vec![7; $suite.key_len()];
        let key = LessSafeKey::new(UnboundKey::new(&$suite, &key).expect("the right length"));
        let name = concat!(stringify!($library), " ", stringify!($suite));
        row(name, $bytes, |number, head, text, room| {
            let nonce = Nonce::assume_unique_for_key(nonce(number));
            let tag = key.seal_in_place_separate_tag(nonce, Aad::from(head), text).expect("short");
            room.copy_from_slice(tag.as_ref());
        });
    })+};
}

macro_rules! rustcrypto {
    ($library:ident, $bytes:expr, $($suite:ident),+) => {$({
        use $library::{$suite, AeadInPlace as _, KeyInit as _, KeySizeUser as _};
        let key = $suite::new_from_slice(&vec![7; $suite::key_size()]).expect("the right length");
        let name = concat!("RustCrypto ", stringify!($suite));
        row(name, $bytes, |number, head, text, room| {
            let nonce = nonce(number);
            let tag = key.encrypt_in_place_detached((&nonce).into(), head, text).expect("short");
            room.copy_from_slice(&tag);
        });
    })+};
}

/// A handshake of `snow`, both sides, with payloads of the size that `crates/seal` has.
fn snow_handshake(psk: &[u8; 32]) -> Result<(), snow::Error> {
    let parameters: snow::params::NoiseParams = "Noise_NNpsk0_25519_ChaChaPoly_SHA256".parse()?;
    let mut initiator = snow::Builder::new(parameters.clone()).psk(0, psk)?.build_initiator()?;
    let mut responder = snow::Builder::new(parameters).psk(0, psk)?.build_responder()?;
    let (mut message, mut payload) = ([0; 128], [0; 128]);
    let length = initiator.write_message(&[1; 56], &mut message)?;
    responder.read_message(&message[..length], &mut payload)?;
    let length = responder.write_message(&[1; 56], &mut message)?;
    initiator.read_message(&message[..length], &mut payload)?;
    black_box(payload);
    Ok(())
}

fn main() {
    println!("{:32} {:>6} {:>8} {:>8}", "", "bytes", "seal ns", "GB/s");
    for bytes in [64, 1400, 8900] {
        ring_like!(aws_lc_rs, bytes, AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305);
        ring_like!(ring, bytes, AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305);
        rustcrypto!(aes_gcm, bytes, Aes128Gcm, Aes256Gcm);
        rustcrypto!(chacha20poly1305, bytes, ChaCha20Poly1305);
    }
    let ns = cost_ns(|_| snow_handshake(&[9; 32]).expect("it agrees with itself"));
    println!("\nhandshake of snow, both sides: {:.1} us", ns / 1e3);
}
