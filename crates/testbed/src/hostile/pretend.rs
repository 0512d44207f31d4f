//! A stateful liar: most of its packets are what an honest peer would send, and each lie
//! contradicts state that both ends have. Such lies pass more checks than random ones, because they
//! fit the victim's state.

use super::forge::{Draft, Manner, REFUSALS, entry, params, reset};
use super::heard::{Dice, Heard, Seen};
use srd_wire::{
    AckBlock, Body, Echo, Message, OpenParams, PacketType, Rdma, ReadReq, ReadResp, ReadStatus,
    Verdict, VerdictEntry,
};

/// Longest payload that the liar acknowledges while it pretends to be behind a small MTU.
const SHORT: u16 = 1200;
/// Duration of this pretence in steps.
const DEAF_STEPS: u32 = 400;
/// Verdicts after which a requester retries.
const AGAIN: [Verdict; 2] = [Verdict::Rnr, Verdict::Busy];

/// State of the liar.
#[derive(Debug, Default)]
pub struct Act {
    /// The next packet, chosen together with the previous one.
    next: Option<Draft>,
    /// Remaining steps in which long packets count as not received ("deaf").
    deaf: u32,
    /// Newest message number.
    msg_id: u32,
}

impl Act {
    /// The next packet.
    pub fn step(&mut self, dice: &mut Dice, heard: &mut Heard, manner: Manner) -> Draft {
        if let Some(next) = self.next.take() {
            return next;
        }
        self.deaf = self.deaf.saturating_sub(1);
        match dice.below(20) {
            0 => self.refusal(dice, heard),
            1 => self.second_thoughts(dice, heard),
            2 => self.shut_window(dice, heard),
            3 if dice.once_in(20) => {
                self.deaf = DEAF_STEPS;
                self.truth(dice, heard)
            }
            4 | 5 => self.read_answer(dice, heard, manner),
            6..=8 => self.request(dice, heard, manner),
            9 => handshake(dice, heard, manner),
            10 => plain(Body::Probe, Some(self.block(dice, heard)), heard),
            11 => self.untimely_echo(dice, heard),
            12 if dice.once_in(20) => {
                // Distances at which a receiver could wrongly take the number for the newest one,
                // permanently.
                let far = dice.pick(&[8_191, 8_193, 70_000, 1 << 20, 0x7FFF_0000, 0x8000_0001]);
                heard.tx_num = heard.tx_num.wrapping_add(far);
                self.truth(dice, heard)
            }
            _ => self.truth(dice, heard),
        }
    }

    /// The acknowledgment block of an honest receiver, but without long packets while "deaf".
    fn block(&self, dice: &mut Dice, heard: &Heard) -> AckBlock {
        let mut ack = AckBlock {
            cum: heard.peer_psn,
            base: heard.peer_psn,
            rx_budget: u32::MAX,
            credit: u32::MAX / 2,
            ..AckBlock::default()
        };
        let came = |s: &&Seen| self.deaf == 0 || s.payload <= SHORT;
        let missing = heard.seen.iter().find(|s| s.kind.is_reliable() && !came(s));
        if let Some(first) = missing {
            (ack.cum, ack.base) = (first.psn, first.psn);
            let mut words = [0u64; 8];
            for s in heard.seen.iter().filter(|s| s.kind.is_reliable()).filter(came) {
                let d = s.psn.wrapping_sub(first.psn) as usize;
                if d < 512 {
                    words[d / 64] |= 1 << (d % 64);
                }
            }
            ack.words.extend(words);
        }
        for s in heard.seen.iter().rev().filter(came).take(1 + dice.below(4) as usize) {
            let delay = dice.below(16) as u16;
            let (tx_num, timestamp, path) = (s.tx_num, s.timestamp, s.path);
            ack.echoes.push(Echo { tx_num, timestamp, delay, path, ce: false });
        }
        ack
    }

    fn truth(&self, dice: &mut Dice, heard: &Heard) -> Draft {
        plain(Body::Ack, Some(self.block(dice, heard)), heard)
    }

