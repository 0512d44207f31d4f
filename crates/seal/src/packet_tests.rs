//! One direction: what is opened, what is refused, and how keys follow each other.

use super::*;
use crate::secret::SECRET_BYTES;

const SMALL: Limits = Limits { epoch_bits: 4, failed_opens_max: 1 << 36 };

fn secret(byte: u8) -> Secret {
    Secret::take(&mut [byte; SECRET_BYTES])
}

fn ends(suite: Suite, start: u64, limits: Limits) -> (Sender, Receiver) {
    (Sender::new(suite, secret(7), start, limits), Receiver::new(suite, secret(7), start, limits))
}

/// A Send with this number and payload, and room for the tag.
fn plain(number: u64, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES];
    packet[0] = VERSION << 5 | 16;
    packet[1] = Flags::ACK_REQUEST;
    packet[2] = number as u8;
    packet[NUMBER_AT..NUMBER_AT + 4].copy_from_slice(&(number as u32).to_be_bytes());
    packet.extend_from_slice(payload);
    packet.extend_from_slice(&[0; AEAD_TAG_BYTES]);
    packet
}

fn sealed(sender: &mut Sender, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut packet = plain(number, payload);
    sender.seal(number, &mut packet).unwrap();
    packet
}

/// Opens a copy.
fn open(receiver: &mut Receiver, packet: &[u8]) -> Result<(u64, Vec<u8>), OpenError> {
    let mut copy = packet.to_vec();
    let opened = receiver.open(&mut copy)?;
    Ok((opened.number, copy[opened.packet].to_vec()))
}

#[test]
fn what_is_opened_is_what_was_sealed() {
    for &suite in Suite::ALL {
        // The start is close below a wrap of the low half, which the epochs straddle.
        let start = (5 << 32) - 21;
        let (mut sender, mut receiver) = ends(suite, start, SMALL);
        for step in 0..100 {
            let number = start + step;
            let payload = vec![step as u8; (step * 37 % 90) as usize];
            let before = plain(number, &payload);
            let packet = sealed(&mut sender, number, &payload);
            assert_eq!(packet.len(), before.len());
            if payload.len() > 8 {
                let text = &packet[HEADER_BYTES..];
                assert!(!text.windows(8).any(|part| part == &payload[..8]), "readable");
            }
            let (found, bytes) = open(&mut receiver, &packet).unwrap();
            assert_eq!(found, number);
            assert_eq!(bytes, before[..before.len() - AEAD_TAG_BYTES], "{suite:?} {step}");
        }
        assert_eq!((receiver.newest(), receiver.epoch()), (start + 99, 6));
        assert_eq!(receiver.failed(), 0);
    }
}

#[test]
fn one_changed_bit_anywhere_is_refused_and_moves_nothing() {
    for &suite in Suite::ALL {
        let (mut sender, mut receiver) = ends(suite, 1000, SMALL);
        let packet = sealed(&mut sender, 1005, b"some payload of a message");
        for bit in 0..packet.len() * 8 {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = open(&mut receiver, &damaged).expect_err("a changed bit was not noticed");
            // The bits that are looked at before the seal; all others break the seal itself.
            let known = match bit {
                5..=7 => error == OpenError::Version,
                10 => error == OpenError::Unsealed,
                11 => error == OpenError::Epoch,
                64..96 => error == OpenError::Epoch || error == OpenError::Seal,
                _ => error == OpenError::Seal,
            };
            assert!(known, "bit {bit}: {error:?}");
            assert_eq!(receiver.newest(), 1000, "bit {bit}");
        }
        assert_eq!(open(&mut receiver, &packet).unwrap().0, 1005);
    }
}

#[test]
fn no_prefix_and_no_longer_packet_is_opened() {
    let (mut sender, mut receiver) = ends(Suite::Aes256Gcm, 0, SMALL);
    let packet = sealed(&mut sender, 0, b"payload");
    for length in 0..packet.len() {
        let error = open(&mut receiver, &packet[..length]).expect_err("a prefix was opened");
        let short = length < SEALED_BYTES_MIN;
        assert_eq!(error, if short { OpenError::Truncated } else { OpenError::Seal });
    }
    let longer = [&packet[..], &[0]].concat();
    assert_eq!(open(&mut receiver, &longer), Err(OpenError::Seal));
    let joined = [&packet[..], &packet].concat();
    assert_eq!(open(&mut receiver, &joined), Err(OpenError::Seal));
    assert!(open(&mut receiver, &packet).is_ok());
}

