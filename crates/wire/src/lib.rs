//! Bytes to typed headers and back: the wire format of software SRD, version 1.
//!
//! `docs/wire.md` defines the layout of every field bit by bit. This crate holds no protocol logic:
//! every [`Packet`] can be emitted, and for any bytes [`parse`] returns either a packet or a typed
//! [`ParseError`], without panics or allocations.
#![no_std]
#![forbid(unsafe_code)]

mod ack;
mod body;
mod bytes;
mod checksum;
mod header;
mod packet;
mod zeros;

pub use ack::{
    ACK_BYTES_MAX, ACK_ECHO_BYTES, ACK_ECHOES_MAX, ACK_FIXED_BYTES, ACK_MASK_BITS,
    ACK_VERDICT_BYTES, ACK_VERDICTS_MAX, ACK_WORD_BYTES, ACK_WORDS_MAX, AckBlock,
    CREDIT_UNIT_BYTES, ECHO_DELAY_UNIT_NS, Echo, Others, VerdictEntry,
};
pub use body::{
    Body, CloseCode, Features, Message, OpenParams, Rdma, ReadReq, ReadResp, ReadStatus, Verdict,
};
pub use checksum::{
    Checksum, headers_stamp, parse_checked, parse_checked_in_place, stamp, verify, verify_in_place,
};
pub use header::{Backlog, Flags, Header, PacketType, TIMESTAMP_UNIT_NS};
pub use packet::{Packet, ParseError, emit, parse};

/// Version of the format, in the top three bits of every packet. A packet with another version is
/// dropped and counted.
pub const VERSION: u8 = 1;
/// Bytes of the common header that starts every packet.
pub const HEADER_BYTES: usize = 24;
/// Bytes of the checksum that follows the common header of a packet with the flag `CHECKED`. They
/// use the room reserved for the tag of a sealed packet: a packet has one or the other.
pub const CHECKSUM_BYTES: usize = 4;
/// Largest type-specific header of a packet that carries payload (write with immediate).
pub const BODY_BYTES_MAX: usize = 32;
/// Bytes reserved at the end of every packet for the AEAD tag of a sealed context.
pub const AEAD_TAG_BYTES: usize = 16;
/// Overhead of one packet in bytes: the device MTU is the link's UDP payload minus this.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + BODY_BYTES_MAX + AEAD_TAG_BYTES;
/// Buffer size that holds the headers of any packet (everything but payload and padding).
pub const HEADERS_BYTES_MAX: usize = 512;

/// Bytes of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;
/// Bytes of an IPv6 header without extensions.
pub const IPV6_BYTES: usize = 40;
/// Bytes of a UDP header.
pub const UDP_BYTES: usize = 8;

/// Largest payload of one packet in bytes on a link whose IP packets have at most `link_mtu` bytes,
/// or `None` if no payload fits. `ip_bytes` is [`IPV4_BYTES`] or [`IPV6_BYTES`].
///
/// The largest UDP datagram bounds the result on links with a larger MTU (both IP versions encode
/// lengths in 16 bits; IPv6's length does not include the IP header).
///
/// ```
/// use srd_wire::{IPV4_BYTES, IPV6_BYTES, payload_bytes_max};
/// assert_eq!(payload_bytes_max(1500, IPV4_BYTES), Some(1400));
/// assert_eq!(payload_bytes_max(9000, IPV6_BYTES), Some(8880));
/// assert_eq!(payload_bytes_max(100, IPV4_BYTES), None);
/// ```
pub const fn payload_bytes_max(link_mtu: u32, ip_bytes: usize) -> Option<u16> {
    let ip_packet_max = if ip_bytes == IPV6_BYTES { 65_535 + IPV6_BYTES } else { 65_535 };
    let link = if (link_mtu as usize) < ip_packet_max { link_mtu as usize } else { ip_packet_max };
    let spent = ip_bytes + UDP_BYTES + OVERHEAD_BYTES;
    if link > spent { Some((link - spent) as u16) } else { None }
}

/// Whether the constants above hold for every packet type.
const fn bounds_hold() -> bool {
    let mut body_max = 0;
    let mut i = 0;
    while i < PacketType::ALL.len() {
        let kind = PacketType::ALL[i];
        let body = kind.body_bytes();
        if kind.has_payload() && body > BODY_BYTES_MAX {
            return false;
        }
        if body > body_max {
            body_max = body;
        }
        i += 1;
    }
    HEADER_BYTES + ACK_BYTES_MAX + body_max + AEAD_TAG_BYTES <= HEADERS_BYTES_MAX
}
const _: () = assert!(bounds_hold() && CHECKSUM_BYTES <= AEAD_TAG_BYTES);
