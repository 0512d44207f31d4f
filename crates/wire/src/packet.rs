//! A whole packet: parse and emit.

use crate::bytes::wire_enum;
use crate::{AckBlock, Body, CHECKSUM_BYTES, Flags, HEADER_BYTES, Header, PacketType, VERSION};
use core::fmt;

/// The headers of one packet, and the length of its payload; the payload itself is elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The common header.
    pub header: Header,
    /// The acknowledgment block, if the packet carries one.
    pub ack: Option<&'a AckBlock>,
    /// The type-specific header.
    pub body: Body,
    /// Bytes of payload after the headers. For a parsed Open or OpenAck, the number of padding
    /// zeros; their length proves that the link carries packets of this size.
    pub payload_len: u16,
}

/// Why bytes are not a valid packet. Each reason has its own counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ParseError {
    /// The datagram ends before the end of its headers.
    Truncated,
    /// Another version of the format.
    Version,
    /// Unknown packet type.
    Type,
    /// A list is longer than the format allows.
    ListTooLong,
    /// A field (verdict, status, code, reserved bits) has an undefined value.
    Value,
    /// The packet is sealed. Whoever has its key opens it before it is parsed.
    Sealed,
    /// Bytes after the headers of a type that has no payload.
    TrailingBytes,
    /// The checksum does not match: the packet was damaged in transit.
    Checksum,
}

impl Packet<'_> {
    /// Bytes before the payload: common header, checksum, acknowledgment block, type-specific
    /// header.
    ///
    /// An acknowledgment block fits into a packet if this length (with the block, without the
    /// checksum) plus the payload plus [`crate::AEAD_TAG_BYTES`] does not exceed the UDP payload of
    /// the link: the checksum takes the room reserved for the tag.
    #[inline]
    pub fn headers_len(&self) -> usize {
        self.header.encoded_len()
            + self.ack.map_or(0, AckBlock::encoded_len)
            + self.body.encoded_len()
    }
}

wire_enum!(ParseError: Truncated, Version, Type, ListTooLong, Value, Sealed, TrailingBytes,
    Checksum);

impl ParseError {
    /// Name of the reason's counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Version => "version",
            Self::Type => "type",
            Self::ListTooLong => "list_too_long",
            Self::Value => "value",
            Self::Sealed => "sealed",
            Self::TrailingBytes => "trailing_bytes",
            Self::Checksum => "checksum",
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "packet shorter than its headers say",
            Self::Version => "packet of another version of the format",
            Self::Type => "unknown packet type",
            Self::ListTooLong => "acknowledgment block with a list longer than the format allows",
            Self::Value => "a field or the reserved bits have an undefined value",
            Self::Sealed => "sealed packet without a key for it",
            Self::TrailingBytes => "bytes after the headers of a packet without payload",
            Self::Checksum => "the checksum does not match: damaged in transit",
        })
    }
}

impl core::error::Error for ParseError {}

