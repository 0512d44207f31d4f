use super::*;

/// One block as read back: its kind and body.
fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |b: &[u8], at: usize| u32::from_le_bytes(b[at..at + 4].try_into().unwrap());
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let (kind, len) = (word(bytes, 0), word(bytes, 4) as usize);
        assert_eq!(len % 4, 0, "blocks are whole words");
        assert_eq!(word(bytes, len - 4) as usize, len, "length stands at both ends");
        out.push((kind, bytes[8..len - 4].to_vec()));
        bytes = &bytes[len..];
    }
    out
}

fn sum16(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|w| u64::from(w[0]) * 256 + w.get(1).map_or(0, |&b| b.into())).sum()
}

/// A correct checksum makes the sum of all words a multiple of 65535 (and not 0).
fn sums_up(sum: u64) -> bool {
    sum != 0 && sum.is_multiple_of(65_535)
}

fn trace(src: &str, dst: &str, ecn: u8, payload: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut trace = PcapNg::new(Vec::new()).unwrap();
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    let unix_ns = 0x0123_4567_89ab_cdef;
    trace.write(&Record { unix_ns, way: Way::Out, src, dst, ecn, payload }).unwrap();
    blocks(&trace.into_inner().unwrap())
}

#[test]
fn section_and_interface_come_first() {
    let all = trace("1.2.3.4:5", "6.7.8.9:10", 2, b"x");
    let kinds: Vec<u32> = all.iter().map(|b| b.0).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 6]);
    assert_eq!(all[0].1[..4], [0x4d, 0x3c, 0x2b, 0x1a], "little endian");
    assert_eq!(all[0].1[4..8], [1, 0, 0, 0], "version 1.0");
    assert_eq!(all[1].1, [101, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
}

/// The IP packet in the packet block, whose frame is checked.
fn packet(all: &[(u32, Vec<u8>)]) -> &[u8] {
    let body = &all[2].1;
    assert_eq!(body[..4], [0; 4], "interface");
    assert_eq!(body[4..12], [0x67, 0x45, 0x23, 0x01, 0xef, 0xcd, 0xab, 0x89], "time");
    assert_eq!(body[12..16], body[16..20], "nothing is cut off");
    let len = u32::from_le_bytes(body[12..16].try_into().unwrap()) as usize;
    let options = &body[20 + len.next_multiple_of(4)..];
    assert_eq!(options, [2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0], "outbound, end of options");
    &body[20..20 + len]
}

#[test]
fn v4_packets_have_correct_headers_and_checksums() {
    for len in [0, 1, 2, 1471, 65_507] {
        let payload: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        let all = trace("10.1.2.3:40001", "10.4.5.6:18700", 3, &payload);
        let ip = packet(&all);
        assert_eq!(ip.len(), 28 + len);
        assert_eq!(ip[..2], [0x45, 3]);
        assert_eq!(ip[2..4], (28 + len as u16).to_be_bytes());
        assert_eq!(ip[6..10], [0x40, 0, 64, 17]);
        assert!(sums_up(sum16(&ip[..20])));
        assert_eq!(ip[20..24], [0x9c, 0x41, 0x49, 0x0c]);
        assert!(sums_up(sum16(&ip[12..]) + 17 + 8 + len as u64));
        assert_eq!(ip[28..], payload);
    }
}

#[test]
fn v6_packets_have_correct_headers_and_checksums() {
    for len in [0, 1, 1452, 65_527] {
        let payload = vec![0xff; len];
        let all = trace("[2001:db8::1]:1", "[2001:db8::2]:2", 1, &payload);
        let ip = packet(&all);
        assert_eq!(ip[..4], [0x60, 0x10, 0, 0]);
        assert_eq!(ip[4..6], (8 + len as u16).to_be_bytes());
        assert_eq!(ip[6..8], [17, 64]);
        assert!(sums_up(sum16(&ip[8..]) + 17 + 8 + len as u64));
        assert_eq!(ip[48..], payload);
    }
}

#[test]
fn a_checksum_of_zero_is_written_as_all_ones() {
    // The word that makes the sum of everything else come out as 0.
    let zero = trace("1.1.1.1:1", "1.1.1.2:2", 2, &[0, 0]);
    let sum = packet(&zero)[26..28].to_vec();
    let all = trace("1.1.1.1:1", "1.1.1.2:2", 2, &sum);
    assert_eq!(packet(&all)[26..28], [0xff, 0xff]);
}

#[test]
fn what_cannot_be_written_is_refused() {
    let mut trace = PcapNg::new(Vec::new()).unwrap();
    let (v4, v6) = ("1.1.1.1:1".parse().unwrap(), "[::1]:1".parse().unwrap());
    let long = vec![0; 65_528];
    let record = Record { unix_ns: 0, way: Way::In, src: v4, dst: v4, ecn: 0, payload: &long };
    assert!(trace.write(&record).is_err());
    assert!(trace.write(&Record { payload: &long[..65_508], ..record }).is_err());
    assert!(trace.write(&Record { payload: &[], dst: v6, ..record }).is_err());
    trace.write(&Record { payload: &[1], ..record }).unwrap();
    assert_eq!(blocks(&trace.into_inner().unwrap()).len(), 3, "refused ones leave no trace");
}
