//! A peer that speaks the wire format, holds valid tags and sends false information.
//!
//! It opens contexts like an engine and records the packets it receives; then it answers with
//! well-formed packets of every type whose content is false.

use super::peer::{QKEY_HOSTILE, REGION_AT};
use super::plan::{DELAY_NS, Mode};
use crate::draw::Draw;
use srd_core::Endpoint;
use srd_core::wire::{
    self, AckBlock, Backlog, Body, CloseCode, Echo, Features, Flags, Header, Message, OpenParams,
    Others, Packet, Rdma, ReadReq, ReadResp, ReadStatus, Verdict, VerdictEntry,
};
use std::collections::VecDeque;

/// Packets of the victim that a liar remembers.
const SEEN_MAX: usize = 64;
/// One of this many packets lacks the checksum.
const UNCHECKED_EVERY: u64 = 61;
/// Most packets of one creep; more would leave no time for other lies.
const CREEP_MAX: u32 = 300;
/// Most that an echoed timestamp is later than the true one, in units of the wire's clock (16 ns):
/// two round trips.
const ECHO_LATER_MAX: u64 = 4 * DELAY_NS / 16;
/// Largest false acknowledgment delay, in units of 64 ns: a round trip. A larger one would leave no
/// round trip time, and the sample would be discarded.
const WAIT_MAX: u64 = 2 * DELAY_NS / 64;
/// Every verdict of the wire format.
const VERDICTS: [Verdict; 8] = [
    Verdict::Rnr,
    Verdict::Busy,
    Verdict::BadQpn,
    Verdict::BadQkey,
    Verdict::BadLength,
    Verdict::BadRkey,
    Verdict::UnknownPeer,
    Verdict::FeatureMismatch,
];

