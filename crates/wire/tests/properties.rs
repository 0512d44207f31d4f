//! Properties over random packets and random bytes.

mod common;

use common::emitted;
use proptest::collection::vec;
use proptest::prelude::*;
use srd_wire::{
    ACK_MASK_BITS, AckBlock, Backlog, Body, CloseCode, Echo, Features, Flags, HEADERS_BYTES_MAX,
    Header, IPV4_BYTES, IPV6_BYTES, Message, OpenParams, Others, Packet, PacketType, ParseError,
    Rdma, ReadReq, ReadResp, ReadStatus, Verdict, VerdictEntry, parse, parse_checked,
    payload_bytes_max, stamp,
};

fn message() -> impl Strategy<Value = Message> {
    any::<(u16, u16, u32, u32)>().prop_map(|(src_qpn, dst_qpn, qkey, msg_id)| Message {
        src_qpn,
        dst_qpn,
        qkey,
        msg_id,
    })
}

fn rdma() -> impl Strategy<Value = Rdma> {
    any::<(u32, u64)>().prop_map(|(rkey, raddr)| Rdma { rkey, raddr })
}

fn open_params() -> impl Strategy<Value = OpenParams> {
    let identity = any::<(u32, u64, u32, u32, u64)>();
    let limits = any::<(u16, u16, u16, u16, u32, u32, u64)>();
    (identity, limits).prop_map(|(i, l)| OpenParams {
        tag: i.0,
        incarnation: i.1,
        echo_tag: i.2,
        psn_start: i.3,
        tx_num_start: i.4,
        window: l.0,
        mtu: l.1,
        reads_max: l.2,
        write_imms_max: l.3,
        rx_budget: l.4,
        features: Features(l.5),
        cookie: l.6,
    })
}

fn body() -> impl Strategy<Value = Body> {
    let code = prop::sample::select(CloseCode::ALL);
    let status = prop::sample::select(ReadStatus::ALL);
    prop_oneof![
        open_params().prop_map(Body::Open),
        open_params().prop_map(Body::OpenAck),
        any::<(u32, u64)>().prop_map(|(echo_tag, cookie)| Body::Challenge { echo_tag, cookie }),
        Just(Body::Close),
        Just(Body::CloseAck),
        (any::<u32>(), code, any::<u64>()).prop_map(|(echo_tag, code, nonce)| Body::Reset {
            echo_tag,
            code,
            nonce
        }),
        Just(Body::Ack),
        Just(Body::Probe),
        message().prop_map(Body::Send),
        (message(), any::<u32>()).prop_map(|(msg, imm)| Body::SendImm(msg, imm)),
        (message(), rdma()).prop_map(|(msg, rdma)| Body::Write(msg, rdma)),
        (message(), rdma(), any::<(u32, u32)>())
            .prop_map(|(msg, rdma, (msg_len, imm))| Body::WriteImm { msg, rdma, msg_len, imm }),
        (message(), rdma(), any::<u32>()).prop_map(|(msg, rdma, len)| {
            Body::ReadReq(msg, ReadReq { rkey: rdma.rkey, raddr: rdma.raddr, len })
        }),
        (any::<(u32, u32)>(), status).prop_map(|((msg_id, offset), status)| {
            Body::ReadResp(ReadResp { msg_id, offset, status })
        }),
        Just(Body::Tombstone),
        any::<u32>().prop_map(|msg_id| Body::Cancel { msg_id }),
        message().prop_map(Body::Ud),
        (message(), any::<u32>()).prop_map(|(msg, imm)| Body::UdImm(msg, imm)),
    ]
}

fn echo() -> impl Strategy<Value = Echo> {
    any::<(u32, u32, u16, u8, bool)>().prop_map(|(tx_num, timestamp, delay, path, ce)| Echo {
        tx_num,
        timestamp,
        delay,
        path,
        ce,
    })
}

fn verdict_entry() -> impl Strategy<Value = VerdictEntry> {
    let others = prop_oneof![
        (1..=u16::MAX).prop_map(Others::Run),
        (1..1u32 << ACK_MASK_BITS).prop_map(Others::Mask),
    ];
    (any::<u32>(), prop::sample::select(&Verdict::ALL[1..]), others)
        .prop_map(|(psn, verdict, others)| VerdictEntry { psn, verdict, others })
}

