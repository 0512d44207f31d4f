//! What only a member that lies can send: keyed hash and seal are right, the content is not.

use super::*;
use core::net::Ipv4Addr;

const PARAMS: [u8; PARAMS_BYTES] = [0x44; PARAMS_BYTES];

fn key() -> Key {
    let mut bytes = [0x3c; 32];
    bytes[0] = 1;
    Key::take(5, &mut bytes)
}

fn ephemeral(byte: u8) -> Ephemeral {
    Ephemeral::take(&mut [byte; 32])
}

fn ends() -> Ends {
    let end = |host| End { ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)), port: 18_700 };
    Ends { initiator: end(1), responder: end(2) }
}

/// The initiator of a handshake that accepts one cipher, and its SealedOpen.
fn begun(suite: Suite) -> (Initiator, [u8; SEALED_OPEN_BYTES]) {
    let suites = Suites::new(&[suite]).expect("a list of one");
    let offer = Offer { suites, params: &PARAMS };
    let limits = Limits::default();
    let initiator =
        Initiator::new(&key(), &ends(), limits, 9, &offer, ephemeral(1)).expect("a good tag");
    let mut packet = [0; SEALED_OPEN_BYTES];
    initiator.write(&[0; HEADER_BYTES], &mut packet).expect("room");
    (initiator, packet)
}

/// The SealedOpenAck of a responder that puts this in place of its choice.
fn ack_with(open: &[u8], choice: [u8; SUITES_BYTES]) -> [u8; SEALED_OPEN_ACK_BYTES] {
    let key = key();
    let prologue = prologue(&ends(), &Limits::default(), 5, 9);
    let message = &open[OPEN_MESSAGE_AT..COOKIE_AT];
    let received = Received::new(key.psk(), &prologue, message, &mut [0; PAYLOAD_BYTES]);
    let offer = Offer { suites: Suites::default(), params: &PARAMS };
    let mut answer = [0; MESSAGE_BYTES];
    let payload = offer.payload(choice);
    received.and_then(|r| r.answer(ephemeral(2), &payload, &mut answer)).expect("authentic");
    let half = HalfOpen {
        share: *message.first_chunk().expect("long enough"),
        tag: 9,
        prologue,
        mac_key: key.mac_key().duplicate(),
        message: answer,
        keys: None,
    };
    let mut packet = [0; SEALED_OPEN_ACK_BYTES];
    half.write(&[0; HEADER_BYTES], &mut packet).expect("room");
    packet
}

#[test]
fn a_cipher_that_was_not_offered_is_refused() {
    for (offered, choice) in [
        (Suite::Aes256Gcm, [2, 0, 0, 0]),
        (Suite::ChaCha20Poly1305, [1, 0, 0, 0]),
        (Suite::Aes256Gcm, [0, 0, 0, 0]),
        (Suite::Aes256Gcm, [3, 0, 0, 0]),
        (Suite::Aes256Gcm, [1, 1, 0, 0]),
        (Suite::Aes256Gcm, [1, 0, 0, 2]),
        (Suite::Aes256Gcm, [0, 1, 0, 0]),
    ] {
        let (mut initiator, open) = begun(offered);
        let refused = initiator.finish(&ack_with(&open, choice)).err();
        assert_eq!(refused, Some(Refusal::Suite), "{choice:?}");
        // And a good answer may follow.
        let good = [offered as u8, 0, 0, 0];
        assert!(initiator.finish(&ack_with(&open, good)).is_ok());
    }
}

#[test]
fn the_list_of_a_machine_has_all_ciphers() {
    for list in [Suites::default(), Suites::of_this_machine()] {
        assert!(Suite::ALL.iter().all(|&suite| list.contains(suite)));
    }
}

#[test]
fn numbers_of_later_versions_are_passed_over() {
    let all = Suites::default();
    assert_eq!(all.choose([9, 200, 2, 1]), Some(Suite::ChaCha20Poly1305));
    assert_eq!(all.choose([0, 0, 0, 1]), Some(Suite::Aes256Gcm));
    assert_eq!(all.choose([9, 0, 3, 0]), None);
}

#[test]
fn a_seal_of_another_key_under_a_right_hash_is_refused() {
    // Who has the key of the hashes but not the other secret; no real member is like that.
    let (_, mut open) = begun(Suite::Aes256Gcm);
    open[OPEN_MESSAGE_AT + 40] ^= 1;
    let prologue = prologue(&ends(), &Limits::default(), 5, 9);
    let mac = packet_mac(key().mac_key(), &prologue, &[], &open, OPEN_MAC_AT);
    open[OPEN_MAC_AT..OPEN_MAC_AT + MAC_BYTES].copy_from_slice(&mac);
    let text = format!("5 01{}", "3c".repeat(31));
    let ring = KeyRing::parse(text.as_bytes()).expect("the same key");
    let greeting = Greeting::read(&open, &ends(), Limits::default(), &ring).expect("the hash fits");
    assert_eq!(greeting.propose().err(), Some(Refusal::Seal));
}
