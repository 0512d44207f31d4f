//! Instructions of the checksum of one datagram. Each end computes it once per packet: the sender
//! writes it, the receiver compares it.

use srd_core::wire::{
    Backlog, Body, Flags, HEADERS_BYTES_MAX, Header, Message, Packet, PacketType, emit, stamp,
};

/// Payload of packets with the MTU of ordinary links, as in `bench/report`.
pub fn ordinary(n: u64) -> Result<(), String> {
    datagrams(n, 1400)
}

/// Payload of packets on links with jumbo frames.
pub fn jumbo(n: u64) -> Result<(), String> {
    datagrams(n, 8900)
}

fn datagrams(n: u64, payload_len: u16) -> Result<(), String> {
    let header = Header {
        kind: PacketType::Send,
        flags: Flags(Flags::CHECKED),
        backlog: Backlog(0),
        path: 0,
        slot: 0,
        dst_tag: 1,
        tx_num: 0,
        timestamp: 0,
        psn: 0,
        una_delta: 0,
        ack_echo: 0,
    };
    let body = Body::Send(Message { src_qpn: 0, dst_qpn: 0, qkey: 0, msg_id: 0 });
    let mut bytes = [0; HEADERS_BYTES_MAX];
    let len = emit(&Packet { header, ack: None, body, payload_len }, &mut bytes);
    let mut datagram = bytes[..len].to_vec();
    datagram.resize(len + usize::from(payload_len), 0x5A);
    for _ in 0..n {
        datagram_is_stamped(&mut datagram);
    }
    srd_core::wire::verify(&datagram).map_err(|e| e.to_string())
}

/// The counted function.
#[inline(never)]
fn datagram_is_stamped(datagram: &mut [u8]) {
    stamp(std::hint::black_box(datagram));
}