/// Reads one packet from all bytes of one UDP datagram without verifying its checksum. For
/// datagrams from a network use [`crate::parse_checked`].
///
/// The acknowledgment block is decoded into `ack`, which is cleared first and is undefined after an
/// error. The payload starts at the returned offset and is `payload_len` bytes long. Emitting the
/// result gives the same bytes, except for the checksum: no two byte strings encode the same
/// headers.
///
/// # Errors
/// The first [`ParseError`] from the front of the packet. No input panics.
///
/// ```
/// use srd_wire::{AckBlock, ParseError, parse};
/// let mut ack = AckBlock::default();
/// assert_eq!(parse(b"not a packet of this protocol", &mut ack), Err(ParseError::Version));
/// ```
#[inline]
pub fn parse<'a>(bytes: &[u8], ack: &'a mut AckBlock) -> Result<(Packet<'a>, usize), ParseError> {
    ack.clear();
    let Some((head, mut rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(too_short(bytes));
    };
    let header = Header::read(head)?;
    if header.flags.has(Flags::CHECKED) {
        rest = rest.get(CHECKSUM_BYTES..).ok_or(ParseError::Truncated)?;
    }
    let mut block = None;
    if header.flags.has(Flags::ACK_BLOCK) {
        rest = ack.read(rest)?;
        block = Some(&*ack);
    }
    let (body, tail) = Body::read(header.kind, rest)?;
    let proves = matches!(header.kind, PacketType::Open | PacketType::OpenAck);
    if !body.may_have_payload() {
        padding_check(header.kind, tail)?;
    }
    let payload_len = if body.may_have_payload() || proves {
        u16::try_from(tail.len()).map_err(|_| ParseError::TrailingBytes)?
    } else {
        0
    };
    Ok((Packet { header, ack: block, body, payload_len }, bytes.len() - tail.len()))
}

/// The error for less than a common header. The version is checked first, because another version
/// may have shorter headers.
#[cold]
fn too_short(bytes: &[u8]) -> ParseError {
    match bytes.first() {
        Some(first) if first >> 5 != VERSION => ParseError::Version,
        _ => ParseError::Truncated,
    }
}

/// Only Open, OpenAck and Probe may be followed by bytes that are not payload, and these must be
/// zeros.
#[inline]
fn padding_check(kind: PacketType, tail: &[u8]) -> Result<(), ParseError> {
    let padded = matches!(kind, PacketType::Open | PacketType::OpenAck | PacketType::Probe);
    let ok = tail.is_empty() || (padded && tail.iter().all(|&b| b == 0));
    if ok { Ok(()) } else { Err(ParseError::TrailingBytes) }
}

/// Writes the headers of `packet` into `out` and returns how many bytes they take, which is
/// [`Packet::headers_len`]. Payload, and the padding of an Open, are appended by the caller.
///
/// [`crate::HEADERS_BYTES_MAX`] bytes always suffice. If `out` is too short, 0 is returned (and a
/// debug build panics). The type follows from the body, and the flag `ACK_BLOCK` from the block.
/// With the flag `CHECKED`, the checksum is written as zeros; [`crate::stamp`] or
/// [`crate::headers_stamp`] computes it once the payload is known.
///
/// ```
/// use srd_wire::{
///     AckBlock, Backlog, Body, Flags, HEADERS_BYTES_MAX, Header, Message, Packet, PacketType,
///     emit, parse,
/// };
/// let packet = Packet {
///     header: Header {
///         kind: PacketType::Send,
///         flags: Flags(Flags::ACK_REQUEST),
///         backlog: Backlog::from_packets(1),
///         path: 17,
///         slot: 0,
///         dst_tag: 0x5eed_0001,
///         tx_num: 7,
///         timestamp: 1000,
///         psn: 41,
///         una_delta: 1,
///         ack_echo: 0,
///     },
///     ack: None,
///     body: Body::Send(Message { src_qpn: 1, dst_qpn: 2, qkey: 3, msg_id: 4 }),
///     payload_len: 5,
/// };
/// let mut bytes = [0; HEADERS_BYTES_MAX];
/// let len = emit(&packet, &mut bytes);
/// bytes[len..len + 5].copy_from_slice(b"hello");
///
/// let mut ack = AckBlock::default();
/// let (read, payload_at) = parse(&bytes[..len + 5], &mut ack).unwrap();
/// assert_eq!(read, packet);
/// assert_eq!(&bytes[payload_at..][..usize::from(read.payload_len)], b"hello");
/// ```
#[inline]
pub fn emit(packet: &Packet<'_>, out: &mut [u8]) -> usize {
    debug_assert_consistent(packet);
    let written = try_emit(packet, out);
    debug_assert!(written.is_some(), "{} bytes hold no {:?}", out.len(), packet.body.kind());
    written.unwrap_or(0)
}

#[inline]
fn try_emit(packet: &Packet<'_>, out: &mut [u8]) -> Option<usize> {
    let (head, mut rest) = out.split_first_chunk_mut::<HEADER_BYTES>()?;
    packet.header.write(packet.body.kind(), packet.ack.is_some(), head);
    if packet.header.flags.has(Flags::CHECKED) {
        let (checksum, after) = rest.split_first_chunk_mut::<CHECKSUM_BYTES>()?;
        *checksum = [0; CHECKSUM_BYTES];
        rest = after;
    }
    if let Some(ack) = packet.ack {
        rest = ack.write(rest)?;
    }
    packet.body.write(rest)?;
    Some(packet.headers_len())
}

/// Conditions under which receivers accept a packet; a violation is a bug of the caller.
fn debug_assert_consistent(packet: &Packet<'_>) {
    let kind = packet.body.kind();
    debug_assert_eq!(packet.header.kind, kind, "header and body are of different types");
    debug_assert!(!packet.header.flags.has(Flags::SEALED), "whoever seals does so afterwards");
    debug_assert!(packet.ack.is_none() || kind.may_carry_ack(), "{kind:?} with an ack block");
    debug_assert!(packet.ack.is_some() || kind != PacketType::Ack, "Ack without an ack block");
    let padded = matches!(kind, PacketType::Open | PacketType::OpenAck);
    debug_assert!(
        packet.payload_len == 0 || packet.body.may_have_payload() || padded,
        "{kind:?} has no payload"
    );
}
