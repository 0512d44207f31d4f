//! Packets of a lying peer ("liar"): well-formed, of all types, with the correct tag, but untrue.
//! Half of them contain plausible values (numbers near the victim's, echoes of packets that it
//! sent), because they pass more checks than random values.

use super::heard::{Dice, Heard};
use srd_wire::{
    AckBlock, Backlog, Body, CloseCode, Echo, Features, Flags, HEADERS_BYTES_MAX, Header, Message,
    OpenParams, Others, Packet, PacketType, Rdma, ReadReq, ReadResp, ReadStatus, Verdict,
    VerdictEntry, emit, stamp,
};

/// Verdicts that an acknowledgment block may list: all except "accepted".
pub const REFUSALS: [Verdict; 9] = [
    Verdict::Rnr,
    Verdict::Busy,
    Verdict::BadQpn,
    Verdict::BadQkey,
    Verdict::BadLength,
    Verdict::BadRkey,
    Verdict::UnknownPeer,
    Verdict::FeatureMismatch,
    Verdict::NoRequest,
];

/// Reasons in a Reset for the end of a context.
const CODES: [CloseCode; 4] =
    [CloseCode::UnknownTag, CloseCode::GoingAway, CloseCode::NoRoom, CloseCode::BadParams];

/// MTU that the liar offers in honest Opens, in bytes of payload.
const MTU: u16 = 8000;

/// Behaviour of a liar.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Whether the liar keeps state, and sends packets that contradict it (see [`super::pretend`]);
    /// otherwise its packets are random.
    pub stateful: bool,
    /// Whether its contexts use checksums.
    pub checked: bool,
    /// Slot of the liar, which determines the UDP port of answers.
    pub slot: u8,
    /// Longest datagram of the liar in bytes.
    pub room: usize,
}

/// A packet before its header is complete.
#[derive(Debug)]
pub struct Draft {
    /// Type-specific part.
    pub body: Body,
    /// Acknowledgment block, for types that may carry one.
    pub ack: Option<AckBlock>,
    /// Bytes of payload, for types with payload.
    pub payload: u16,
    /// PSN, for types with a PSN.
    pub psn: u32,
    /// Distance from the PSN back to the oldest unacknowledged PSN.
    pub una_delta: u16,
}

/// Parameters that the liar offers: those of an honest engine, or with `odd`, some of them altered.
pub fn params(dice: &mut Dice, heard: &Heard, manner: Manner, odd: bool) -> OpenParams {
    let integrity = if manner.checked { Features::INTEGRITY } else { 0 };
    let honest = Features::RDMA_READ | Features::RDMA_WRITE | Features::ECN | integrity;
    let mut say = |good: u32, bad: &[u32]| {
        if odd && dice.once_in(2) { dice.pick(bad) } else { good }
    };
    let all = u32::from(u16::MAX);
    OpenParams {
        tag: heard.own_tag,
        incarnation: heard.life,
        echo_tag: 0,
        psn_start: say(heard.psn, &[0, u32::MAX, heard.psn.wrapping_sub(1)]),
        tx_num_start: u64::from(say(heard.tx_num, &[0, u32::MAX])),
        window: say(4096, &[0, 1, 16, 17, 32_768, all]) as u16,
        mtu: say(u32::from(MTU), &[0, 1, 63, 64, 100, all]) as u16,
        reads_max: say(64, &[0, 1, all]) as u16,
        write_imms_max: say(64, &[0, 1, all]) as u16,
        rx_budget: say(u32::MAX, &[0, 1, 4096]),
        features: Features(say(honest, &[0, 0x4F, honest ^ Features::INTEGRITY, 0xFFFF_FFEF])),
        cookie: heard.cookie,
    }
}

/// A verdict on a PSN: for it alone, for a run of PSNs, or for some of the following ones.
pub fn entry(dice: &mut Dice, psn: u32, verdict: Verdict) -> VerdictEntry {
    let others = match dice.below(4) {
        0 => Others::Run(dice.pick(&[2, 64, 1000, u16::MAX])),
        1 => Others::Mask(1 + (dice.next() as u32 >> (9 + dice.below(22)))),
        _ => Others::Run(1),
    };
    VerdictEntry { psn, verdict, others }
}

fn ack_forge(dice: &mut Dice, heard: &Heard) -> AckBlock {
    let mut ack = AckBlock {
        cum: dice.near(heard.peer_psn),
        base: dice.near(heard.peer_psn),
        credit: dice.next() as u32,
        rx_budget: if dice.once_in(2) { u32::MAX } else { dice.below(100_000) as u32 },
        rxq_drops: dice.next() as u32,
        ce_count: dice.next() as u32,
        rxq_depth: dice.next() as u16,
        above: dice.once_in(4),
        partial: dice.once_in(3),
        ..AckBlock::default()
    };
    for _ in 0..dice.below(9) {
        ack.words.push(dice.next());
    }
    for _ in 0..dice.below(17) {
        let (psn, verdict) = (heard.psn_any(dice), dice.pick(&REFUSALS));
        ack.verdicts.push(entry(dice, psn, verdict));
    }
    for _ in 0..dice.below(9) {
        let known = heard.seen_any(dice).filter(|_| !dice.once_in(3));
        let (tx_num, timestamp, path) = match known {
            Some(s) => (s.tx_num, s.timestamp, s.path),
            None => (dice.near(heard.tx_num), dice.next() as u32, dice.next() as u8),
        };
        let delay = dice.next() as u16 >> dice.below(16);
        ack.echoes.push(Echo { tx_num, timestamp, delay, path, ce: dice.once_in(4) });
    }
    ack
}

