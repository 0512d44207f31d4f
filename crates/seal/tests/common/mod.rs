//! What the tests of this crate share.
#![allow(dead_code, reason = "each test file uses a part of it")]

use srd_seal::*;
use srd_wire::HEADER_BYTES;
use std::net::{IpAddr, Ipv4Addr};

/// Random numbers from a seed (SplitMix64).
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }

    pub fn ephemeral(&mut self) -> Ephemeral {
        Ephemeral::take(&mut self.bytes())
    }
}

/// Small epochs.
pub const LIMITS: Limits = Limits { epoch_bits: 4, failed_opens_max: 1 << 36 };

pub fn end(host: u8, port: u16) -> End {
    End { ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)), port }
}

pub fn ends() -> Ends {
    Ends { initiator: end(1, 18_742), responder: end(2, 18_703) }
}

pub fn ring(text: &str) -> KeyRing {
    KeyRing::parse(text.as_bytes()).expect("a good key file")
}

pub const KEY_A: &str = "7 01080f161d242b323940474e555c636a71787f868d949ba2a9b0b7bec5ccd3da";
pub const KEY_B: &str = "8 f1080f161d242b323940474e555c636a71787f868d949ba2a9b0b7bec5ccd3da";

pub const PARAMS_I: [u8; PARAMS_BYTES] = [0xa1; PARAMS_BYTES];
pub const PARAMS_R: [u8; PARAMS_BYTES] = [0xb2; PARAMS_BYTES];
pub const HEADER: [u8; HEADER_BYTES] = [0x5a; HEADER_BYTES];

pub fn offer(params: &[u8; PARAMS_BYTES]) -> Offer<'_> {
    Offer { suites: Suites::default(), params }
}

pub fn initiator(ring: &KeyRing, ends: &Ends, tag: u32, draw: &mut Draw) -> Initiator {
    Initiator::new(ring.sending(), ends, LIMITS, tag, &offer(&PARAMS_I), draw.ephemeral())
        .expect("a good tag")
}

pub fn open_packet(initiator: &Initiator, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0xee; bytes];
    initiator.write(&HEADER, &mut packet).expect("room");
    packet
}

pub fn ack_packet(half: &HalfOpen, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0xee; bytes];
    half.write(&HEADER, &mut packet).expect("room");
    packet
}

/// A responder that takes everything authentic.
pub fn answer(
    packet: &[u8],
    ends: &Ends,
    ring: &KeyRing,
    draw: &mut Draw,
) -> Result<HalfOpen, Refusal> {
    let greeting = Greeting::read(packet, ends, LIMITS, ring)?;
    greeting.propose()?.answer(&offer(&PARAMS_R), draw.ephemeral())
}

/// A whole handshake: the initiator's session and the responder's.
pub fn sessions(draw: &mut Draw, start_i: u64, start_r: u64) -> (Session, Session) {
    let ring = ring(KEY_A);
    let mut initiator = initiator(&ring, &ends(), 1 + draw.below(1 << 31) as u32, draw);
    let open = open_packet(&initiator, SEALED_OPEN_BYTES);
    let mut half = answer(&open, &ends(), &ring, draw).expect("authentic");
    let ack = ack_packet(&half, SEALED_OPEN_ACK_BYTES);
    let (keys, _) = initiator.finish(&ack).expect("authentic");
    let keys_r = half.keys_take().expect("the first time");
    let at_i = keys.session(start_i, start_r).expect("small numbers");
    (at_i, keys_r.session(start_r, start_i).expect("small numbers"))
}

/// A Send with this number, tag and payload, and room for the tag of the seal.
pub fn plain(tag: u32, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES];
    packet[0] = 0x30;
    packet[4..8].copy_from_slice(&tag.to_be_bytes());
    packet[8..12].copy_from_slice(&(number as u32).to_be_bytes());
    packet.extend_from_slice(payload);
    packet.extend_from_slice(&[0; 16]);
    packet
}

/// The blocks ```` ```hex vector=NAME ```` of docs/sealing.md.
pub fn document_vector(name: &str) -> Vec<u8> {
    let text = include_str!("../../../../docs/sealing.md");
    let head = format!("```hex vector={name}\n");
    let at = text.find(&head).unwrap_or_else(|| panic!("docs/sealing.md has no vector {name}"));
    let block = &text[at + head.len()..];
    let block = &block[..block.find("```").expect("the block ends")];
    let words = block
        .lines()
        .flat_map(|line| line.split('#').next().unwrap_or_default().split_whitespace());
    words.map(|word| u8::from_str_radix(word, 16).expect("two hexadecimal digits")).collect()
}
