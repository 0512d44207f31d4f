//! Whatever arrives at a sealed engine: handshake packets and sealed packets are taken only if the
//! peer made exactly them, and nothing panics. The first byte picks what is done with the rest: raw
//! bytes, or a true packet with bytes exchanged, cut or added.
#![no_main]

use libfuzzer_sys::fuzz_target;
use srd_seal::*;
use srd_wire::{AckBlock, HEADER_BYTES, parse};
use std::net::{IpAddr, Ipv4Addr};

const LIMITS: Limits = Limits { epoch_bits: 4, failed_opens_max: 1 << 36 };
const PARAMS: [u8; PARAMS_BYTES] = [0x33; PARAMS_BYTES];

fn ephemeral(byte: u8) -> Ephemeral {
    Ephemeral::take(&mut [byte; SECRET_BYTES])
}

/// The true packet, as the input changes it: pairs of place and mask, then a length.
fn changed(packet: &[u8], input: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let (pairs, rest) = input.as_chunks::<3>();
    for [high, low, mask] in pairs {
        let at = usize::from(u16::from_be_bytes([*high, *low]));
        let end = packet.len();
        packet[at % end] ^= mask;
    }
    match rest {
        [cut, ..] if cut & 1 == 0 => {
            packet.truncate(packet.len().saturating_sub(usize::from(cut / 2)));
        }
        [add, ..] => packet.extend((0..add / 2).map(|_| add & 2)),
        [] => {}
    }
    packet
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, input)) = bytes.split_first() else { return };
    let _ = KeyRing::parse(input);

    let ring = KeyRing::parse(format!("9 {}01", "5a".repeat(31)).as_bytes()).expect("a good ring");
    let end = |host| End { ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)), port: 18_700 };
    let ends = Ends { initiator: end(1), responder: end(2) };
    let offer = Offer { suites: Suites::default(), params: &PARAMS };
    let mut initiator =
        Initiator::new(ring.sending(), &ends, LIMITS, 77, &offer, ephemeral(1)).expect("good");
    let mut open = [0; 176];
    initiator.write(&[0; HEADER_BYTES], &mut open).expect("room");
    let greeting = Greeting::read(&open, &ends, LIMITS, &ring).expect("true");
    let mut challenge = [0; SEALED_CHALLENGE_BYTES];
    let proposal = greeting.propose().expect("true");
    proposal.challenge_write(1, &[0; HEADER_BYTES], &mut challenge).expect("room");
    let mut half = proposal.answer(&offer, ephemeral(2)).expect("true");
    let mut ack = [0; 160];
    half.write(&[0; HEADER_BYTES], &mut ack).expect("room");

    let pick = |packet: &[u8], kind| {
        if choice & 7 == kind { changed(packet, input) } else { input.to_vec() }
    };
    let arrived = pick(&open, 1);
    match Greeting::read(&arrived, &ends, LIMITS, &ring) {
        Ok(greeting) => {
            assert_eq!(arrived[..], open[..]);
            assert!(half.answers(&greeting));
        }
        Err(_) => assert_ne!(arrived[..], open[..]),
    }
    let arrived = pick(&challenge, 2);
    assert_eq!(initiator.challenged(&arrived).is_ok(), arrived == challenge);
    let arrived = pick(&ack, 3);
    assert_eq!(initiator.finish(&arrived).is_ok(), arrived == ack);

    let mut session = half.keys_take().expect("new").session(3, 3).expect("small");
    let mut slots = KeySlots::new(1);
    let Ok((keys, _)) = initiator.finish(&ack) else { return };
    slots.insert(7, keys.session(3, 3).expect("small")).expect("room");
    // One packet, whatever the input: the keys are always the same, so the fuzzer would find the
    // packets of other inputs, which are as authentic. It is of the second epoch.
    let number = 19;
    let mut packet = vec![0; HEADER_BYTES + 8 + 16];
    (packet[0], packet[7], packet[11]) = (0x28, 7, number as u8);
    session.sender.seal(number, &mut packet).expect("in order");
    let mut arrived = pick(&packet, 4);
    let before = arrived.clone();
    match slots.open(&mut arrived) {
        Ok(found) => {
            assert_eq!(before, packet);
            let bytes = &arrived[found.opened.packet];
            assert!(parse(bytes, &mut AckBlock::default()).is_ok());
        }
        Err(_) => assert_ne!(before, packet),
    }
});