    /// Refuses one or several packets, recent or old, and may omit some of the verdicts.
    fn refusal(&self, dice: &mut Dice, heard: &Heard) -> Draft {
        let mut ack = self.block(dice, heard);
        for _ in 0..1 + dice.below(16) {
            let (psn, verdict) = (heard.psn_any(dice), dice.pick(&REFUSALS));
            ack.verdicts.push(entry(dice, psn, verdict));
        }
        if dice.once_in(2) {
            ack.verdicts.sort_by_key(|e| e.psn);
        }
        ack.partial = dice.once_in(2);
        plain(Body::Ack, Some(ack), heard)
    }

    /// Two contradicting verdicts on one packet, in two blocks; or different ones on the segments
    /// of a message.
    fn second_thoughts(&mut self, dice: &mut Dice, heard: &Heard) -> Draft {
        let psn = heard.psn_any(dice);
        let verdicts = [dice.pick(&AGAIN), dice.pick(&REFUSALS)];
        let [first, second] = verdicts.map(|verdict| {
            let mut ack = self.block(dice, heard);
            if dice.once_in(2) {
                (ack.cum, ack.base) = (psn, psn);
                ack.words.clear();
                ack.words.push(dice.pick(&[1, 3, u64::MAX]));
            }
            ack.verdicts.push(entry(dice, psn, verdict));
            plain(Body::Ack, Some(ack), heard)
        });
        self.next = Some(second);
        first
    }

    /// Closes the window and refuses the oldest packet temporarily.
    fn shut_window(&self, dice: &mut Dice, heard: &Heard) -> Draft {
        let mut ack = self.block(dice, heard);
        (ack.rx_budget, ack.credit) = (0, dice.pick(&[0, 1, u32::MAX]));
        ack.rxq_drops = dice.pick(&[0, 1, 1 << 20, u32::MAX]);
        ack.verdicts.push(VerdictEntry::one(heard.psn_any(dice), dice.pick(&AGAIN)));
        plain(Body::Ack, Some(ack), heard)
    }

    /// Echoes of received packets with impossible timestamps.
    fn untimely_echo(&self, dice: &mut Dice, heard: &Heard) -> Draft {
        let mut ack = self.block(dice, heard);
        for e in &mut ack.echoes {
            e.timestamp = e.timestamp.wrapping_add(dice.pick(&[1, 100, 1 << 20, u32::MAX]));
            e.delay = dice.pick(&[0, 200, 60_000, u16::MAX - 1, u16::MAX]);
            e.ce = true;
        }
        plain(Body::Ack, Some(ack), heard)
    }

    /// Mostly the next segment of a read; or one that leaves a gap, is repeated, exceeds the read,
    /// or reports that the region is gone.
    fn read_answer(&self, dice: &mut Dice, heard: &mut Heard, manner: Manner) -> Draft {
        let piece = (manner.room - 200).min(1400) as u32;
        let n = heard.reads.len() as u64;
        if n == 0 {
            return self.truth(dice, heard);
        }
        let read = &mut heard.reads[dice.below(n) as usize];
        let left = read.len.saturating_sub(read.next).min(piece);
        let (offset, payload) = match dice.below(8) {
            0 => (read.next.saturating_sub(piece), piece),
            1 => (read.next.wrapping_add(piece), piece),
            2 => (read.len, dice.pick(&[0, 1, piece])),
            _ => (read.next, left),
        };
        if offset == read.next {
            read.next += left;
        }
        let status = if dice.once_in(16) { ReadStatus::RegionGone } else { ReadStatus::Ok };
        let body = Body::ReadResp(ReadResp { msg_id: read.msg_id, offset, status });
        let ack = dice.once_in(2).then(|| self.block(dice, heard));
        reliable(body, ack, heard, payload as u16)
    }

