//! Forged ICMP and ICMPv6 errors, as routers and hosts send them about a datagram that they did not
//! deliver. Such an error quotes the head of the datagram. A forger need not have seen the
//! datagram: the addresses and ports suffice.

use std::net::{IpAddr, SocketAddr};

/// Length of the datagram that is quoted: a full packet on a link with an MTU of 9000.
const QUOTED_LEN: u16 = 8980;
/// MTU in a forged "too big" message: less than that of any link of the fabric.
const MTU_V4: u16 = 600;
const MTU_V6: u32 = 1280;

/// Type and code of an ICMP error; the numbers have different meanings in IPv4 and IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
}

/// Types that report errors over IPv4: destination unreachable, source quench, time exceeded,
/// parameter problem (RFC 792).
pub const KINDS_V4: [u8; 4] = [3, 4, 11, 12];
/// Types that report errors over IPv6: destination unreachable, packet too big, time exceeded,
/// parameter problem (RFC 4443).
pub const KINDS_V6: [u8; 4] = [1, 2, 3, 4];

/// Every error that the family can report, with `codes` codes of each type.
pub fn claims(v6: bool, codes: u8) -> impl Iterator<Item = Claim> {
    let kinds = if v6 { KINDS_V6 } else { KINDS_V4 };
    kinds.into_iter().flat_map(move |kind| (0..codes).map(move |code| Claim { kind, code }))
}

/// The error `claim` about a datagram `from` one socket `to` another: the ICMP message without its
/// IP header.
///
/// # Panics
/// If the addresses are of different families.
pub fn error(claim: Claim, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    // Type, code, checksum.
    let mut bytes = vec![claim.kind, claim.code, 0, 0];
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mtu = if (claim.kind, claim.code) == (3, 4) { MTU_V4 } else { 0 };
            bytes.extend([0, 0]);
            bytes.extend(mtu.to_be_bytes());
            // The IPv4 header of the datagram that was not delivered.
            bytes.extend([0x45, 0]);
            bytes.extend(QUOTED_LEN.to_be_bytes());
            bytes.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mtu = if claim.kind == 2 { MTU_V6 } else { 0 };
            bytes.extend(mtu.to_be_bytes());
            bytes.extend([0x60, 0, 0, 0]);
            bytes.extend(QUOTED_LEN.to_be_bytes());
            bytes.extend([17, 64]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        _ => panic!("addresses of two families: {from} and {to}"),
    }
    // The UDP header of that datagram.
    bytes.extend([from, to].iter().flat_map(|a| a.port().to_be_bytes()));
    bytes.extend((QUOTED_LEN - 40).to_be_bytes());
    bytes.extend([0, 0]);
    // The kernel fills in the checksum of ICMPv6.
    if from.is_ipv4() {
        let words = bytes.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum = words.sum::<u32>();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        let sum = !((folded & 0xFFFF) + (folded >> 16)) as u16;
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
#[path = "icmp_tests.rs"]
mod tests;