#[test]
fn other_keys_open_nothing() {
    let start = 50;
    for &suite in Suite::ALL {
        let (mut sender, _) = ends(suite, start, SMALL);
        let packet = sealed(&mut sender, start, b"payload");
        for &other in Suite::ALL {
            let mut wrong_key = Receiver::new(other, secret(8), start, SMALL);
            assert_eq!(open(&mut wrong_key, &packet), Err(OpenError::Seal));
            let mut same_key = Receiver::new(other, secret(7), start, SMALL);
            assert_eq!(open(&mut same_key, &packet).is_ok(), other == suite);
        }
        // The same keys with another first number: the nonce is the same, the epochs are not.
        let mut shifted = Receiver::new(suite, secret(7), start - 16, SMALL);
        assert_eq!(open(&mut shifted, &packet), Err(OpenError::Epoch));
        let mut shifted = Receiver::new(suite, secret(7), start - 32, SMALL);
        assert_eq!(open(&mut shifted, &packet), Err(OpenError::Epoch));
    }
}

#[test]
fn numbers_that_were_used_are_refused() {
    let (mut sender, _) = ends(Suite::Aes256Gcm, 100, SMALL);
    let first = sealed(&mut sender, 100, b"x");
    for number in [0, 99, 100] {
        let mut packet = plain(number, b"x");
        let before = packet.clone();
        assert_eq!(sender.seal(number, &mut packet), Err(SealError::Reused));
        assert_eq!(packet, before, "a refused packet is unchanged");
    }
    assert_ne!(sealed(&mut sender, 103, b"x"), first);
    // What was left out is used up, too.
    for number in [101, 102, 103] {
        assert_eq!(sender.seal(number, &mut plain(number, b"x")), Err(SealError::Reused));
    }
    assert_eq!(sender.next(), 104);
}

#[test]
fn what_cannot_be_sealed_is_left_alone() {
    let (mut sender, _) = ends(Suite::Aes256Gcm, 0, SMALL);
    let refused = |sender: &mut Sender, number, mut packet: Vec<u8>| {
        let before = packet.clone();
        let error = sender.seal(number, &mut packet).expect_err("sealed");
        assert_eq!(packet, before);
        error
    };
    let short = plain(0, b"")[..SEALED_BYTES_MIN - 1].to_vec();
    assert_eq!(refused(&mut sender, 0, short), SealError::Malformed);
    assert_eq!(refused(&mut sender, 0, Vec::new()), SealError::Malformed);
    let mut of_version_2 = plain(0, b"");
    of_version_2[0] = 2 << 5 | 16;
    assert_eq!(refused(&mut sender, 0, of_version_2), SealError::Malformed);
    for flag in [Flags::SEALED, Flags::CHECKED] {
        let mut packet = plain(0, b"1234");
        packet[FLAGS_AT] |= flag;
        assert_eq!(refused(&mut sender, 0, packet), SealError::Flags);
    }
    assert_eq!(refused(&mut sender, 1, plain(0, b"")), SealError::Mismatch);
    assert_eq!(refused(&mut sender, 32, plain(32, b"")), SealError::Gap);
    assert_eq!(refused(&mut sender, NUMBER_END, plain(NUMBER_END, b"")), SealError::Gap);
    // Nothing of this has used a number.
    assert_eq!(sender.next(), 0);
    sealed(&mut sender, 31, b"");
    assert_eq!(sender.epoch(), 1);
}

#[test]
fn the_epochs_before_of_and_after_the_newest_are_live() {
    let (mut sender, mut receiver) = ends(Suite::ChaCha20Poly1305, 0, SMALL);
    let packets: Vec<Vec<u8>> = (0..80).map(|n| sealed(&mut sender, n, b"p")).collect();
    let mut opens = |number: usize| open(&mut receiver, &packets[number]).map(|(n, _)| n);
    // Epochs have 16 numbers. At first 0 and 1 are live.
    assert_eq!(opens(32), Err(OpenError::Epoch));
    assert_eq!(opens(16), Ok(16));
    assert_eq!(opens(15), Ok(15), "one that was overtaken, of the epoch before");
    assert_eq!(opens(0), Ok(0));
    assert_eq!(opens(48), Err(OpenError::Epoch));
    assert_eq!(opens(47), Ok(47));
    assert_eq!(opens(31), Ok(31));
    assert_eq!(opens(15), Err(OpenError::Epoch), "two epochs old: its key is erased");
    assert_eq!(opens(64), Err(OpenError::Epoch));
    assert_eq!(opens(63), Ok(63));
    assert_eq!(opens(79), Ok(79));
    assert_eq!(opens(47), Err(OpenError::Epoch));
    assert_eq!(receiver.failed(), 0, "refused before any seal was tried");
}

