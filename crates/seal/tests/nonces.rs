//! No key seals two packets with one nonce: ever, in any order of events.
//!
//! Seen from outside: every packet here seals the same zeros, so its ciphertext is the key stream,
//! which a pair of key and nonce determines. Two equal ones are one pair used twice (by chance
//! alone, once in 2^128).

mod common;

use common::*;
use srd_seal::*;
use std::collections::BTreeSet;

const ZEROS: [u8; 16] = [0; 16];

/// Seals zeros under `number`, and remembers the key stream. Whether it was sealed.
fn seal(sender: &mut Sender, number: u64, seen: &mut BTreeSet<[u8; 16]>, seed: u64) -> bool {
    let mut packet = plain(1, number, &ZEROS);
    if sender.seal(number, &mut packet).is_err() {
        return false;
    }
    let stream = packet[24..40].try_into().expect("16 bytes");
    assert_ne!(stream, ZEROS, "not encrypted");
    assert!(seen.insert(stream), "seed {seed}: a nonce was used twice, number {number}");
    true
}

/// Two engines through lives, handshakes, simultaneous opens, copied answers, rests, and callers
/// who repeat, go back and leap; one set over all of it.
#[test]
fn no_pair_of_key_and_nonce_ever_repeats() {
    for seed in 0..12 {
        let mut draw = Draw(seed);
        let mut seen = BTreeSet::new();
        let rings = [ring(KEY_A), ring(&format!("{KEY_B}\n{KEY_A}"))];
        let (mut sealed, mut refused) = (0, 0);
        for _life in 0..12 {
            // The same addresses, tags and first numbers in each life, on purpose.
            let from = draw.below(2) as usize;
            let ring_i = &rings[from];
            let both = ring(&format!("{KEY_A}\n{KEY_B}"));
            let mut initiator = initiator(ring_i, &ends(), 77, &mut draw);
            let open = open_packet(&initiator, SEALED_OPEN_BYTES);
            // The SealedOpen arrives twice; a responder that restarted in between answers anew.
            let mut halves: Vec<HalfOpen> = (0..1 + draw.below(2))
                .map(|_| answer(&open, &ends(), &both, &mut draw).expect("authentic"))
                .collect();
            let answered = draw.below(halves.len() as u64) as usize;
            let ack = ack_packet(&halves[answered], SEALED_OPEN_ACK_BYTES);
            let (keys, _) = initiator.finish(&ack).expect("authentic");
            assert!(initiator.finish(&ack).is_err());
            let mut sessions = vec![keys.session(5, 5).expect("small")];
            for half in &mut halves {
                let keys = half.keys_take().expect("new");
                assert!(half.keys_take().is_none());
                sessions.push(keys.session(5, 5).expect("small"));
            }
            for session in &mut sessions {
                let mut number = 5;
                for _ in 0..200 {
                    let ok = seal(&mut session.sender, number, &mut seen, seed);
                    if ok {
                        sealed += 1
                    } else {
                        refused += 1
                    }
                    number = match draw.below(12) {
                        0 => number,                                // The same again.
                        1 => number.saturating_sub(draw.below(40)), // Back.
                        2 => number + draw.below(30),
                        3 => number + 32 + draw.below(1 << 33), // Over a whole epoch.
                        4 => number.wrapping_add(1 << 32),      // The same low half.
                        5 => {
                            session.rest();
                            session.sender.next()
                        }
                        _ => session.sender.next(),
                    };
                }
            }
        }
        assert_eq!(seen.len(), sealed);
        assert!(sealed > 2000 && refused > 500, "seed {seed}: {sealed} sealed, {refused} refused");
    }
}

/// What is not sealed uses no number up, and what is uses up all below.
#[test]
fn the_counter_only_rises() {
    let mut draw = Draw(99);
    let (mut at_i, _) = sessions(&mut draw, 1000, 0);
    let mut lowest = 1000;
    for step in 0..5000 {
        let number = (lowest + draw.below(60)).saturating_sub(30);
        let follows = number >= lowest && (number - 1000) / 16 <= at_i.sender.epoch() + 1;
        let sealed = at_i.sender.seal(number, &mut plain(1, number, b"")).is_ok();
        assert_eq!(sealed, follows, "step {step}");
        if sealed {
            lowest = number + 1;
        }
        assert_eq!(at_i.sender.next(), lowest);
    }
    assert!(lowest > 20_000);
}