/// A verdict on `psn` and often on some PSNs after it.
fn entry(d: &mut Draw, psn: u32, verdict: Verdict) -> VerdictEntry {
    let others = match d.below(4) {
        0 => Others::Run(d.pick(&[1, 2, 64, 1000, u16::MAX])),
        1 => Others::Mask(1 + (d.bits() as u32 >> d.range(9, 30))),
        _ => Others::Run(1),
    };
    VerdictEntry { psn, verdict, others }
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
struct Seen {
    header: Header,
    body: Body,
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
    highest: u32,
    /// First PSN of the range that the liar pretends not to be acknowledged.
    stuck: Option<u32>,
    seen: VecDeque<Seen>,
    /// Memory at the victim that it may write: queue pair and key.
    pub target: (u16, u32),
    out: Vec<Vec<u8>>,
    /// Packets sent.
    pub said: u64,
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
            said: 0,
            uncounted: 0,
        }
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
                self.tag = o.tag;
                self.highest = o.psn_start;
                let params = self.params(d, o.tag, false);
                if d.percent(95) {
                    self.say(d, Body::OpenAck(params), None, 0);
                }
                return;
            }
            Body::OpenAck(o) if o.echo_tag == self.own_tag => {
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
        if self.tag == 0 || d.percent(2) {
            if d.percent(20) {
                self.incarnation = d.bits();
                self.own_tag = d.bits() as u32 | 1;
            }
            let wild = d.percent(10);
            let params = self.params(d, 0, wild);
            return self.say(d, Body::Open(params), None, 0);
        }
        if self.trade == Trade::Claims && d.percent(90) {
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

    fn judge(&mut self, d: &mut Draw, verdicts: &[(u32, Verdict)]) {
        let mut block = self.block_true(d);
        if d.percent(50) {
            block.cum = verdicts[0].0;
            block.base = block.cum;
            block.words.clear();
            block.words.push(d.pick(&[0, 1, 3, u64::MAX]));
        }
        block.partial = d.percent(20);
        for &(psn, verdict) in verdicts {
            block.verdicts.push(entry(d, psn, verdict));
        }
        self.say(d, Body::Ack, Some(&block), 0);
    }

    fn seen_any(&self, d: &mut Draw) -> Option<Seen> {
        (!self.seen.is_empty()).then(|| self.seen[d.below(self.seen.len() as u64) as usize])
    }

    /// The acknowledgment block of an honest receiver.
    fn block_true(&self, d: &mut Draw) -> AckBlock {
        let mut b = AckBlock { cum: self.highest, base: self.highest, ..AckBlock::default() };
        b.rx_budget = u32::MAX;
        b.credit = u32::MAX / 2;
        b.words.push(0);
        if let Some(s) = self.seen.back() {
            let h = &s.header;
            let delay = d.below(16) as u16;
            b.echoes.push(Echo {
                tx_num: h.tx_num,
                timestamp: h.timestamp,
                delay,
                path: h.path,
                ce: false,
            });
        }
        b
    }

    /// An acknowledgment block with some false fields.
    fn block(&self, d: &mut Draw) -> AckBlock {
        let mut b = self.block_true(d);
        let near = |d: &mut Draw, at: u32| at.wrapping_add(d.below(160) as u32).wrapping_sub(80);
        if d.percent(60) {
            b.cum = near(d, self.highest);
        }
        if d.percent(60) {
            b.base = near(d, b.cum);
        }
        b.words.clear();
        for _ in 0..d.below(9) {
            b.words.push(d.bits() & d.bits());
        }
        for _ in 0..d.below(17) {
            let psn = match self.seen_any(d) {
                Some(s) if d.percent(70) => s.header.psn,
                _ => near(d, self.highest),
            };
            let verdict = d.pick(&VERDICTS);
            b.verdicts.push(entry(d, psn, verdict));
        }
        b.partial = d.percent(30);
        b.echoes.clear();
        for _ in 0..d.below(9) {
            // Echo the latest packet, since each echo is evaluated only once.
            let newest = self.seen.back().copied().filter(|_| d.percent(50));
            let Some(s) = newest.or_else(|| self.seen_any(d)) else { break };
            let h = &s.header;
            let wait = d.below(WAIT_MAX) as u16;
            b.echoes.push(Echo {
                tx_num: if d.percent(80) { h.tx_num } else { d.bits() as u32 },
                timestamp: match d.below(4) {
                    0 | 1 => h.timestamp,
                    // A later timestamp than the true one: the RTT sample is too short.
                    2 => h.timestamp.wrapping_add(d.below(ECHO_LATER_MAX) as u32),
                    _ => h.timestamp ^ d.bits() as u32,
                },
                delay: d.pick(&[0, wait, wait, 60_000, u16::MAX - 1, u16::MAX]),
                path: if d.percent(70) { h.path } else { d.bits() as u8 },
                ce: d.percent(30),
            });
        }
        let any = d.bits() as u32;
        b.credit = d.pick(&[0, 1, 1 << 16, 1 << 31, u32::MAX, any]);
        b.rx_budget = d.pick(&[0, 0, 1, 4096, u32::MAX]);
        b.rxq_drops = d.pick(&[0, 1, 1 << 20, u32::MAX]);
        b.ce_count = d.bits() as u32;
        b.rxq_depth = d.pick(&[0, 1, u16::MAX]);
        b.above = b.rxq_depth > 0;
        b
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

    fn say(&mut self, d: &mut Draw, body: Body, ack: Option<&AckBlock>, payload: u16) {
        let kind = body.kind();
        let ack = ack.filter(|_| kind.may_carry_ack());
        self.tx_num = self.tx_num.wrapping_add(1);
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
        self.said += 1;
        self.out.push(bytes);
    }
}

/// Changes some fields of an engine's packet, which remains well-formed; a packet that cannot be
/// changed is left as it is.
pub(crate) fn mutate(d: &mut Draw, bytes: &mut Vec<u8>) {
    let mut ack = AckBlock::default();
    let Ok((p, start)) = wire::parse(bytes, &mut ack) else { return };
    let (mut header, mut body, had_ack) = (p.header, p.body, p.ack.is_some());
    let payload: Vec<u8> = bytes[start..start + usize::from(p.payload_len)].to_vec();
    let tail = bytes.len() - start;
    for _ in 0..d.range(1, 3) {
        match d.below(14) {
            0 => header.psn = header.psn.wrapping_add(d.pick(&[1, 2, 64, u32::MAX, 1 << 15])),
            1 => header.una_delta = d.pick(&[0, 1, 64, u16::MAX]),
            2 => header.tx_num = header.tx_num.wrapping_add(d.pick(&[1, 9000, 0x7FFF_0000])),
            3 => header.timestamp ^= d.bits() as u32,
            4 => header.path ^= d.bits() as u8,
            5 => header.ack_echo = d.bits() as u16,
            6 => ack.cum = ack.cum.wrapping_add(d.pick(&[1, 2, 64, u32::MAX, u32::MAX - 3])),
            7 => ack.base = ack.base.wrapping_add(d.pick(&[1, 64, u32::MAX])),
            8 => {
                for w in &mut ack.words {
                    *w ^= d.bits() & d.bits() & d.bits();
                }
            }
            9 => {
                let psn = ack.cum.wrapping_add(d.below(8) as u32).wrapping_sub(4);
                let verdict = d.pick(&VERDICTS);
                let _ = ack.verdicts.try_push(entry(d, psn, verdict));
                ack.partial ^= d.percent(20);
            }
            10 => ack.rx_budget = d.pick(&[0, 1, 4096, u32::MAX]),
            11 => {
                for e in &mut ack.echoes {
                    let wait = d.below(WAIT_MAX) as u16;
                    e.delay = d.pick(&[0, wait, u16::MAX]);
                    let later = d.pick(&[1, 100, ECHO_LATER_MAX / 4, 1 << 20, u64::from(u32::MAX)]);
                    e.timestamp = e.timestamp.wrapping_add(later as u32);
                }
            }
            12 => ack.credit = ack.credit.wrapping_add(d.pick(&[1, 1 << 20, 1 << 31])),
            _ => body_mutate(d, &mut body),
        }
    }
    let ack = had_ack.then_some(&ack);
    let payload_len = if body.may_have_payload() { payload.len() as u16 } else { 0 };
    let packet = Packet { header, ack, body, payload_len };
    let mut new = vec![0; packet.headers_len()];
    wire::emit(&packet, &mut new);
    if payload_len > 0 {
        new.extend(payload);
    } else if matches!(body, Body::Open(_)) {
        new.resize(new.len() + tail, 0);
    }
    wire::stamp(&mut new);
    *bytes = new;
}

fn body_mutate(d: &mut Draw, body: &mut Body) {
    match body {
        Body::Open(o) | Body::OpenAck(o) => match d.below(5) {
            0 => o.window = d.pick(&[0, 1, 16, 32_768, 65_535]),
            1 => o.mtu = d.pick(&[0, 63, 64, 65_535]),
            2 => o.reads_max = d.pick(&[0, 65_535]),
            3 => o.psn_start = d.bits() as u32,
            _ => o.write_imms_max = d.pick(&[0, 65_535]),
        },
        Body::ReadResp(r) => {
            r.offset = r.offset.wrapping_add(d.pick(&[1, 64, u32::MAX]));
            if d.percent(30) {
                r.status = ReadStatus::RegionGone;
            }
        }
        Body::ReadReq(_, r) => r.len ^= d.bits() as u32 >> d.below(32),
        Body::WriteImm { msg_len, .. } => *msg_len ^= d.bits() as u32 >> d.below(32),
        Body::Cancel { msg_id } => *msg_id ^= d.bits() as u32 & 0xFF,
        _ => {}
    }
}
