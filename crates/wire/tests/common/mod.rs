//! One sample of every packet type, the contents of the test vectors in `docs/wire.md`.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod document;

use srd_wire::{
    AckBlock, Backlog, Body, CloseCode, Echo, Features, Flags, HEADER_BYTES, HEADERS_BYTES_MAX,
    Header, Message, OpenParams, Others, Packet, PacketType, Rdma, ReadReq, ReadResp, ReadStatus,
    Verdict, VerdictEntry, emit, stamp,
};

/// A packet with its acknowledgment block and the bytes after its headers.
pub struct Sample {
    /// Name of the test vector.
    pub name: &'static str,
    pub header: Header,
    pub ack: Option<AckBlock>,
    pub body: Body,
    /// Payload, or the padding of an Open.
    pub tail: &'static [u8],
}

impl Sample {
    pub fn packet(&self) -> Packet<'_> {
        let counts = self.body.may_have_payload() || matches!(self.body, Body::Open(_));
        let payload_len = if counts { self.tail.len() as u16 } else { 0 };
        Packet { header: self.header, ack: self.ack.as_ref(), body: self.body, payload_len }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = emitted(&self.packet());
        bytes.extend_from_slice(self.tail);
        stamp(&mut bytes);
        bytes
    }

    /// The same packet with a checksum, under another name.
    fn checked(mut self, name: &'static str) -> Self {
        self.header.flags.0 |= Flags::CHECKED;
        Self { name, ..self }
    }
}

/// Received header bytes with zeros in place of the checksum, as `emit` writes them.
pub fn without_checksum(packet: &Packet<'_>, headers: &[u8]) -> Vec<u8> {
    let mut bytes = headers.to_vec();
    bytes[HEADER_BYTES..packet.header.encoded_len()].fill(0);
    bytes
}

/// The headers of `packet` as bytes.
pub fn emitted(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = vec![0xa5; HEADERS_BYTES_MAX];
    let len = emit(packet, &mut bytes);
    assert_eq!(len, packet.headers_len());
    assert!(bytes[len..].iter().all(|&b| b == 0xa5), "wrote beyond the headers");
    bytes.truncate(len);
    bytes
}

fn sample(name: &'static str, body: Body, ack: Option<AckBlock>, tail: &'static [u8]) -> Sample {
    let kind = body.kind();
    let mut flags = if ack.is_some() { Flags::ACK_BLOCK } else { 0 };
    if matches!(kind, PacketType::Probe | PacketType::Send) {
        flags |= Flags::ACK_REQUEST;
    }
    // The requester (tag 5eed0001) sends everything except the answers to its Open. The sender of
    // the Reset does not know the requester.
    let dst_tag = match kind {
        PacketType::Open | PacketType::Reset => 0,
        PacketType::OpenAck | PacketType::Challenge => 0x5eed_0001,
        _ => 0xd57a_6001,
    };
    let header = Header {
        kind,
        flags: Flags(flags),
        backlog: Backlog::from_packets(if kind.has_payload() { 40 } else { 0 }),
        path: 0x2a,
        slot: 3,
        dst_tag,
        tx_num: 0x0102_0304,
        timestamp: 0x1122_3344,
        psn: 0xffff_fffe,
        una_delta: 0x0010,
        ack_echo: 0xbeef,
    };
    Sample { name, header, ack, body, tail }
}

/// An acknowledgment block with entries in every list.
pub fn ack_block() -> AckBlock {
    let mut ack = AckBlock {
        cum: 0x0000_1000,
        base: 0x0000_1001,
        credit: 0x0000_4000,
        rx_budget: u32::MAX,
        rxq_drops: 5,
        ce_count: 6,
        rxq_depth: 7,
        above: true,
        ..AckBlock::default()
    };
    ack.words.push(0x8000_0000_0000_0005);
    ack.words.push(0x0000_0000_0000_00ff);
    ack.partial = true;
    ack.verdicts.push(VerdictEntry {
        psn: 0x1003,
        verdict: Verdict::Rnr,
        others: Others::Run(300),
    });
    ack.verdicts.push(VerdictEntry {
        psn: 0x1200,
        verdict: Verdict::Busy,
        others: Others::Mask(5),
    });
    ack.echoes.push(Echo { tx_num: 0xa0, timestamp: 0xb0, delay: 0xc0, path: 0x11, ce: false });
    ack.echoes.push(Echo { tx_num: 0xa1, timestamp: 0xb1, delay: u16::MAX, path: 0x12, ce: true });
    ack
}

