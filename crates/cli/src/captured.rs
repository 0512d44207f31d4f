//! Reads captures that software SRD has written.

use srd::datapath::pcapng::{Record, Way};
use std::net::{IpAddr, SocketAddr};

const BLOCK_SECTION: u32 = 0x0a0d_0d0a;
/// An interface.
pub const BLOCK_INTERFACE: u32 = 1;
/// A packet.
pub const BLOCK_PACKET: u32 = 6;
/// Secrets.
pub const BLOCK_SECRETS: u32 = 10;
/// This word of a section tells the order of bytes; ours is little-endian.
const SECTION_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_RAW: u16 = 101;
const OPTION_EPB_FLAGS: u16 = 2;
/// Bytes of a packet block before the packet: interface, time, two lengths.
const PACKET_AT: usize = 20;
const UDP_BYTES: usize = 8;

/// The packet of a block, without its payload, and the payload.
pub fn packet_of(body: &[u8]) -> Option<(Record<'static>, Vec<u8>)> {
    let unix_ns = u64::from(word(body, 4)?) << 32 | u64::from(word(body, 8)?);
    let length = word(body, 12)? as usize;
    let packet = body.get(PACKET_AT..PACKET_AT + length)?;
    let (src, dst, ecn, rest) = match packet.first()? >> 4 {
        4 => {
            let address =
                |at: usize| packet.get(at..at + 4)?.first_chunk::<4>().map(|b| IpAddr::from(*b));
            let header = usize::from(packet[0] & 15) * 4;
            (address(12)?, address(16)?, packet.get(1)? & 3, packet.get(header..)?)
        }
        6 => {
            let address =
                |at: usize| packet.get(at..at + 16)?.first_chunk::<16>().map(|b| IpAddr::from(*b));
            (address(8)?, address(24)?, packet.get(1)? >> 4 & 3, packet.get(40..)?)
        }
        _ => return None,
    };
    let port = |at: usize| rest.get(at..at + 2)?.first_chunk().map(|b| u16::from_be_bytes(*b));
    let (src, dst) = (SocketAddr::new(src, port(0)?), SocketAddr::new(dst, port(2)?));
    let payload = rest.get(UDP_BYTES..)?.to_vec();
    let options = body.get(PACKET_AT + length.next_multiple_of(4)..).unwrap_or_default();
    let is_flags = options.get(..2) == Some(&OPTION_EPB_FLAGS.to_le_bytes());
    let way = if is_flags && word(options, 4)? & 3 == 2 { Way::Out } else { Way::In };
    Some((Record { unix_ns, way, src, dst, ecn, payload: &[] }, payload))
}

/// Number of the interface of a packet block, and bytes of the packet that it does not hold.
pub fn origin_of(body: &[u8]) -> Option<(u32, usize)> {
    let missing = word(body, 16)?.saturating_sub(word(body, 12)?);
    Some((word(body, 0)?, missing as usize))
}

/// A word of a block.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..at + 4)?.first_chunk()?))
}

/// Blocks of a capture: type and body. The last one may be cut: its writer still runs, or was
/// killed.
pub fn blocks(file: &[u8]) -> Result<Vec<(u32, &[u8])>, &'static str> {
    let foreign = "not a capture that software SRD has written: pcapng with raw IP packets";
    if word(file, 0) != Some(BLOCK_SECTION) || word(file, 8) != Some(SECTION_MAGIC) {
        return Err(foreign);
    }
    let (mut at, mut all) = (0, Vec::new());
    while let (Some(kind), Some(length)) = (word(file, at), word(file, at + 4)) {
        let length = length as usize;
        if length < 12 || !length.is_multiple_of(4) {
            return Err("a block of the capture has a length that cannot be: the file is damaged");
        }
        let Some(block) = file.get(at..at + length) else { break };
        let body = &block[8..length - 4];
        if kind == BLOCK_INTERFACE && body.get(..2) != Some(&LINKTYPE_RAW.to_le_bytes()) {
            return Err(foreign);
        }
        all.push((kind, body));
        at += length;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd::datapath::pcapng::PcapNg;

    #[test]
    fn what_is_no_capture_is_refused_and_a_cut_one_is_read_as_far_as_it_goes() {
        assert!(blocks(b"").is_err());
        assert!(blocks(b"not a capture at all").is_err());
        let src: SocketAddr = "10.0.0.1:40000".parse().unwrap();
        let dst: SocketAddr = "10.0.0.2:18700".parse().unwrap();
        let sent =
            Record { unix_ns: 5_000_000_007, way: Way::Out, src, dst, ecn: 2, payload: b"abc" };
        let mut trace = PcapNg::new(Vec::new()).unwrap();
        trace.write(&sent).unwrap();
        let (v6, way) = ("[fd00::1]:7".parse().unwrap(), Way::In);
        trace.write(&Record { src: v6, dst: v6, way, ..sent }).unwrap();
        let file = trace.into_inner().unwrap();
        let all = blocks(&file).unwrap();
        assert_eq!(all.len(), 4);
        let (record, payload) = packet_of(all[2].1).unwrap();
        assert_eq!(Record { payload: &payload, ..record }, sent);
        let (record, payload) = packet_of(all[3].1).unwrap();
        assert_eq!(
            Record { payload: &payload, ..record },
            Record { src: v6, dst: v6, way, ..sent }
        );
        for len in 28..file.len() {
            assert!(blocks(&file[..len]).unwrap().len() < 4, "{len}");
        }
        let mut damaged = file.clone();
        damaged[4] = 3;
        assert!(blocks(&damaged).is_err());
    }
}
