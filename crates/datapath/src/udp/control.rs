//! Control messages of a datagram: segment size, ECN, drop count.

/// Bytes before the data of a control message: `struct cmsghdr`.
const HEADER_BYTES: usize = 16;
const _: () = assert!(size_of::<libc::cmsghdr>() == HEADER_BYTES, "needs 64-bit Linux");
/// ECN field of the IP header.
const ECN_MASK: u8 = 3;
/// CE, "congestion experienced" (RFC 3168).
const ECN_CE: u8 = 3;

/// Requests segmentation into packets of a given size: `UDP_SEGMENT`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct SegmentControl([u8; Self::BYTES]);

impl SegmentControl {
    /// Header, a `u16`, padding to 8.
    pub const BYTES: usize = 24;

    /// Segments of `size` bytes.
    pub fn new(size: u16) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&(HEADER_BYTES + 2).to_ne_bytes());
        bytes[8..12].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
        bytes[12..16].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
        bytes[16..18].copy_from_slice(&size.to_ne_bytes());
        Self(bytes)
    }

    /// Pointer to the bytes.
    pub const fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
}

/// Buffer for the kernel's control messages of a received datagram.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct ReceiveControl(pub [u8; Self::BYTES]);

impl ReceiveControl {
    /// Enough for traffic class, segment size, drop count (24 bytes each) and arrival stamp (32
    /// bytes), plus one spare.
    pub const BYTES: usize = 128;
}

/// Control data of a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Size of each merged datagram except the last, if several were merged.
    pub segment_len: Option<usize>,
    /// The IP header carried CE.
    pub ce: bool,
    /// Datagrams that the socket has dropped so far, if reported.
    pub drops: Option<u32>,
    /// Arrival time in nanoseconds since 1970, if reported.
    pub arrived_ns: Option<u64>,
}

/// Level, kind and data of each control message; a malformed one ends the iteration.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = (i32, i32, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (header, _) = self.0.split_first_chunk::<HEADER_BYTES>()?;
        let word = |at: usize| i32::from_ne_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        let len = usize::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| header[i]));
        if len < HEADER_BYTES || len > self.0.len() {
            return None;
        }
        let data = &self.0[HEADER_BYTES..len];
        self.0 = self.0.get(len.next_multiple_of(8)..).unwrap_or(&[]);
        Some((word(8), word(12), data))
    }
}

impl Received {
    /// Parses control messages; unknown and malformed ones are skipped.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut out = Self::default();
        for (level, kind, data) in Messages(bytes) {
            out.take(level, kind, data);
        }
        out
    }

    fn take(&mut self, level: i32, kind: i32, data: &[u8]) {
        let first4 = data.first_chunk::<4>().copied();
        match (level, kind, data) {
            (libc::SOL_IP, libc::IP_TOS, [tos, ..]) => self.ce = tos & ECN_MASK == ECN_CE,
            (libc::SOL_IPV6, libc::IPV6_TCLASS, _) => {
                self.ce = first4.is_some_and(|b| i32::from_ne_bytes(b) as u8 & ECN_MASK == ECN_CE);
            }
            (libc::SOL_UDP, libc::UDP_GRO, _) => {
                let size = first4.map_or(0, i32::from_ne_bytes);
                self.segment_len = usize::try_from(size).ok().filter(|&size| size > 0);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, _) => self.drops = first4.map(u32::from_ne_bytes),
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, _) => {
                let half =
                    |at: usize| data.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
                self.arrived_ns = half(0).zip(half(8)).map(|(s, ns)| s * 1_000_000_000 + ns);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut out = (HEADER_BYTES + data.len()).to_ne_bytes().to_vec();
        out.extend_from_slice(&level.to_ne_bytes());
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(data);
        out.resize(out.len().next_multiple_of(8), 0);
        out
    }

    #[test]
    fn all_kinds_are_read_in_any_order() {
        let mut bytes = message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7u32.to_ne_bytes());
        bytes.extend(message(99, 1, b"unknown"));
        bytes.extend(message(libc::SOL_IP, libc::IP_TOS, &[3]));
        bytes.extend(message(libc::SOL_UDP, libc::UDP_GRO, &1400i32.to_ne_bytes()));
        let stamp = [3u64.to_ne_bytes(), 5u64.to_ne_bytes()].concat();
        bytes.extend(message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &stamp));
        let arrived_ns = Some(3_000_000_005);
        let want = Received { segment_len: Some(1400), ce: true, drops: Some(7), arrived_ns };
        assert_eq!(Received::parse(&bytes), want);
    }

    #[test]
    fn only_congestion_experienced_is_ce() {
        for (tos, ce) in [(0u8, false), (1, false), (2, false), (3, true), (0xff, true)] {
            let v4 = message(libc::SOL_IP, libc::IP_TOS, &[tos]);
            assert_eq!(Received::parse(&v4).ce, ce);
            let v6 = message(libc::SOL_IPV6, libc::IPV6_TCLASS, &i32::from(tos).to_ne_bytes());
            assert_eq!(Received::parse(&v6).ce, ce);
        }
    }

    #[test]
    fn malformed_messages_end_the_walk() {
        let good = message(libc::SOL_IP, libc::IP_TOS, &[3]);
        for cut in 0..good.len().min(17) {
            assert!(!Received::parse(&good[..cut]).ce, "cut at {cut}");
        }
        let mut zero_len = good.clone();
        zero_len[..8].fill(0);
        assert_eq!(Received::parse(&zero_len), Received::default());
        let mut huge_len = good;
        huge_len[..8].fill(0xff);
        assert_eq!(Received::parse(&huge_len), Received::default());
    }
}
