//! The vectors of docs/sealing.md. They were computed by a program of its own, from the Noise
//! specification and the RFCs alone, so they hold the formats and not just this implementation.

mod common;

use common::*;
use srd_seal::*;

const TAG_I: u32 = 0x5eed_0001;
const START: u64 = 0x7abc_def0;

fn ephemeral(byte: u8, last: u8) -> Ephemeral {
    let mut bytes = [byte; 32];
    bytes[31] = last;
    Ephemeral::take(&mut bytes)
}

fn header() -> [u8; 24] {
    // What is ignored (type, flags, tag) is wrong here.
    let mut header = [0; 24];
    header.copy_from_slice(&document_vector("sealed-open")[..24]);
    (header[0], header[1], header[5]) = (0xff, 0x0b, 0x77);
    header
}

#[test]
fn questions_after_a_context() {
    let (ring, limits) = (ring(KEY_A), Limits::default());
    let back = Ends { initiator: ends().responder, responder: ends().initiator };
    for (name, kind, ends, code) in
        [("context-query", CONTEXT_QUERY, ends(), 0), ("context-gone", CONTEXT_GONE, back, 1)]
    {
        let (echo_tag, nonce) = (0xd57a_6001, 0x0d0b_7ed0_0d0b_7ed0);
        let query = Query { kind, key_id: 7, echo_tag, nonce, code };
        let packet = query.write(ring.sending(), &ends, &limits, &header());
        assert_eq!(packet[..], document_vector(name), "{name}");
        assert_eq!(Query::read(&packet, &ends, &limits, &ring), Ok(query));
        let other = Ends { initiator: ends.responder, responder: ends.initiator };
        assert_eq!(Query::read(&packet, &other, &limits, &ring), Err(Refusal::Mac));
        for bit in 0..packet.len() * 8 {
            let mut damaged = packet;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Query::read(&damaged, &ends, &limits, &ring).is_err(), "{name}, bit {bit}");
        }
        assert!(Query::read(&packet[..63], &ends, &limits, &ring).is_err());
    }
}

#[test]
fn the_whole_exchange() {
    let ring = ring(KEY_A);
    let limits = Limits::default();
    let params = document_vector("params-initiator").try_into().expect("52 bytes");
    let offer_i = Offer { suites: Suites::default(), params: &params };
    let mut initiator =
        Initiator::new(ring.sending(), &ends(), limits, TAG_I, &offer_i, ephemeral(0x11, 0x51))
            .unwrap();
    let mut open = vec![0; 168];
    initiator.write(&header(), &mut open).unwrap();
    assert_eq!(open, document_vector("sealed-open"));

    let greeting = Greeting::read(&open, &ends(), limits, &ring).unwrap();
    assert_eq!((greeting.tag(), greeting.key_id(), greeting.cookie()), (TAG_I, 7, 0));
    let proposal = greeting.propose().unwrap();
    assert_eq!(*proposal.params(), params);
    let params = document_vector("params-responder").try_into().expect("52 bytes");
    let offer_r = Offer { suites: Suites::default(), params: &params };
    let mut half = proposal.answer(&offer_r, ephemeral(0x22, 0x52)).unwrap();
    let mut ack = vec![0; SEALED_OPEN_ACK_BYTES];
    half.write(&header(), &mut ack).unwrap();
    assert_eq!(ack, document_vector("sealed-open-ack"));

    initiator.challenged(&document_vector("sealed-challenge")).unwrap();
    initiator.write(&header(), &mut open).unwrap();
    let greeting = Greeting::read(&open, &ends(), limits, &ring).unwrap();
    assert_eq!(greeting.cookie(), 0x0c00_c1e0_0c00_c1e0);

    let (keys, found) = initiator.finish(&ack).unwrap();
    assert_eq!(found, params);
    let keys_r = half.keys_take().unwrap();
    assert_eq!(keys.hash()[..], document_vector("handshake-hash"));
    assert_eq!(keys.hash(), keys_r.hash());

    let mut at_i = keys.session(START, START).unwrap();
    let mut at_r = keys_r.session(START, START).unwrap();
    for (name, number) in [("send", START), ("send-next-epoch", START + (1 << 22))] {
        let plain = document_vector(&format!("{name}-plain"));
        let mut packet = [&plain[..], &[0; 16]].concat();
        at_i.sender.seal(number, &mut packet).unwrap();
        assert_eq!(packet, document_vector(&format!("{name}-sealed")), "{name}");
        let opened = at_r.receiver.open(&mut packet).unwrap();
        assert_eq!(opened.number, number);
        assert_eq!(packet[opened.packet], plain);
    }
}

#[test]
fn chacha_from_the_responder() {
    let ring = ring(KEY_A);
    let suites = Suites::new(&[Suite::ChaCha20Poly1305]).unwrap();
    // The list of suites goes into the hash of the handshake, but not into the keys.
    let params = document_vector("params-initiator").try_into().expect("52 bytes");
    let offer = Offer { suites, params: &params };
    let limits = Limits::default();
    let mut initiator =
        Initiator::new(ring.sending(), &ends(), limits, TAG_I, &offer, ephemeral(0x11, 0x51))
            .unwrap();
    let mut open = vec![0; 168];
    initiator.write(&header(), &mut open).unwrap();
    let greeting = Greeting::read(&open, &ends(), limits, &ring).unwrap();
    let mut half = greeting.propose().unwrap().answer(&offer, ephemeral(0x22, 0x52)).unwrap();
    let mut ack = vec![0; SEALED_OPEN_ACK_BYTES];
    half.write(&header(), &mut ack).unwrap();
    let (keys, _) = initiator.finish(&ack).unwrap();
    assert_eq!(keys.suite(), Suite::ChaCha20Poly1305);
    let mut at_r = half.keys_take().unwrap().session(START, START).unwrap();
    let plain = document_vector("close-plain");
    let mut packet = [&plain[..], &[0; 16]].concat();
    at_r.sender.seal(START, &mut packet).unwrap();
    assert_eq!(packet, document_vector("close-sealed"));
    let mut at_i = keys.session(START, START).unwrap();
    let opened = at_i.receiver.open(&mut packet).unwrap();
    assert_eq!(packet[opened.packet], plain);
}