fn ack_block() -> impl Strategy<Value = AckBlock> {
    let verdict = verdict_entry();
    let fixed = any::<(u32, u32, u32, u32, u32, u32, u16, bool, bool)>();
    let lists = (vec(any::<u64>(), 0..=8), vec(verdict, 0..=16), vec(echo(), 0..=8));
    (fixed, lists).prop_map(|(f, (words, verdicts, echoes))| AckBlock {
        cum: f.0,
        base: f.1,
        credit: f.2,
        rx_budget: f.3,
        rxq_drops: f.4,
        ce_count: f.5,
        rxq_depth: f.6,
        partial: f.7,
        above: f.8,
        words: words.into_iter().collect(),
        verdicts: verdicts.into_iter().collect(),
        echoes: echoes.into_iter().collect(),
    })
}

prop_compose! {
    fn header()(
        small in any::<(bool, u8, u8, u16, u16)>(),
        checked in any::<bool>(),
        backlog in 0u8..16,
        wide in any::<(u32, u32, u32, u32)>(),
    ) -> Header {
        Header {
            kind: PacketType::Probe,
            flags: Flags(
                u8::from(small.0) * Flags::ACK_REQUEST + u8::from(checked) * Flags::CHECKED,
            ),
            backlog: Backlog(backlog),
            path: small.1,
            slot: small.2,
            una_delta: small.3,
            ack_echo: small.4,
            dst_tag: wide.0,
            tx_num: wide.1,
            timestamp: wide.2,
            psn: wide.3,
        }
    }
}

/// A header and body of one type, with a block where the type requires or permits one.
fn parts() -> impl Strategy<Value = (Header, Option<AckBlock>, Body)> {
    (header(), ack_block(), any::<bool>(), body()).prop_map(|(mut header, ack, with_ack, body)| {
        header.kind = body.kind();
        let carries = header.kind == PacketType::Ack || (with_ack && header.kind.may_carry_ack());
        if carries {
            header.flags.0 |= Flags::ACK_BLOCK;
        }
        (header, carries.then_some(ack), body)
    })
}