#[test]
fn replays_are_authentic_and_forged_numbers_do_not_move_the_window() {
    let (mut sender, mut receiver) = ends(Suite::Aes256Gcm, 7, SMALL);
    let packet = sealed(&mut sender, 7, b"once");
    // The crate says that the packet is authentic; the core's replay window says that it is old.
    assert_eq!(open(&mut receiver, &packet).unwrap().0, 7);
    assert_eq!(open(&mut receiver, &packet).unwrap().0, 7);
    for number in [8, 20, 7 + 16, 7 + 31] {
        let mut forged = packet.clone();
        forged[NUMBER_AT..NUMBER_AT + 4].copy_from_slice(&(number as u32).to_be_bytes());
        forged[FLAGS_AT] &= !Flags::KEY_PHASE;
        forged[FLAGS_AT] |= seal_flags((number - 7) >> 4);
        assert_eq!(open(&mut receiver, &forged), Err(OpenError::Seal), "{number}");
    }
    assert_eq!((receiver.newest(), receiver.epoch(), receiver.failed()), (7, 0, 4));
}

#[test]
fn too_many_failures_end_the_context() {
    let limits = Limits { failed_opens_max: 3, ..SMALL };
    let (mut sender, mut receiver) = ends(Suite::Aes256Gcm, 0, limits);
    let good = sealed(&mut sender, 0, b"good");
    let mut bad = good.clone();
    bad[30] ^= 1;
    for _ in 0..2 {
        assert_eq!(open(&mut receiver, &bad), Err(OpenError::Seal));
    }
    assert!(open(&mut receiver, &good).is_ok());
    assert_eq!(open(&mut receiver, &bad), Err(OpenError::Seal));
    assert!(receiver.exhausted());
    assert_eq!(open(&mut receiver, &good), Err(OpenError::Exhausted));
    assert_eq!(receiver.failed(), 3);
}

#[test]
fn a_context_that_rested_goes_on() {
    let (mut sender, mut receiver) = ends(Suite::Aes256Gcm, 0, SMALL);
    let old = sealed(&mut sender, 3, b"epoch 0");
    for number in [16, 17, 40] {
        let packet = sealed(&mut sender, number, b"p");
        assert!(open(&mut receiver, &packet).is_ok());
        sender.rest();
        receiver.rest();
        assert!(open(&mut receiver, &packet).is_ok(), "{number}");
    }
    assert_eq!(open(&mut receiver, &old), Err(OpenError::Epoch));
}

#[test]
fn the_key_of_an_epoch_does_not_give_the_one_before() {
    // What is kept after the change is neither the old secret nor equal to what it was.
    let (mut sender, _) = ends(Suite::Aes256Gcm, 0, SMALL);
    sealed(&mut sender, 0, b"");
    let before = *sender.secret.bytes();
    sealed(&mut sender, 16, b"");
    assert_ne!(*sender.secret.bytes(), before);
    assert_eq!(*sender.secret.bytes(), *ratchet(&Secret::take(&mut before.clone())).bytes());
}

#[test]
fn packets_of_any_length_and_order() {
    for seed in 0..20u64 {
        let mut state = seed;
        let mut draw = |below: u64| {
            state =
                state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (state >> 33) % below
        };
        let start = draw(1 << 31);
        let (mut sender, mut receiver) = ends(Suite::ALL[(seed % 2) as usize], start, SMALL);
        let mut waiting: Vec<(u64, Vec<u8>, Vec<u8>)> = Vec::new();
        let mut number = start;
        for _ in 0..400 {
            let payload = vec![draw(256) as u8; draw(1500) as usize];
            let packet = sealed(&mut sender, number, &payload);
            waiting.push((number, plain(number, &payload), packet));
            number += 1 + draw(3);
            // Any of them comes next, but none is overtaken by 13 numbers or more, which is less
            // than an epoch.
            while waiting.len() > 4 || (!waiting.is_empty() && draw(3) == 0) {
                let oldest = (0..waiting.len()).min_by_key(|&at| waiting[at].0).expect("not empty");
                let hurry = waiting[oldest].0 + 12 < number;
                let at = if hurry { oldest } else { draw(waiting.len() as u64) as usize };
                let (number, before, packet) = waiting.swap_remove(at);
                let (found, bytes) = open(&mut receiver, &packet)
                    .unwrap_or_else(|error| panic!("seed {seed}, number {number}: {error}"));
                assert_eq!((found, &bytes[..]), (number, &before[..before.len() - 16]));
            }
        }
        assert!(receiver.epoch() > 20, "seed {seed}");
    }
}
