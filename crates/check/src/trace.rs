//! The trace of a run: lines of text, and a capture for packet analysers.

use crate::packet::{Datagram, FRAME_BYTES};
use srd_fabric::Ps;
use std::net::IpAddr;

/// The trace of one run.
#[derive(Debug, Default)]
pub struct Trace {
    /// Events, oldest first.
    pub lines: Vec<String>,
    /// Datagrams in the order in which they were sent.
    pub packets: Vec<(Ps, Vec<u8>)>,
}

impl Trace {
    /// Adds a line.
    pub fn line(&mut self, at: Ps, text: String) {
        self.lines.push(format!("{:>14.3} us  {text}", at as f64 / 1e6));
    }

    /// Adds a datagram that was sent at `at`.
    pub fn packet(&mut self, at: Ps, d: &Datagram) {
        self.packets.push((at, ip_packet(d)));
    }

    /// The packets as a pcapng file (section header, one interface of raw IP with times in ns, and
    /// an enhanced packet block each).
    pub fn pcapng(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut section = vec![];
        section.extend(0x1A2B_3C4D_u32.to_le_bytes());
        section.extend([1, 0, 0, 0]);
        section.extend(u64::MAX.to_le_bytes());
        block(&mut out, 0x0A0D_0D0A, &section);
        // Link type 101 (raw IP), no limit on length; option 9: resolution 10^-9 s; end of options.
        let interface = [101, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        block(&mut out, 1, &interface);
        for (at, bytes) in &self.packets {
            let ns = at / 1000;
            let mut body = vec![0; 4];
            body.extend(((ns >> 32) as u32).to_le_bytes());
            body.extend((ns as u32).to_le_bytes());
            for _ in 0..2 {
                body.extend((bytes.len() as u32).to_le_bytes());
            }
            body.extend(bytes);
            body.resize(body.len().next_multiple_of(4), 0);
            block(&mut out, 6, &body);
        }
        out
    }
}

fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let len = (body.len() as u32 + 12).to_le_bytes();
    out.extend(kind.to_le_bytes());
    out.extend(len);
    out.extend(body);
    out.extend(len);
}

/// The datagram with IPv4 and UDP headers; payload bytes are the low byte of their offset.
fn ip_packet(d: &Datagram) -> Vec<u8> {
    let udp_len = 8 + d.head.len() + usize::from(d.tail_len);
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(_) => [0; 4],
    };
    let mut p = vec![0x45, 0];
    p.extend(((20 + udp_len) as u16).to_be_bytes());
    p.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    p.extend(octets(d.src));
    p.extend(octets(d.dst.ip));
    let sum: u32 = p.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(c[1])).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let check = !((folded & 0xFFFF) + (folded >> 16)) as u16;
    p[10..12].copy_from_slice(&check.to_be_bytes());
    p.extend(d.sport.to_be_bytes());
    p.extend(d.dst.port.to_be_bytes());
    p.extend((udp_len as u16).to_be_bytes());
    p.extend([0, 0]);
    p.extend(&d.head);
    let first = d.content.map_or(0, |c| c.offset);
    let fill = d.content.is_some();
    p.extend((0..u64::from(d.tail_len)).map(|k| if fill { (first + k) as u8 } else { 0 }));
    debug_assert_eq!(p.len() + 14, d.head.len() + usize::from(d.tail_len) + FRAME_BYTES as usize);
    p
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{endpoint_of, ip_of};

    #[test]
    fn a_capture_is_blocks_of_their_own_length() {
        let mut t = Trace::default();
        let d = Datagram {
            head: vec![1, 2, 3],
            tail_len: 2,
            content: None,
            request: None,
            forged: false,
            src: ip_of(0),
            dst: endpoint_of(1, 0),
            sport: 7,
        };
        t.packet(5_000_000, &d);
        let bytes = t.pcapng();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (mut at, mut kinds) = (0, vec![]);
        while at < bytes.len() {
            let len = word(at + 4) as usize;
            kinds.push(word(at));
            assert_eq!(word(at + len - 4) as usize, len);
            at += len;
        }
        assert_eq!(kinds, [0x0A0D_0D0A, 1, 6]);
        assert_eq!(word(28 + 32 + 8 + 8), 5_000, "time of the packet in ns");
    }
}