/// Parsed bytes are emitted unchanged.
fn assert_canonical(bytes: &[u8]) -> Result<(), ParseError> {
    let mut ack = common::ack_block();
    let (packet, payload_at) = parse(bytes, &mut ack)?;
    assert_eq!(emitted(&packet), common::without_checksum(&packet, &bytes[..payload_at]));
    if packet.body.may_have_payload() || matches!(packet.body, Body::Open(_) | Body::OpenAck(_)) {
        assert_eq!(usize::from(packet.payload_len), bytes.len() - payload_at);
    } else {
        assert_eq!(packet.payload_len, 0);
        assert!(bytes[payload_at..].iter().all(|&b| b == 0));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// `psns` and `end` of an entry agree with the PSNs that it covers.
    #[test]
    fn verdicts_cover_their_psns(entry in verdict_entry(), near in 0u32..70_000) {
        let psns: Vec<u32> = entry.psns().collect();
        prop_assert_eq!(psns[0], entry.psn);
        prop_assert_eq!(psns.last().unwrap().wrapping_add(1), entry.end());
        let p = entry.psn.wrapping_sub(100).wrapping_add(near);
        prop_assert_eq!(entry.covers(p), psns.contains(&p));
    }

    #[test]
    fn any_packet_comes_back(
        (header, ack, body) in parts(),
        payload in vec(any::<u8>(), 0..300),
    ) {
        let payload = if body.may_have_payload() { payload } else { Vec::new() };
        let packet =
            Packet { header, ack: ack.as_ref(), body, payload_len: payload.len() as u16 };
        let mut bytes = emitted(&packet);
        prop_assert!(bytes.len() + srd_wire::AEAD_TAG_BYTES <= HEADERS_BYTES_MAX);
        bytes.extend_from_slice(&payload);
        stamp(&mut bytes);

        let mut room = common::ack_block();
        let (read, payload_at) = parse_checked(&bytes, &mut room).unwrap();
        prop_assert_eq!(read, packet);
        prop_assert_eq!(&bytes[payload_at..], &payload[..]);
    }

    #[test]
    fn any_truncation_is_refused(
        (header, ack, body) in parts(),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = emitted(&Packet { header, ack: ack.as_ref(), body, payload_len: 0 });
        let cut = cut.index(bytes.len());
        let mut room = AckBlock::default();
        prop_assert_eq!(parse(&bytes[..cut], &mut room), Err(ParseError::Truncated));
    }

    #[test]
    fn any_damage_is_refused_or_canonical(
        (header, ack, body) in parts(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        tail in vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = emitted(&Packet { header, ack: ack.as_ref(), body, payload_len: 0 });
        bytes.extend_from_slice(&tail);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = assert_canonical(&bytes);
    }

    #[test]
    fn any_bytes_are_refused_or_canonical(kind in 0u8..32, rest in vec(any::<u8>(), 0..600)) {
        let mut bytes = vec![(srd_wire::VERSION << 5) | kind];
        bytes.extend_from_slice(&rest);
        let _ = assert_canonical(&bytes);
    }

    #[test]
    fn backlog_class_bounds_its_packets(packets in prop_oneof![0u64..6000, any::<u64>()]) {
        let class = Backlog::from_packets(packets);
        prop_assert!(class <= Backlog::MAX);
        prop_assert!(u64::from(class.packets_max()) >= packets.min(u64::from(u32::MAX)));
        if class.0 > 0 {
            prop_assert!(u64::from(Backlog(class.0 - 1).packets_max()) < packets);
        }
    }
}

#[test]
fn padding_of_an_open_is_zero_and_of_any_length() {
    let open = &common::samples()[0];
    let mut bytes = emitted(&open.packet());
    let headers_len = bytes.len();
    for len in [headers_len, headers_len + 1, 1472, 8972, 65_507] {
        bytes.resize(len, 0);
        assert_canonical(&bytes).unwrap();
    }
    for at in [headers_len, 1472, 65_506] {
        bytes[at] = 1;
        let mut room = AckBlock::default();
        assert_eq!(parse(&bytes, &mut room), Err(ParseError::TrailingBytes));
        bytes[at] = 0;
    }
}

#[test]
fn more_payload_than_a_datagram_holds_is_refused() {
    let samples = common::samples();
    let send = samples.iter().find(|s| s.name == "send").unwrap();
    let mut bytes = emitted(&send.packet());
    let headers_len = bytes.len();
    bytes.resize(headers_len + usize::from(u16::MAX), 7);
    assert_canonical(&bytes).unwrap();
    bytes.push(7);
    assert_eq!(assert_canonical(&bytes), Err(ParseError::TrailingBytes));
}

#[test]
fn too_little_room_to_emit_is_found_in_debug_builds() {
    for sample in common::samples() {
        let packet = sample.packet();
        let mut exact = vec![0; packet.headers_len()];
        assert_eq!(srd_wire::emit(&packet, &mut exact), exact.len(), "{}", sample.name);
        exact.pop();
        let short = std::panic::catch_unwind(move || srd_wire::emit(&packet, &mut exact));
        if cfg!(debug_assertions) {
            assert!(short.is_err(), "{}", sample.name);
        } else {
            assert_eq!(short.ok(), Some(0), "{}", sample.name);
        }
    }
}

#[test]
fn backlog_classes_end_exactly_at_their_limit() {
    for class in 0..Backlog::MAX.0 {
        let packets_max = u64::from(Backlog(class).packets_max());
        assert_eq!(Backlog::from_packets(packets_max), Backlog(class));
        assert_eq!(Backlog::from_packets(packets_max + 1), Backlog(class + 1));
    }
}

#[test]
fn smallest_and_largest_links() {
    for (ip_bytes, spent, largest) in [(IPV4_BYTES, 100, 65_435), (IPV6_BYTES, 120, 65_455)] {
        assert_eq!(payload_bytes_max(0, ip_bytes), None);
        assert_eq!(payload_bytes_max(spent, ip_bytes), None);
        assert_eq!(payload_bytes_max(spent + 1, ip_bytes), Some(1));
        assert_eq!(payload_bytes_max(u32::MAX, ip_bytes), Some(largest));
    }
}