/// A block with the cumulative acknowledgment and one echo.
fn ack_small() -> AckBlock {
    let mut ack =
        AckBlock { cum: 0x0000_1000, base: 0x0000_1000, rx_budget: 65_536, ..AckBlock::default() };
    ack.echoes.push(Echo { tx_num: 0xa0, timestamp: 0xb0, delay: 0xc0, path: 0x11, ce: false });
    ack
}

/// All samples, in the order of the document.
pub fn samples() -> Vec<Sample> {
    let msg = Message { src_qpn: 0x0301, dst_qpn: 0x0502, qkey: 0x1111_1111, msg_id: 0x0007_0009 };
    let rdma = Rdma { rkey: 0xcafe_0001, raddr: 0x0000_7f00_0000_1000 };
    let open = OpenParams {
        tag: 0x5eed_0001,
        incarnation: 0x1234_5678_9abc_def0,
        echo_tag: 0,
        psn_start: 0xffff_fff0,
        tx_num_start: 0x0000_0000_7abc_def0,
        window: 4096,
        mtu: 1400,
        reads_max: 64,
        write_imms_max: 32,
        rx_budget: u32::MAX,
        features: Features(Features::RDMA_READ | Features::RDMA_WRITE | Features::ECN),
        cookie: 0,
    };
    let accepted = OpenParams { tag: 0xd57a_6001, echo_tag: 0x5eed_0001, ..open };
    let checked = OpenParams { features: Features(open.features.0 | Features::INTEGRITY), ..open };
    let resp = ReadResp { msg_id: 0x0007_0009, offset: 0x0000_2800, status: ReadStatus::Ok };
    let gone = ReadResp { status: ReadStatus::RegionGone, ..resp };
    let write_imm = Body::WriteImm { msg, rdma, msg_len: 1 << 20, imm: 0xaabb_ccdd };
    let challenge = Body::Challenge { echo_tag: 0x5eed_0001, cookie: 0x0c00_c1e0_0c00_c1e0 };
    let reset = Body::Reset { echo_tag: 0xd57a_6001, code: CloseCode::UnknownTag, nonce: 0 };
    let told = Body::Reset {
        echo_tag: 0xd57a_6001,
        code: CloseCode::UnknownTag,
        nonce: 0x0c00_c1e0_0c00_c1e0,
    };
    vec![
        sample("open", Body::Open(open), None, &[0; 8]),
        sample("open", Body::Open(checked), None, &[0; 8]).checked("open-checked"),
        sample("open-ack", Body::OpenAck(accepted), None, &[]),
        sample("challenge", challenge, None, &[]),
        sample("close", Body::Close, None, &[]),
        sample("close-ack", Body::CloseAck, Some(ack_small()), &[]),
        sample("reset", reset, None, &[]),
        sample("reset-told", told, None, &[]),
        sample("ack", Body::Ack, Some(ack_block()), &[]),
        sample("ack-small", Body::Ack, Some(ack_small()), &[]),
        sample("ack-small", Body::Ack, Some(ack_small()), &[]).checked("ack-checked"),
        sample("probe", Body::Probe, None, &[]),
        sample("send", Body::Send(msg), None, b"hello"),
        sample("send-with-ack", Body::Send(msg), Some(ack_small()), b"hello"),
        sample("send", Body::Send(msg), None, b"hello").checked("send-checked"),
        sample("send-imm", Body::SendImm(msg, 0xaabb_ccdd), None, b"hello"),
        sample("write", Body::Write(msg, rdma), None, b"segment"),
        sample("write-imm", write_imm, None, b"segment"),
        sample(
            "read-req",
            Body::ReadReq(msg, ReadReq { rkey: rdma.rkey, raddr: rdma.raddr, len: 1 << 20 }),
            None,
            &[],
        ),
        sample("read-resp", Body::ReadResp(resp), None, b"segment"),
        sample("read-resp-gone", Body::ReadResp(gone), None, &[]),
        sample("tombstone", Body::Tombstone, None, &[]),
        sample("cancel", Body::Cancel { msg_id: 0x0007_0009 }, None, &[]),
        sample("ud", Body::Ud(msg), None, b"datagram"),
        sample("ud-imm", Body::UdImm(msg, 0xaabb_ccdd), None, b"datagram"),
    ]
}