fn body_forge(dice: &mut Dice, heard: &Heard, manner: Manner) -> Body {
    let msg = Message {
        src_qpn: dice.next() as u16,
        dst_qpn: if dice.once_in(3) { dice.next() as u16 } else { heard.qpn },
        qkey: if dice.once_in(3) { dice.next() as u32 } else { super::party::QKEY.0 },
        msg_id: heard.msg_id(dice),
    };
    let rdma = match dice.below(3) {
        0 => Rdma { rkey: heard.bait.0, raddr: heard.bait.1 },
        1 => Rdma { rkey: heard.bait.0, raddr: dice.next() >> dice.below(64) },
        _ => Rdma { rkey: dice.next() as u32, raddr: dice.next() >> dice.below(64) },
    };
    // Packets that may end the context are rare, because the victim ignores everything after them.
    let ends = dice.once_in(50);
    match dice.below(21) {
        0 if ends => Body::Open(params(dice, heard, manner, true)),
        1 => {
            let echo_tag = dice.pick(&[heard.tag, dice.0 as u32]);
            Body::OpenAck(OpenParams { echo_tag, ..params(dice, heard, manner, true) })
        }
        2 => Body::Challenge { echo_tag: heard.own_tag, cookie: dice.next() },
        3 if ends => Body::Close,
        4 if ends => Body::CloseAck,
        5 => Body::Probe,
        6 => Body::Send(msg),
        7 => Body::SendImm(msg, dice.next() as u32),
        8 => Body::Write(msg, rdma),
        9 => Body::WriteImm { msg, rdma, msg_len: dice.next() as u32, imm: 1 },
        10 => {
            let len = dice.next() as u32 >> (8 + dice.below(24));
            Body::ReadReq(msg, ReadReq { rkey: rdma.rkey, raddr: rdma.raddr, len })
        }
        11..=13 => Body::ReadResp(ReadResp {
            msg_id: msg.msg_id,
            offset: (dice.below(8) * 8192) as u32,
            status: if dice.once_in(4) { ReadStatus::RegionGone } else { ReadStatus::Ok },
        }),
        14 => Body::Tombstone,
        15 => Body::Cancel { msg_id: msg.msg_id },
        16 => Body::Ud(msg),
        17 => Body::UdImm(msg, dice.next() as u32),
        18 => reset(dice, heard),
        _ => Body::Ack,
    }
}

/// A Reset. Only one with the victim's cookie is valid, and few are.
pub fn reset(dice: &mut Dice, heard: &Heard) -> Body {
    let nonce = if dice.once_in(50) { heard.cookie } else { heard.cookie ^ dice.next() };
    Body::Reset {
        echo_tag: dice.pick(&[heard.own_tag, heard.own_tag, heard.tag, 0]),
        code: dice.pick(&CODES),
        nonce: if dice.once_in(2) { 0 } else { nonce },
    }
}

/// A random packet.
pub fn forge(dice: &mut Dice, heard: &mut Heard, manner: Manner) -> Draft {
    let body = body_forge(dice, heard, manner);
    let kind = body.kind();
    let wants = kind == PacketType::Ack || dice.once_in(2);
    let psn = if dice.once_in(10) { dice.near(heard.psn) } else { heard.psn };
    heard.psn = heard.psn.wrapping_add(u32::from(kind.is_reliable()));
    let una_delta = if dice.once_in(8) { dice.next() as u16 } else { dice.below(64) as u16 };
    let ack = wants.then(|| ack_forge(dice, heard));
    Draft { body, ack, payload: dice.below(1200) as u16, psn, una_delta }
}

/// Encodes a draft into `out`. Transmission numbers mostly continue as an honest sender's would,
/// because otherwise few packets would pass the first checks.
pub fn datagram(
    dice: &mut Dice,
    heard: &mut Heard,
    manner: Manner,
    draft: &Draft,
    out: &mut Vec<u8>,
) {
    let kind = draft.body.kind();
    heard.tx_num = heard.tx_num.wrapping_add(1);
    let tx_num = if dice.once_in(200) { dice.near(heard.tx_num) } else { heard.tx_num };
    let payload_len = if draft.body.may_have_payload() { draft.payload } else { 0 };
    let mut flags = if dice.once_in(2) { Flags::ACK_REQUEST } else { 0 };
    // Packets without a checksum in a context with checksums are dropped at once, so they are rare.
    if manner.checked != dice.once_in(64) {
        flags |= Flags::CHECKED;
    }
    let packet = Packet {
        header: Header {
            kind,
            flags: Flags(flags),
            backlog: Backlog(dice.below(16) as u8),
            path: dice.next() as u8,
            slot: manner.slot,
            dst_tag: if kind == PacketType::Open { 0 } else { heard.tag },
            tx_num,
            timestamp: (crate::bench::block::now_ns() / 16) as u32,
            psn: draft.psn,
            una_delta: draft.una_delta,
            ack_echo: dice.next() as u16,
        },
        ack: draft.ack.as_ref().filter(|_| kind.may_carry_ack()),
        body: draft.body,
        payload_len,
    };
    let mut bytes = [0; HEADERS_BYTES_MAX];
    let len = emit(&packet, &mut bytes);
    out.clear();
    out.extend_from_slice(&bytes[..len]);
    out.resize((len + usize::from(payload_len)).min(manner.room), 0x5A);
    if kind == PacketType::Open {
        out.resize(manner.room, 0);
    }
    stamp(out);
}
