//! Whatever arrives: `parse` does not panic, and what it accepts gives the same headers when it is
//! emitted again, into exactly the room that they say they need. A checksum that passes is the one
//! that a sender writes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use srd_wire::{
    AckBlock, Body, Flags, HEADER_BYTES, HEADERS_BYTES_MAX, emit, parse, parse_checked, stamp,
    verify,
};

fuzz_target!(|bytes: &[u8]| {
    let mut ack = AckBlock::default();
    let sound = verify(bytes);
    let Ok((packet, payload_at)) = parse(bytes, &mut ack) else { return };

    let (headers, tail) = bytes.split_at(payload_at);
    assert_eq!(packet.headers_len(), payload_at);
    let mut room = [0xa5; HEADERS_BYTES_MAX];
    let emitted = emit(&packet, &mut room[..payload_at]);
    let mut zeroed = headers.to_vec();
    zeroed[HEADER_BYTES..packet.header.encoded_len()].fill(0);
    assert_eq!(&room[..emitted], zeroed, "emitted differs from what was parsed");

    let mut stamped = zeroed;
    stamped.extend_from_slice(tail);
    stamp(&mut stamped);
    let checked = packet.header.flags.has(Flags::CHECKED);
    assert!(checked || sound.is_ok());
    assert_eq!(stamped == bytes, sound.is_ok(), "one checksum for one datagram");
    let parsed = parse_checked(bytes, &mut AckBlock::default()).map(|(_, at)| at);
    assert_eq!(parsed, sound.map(|()| payload_at));

    let proves = matches!(packet.body, Body::Open(_) | Body::OpenAck(_));
    if packet.body.may_have_payload() || proves {
        assert_eq!(usize::from(packet.payload_len), tail.len());
    } else {
        assert_eq!(packet.payload_len, 0);
    }
    if !packet.body.may_have_payload() {
        assert!(tail.iter().all(|&byte| byte == 0), "bytes that mean nothing");
    }

    // A second reading, into a block that is not empty, gives the same.
    let mut used = packet.ack.cloned().unwrap_or_default();
    assert_eq!(parse(bytes, &mut used), Ok((packet, payload_at)));
});
