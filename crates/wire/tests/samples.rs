//! Every packet type, whole, truncated and damaged.

mod common;

use common::{emitted, samples, without_checksum};
use srd_wire::{ACK_BYTES_MAX, AckBlock, Flags, PacketType, ParseError, parse, parse_checked};

#[test]
fn every_type_has_a_sample() {
    let kinds: Vec<PacketType> = samples().iter().map(|s| s.body.kind()).collect();
    for kind in PacketType::ALL {
        assert!(kinds.contains(kind), "{kind:?}");
    }
}

#[test]
fn what_is_emitted_is_parsed_back() {
    for sample in samples() {
        let bytes = sample.bytes();
        let mut ack = common::ack_block();
        let (packet, payload_at) = parse_checked(&bytes, &mut ack).expect(sample.name);
        assert_eq!(packet, sample.packet(), "{}", sample.name);
        assert_eq!(parse(&bytes, &mut common::ack_block()), Ok((packet, payload_at)));
        assert_eq!(&bytes[payload_at..], sample.tail, "{}", sample.name);
    }
}

#[test]
fn the_block_is_cleared_when_there_is_none() {
    for sample in samples().iter().filter(|s| s.ack.is_none()) {
        let mut ack = common::ack_block();
        parse(&sample.bytes(), &mut ack).expect(sample.name);
        assert_eq!(ack, AckBlock::default(), "{}", sample.name);
    }
}

#[test]
fn every_truncation_of_headers_is_refused() {
    for sample in samples() {
        let bytes = sample.bytes();
        for len in 0..sample.packet().headers_len() {
            let mut ack = AckBlock::default();
            let result = parse(&bytes[..len], &mut ack);
            assert_eq!(result, Err(ParseError::Truncated), "{} cut to {len}", sample.name);
        }
    }
}

/// Any value of any byte gives an error or a packet that encodes to the same bytes.
#[test]
fn every_damaged_byte_is_refused_or_canonical() {
    for sample in samples() {
        let mut bytes = sample.bytes();
        for at in 0..bytes.len() {
            let good = bytes[at];
            for value in 0..=u8::MAX {
                bytes[at] = value;
                let mut ack = AckBlock::default();
                if let Ok((packet, payload_at)) = parse(&bytes, &mut ack) {
                    let headers = without_checksum(&packet, &bytes[..payload_at]);
                    assert_eq!(emitted(&packet), headers, "{} at {at}", sample.name);
                }
            }
            bytes[at] = good;
        }
    }
}

/// The same for packets with a checksum, where only changes of the byte that announces the checksum
/// may pass.
#[test]
fn no_damaged_byte_passes_the_checksum() {
    for sample in samples().iter().filter(|s| s.header.flags.has(Flags::CHECKED)) {
        let mut bytes = sample.bytes();
        for at in (0..bytes.len()).filter(|&at| at > 1) {
            let good = bytes[at];
            for value in (0..=u8::MAX).filter(|&value| value != good) {
                bytes[at] = value;
                let mut ack = AckBlock::default();
                let result = parse_checked(&bytes, &mut ack);
                assert_eq!(result, Err(ParseError::Checksum), "{} at {at}", sample.name);
            }
            bytes[at] = good;
        }
    }
}

#[test]
fn lengths_are_what_is_written() {
    for sample in samples() {
        let block = sample.ack.as_ref().map_or(0, AckBlock::encoded_len);
        let packet = sample.packet();
        assert_eq!(
            packet.headers_len(),
            packet.header.encoded_len() + block + packet.body.encoded_len()
        );
        assert!(block <= ACK_BYTES_MAX);
    }
}
