//! The checksum after the common header: CRC-32C over all other bytes of the datagram.
//!
//! UDP's checksum has 16 bits: it accepts one damaged datagram of 65,536, and virtual links do not
//! compute it at all. CRC-32C (Castagnoli, as in iSCSI and SCTP; RFC 3385 compares the polynomials)
//! detects every change of up to three bits and every burst error of up to 32 bits in datagrams of
//! any length.

use crate::{
    AckBlock, CHECKSUM_BYTES, Flags, HEADER_BYTES, Packet, ParseError, VERSION, bytes, parse, zeros,
};
use crc_fast::crc32_iscsi;

/// Offset of the first byte after the checksum.
const CHECKSUM_END: usize = HEADER_BYTES + CHECKSUM_BYTES;

/// A running checksum: that of the bytes so far. The checksum's own bytes in the packet count as
/// zeros.
///
/// Each piece is one call of the CRC's function for this polynomial alone, and the sums are joined
/// here. The running sum of the same library serves any polynomial that a program names: it would
/// put the tables of all of them, 0.7 MB, into each program.
#[derive(Clone, Copy, Debug)]
pub struct Checksum(u32);

impl Checksum {
    /// Adds `bytes`, which follow the bytes added before.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(zeros::ZEROS_MAX) {
            self.0 = zeros::append(self.0, piece.len()) ^ crc(piece);
        }
    }

    /// The value as it is written into the packet, big-endian.
    #[inline]
    const fn to_wire(self) -> [u8; CHECKSUM_BYTES] {
        self.0.to_be_bytes()
    }
}

/// The CRC-32C of `bytes`. The one caller of the library's function in a program: only then does
/// the linker see that its tables for other polynomials are not used, and leave them out.
#[inline(never)]
fn crc(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// Whether the flags of a datagram say that it carries a checksum.
#[inline]
fn is_checked(header: &[u8; HEADER_BYTES]) -> bool {
    let flags = Flags(bytes::u8_at::<1, _>(header) & 0x0f);
    let sealed = flags.has(Flags::SEALED);
    bytes::u8_at::<0, _>(header) >> 5 == VERSION && flags.has(Flags::CHECKED) && !sealed
}

/// Verifies the checksum of a datagram. A datagram without one passes; whether the context requires
/// a checksum is for the receiver to decide.
///
/// # Errors
/// [`ParseError::Checksum`] if it does not match, [`ParseError::Truncated`] if the datagram ends
/// before the end of the checksum.
#[inline]
pub fn verify(datagram: &[u8]) -> Result<(), ParseError> {
    let Some((header, rest)) = datagram.split_first_chunk::<HEADER_BYTES>() else { return Ok(()) };
    if !is_checked(header) {
        return Ok(());
    }
    let Some((told, rest)) = rest.split_first_chunk::<CHECKSUM_BYTES>() else {
        return Err(ParseError::Truncated);
    };
    let mut start = [0; CHECKSUM_END];
    bytes::put::<0, HEADER_BYTES, _>(&mut start, *header);
    let mut sum = Checksum(crc(&start));
    sum.update(rest);
    if sum.to_wire() == *told { Ok(()) } else { Err(ParseError::Checksum) }
}

/// [`verify`] of a datagram in memory that may be written: about half the instructions for a short
/// one. The datagram is afterwards as it was.
///
/// # Errors
/// Those of [`verify`].
#[inline]
pub fn verify_in_place(datagram: &mut [u8]) -> Result<(), ParseError> {
    let Some(header) = datagram.first_chunk::<HEADER_BYTES>() else { return Ok(()) };
    if !is_checked(header) {
        return Ok(());
    }
    let Some(told) = place_of(datagram).copied() else { return Err(ParseError::Truncated) };
    let sum = of_whole(datagram).to_wire();
    if let Some(place) = place_of(datagram) {
        *place = told;
    }
    if sum == told { Ok(()) } else { Err(ParseError::Checksum) }
}

/// The bytes of a datagram that hold the checksum.
#[inline]
fn place_of(datagram: &mut [u8]) -> Option<&mut [u8; CHECKSUM_BYTES]> {
    datagram.get_mut(HEADER_BYTES..)?.first_chunk_mut()
}

/// The checksum of a datagram that lies in one piece, or of its headers. Leaves zeros in the place
/// of the value.
#[inline]
fn of_whole(datagram: &mut [u8]) -> Checksum {
    if let Some(place) = place_of(datagram) {
        *place = [0; CHECKSUM_BYTES];
    }
    Checksum(crc(datagram))
}

/// [`verify`], then [`parse`]: reads a packet from a network.
///
/// # Errors
/// Errors of [`verify`] and [`parse`].
///
/// ```
/// use srd_wire::{
///     AckBlock, Backlog, Body, Flags, Header, Packet, PacketType, ParseError, emit, parse_checked,
///     stamp,
/// };
/// let header = Header {
///     kind: PacketType::Probe,
///     flags: Flags(Flags::CHECKED),
///     backlog: Backlog(0),
///     path: 0,
///     slot: 0,
///     dst_tag: 1,
///     tx_num: 2,
///     timestamp: 3,
///     psn: 4,
///     una_delta: 0,
///     ack_echo: 0,
/// };
/// let packet = Packet { header, ack: None, body: Body::Probe, payload_len: 0 };
/// let mut bytes = [0; 28];
/// assert_eq!(emit(&packet, &mut bytes), 28);
/// stamp(&mut bytes);
///
/// let mut ack = AckBlock::default();
/// assert_eq!(parse_checked(&bytes, &mut ack), Ok((packet, 28)));
/// bytes[17] ^= 4;
/// assert_eq!(parse_checked(&bytes, &mut ack), Err(ParseError::Checksum));
/// ```
#[inline]
pub fn parse_checked<'a>(
    datagram: &[u8],
    ack: &'a mut AckBlock,
) -> Result<(Packet<'a>, usize), ParseError> {
    verify(datagram)?;
    parse(datagram, ack)
}

