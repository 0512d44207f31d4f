use super::*;

/// The sum that a receiver computes over a message whose checksum is right (RFC 1071).
fn sum_of(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let sum = words.sum::<u32>();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    ((folded & 0xFFFF) + (folded >> 16)) as u16
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn an_error_quotes_the_addresses_and_ports_over_ipv4() {
    let (from, to) = (addr("10.1.2.3:40007"), addr("10.9.8.7:18515"));
    for claim in claims(false, 16) {
        let bytes = error(claim, from, to);
        assert_eq!(bytes[..2], [claim.kind, claim.code]);
        assert_eq!(sum_of(&bytes), 0xFFFF, "{claim:?}: the kernel would drop it");
        let ip = &bytes[8..28];
        assert_eq!((ip[0], ip[9]), (0x45, 17), "an IPv4 header of 20 bytes, then UDP");
        assert_eq!(ip[12..16], [10, 1, 2, 3]);
        assert_eq!(ip[16..20], [10, 9, 8, 7]);
        let udp = &bytes[28..36];
        assert_eq!(u16::from_be_bytes([udp[0], udp[1]]), 40_007);
        assert_eq!(u16::from_be_bytes([udp[2], udp[3]]), 18_515);
        // Only "fragmentation needed" names an MTU (RFC 1191).
        let mtu = u16::from_be_bytes([bytes[6], bytes[7]]);
        assert_eq!(mtu, if (claim.kind, claim.code) == (3, 4) { MTU_V4 } else { 0 });
    }
}

#[test]
fn an_error_quotes_the_addresses_and_ports_over_ipv6() {
    let (from, to) = (addr("[fd00::1]:1024"), addr("[fd00::2]:65535"));
    for claim in claims(true, 8) {
        let bytes = error(claim, from, to);
        let ip = &bytes[8..48];
        assert_eq!((ip[0] >> 4, ip[6]), (6, 17), "an IPv6 header, then UDP");
        assert_eq!((ip[23], ip[39]), (1, 2));
        let udp = &bytes[48..56];
        assert_eq!([udp[0], udp[1], udp[2], udp[3]], [4, 0, 0xFF, 0xFF]);
        // The length of the quoted datagram fits its IPv6 header.
        assert_eq!(udp[4..6], (QUOTED_LEN - 40).to_be_bytes());
        let mtu = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        assert_eq!(mtu, if claim.kind == 2 { MTU_V6 } else { 0 });
    }
}

#[test]
fn every_type_and_code_is_claimed_once() {
    for v6 in [false, true] {
        let all: Vec<Claim> = claims(v6, 3).collect();
        assert_eq!(all.len(), 12);
        assert!(all.iter().enumerate().all(|(i, c)| !all[..i].contains(c)), "{all:?}");
    }
}

#[test]
#[should_panic(expected = "two families")]
fn addresses_of_two_families_are_refused() {
    error(Claim { kind: 3, code: 0 }, addr("10.0.0.1:1"), addr("[::1]:1"));
}
