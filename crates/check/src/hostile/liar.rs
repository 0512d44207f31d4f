//! A peer that speaks the wire format, holds valid tags and sends false information.
//!
//! It opens contexts like an engine and records the packets it receives; then it answers with
//! well-formed packets of every type whose content is false.

use super::liar_acks::VERDICTS;
use super::peer::{QKEY_HOSTILE, REGION_AT};
use super::plan::Mode;
use crate::draw::Draw;
use srd_core::Endpoint;
use srd_core::wire::{
    self, AckBlock, Backlog, Body, CloseCode, Features, Flags, Header, Message, OpenParams, Packet,
    Rdma, ReadReq, ReadResp, ReadStatus, Verdict, VerdictEntry,
};
use std::collections::VecDeque;

/// Packets of the victim that a liar remembers.
const SEEN_MAX: usize = 64;
/// One of this many packets lacks the checksum.
const UNCHECKED_EVERY: u64 = 61;
/// Most packets of one creep; more would leave no time for other lies.
const CREEP_MAX: u32 = 300;
/// Transmission numbers that are left out before one packet, by liars that do so.
const LEFT_OUT: [u64; 4] = [0, 50, 500, 2_000];
/// Silence after which the victim may forget grants: half of what the engine takes, because packets
/// wait on the way.
const SILENCE_LEAST_NS: u64 = 500_000;
/// Unit in which grants are told and counted.
const GRANT_UNIT_BYTES: u64 = wire::CREDIT_UNIT_BYTES as u64;

/// What the victim granted to a liar, and what it may have earned.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grants {
    /// Bytes granted, in all contexts.
    pub bytes: u64,
    /// Bytes of its reliable packets, each rounded up to the unit of grants.
    pub earned_bytes: u64,
    /// Times at which the victim may have forgotten what it had granted: a context began, or the
    /// liar fell silent.
    pub afresh: u64,
    /// The victim's tag of the present context, and the counter of grants in its last packet.
    tag: u32,
    counter: u32,
}

impl Grants {
    fn opened(&mut self, tag: u32) {
        if tag != self.tag {
            (self.tag, self.counter) = (tag, 0);
            self.afresh += 1;
        }
    }

    fn told(&mut self, counter: u32) {
        let growth = counter.wrapping_sub(self.counter);
        if growth <= u32::MAX / 2 {
            self.bytes += u64::from(growth) * GRANT_UNIT_BYTES;
            self.counter = counter;
        }
    }

    /// Most bytes that these may have been granted by a receiver that lets them hold `ahead_bytes`
    /// together beyond what each has sent. What is sent uses up grants, and so does what is left
    /// out, as long as it is not more; what has arrived may be held once more, and all of it anew
    /// whenever it may have been forgotten.
    pub fn most_bytes(all: &[Self], ahead_bytes: u64) -> u64 {
        let own = all.iter().map(|g| (2 + g.afresh) * g.earned_bytes).sum::<u64>();
        own + all.iter().map(|g| g.afresh).sum::<u64>().max(1) * ahead_bytes
    }
}

/// The lies that a liar prefers. Every liar sends all kinds, but each kind takes packets and time
/// from the others: some work only in close succession, some only after many others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trade {
    /// All kinds equally.
    All,
    /// Acknowledgments: echoes, verdicts, windows.
    Acks,
    /// Packets with PSNs far ahead of a lower edge that does not move.
    Edges,
    /// Reads and read responses.
    Reads,
    /// Claims to have more to send than anybody, without any payload.
    Claims,
}

/// A packet that the liar received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub header: Header,
    pub body: Body,
}

/// A lying peer; see the module.
#[derive(Debug)]
pub(super) struct Liar {
    pub at: Endpoint,
    pub host: usize,
    mode: Mode,
    trade: Trade,
    mtu: u16,
    /// Tags assigned by the victim and by the liar.
    tag: u32,
    own_tag: u32,
    incarnation: u64,
    psn: u32,
    tx_num: u64,
    /// Latest acknowledgment received from the victim, and the window granted in it.
    told: u32,
    window: u16,
    pub(super) highest: u32,
    /// First PSN of the range that the liar pretends not to be acknowledged.
    stuck: Option<u32>,
    pub(super) seen: VecDeque<Seen>,
    /// Memory at the victim that it may write: queue pair and key.
    pub target: (u16, u32),
    out: Vec<Vec<u8>>,
    /// It leaves out most transmission numbers, as if packets with them were lost.
    pub leaves_out: bool,
    /// Packets sent.
    pub said: u64,
    pub(super) grants: Grants,
    /// When it last sent something.
    sent_at_ns: u64,
    /// Packets of the next action that count as one.
    pub uncounted: u32,
}