    /// A request in the right order, of which parts may be omitted, repeated or cancelled.
    fn request(&mut self, dice: &mut Dice, heard: &mut Heard, manner: Manner) -> Draft {
        if !dice.once_in(3) {
            self.msg_id = self.msg_id.wrapping_add(1);
        }
        let msg = Message {
            src_qpn: u16::from(manner.slot) << 8,
            dst_qpn: heard.qpn,
            qkey: super::party::QKEY.0,
            msg_id: self.msg_id,
        };
        let (rkey, at) = heard.bait;
        let rdma = Rdma { rkey, raddr: at.wrapping_add(dice.pick(&[0, 1400, 2800, u64::MAX])) };
        let len = dice.pick(&[0, 1, 1400, 2800, 64 << 10, 1 << 31]);
        let body = match dice.below(9) {
            0 => Body::Send(msg),
            1 => Body::SendImm(msg, 7),
            2 => Body::Write(msg, rdma),
            3 | 4 => Body::WriteImm { msg, rdma, msg_len: len, imm: 7 },
            5 => Body::ReadReq(msg, ReadReq { rkey, raddr: rdma.raddr, len }),
            6 => Body::Cancel { msg_id: msg.msg_id },
            7 => dice.pick(&[Body::Ud(msg), Body::UdImm(msg, 7)]),
            _ => Body::Tombstone,
        };
        let ack = dice.once_in(2).then(|| self.block(dice, heard));
        let mut draft = reliable(body, ack, heard, len.min(1400) as u16);
        match dice.below(20) {
            0 => draft.psn = draft.psn.wrapping_sub(1),
            1 => heard.psn = heard.psn.wrapping_add(dice.pick(&[1, 64, 4096, 5000])),
            _ => {}
        }
        draft
    }
}

/// Packets of connection setup and teardown, in an open context.
fn handshake(dice: &mut Dice, heard: &Heard, manner: Manner) -> Draft {
    let ends = dice.once_in(20);
    let body = match dice.below(8) {
        // The same incarnation with other parameters, or the next incarnation.
        0 | 1 if ends => {
            let life = heard.life.wrapping_add(dice.below(2));
            let odd = params(dice, heard, manner, true);
            Body::Open(OpenParams { incarnation: life, ..odd })
        }
        2 => {
            let odd = params(dice, heard, manner, true);
            Body::OpenAck(OpenParams { echo_tag: heard.tag, ..odd })
        }
        3 => {
            let echo_tag = dice.pick(&[heard.own_tag, heard.tag]);
            Body::Challenge { echo_tag, cookie: dice.next() }
        }
        4 => reset(dice, heard),
        5 if ends => Body::Close,
        6 if ends => Body::CloseAck,
        _ => Body::Probe,
    };
    plain(body, None, heard)
}

fn plain(body: Body, ack: Option<AckBlock>, heard: &Heard) -> Draft {
    debug_assert!(!body.kind().is_reliable());
    let una_delta = heard.psn.wrapping_sub(heard.told).min(4096) as u16;
    Draft { body, ack, payload: 0, psn: heard.psn, una_delta }
}

fn reliable(body: Body, ack: Option<AckBlock>, heard: &mut Heard, payload: u16) -> Draft {
    let psn = heard.psn;
    heard.psn = psn.wrapping_add(u32::from(body.kind().is_reliable()));
    let una_delta = psn.wrapping_sub(heard.told).min(4096) as u16;
    Draft { body, ack, payload, psn, una_delta }
}

/// The immediate answer of an honest peer, if there is one.
pub fn answer(dice: &mut Dice, heard: &Heard, manner: Manner, kind: PacketType) -> Option<Draft> {
    let echo = |tag| OpenParams { echo_tag: tag, ..params(&mut Dice(0), heard, manner, false) };
    match kind {
        PacketType::Open => Some(plain(Body::OpenAck(echo(heard.tag)), None, heard)),
        // Returning the cookie makes the victim keep the context.
        PacketType::Challenge if heard.tag != 0 && !dice.once_in(8) => {
            Some(plain(Body::OpenAck(echo(heard.tag)), None, heard))
        }
        _ => None,
    }
}
