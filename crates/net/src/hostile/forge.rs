//! Packets of a liar: well-formed, of every type, with the right tag, and untrue. Half of them say
//! something that the victim can use (numbers near its own, echoes of what it really sent), because
//! a lie near the truth gets further than noise.

use srd_wire::{
    AckBlock, Backlog, Body, Echo, Flags, HEADERS_BYTES_MAX, Header, Message, OpenParams, Packet,
    PacketType, Rdma, ReadReq, ReadResp, ReadStatus, Verdict, VerdictEntry, emit, stamp,
};

/// Verdicts that a block may list: all but "accepted".
const REFUSALS: [Verdict; 9] = [
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

/// Random numbers of a run (splitmix64): a failure can be repeated by its seed.
pub struct Dice(pub u64);

impl Dice {
    /// The next 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    /// A number near `n`, or any.
    fn near(&mut self, n: u32) -> u32 {
        match self.below(8) {
            0 => self.next() as u32,
            1 => n.wrapping_add(0x7FFF_0000),
            2 => n.wrapping_sub(self.below(70_000) as u32),
            _ => n.wrapping_add(self.below(64) as u32).wrapping_sub(32),
        }
    }
}

/// What the liar has heard from its victim, and where its own numbers stand.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Tag that the victim gave.
    pub tag: u32,
    /// The liar's own tag.
    pub own_tag: u32,
    /// PSN that an honest sender would use next.
    pub psn: u32,
    /// Transmission number that an honest sender would use next.
    pub tx_num: u32,
    /// The victim's newest PSN.
    pub peer_psn: u32,
    /// Headers of what it sent last: transmission number, timestamp, path.
    pub echoes: Vec<(u32, u32, u8)>,
    /// Numbers of its messages.
    pub msg_ids: Vec<u32>,
    /// A queue pair of its.
    pub qpn: u16,
}

impl Heard {
    /// Keeps what a packet of the victim tells.
    pub fn note(&mut self, packet: &Packet<'_>) {
        let h = &packet.header;
        if packet.header.kind.is_reliable() {
            self.peer_psn = h.psn;
        }
        let keep = |list: &mut Vec<(u32, u32, u8)>, entry| {
            if list.len() == 64 {
                list.remove(0);
            }
            list.push(entry);
        };
        keep(&mut self.echoes, (h.tx_num, h.timestamp, h.path));
        let msg = match packet.body {
            Body::Send(m) | Body::Write(m, _) | Body::ReadReq(m, _) => Some(m),
            Body::WriteImm { msg, .. } => Some(msg),
            _ => None,
        };
        if let Some(m) = msg {
            self.qpn = m.src_qpn;
            if self.msg_ids.len() == 64 {
                self.msg_ids.remove(0);
            }
            self.msg_ids.push(m.msg_id);
        }
    }

    fn msg_id(&self, dice: &mut Dice) -> u32 {
        if self.msg_ids.is_empty() || dice.once_in(4) {
            return dice.next() as u32;
        }
        self.msg_ids[dice.below(self.msg_ids.len() as u64) as usize]
    }
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
        ..AckBlock::default()
    };
    for _ in 0..dice.below(4) {
        ack.words.push(dice.next());
    }
    for _ in 0..dice.below(6) {
        let verdict = REFUSALS[dice.below(9) as usize];
        let _ = ack.verdicts.try_push(VerdictEntry::one(dice.near(heard.peer_psn), verdict));
    }
    for _ in 0..dice.below(6) {
        let known = !heard.echoes.is_empty() && !dice.once_in(3);
        let (tx_num, timestamp, path) = if known {
            heard.echoes[dice.below(heard.echoes.len() as u64) as usize]
        } else {
            (dice.near(heard.tx_num), dice.next() as u32, dice.next() as u8)
        };
        let delay = dice.next() as u16 >> dice.below(16);
        let echo = Echo { tx_num, timestamp, delay, path, ce: dice.once_in(4) };
        let _ = ack.echoes.try_push(echo);
    }
    ack
}