impl Liar {
    /// A liar that prefers some kind of lie; `claims`: the claim to a share of what is scarce.
    pub fn new(
        at: Endpoint,
        host: usize,
        (mode, claims): (Mode, bool),
        mtu: u16,
        d: &mut Draw,
    ) -> Self {
        let bits = d.bits();
        let trade = d.pick(&[Trade::All, Trade::All, Trade::Acks, Trade::Edges, Trade::Reads]);
        Self {
            at,
            host,
            mode,
            trade: if claims { Trade::Claims } else { trade },
            mtu,
            tag: 0,
            own_tag: bits as u32 | 1,
            incarnation: d.bits(),
            psn: d.bits() as u32,
            tx_num: d.bits() >> 33,
            told: 0,
            window: 16,
            highest: 0,
            stuck: None,
            seen: VecDeque::new(),
            target: (0, 0),
            out: Vec::new(),
            leaves_out: false,
            said: 0,
            grants: Grants::default(),
            sent_at_ns: 0,
            uncounted: 0,
        }
    }

    /// Notes when packets are sent: the victim forgets grants after a silence.
    pub fn turn(&mut self, now_ns: u64) {
        if self.out.is_empty() {
            return;
        }
        self.grants.afresh += u64::from(now_ns - self.sent_at_ns > SILENCE_LEAST_NS);
        self.sent_at_ns = now_ns;
    }

