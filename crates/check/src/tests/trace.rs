//! Captures that other programs can read.

use crate::packet::{Content, Datagram, Owner, endpoint_of, ip_of};
use crate::trace::Trace;
use srd_core::config::PORT_BASE_DEFAULT;

fn datagram(head: &[u8], tail_len: u16, offset: Option<u64>) -> Datagram {
    let content = |offset| Content { owner: Owner::Request(1), offset, len: tail_len };
    Datagram {
        head: head.to_vec(),
        tail_len,
        content: offset.map(content),
        request: None,
        forged: false,
        src: ip_of(0),
        dst: endpoint_of(1, 3),
        sport: 49_999,
    }
}

/// The packet's bytes, from its IP header on.
fn packet(d: &Datagram) -> Vec<u8> {
    let mut t = Trace::default();
    t.packet(7, d);
    let [(at, bytes)] = &t.packets[..] else { panic!("one packet") };
    assert_eq!(*at, 7);
    bytes.clone()
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[test]
fn headers_are_those_of_udp_over_ipv4() {
    let p = packet(&datagram(&[1, 2, 3, 4], 6, Some(0xFE)));
    assert_eq!(p.len(), 20 + 8 + 4 + 6);
    assert_eq!((p[0], p[8], p[9]), (0x45, 64, 17));
    assert_eq!(be16(&p, 2) as usize, p.len());
    assert_eq!((&p[12..16], &p[16..20]), (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..]));
    assert_eq!((be16(&p, 20), be16(&p, 22)), (49_999, PORT_BASE_DEFAULT + 3));
    assert_eq!(be16(&p, 24), 8 + 4 + 6);
    // The one's complement sum of a header with its checksum is all ones.
    let sum: u32 = p[..20].chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(c[1])).sum();
    assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF);
}

#[test]
fn payload_bytes_are_the_low_bytes_of_their_offsets() {
    let p = packet(&datagram(&[9], 4, Some(0xFE)));
    assert_eq!(p[28..], [9, 0xFE, 0xFF, 0x00, 0x01]);
    let p = packet(&datagram(&[9], 4, None));
    assert_eq!(p[28..], [9, 0, 0, 0, 0], "padding is zeros");
    let p = packet(&datagram(&[9, 8], 0, Some(5)));
    assert_eq!(p[28..], [9, 8]);
}

#[test]
fn blocks_are_whole_words_and_times_are_nanoseconds() {
    let mut t = Trace::default();
    for tail in 0..5 {
        t.packet(5_000_000_000_000 + u64::from(tail) * 1_000, &datagram(&[1], tail, None));
    }
    let bytes = t.pcapng();
    assert!(bytes.len().is_multiple_of(4));
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut at = word(4) as usize;
    at += word(at + 4) as usize;
    let first = 5_000_000_000_u64;
    for k in 0..5_u32 {
        let len = word(at + 4) as usize;
        let ns = u64::from(word(at + 12)) << 32 | u64::from(word(at + 16));
        assert_eq!(ns, first + u64::from(k), "packet {k}");
        assert_eq!((word(at + 20), word(at + 24)), (29 + k, 29 + k), "captured and original");
        assert_eq!(word(at + len - 4) as usize, len);
        at += len;
    }
    assert_eq!(at, bytes.len());
}

#[test]
fn lines_have_the_time_in_microseconds() {
    let mut t = Trace::default();
    t.line(0, "start".into());
    t.line(12_345_678_901, "later".into());
    assert_eq!(t.lines[0].trim_start(), "0.000 us  start");
    assert_eq!(t.lines[1].trim_start(), "12345.679 us  later");
    assert_eq!(t.lines[0].len(), t.lines[1].len(), "in columns");
}