fn body_forge(dice: &mut Dice, heard: &Heard) -> Body {
    let msg = Message {
        src_qpn: dice.next() as u16,
        dst_qpn: if dice.once_in(3) { dice.next() as u16 } else { heard.qpn },
        qkey: if dice.once_in(3) { dice.next() as u32 } else { super::party::QKEY },
        msg_id: heard.msg_id(dice),
    };
    let rdma = Rdma { rkey: dice.below(1 << 14) as u32, raddr: dice.next() >> dice.below(64) };
    let params = OpenParams {
        tag: if dice.once_in(2) { heard.own_tag } else { dice.next() as u32 },
        incarnation: dice.next(),
        echo_tag: if dice.once_in(2) { heard.tag } else { dice.next() as u32 },
        psn_start: dice.near(heard.psn),
        tx_num_start: dice.next(),
        window: dice.next() as u16,
        mtu: dice.next() as u16,
        reads_max: dice.next() as u16 >> dice.below(16),
        write_imms_max: dice.next() as u16 >> dice.below(16),
        rx_budget: dice.next() as u32,
        features: srd_wire::Features(dice.next() as u32 & 0x4F),
        cookie: dice.next(),
    };
    match dice.below(20) {
        // What ends the conversation is rare: the lies after it would reach nobody.
        0 if dice.once_in(50) => Body::Open(params),
        1 => Body::OpenAck(params),
        2 => Body::Challenge { echo_tag: heard.own_tag, cookie: dice.next() },
        3 if dice.once_in(50) => Body::Close,
        4 if dice.once_in(50) => Body::CloseAck,
        5 => Body::Probe,
        6 => Body::Send(msg),
        7 => Body::SendImm(msg, dice.next() as u32),
        8 => Body::Write(msg, rdma),
        9 => Body::WriteImm { msg, rdma, msg_len: dice.next() as u32, imm: 1 },
        10 => {
            let len = dice.next() as u32 >> dice.below(32);
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
        _ => Body::Ack,
    }
}

/// One forged datagram, in `out`; its length.
pub fn forge(dice: &mut Dice, heard: &mut Heard, timestamp: u32, out: &mut Vec<u8>) {
    let body = body_forge(dice, heard);
    let kind = body.kind();
    let wants = kind == PacketType::Ack || (kind.may_carry_ack() && dice.once_in(2));
    let ack = wants.then(|| ack_forge(dice, heard));
    // Mostly as an honest sender numbers its packets, or nothing would get as far as the lie.
    heard.tx_num = heard.tx_num.wrapping_add(1);
    let tx_num = if dice.once_in(200) { dice.near(heard.tx_num) } else { heard.tx_num };
    let psn = if dice.once_in(10) { dice.near(heard.psn) } else { heard.psn };
    heard.psn = heard.psn.wrapping_add(u32::from(kind.is_reliable()));
    let payload_len = if body.may_have_payload() { dice.below(1200) as u16 } else { 0 };
    let mut flags = if dice.once_in(2) { Flags::ACK_REQUEST } else { 0 };
    // What lacks its checksum is dropped at once: few are sent like that.
    if !dice.once_in(64) {
        flags |= Flags::CHECKED;
    }
    let packet = Packet {
        header: Header {
            kind,
            flags: Flags(flags),
            backlog: Backlog(dice.below(16) as u8),
            path: dice.next() as u8,
            slot: 0,
            dst_tag: if kind == PacketType::Open { 0 } else { heard.tag },
            tx_num,
            timestamp,
            psn,
            una_delta: if dice.once_in(8) { dice.next() as u16 } else { dice.below(64) as u16 },
            ack_echo: dice.next() as u16,
        },
        ack: ack.as_ref(),
        body,
        payload_len,
    };
    let mut bytes = [0; HEADERS_BYTES_MAX];
    let len = emit(&packet, &mut bytes);
    out.clear();
    out.extend_from_slice(&bytes[..len]);
    out.resize(len + usize::from(payload_len), 0x5A);
    stamp(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forged_is_well_formed_and_of_every_type() {
        let (mut dice, mut heard) = (Dice(1), Heard { tag: 7, ..Heard::default() });
        let mut kinds = std::collections::BTreeMap::new();
        let (mut out, mut ack) = (Vec::new(), AckBlock::default());
        for n in 0..100_000 {
            forge(&mut dice, &mut heard, n, &mut out);
            let (packet, _) = srd_wire::parse_checked(&out, &mut ack).unwrap();
            *kinds.entry(packet.header.kind as u8).or_insert(0) += 1;
        }
        // All 18 but Reset, which would end the conversation.
        assert!(kinds.len() >= 16, "{kinds:?}");
        assert!(!kinds.contains_key(&(PacketType::Reset as u8)));
    }
}