    /// Removes the packets to be sent.
    pub fn out(&mut self) -> std::vec::Drain<'_, Vec<u8>> {
        self.out.drain(..)
    }

    /// Processes a packet of the victim and sometimes answers at once.
    pub fn hear(&mut self, d: &mut Draw, bytes: &[u8]) {
        let mut ack = AckBlock::default();
        let Ok((p, _)) = wire::parse(bytes, &mut ack) else { return };
        match p.body {
            Body::Open(o) => {
                self.grants.opened(o.tag);
                self.tag = o.tag;
                self.highest = o.psn_start;
                let params = self.params(d, o.tag, false);
                if d.percent(95) {
                    self.say(d, Body::OpenAck(params), None, 0);
                }
                return;
            }
            Body::OpenAck(o) if o.echo_tag == self.own_tag => {
                self.grants.opened(o.tag);
                self.tag = o.tag;
                self.highest = o.psn_start;
                self.window = o.window;
                return;
            }
            // The victim doubts that the liar has the context, or asks for a proof of its address.
            // Whoever answers a doubt must repeat its number: a false answer that does so counts.
            Body::Challenge { echo_tag, cookie } if self.tag != 0 && d.percent(70) => {
                let mut params = self.params(d, self.tag, false);
                params.cookie = cookie;
                let far = d.pick(&[0, 1, 5_000, 8_193, 1 << 20, 1 << 62]);
                params.tx_num_start = params.tx_num_start.wrapping_add(far);
                let gone = Body::Reset { echo_tag, code: CloseCode::UnknownTag, nonce: cookie };
                let body = if d.percent(70) { Body::OpenAck(params) } else { gone };
                return self.say(d, body, None, 0);
            }
            Body::Challenge { cookie, .. } => {
                let mut params = self.params(d, 0, false);
                params.cookie = cookie;
                return self.say(d, Body::Open(params), None, 0);
            }
            Body::Reset { .. } => {
                self.tag = 0;
                return;
            }
            _ => {}
        }
        if let Some(a) = p.ack {
            self.told = a.cum;
            self.grants.told(a.credit);
        }
        if p.header.kind.is_reliable() && (p.header.psn.wrapping_sub(self.highest) as i32) >= 0 {
            self.highest = p.header.psn.wrapping_add(1);
        }
        if self.seen.len() == SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(Seen { header: p.header, body: p.body });
        match self.mode {
            Mode::Stateful => self.answer(d),
            _ if d.percent(50) => self.act(d),
            _ => {}
        }
    }

    /// Sends something unprompted.
    pub fn act(&mut self, d: &mut Draw) {
        // A new context would hold grants of its own.
        if self.tag == 0 || !self.leaves_out && d.percent(2) {
            if d.percent(20) {
                self.incarnation = d.bits();
                self.own_tag = d.bits() as u32 | 1;
            }
            let wild = d.percent(10);
            let params = self.params(d, 0, wild);
            return self.say(d, Body::Open(params), None, 0);
        }
        if self.trade == Trade::Claims && (self.leaves_out || d.percent(90)) {
            return self.say(d, Body::Tombstone, None, 0);
        }
        if d.percent(40) {
            match self.trade {
                Trade::All | Trade::Claims => {}
                Trade::Acks => {
                    let block = self.block(d);
                    return self.say(d, Body::Ack, Some(&block), 0);
                }
                Trade::Edges if d.percent(5) => return self.creep(d),
                Trade::Reads if d.percent(20) => return self.hoard(d),
                Trade::Edges => return self.request(d),
                Trade::Reads => return self.read_response(d),
            }
        }
        match d.below(14) {
            12 if d.percent(10) => self.creep(d),
            13 if d.percent(10) => self.hoard(d),
            0 => self.read_response(d),
            1 | 2 => self.request(d),
            3 => self.control(d),
            4 => {
                // If a replay window accepted this number, it would be the newest for ever.
                let before = self.tx_num;
                let far = d.pick(&[8_191, 8_193, 70_000, 1 << 20, 0x7FFF_0000, 0x8000_0001]);
                self.tx_num = self.tx_num.wrapping_add(far);
                let block = self.block(d);
                self.say(d, Body::Probe, Some(&block), 0);
                if d.percent(90) {
                    self.tx_num = before;
                }
            }
            5 => self.say(d, Body::Probe, None, 0),
            _ => {
                let block = self.block(d);
                self.say(d, Body::Ack, Some(&block), 0);
            }
        }
    }

    /// A wrong answer to the last packet: refuses what was accepted, accepts what was refused, or
    /// judges one segment of many differently.
    fn answer(&mut self, d: &mut Draw) {
        let Some(&last) = self.seen.back() else { return };
        let psn = last.header.psn;
        let reliable = last.header.kind.is_reliable();
        match d.below(10) {
            0 | 1 if reliable => {
                let verdict = d.pick(&VERDICTS);
                self.judge(d, &[(psn, verdict)]);
                if matches!(last.body, Body::ReadReq(..)) || d.percent(30) {
                    self.read_response(d);
                }
            }
            2 if reliable => {
                // One segment of a long request; the window is closed while it waits.
                let some = self.seen[d.below(self.seen.len() as u64) as usize].header.psn;
                let mut block = self.block_true(d);
                block.rx_budget = 0;
                block.verdicts.push(VerdictEntry::one(some, Verdict::Rnr));
                self.say(d, Body::Ack, Some(&block), 0);
            }
            3 if reliable => {
                let (a, b) = (d.pick(&VERDICTS), d.pick(&VERDICTS));
                self.judge(d, &[(psn, a)]);
                self.judge(d, &[(psn, b), (psn.wrapping_sub(1), a)]);
            }
            4 => self.read_response(d),
            5 => self.act(d),
            6 => {}
            _ => {
                // A true answer, so that the conversation continues.
                let block = self.block_true(d);
                self.say(d, Body::Ack, Some(&block), 0);
            }
        }
    }

    /// One of the packets heard lately.
    pub(super) fn seen_any(&self, d: &mut Draw) -> Option<Seen> {
        (!self.seen.is_empty()).then(|| self.seen[d.below(self.seen.len() as u64) as usize])
    }

    /// A read response: at a wrong offset, twice, too long, or reporting that the region is gone.
    fn read_response(&mut self, d: &mut Draw) {
        let reads = self.seen.iter().filter_map(|s| match s.body {
            Body::ReadReq(m, r) => Some((m.msg_id, r.len)),
            _ => None,
        });
        let reads: Vec<(u32, u32)> = reads.collect();
        let (msg_id, len) = match reads.is_empty() {
            true => (d.bits() as u32 & 0x1_000F, 64),
            false => d.pick(&reads),
        };
        let mtu = u64::from(self.mtu);
        let any = d.below(u64::from(len) + 2) as u32;
        let offset = d.pick(&[0, 0, self.mtu.into(), any, len, u32::MAX]);
        let status = if d.percent(25) { ReadStatus::RegionGone } else { ReadStatus::Ok };
        let payload = match status {
            ReadStatus::Ok => d.pick(&[u64::from(len), mtu, mtu, 1, 0, mtu + 8]).min(mtu + 8),
            _ => 0,
        };
        let body = Body::ReadResp(ReadResp { msg_id, offset, status });
        self.say(d, body, None, payload as u16);
    }

    /// A request to the victim.
    fn request(&mut self, d: &mut Draw) {
        let (qpn, key) = self.target;
        let msg = Message {
            src_qpn: d.bits() as u16,
            dst_qpn: if d.percent(90) { qpn } else { d.bits() as u16 },
            qkey: if d.percent(90) { QKEY_HOSTILE } else { d.bits() as u32 },
            msg_id: d.below(6) as u32 | 0x10_0000,
        };
        let rdma = Rdma {
            rkey: if d.percent(90) { key } else { d.bits() as u32 },
            raddr: d.pick(&[REGION_AT, REGION_AT + 100, 0, u64::MAX - 10]),
        };
        let len = d.pick(&[0, 1, u64::from(self.mtu), u64::from(self.mtu) + 1, 1 << 20, 1 << 31]);
        // Sometimes more than a packet may carry.
        let one = len.min(u64::from(self.mtu) + d.pick(&[0, 0, 0, 8])) as u16;
        let (imm, msg_len) = (d.bits() as u32, len as u32);
        let body = match d.below(8) {
            0 => Body::Send(msg),
            1 => Body::SendImm(msg, imm),
            2 => Body::Write(msg, rdma),
            3 | 4 => Body::WriteImm { msg, rdma, msg_len, imm },
            5 => Body::ReadReq(msg, ReadReq { rkey: rdma.rkey, raddr: rdma.raddr, len: msg_len }),
            6 => Body::Cancel { msg_id: msg.msg_id },
            _ => Body::Tombstone,
        };
        let payload = if body.may_have_payload() { one } else { 0 };
        let block = self.block_true(d);
        self.say(d, body, Some(&block), payload);
    }

    /// Many consecutive packets without content, as if none were acknowledged: more than a window
    /// of the victim holds.
    fn creep(&mut self, d: &mut Draw) {
        let beyond = u32::from(self.window).max(64) + 8;
        if beyond > CREEP_MAX {
            return;
        }
        self.stuck = Some(self.psn);
        for _ in 0..beyond {
            self.say(d, Body::Tombstone, None, 0);
        }
        self.uncounted += beyond;
    }

    /// Many long reads: more than one peer is entitled to.
    fn hoard(&mut self, d: &mut Draw) {
        let (dst_qpn, rkey) = self.target;
        let reads = d.range(3, 12) as u32;
        self.uncounted += reads;
        for _ in 0..reads {
            let msg_id = d.bits() as u32;
            let msg = Message { src_qpn: 0, dst_qpn, qkey: QKEY_HOSTILE, msg_id };
            let read = ReadReq { rkey, raddr: REGION_AT, len: 1 << 16 };
            self.say(d, Body::ReadReq(msg, read), None, 0);
        }
    }

    /// Handshake, reset and close packets.
    fn control(&mut self, d: &mut Draw) {
        let any = d.bits() as u32;
        let echo_tag = d.pick(&[self.own_tag, self.own_tag, self.tag, any]);
        let body = match d.below(6) {
            0 => Body::Reset { echo_tag, code: CloseCode::UnknownTag, nonce: 0 },
            1 => Body::Reset { echo_tag: self.tag, code: CloseCode::UnknownTag, nonce: 0 },
            2 => Body::Close,
            3 => Body::CloseAck,
            4 => Body::Challenge { echo_tag, cookie: d.bits() },
            _ => {
                let echo = self.tag;
                Body::OpenAck(self.params(d, echo, true))
            }
        };
        self.say(d, body, None, 0);
    }

    fn params(&mut self, d: &mut Draw, echo_tag: u32, wild: bool) -> OpenParams {
        let wild = wild || d.percent(20);
        let pick = |d: &mut Draw, good: u64, bad: &[u64]| if wild { d.pick(bad) } else { good };
        OpenParams {
            tag: self.own_tag,
            incarnation: self.incarnation,
            echo_tag,
            psn_start: self.psn,
            tx_num_start: self.tx_num,
            window: pick(d, 64, &[0, 1, 16, 17, 4096, 32_768, 65_535]) as u16,
            mtu: pick(d, self.mtu.into(), &[0, 1, 64, 65_535]) as u16,
            reads_max: pick(d, 4, &[0, 1, 65_535]) as u16,
            write_imms_max: pick(d, 4, &[0, 1, 65_535]) as u16,
            rx_budget: pick(d, u32::MAX.into(), &[0, 1, 4096, u32::MAX.into()]) as u32,
            features: Features(pick(d, 0x6F, &[0, 3, 0xF, 0xFFFF_FFFF & !(1 << 5)]) as u32),
            cookie: 0,
        }
    }

    pub(super) fn say(&mut self, d: &mut Draw, body: Body, ack: Option<&AckBlock>, payload: u16) {
        let kind = body.kind();
        let ack = ack.filter(|_| kind.may_carry_ack());
        let left_out = if self.leaves_out { d.pick(&LEFT_OUT) } else { 0 };
        self.tx_num = self.tx_num.wrapping_add(1 + left_out);
        let mut psn = self.psn;
        let claims = self.trade == Trade::Claims;
        if kind.is_reliable() && claims {
            self.psn = self.psn.wrapping_add(1);
        } else if kind.is_reliable() {
            // Mostly in order, so that the window moves; sometimes a gap, a duplicate or a distant
            // PSN.
            psn = match d.below(100) {
                0..5 => psn.wrapping_add(d.below(64) as u32),
                5..10 => psn.wrapping_sub(d.below(64) as u32),
                10..15 => d.bits() as u32,
                _ => psn,
            };
            // A skipped number comes later or never, so that a gap remains.
            let goes_on = if psn == self.psn { d.percent(95) } else { d.percent(5) };
            self.psn = self.psn.wrapping_add(u32::from(goes_on));
        }
        match self.stuck {
            None if kind.is_reliable() && !claims && d.percent(3) => self.stuck = Some(psn),
            Some(_) if d.percent(1) => self.stuck = None,
            _ => {}
        }
        let una_delta = if let Some(una) = self.stuck {
            psn.wrapping_sub(una).min(u16::MAX.into()) as u16
        } else if claims || d.percent(80) {
            psn.wrapping_sub(self.told).min(63) as u16
        } else {
            d.pick(&[0, 1, 4096, u16::MAX])
        };
        let any = d.bits() as u16;
        let mut flags = if d.percent(40) { Flags::ACK_REQUEST } else { 0 };
        if self.said % UNCHECKED_EVERY != 1 {
            flags |= Flags::CHECKED;
        }
        let header = Header {
            kind,
            flags: Flags(flags),
            backlog: Backlog(if claims { 15 } else { d.below(16) as u8 }),
            path: d.bits() as u8,
            slot: (self.at.port - srd_core::config::PORT_BASE_DEFAULT) as u8,
            dst_tag: if matches!(body, Body::Open(_)) { 0 } else { self.tag },
            tx_num: self.tx_num as u32,
            timestamp: d.bits() as u32,
            psn,
            una_delta,
            ack_echo: d.pick(&[0, 1, any]),
        };
        let packet = Packet { header, ack, body, payload_len: payload };
        let mut bytes = vec![0; packet.headers_len()];
        wire::emit(&packet, &mut bytes);
        bytes.resize(bytes.len() + usize::from(payload), 0xEE);
        wire::stamp(&mut bytes);
        if kind.is_reliable() {
            self.grants.earned_bytes += (bytes.len() as u64).next_multiple_of(GRANT_UNIT_BYTES);
        }
        self.said += 1;
        self.out.push(bytes);
    }
}

#[cfg(test)]
#[path = "liar_tests.rs"]
mod tests;
