use super::*;
use crate::scenario::stream;
use srd_core::wire::{Flags, Header, Message, PacketType};
use std::collections::BTreeSet;

/// A well-formed packet with an acknowledgment and a payload.
fn packet(body: Body, payload: u16) -> Vec<u8> {
    let header = Header {
        flags: Flags(Flags::CHECKED),
        path: 3,
        tx_num: 900,
        timestamp: 55,
        psn: 800,
        ..crate::tests::header(&body)
    };
    let mut ack = AckBlock { cum: 500, base: 500, ..AckBlock::default() };
    ack.words.push(5);
    let packet = Packet { header, ack: Some(&ack), body, payload_len: payload };
    let mut bytes = vec![0; packet.headers_len()];
    wire::emit(&packet, &mut bytes);
    bytes.resize(bytes.len() + usize::from(payload), 7);
    wire::stamp(&mut bytes);
    bytes
}

fn bodies() -> [Body; 3] {
    let msg = Message { src_qpn: 1, dst_qpn: 2, qkey: 3, msg_id: 4 };
    [Body::Ack, Body::Send(msg), Body::Cancel { msg_id: 77 }]
}

#[test]
fn what_is_changed_stays_well_formed_and_keeps_its_kind_and_payload() {
    for body in bodies() {
        let payload = if body.may_have_payload() { 40 } else { 0 };
        let honest = packet(body, payload);
        for seed in 0..400 {
            let mut bytes = honest.clone();
            mutate(&mut Draw::new(seed, stream::HOSTILE, 9), &mut bytes);
            let mut ack = AckBlock::default();
            let (p, start) = wire::parse_checked(&bytes, &mut ack).expect("well-formed");
            assert_eq!((p.header.kind, p.payload_len), (body.kind(), payload), "seed {seed}");
            assert!(bytes[start..].iter().all(|&b| b == 7), "seed {seed}: its own payload");
        }
    }
}

#[test]
fn each_field_is_changed_now_and_then() {
    let honest = packet(bodies()[0], 0);
    let mut before = AckBlock::default();
    let (p, _) = wire::parse(&honest, &mut before).unwrap();
    let was = p.header;
    let mut changed = BTreeSet::new();
    for seed in 0..400 {
        let mut bytes = honest.clone();
        mutate(&mut Draw::new(seed, stream::HOSTILE, 9), &mut bytes);
        let mut ack = AckBlock::default();
        let (p, _) = wire::parse(&bytes, &mut ack).unwrap();
        let h = p.header;
        for (name, differs) in [
            ("psn", h.psn != was.psn),
            ("una", h.una_delta != was.una_delta),
            ("tx_num", h.tx_num != was.tx_num),
            ("timestamp", h.timestamp != was.timestamp),
            ("path", h.path != was.path),
            ("echo", h.ack_echo != was.ack_echo),
            ("cum", ack.cum != before.cum),
            ("words", ack.words != before.words),
            ("verdicts", ack.verdicts.len() != before.verdicts.len()),
            ("budget", ack.rx_budget != before.rx_budget),
            ("credit", ack.credit != before.credit),
        ] {
            if differs {
                changed.insert(name);
            }
        }
    }
    assert_eq!(changed.len(), 11, "only these: {changed:?}");
}

#[test]
fn what_is_no_packet_is_left_as_it_is() {
    for garbage in [vec![], vec![0xff; 9], vec![PacketType::Send as u8; 30]] {
        let mut bytes = garbage.clone();
        mutate(&mut Draw::new(1, stream::HOSTILE, 9), &mut bytes);
        assert_eq!(bytes, garbage);
    }
}