/// [`parse_checked`] of a datagram in memory that may be written ([`verify_in_place`]).
///
/// # Errors
/// Those of [`parse_checked`].
#[inline]
pub fn parse_checked_in_place<'a>(
    datagram: &mut [u8],
    ack: &'a mut AckBlock,
) -> Result<(Packet<'a>, usize), ParseError> {
    verify_in_place(datagram)?;
    parse(datagram, ack)
}

/// Writes the checksum into a complete datagram. A datagram without the flag `CHECKED` is not
/// changed.
#[inline]
pub fn stamp(datagram: &mut [u8]) {
    if datagram.len() < CHECKSUM_END || !datagram.first_chunk().is_some_and(is_checked) {
        return;
    }
    let sum = of_whole(datagram).to_wire();
    if let Some(place) = place_of(datagram) {
        *place = sum;
    }
}

/// Writes the checksum into `headers` when the rest of the datagram lies elsewhere. `follow` adds
/// that rest, the padding of an Open included, to the checksum in order. Without the flag `CHECKED`
/// nothing is written and `follow` is not called.
#[inline]
pub fn headers_stamp(headers: &mut [u8], follow: impl FnOnce(&mut Checksum)) {
    if headers.len() < CHECKSUM_END || !headers.first_chunk().is_some_and(is_checked) {
        return;
    }
    let mut sum = of_whole(headers);
    follow(&mut sum);
    if let Some(place) = place_of(headers) {
        *place = sum.to_wire();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference: the checksum of `datagram`, computed bit by bit from the polynomial of RFC 3720.
    fn by_bits(datagram: &[u8]) -> u32 {
        let mut zeroed = datagram
            .iter()
            .enumerate()
            .map(|(at, &byte)| if (HEADER_BYTES..CHECKSUM_END).contains(&at) { 0 } else { byte });
        !zeroed.by_ref().fold(u32::MAX, |sum, byte| {
            (0..8).fold(sum ^ u32::from(byte), |s, _| (s >> 1) ^ ((s & 1) * 0x82f6_3b78))
        })
    }

    fn datagram<const N: usize>() -> [u8; N] {
        let mut bytes = [0; N];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (at * 37 + 11) as u8;
        }
        bytes[0] = VERSION << 5 | 16;
        bytes[1] = Flags::CHECKED;
        bytes
    }

    #[test]
    fn it_is_the_polynomial_s_whatever_the_cuts() {
        let mut whole = datagram::<700>();
        for len in (CHECKSUM_END..100).chain([255, 256, 257, 511, 512, 699, 700]) {
            stamp(&mut whole[..len]);
            let told = whole[HEADER_BYTES..CHECKSUM_END].try_into().unwrap();
            assert_eq!(u32::from_be_bytes(told), by_bits(&whole[..len]), "{len}");
            assert_eq!(verify(&whole[..len]), Ok(()));
            let before = whole;
            assert_eq!(verify_in_place(&mut whole[..len]), Ok(()));
            assert_eq!(whole, before, "left as it was");
            for cut in [CHECKSUM_END, CHECKSUM_END + 12, 300].into_iter().filter(|&c| c <= len) {
                let mut parts = datagram::<700>();
                let (headers, rest) = parts[..len].split_at_mut(cut);
                headers_stamp(headers, |sum| rest.chunks(7).for_each(|c| sum.update(c)));
                assert_eq!(parts[..len], whole[..len], "{len} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_piece_may_be_longer_than_any_datagram() {
        let mut bytes = datagram::<200_000>();
        let (headers, rest) = bytes.split_at_mut(CHECKSUM_END);
        headers_stamp(headers, |sum| sum.update(rest));
        let told = headers[HEADER_BYTES..].try_into().unwrap();
        assert_eq!(u32::from_be_bytes(told), by_bits(&bytes));
    }

    #[test]
    fn up_to_three_flipped_bits_are_found() {
        let mut bytes = datagram::<60>();
        stamp(&mut bytes);
        // These three bits say whether there is a checksum. If one of them changes, only the
        // receiver's state can detect the damage.
        let says = |bit: usize| (5..8).contains(&bit) || bit == 8 + 2 || bit == 8 + 3;
        let bits = || (0..bytes.len() * 8).filter(|&bit| !says(bit));
        for a in bits() {
            for b in bits().filter(|&b| b >= a).step_by(5) {
                for c in [b, bytes.len() * 8 - 1 - (a + b) % 300] {
                    let mut damaged = bytes;
                    for bit in [a, b, c] {
                        damaged[bit / 8] ^= 1 << (bit % 8);
                    }
                    if damaged != bytes && !says(c) {
                        assert_eq!(verify(&damaged), Err(ParseError::Checksum), "{a} {b} {c}");
                        let before = damaged;
                        let in_place = verify_in_place(&mut damaged);
                        assert_eq!(in_place, Err(ParseError::Checksum), "{a} {b} {c}");
                        assert_eq!(damaged, before, "left as it was");
                    }
                }
            }
        }
    }

    #[test]
    fn without_the_flag_nothing_is_written_and_all_passes() {
        for (at, value) in [(1, 0), (0, 3 << 5 | 16), (1, Flags::CHECKED | Flags::SEALED)] {
            let mut bytes = datagram::<60>();
            bytes[at] = value;
            let before = bytes;
            stamp(&mut bytes);
            assert_eq!(bytes, before);
            assert_eq!((verify(&bytes), verify_in_place(&mut bytes)), (Ok(()), Ok(())));
            assert_eq!(bytes, before);
        }
    }

    #[test]
    fn short_ones_are_refused_and_never_panic() {
        let mut bytes = datagram::<28>();
        for len in 0..CHECKSUM_END {
            stamp(&mut bytes[..len]);
            let want = if len < HEADER_BYTES { Ok(()) } else { Err(ParseError::Truncated) };
            assert_eq!(verify(&bytes[..len]), want, "{len}");
            assert_eq!(verify_in_place(&mut bytes[..len]), want, "{len}");
        }
    }
}
