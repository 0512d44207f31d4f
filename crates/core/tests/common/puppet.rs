//! A peer that says what a test tells it to say, whatever an engine would say in its place.

use super::*;
use srd_core::wire::{
    AckBlock, Backlog, Body, Echo, Features, Flags, Header, Message, OpenParams, PacketType,
    ReadResp, ReadStatus, Verdict,
};

/// Tag of the puppet's end of the context.
pub const TAG: u32 = 0x90_99E7;

/// One engine, and the puppet that is its only peer.
pub struct Puppet {
    pub now: Time,
    pub victim: Host,
    pub qp: Qpn,
    pub ah: AhId,
    /// What the victim sent and the puppet has not looked at.
    pub heard: Vec<Flying>,
    tag: u32,
    psn: u32,
    tx_num: u32,
    /// The victim's PSN to which the puppet acknowledges what arrived.
    pub cum: u32,
}

impl Puppet {
    /// A victim with one queue pair, whose context to the puppet is open.
    pub fn new(cfg: EngineConfig, lie: impl Fn(&mut OpenParams)) -> Self {
        let now = Time(1_000_000);
        let mut victim = Host::new(cfg, 1, now);
        let qp = victim.qp(now, QpType::Srd, false);
        let ah = victim.ah(now, ip(1));
        let (heard, psn, tx_num) = (vec![], 5000, 700);
        let mut p = Self { now, victim, qp, ah, heard, tag: 0, psn, tx_num, cum: 0 };
        let mut params = p.params();
        lie(&mut params);
        p.say(Body::Open(params), 0, None);
        p.listen();
        let open_ack = p.heard.iter().find_map(|f| match f.body {
            Body::OpenAck(a) => Some(a),
            _ => None,
        });
        let open_ack = open_ack.expect("an Open is answered");
        (p.tag, p.cum) = (open_ack.tag, open_ack.psn_start);
        p.say(Body::Probe, 0, None);
        p.pass(Span::from_us(10));
        p.heard.clear();
        p
    }

    /// What the puppet says of itself, where it does not lie.
    pub fn params(&self) -> OpenParams {
        OpenParams {
            tag: TAG,
            incarnation: 77,
            echo_tag: 0,
            psn_start: self.psn,
            tx_num_start: u64::from(self.tx_num),
            window: 4096,
            mtu: 1024,
            reads_max: 64,
            write_imms_max: 64,
            rx_budget: u32::MAX,
            features: Features(Features::RDMA_READ | Features::RDMA_WRITE | Features::ECN),
            cookie: 0,
        }
    }

    /// Answers a question whether it has the context.
    pub fn refute(&mut self, cookie: u64) {
        let params = OpenParams { echo_tag: self.tag, cookie, ..self.params() };
        self.say(Body::OpenAck(params), 0, None);
    }

    /// The tag that the victim chose.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// The victim has opened another context, with this tag and first PSN.
    pub fn context_is(&mut self, tag: u32, psn_start: u32) {
        (self.tag, self.cum) = (tag, psn_start);
    }

    pub fn say(&mut self, body: Body, payload_len: u16, ack: Option<AckBlock>) {
        self.say_as(body, payload_len, ack, |_| {});
    }

    /// The same with a header to which `change` was made.
    pub fn say_as(
        &mut self,
        body: Body,
        payload_len: u16,
        ack: Option<AckBlock>,
        change: impl FnOnce(&mut Header),
    ) {
        let kind = body.kind();
        let mut header = Header {
            kind,
            flags: Flags(if ack.is_some() { Flags::ACK_BLOCK } else { 0 }),
            backlog: Backlog(0),
            path: 0,
            slot: 0,
            dst_tag: if kind == PacketType::Open { 0 } else { self.tag },
            tx_num: self.tx_num,
            timestamp: self.now.to_wire(),
            psn: self.psn,
            una_delta: 0,
            ack_echo: 0,
        };
        change(&mut header);
        self.psn += u32::from(kind.is_reliable());
        self.tx_num += u32::from(!matches!(kind, PacketType::Open | PacketType::OpenAck));
        let packet = Packet { header, ack: ack.as_ref(), body, payload_len };
        let waited = Span::ZERO;
        let meta = RxMeta { src_ip: ip(1), ce: false, rxq_drops: 0, waited };
        self.victim.receive(self.now, &meta, &packet, &vec![1; usize::from(payload_len)]);
    }

    /// `n` packets of the puppet are lost.
    pub fn lose(&mut self, n: u32) {
        self.tx_num += n;
    }

    /// An acknowledgment of everything before `cum`.
    pub fn ack(&mut self, cum: u32, fill: impl FnOnce(&mut AckBlock)) {
        let mut a = AckBlock { cum, base: cum, rx_budget: u32::MAX, ..AckBlock::default() };
        fill(&mut a);
        self.say(Body::Ack, 0, Some(a));
    }

    /// Acknowledges all that was heard, and hears what that makes the victim send.
    pub fn ack_all(&mut self) {
        for f in self.reliable() {
            let next = f.header.psn.wrapping_add(1);
            self.cum = if next.wrapping_sub(self.cum) < 1 << 31 { next } else { self.cum };
        }
        self.ack(self.cum, |_| {});
        self.pass(Span::from_us(50));
    }

    /// Posts a message of one packet, which arrives at once and is acknowledged after `rtt` and
    /// `wait` in the puppet's host, of which its echo tells.
    pub fn echoed(&mut self, rtt: Span, wait: Span) {
        self.post(Opcode::Write, 100);
        self.listen();
        let sent = self.reliable().pop().expect("a message leaves at once").header;
        self.pass(rtt + wait);
        let echo = Echo {
            tx_num: sent.tx_num,
            timestamp: sent.timestamp,
            // The field's units.
            delay: u16::try_from(wait.0 >> 6).unwrap_or(u16::MAX),
            path: sent.path,
            ce: false,
        };
        self.cum = sent.psn.wrapping_add(1);
        self.ack(self.cum, |a| a.echoes.push(echo));
        self.heard.clear();
    }

    /// After which time something more is heard, in whole microseconds.
    pub fn quiet_for(&mut self) -> Span {
        let start = self.now;
        while self.heard.is_empty() {
            assert!(self.now.since(start) < Span::from_secs(1), "nothing is heard for a second");
            self.pass(Span::from_us(1));
        }
        self.heard.clear();
        self.now.since(start)
    }

    /// One segment of a read.
    pub fn respond(&mut self, msg: Message, offset: u32, len: u16) {
        let body = ReadResp { msg_id: msg.msg_id, offset, status: ReadStatus::Ok };
        self.say(Body::ReadResp(body), len, None);
    }

    /// Posts a request of the victim to the puppet.
    pub fn post(&mut self, op: Opcode, len: usize) -> WrHandle {
        let wr = SendRequest { op, ..send_wr(1, self.ah, Qpn(0), len) };
        self.victim.post(self.now, self.qp, wr, vec![0; len]).unwrap()
    }

    /// Hears what the victim sends now.
    pub fn listen(&mut self) {
        loop {
            let out = self.victim.transmit(self.now);
            if out.is_empty() {
                return;
            }
            self.heard.extend(out);
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            self.listen();
            let due = self.victim.engine.next_timeout();
            if due > end {
                break;
            }
            self.now = self.now.max(due);
            self.victim.engine.handle_timeout(self.now);
            self.victim.collect();
        }
        self.now = end;
    }

    /// The reliable packets heard so far; they are forgotten.
    pub fn reliable(&mut self) -> Vec<Flying> {
        let heard = core::mem::take(&mut self.heard);
        heard.into_iter().filter(|f| f.header.kind.is_reliable()).collect()
    }

    /// The message of the read request that was heard.
    pub fn read_heard(&mut self) -> Message {
        let read = self.reliable().into_iter().find_map(|f| match f.body {
            Body::ReadReq(msg, _) => Some(msg),
            _ => None,
        });
        read.expect("a read was posted")
    }

    /// One verdict on one PSN.
    pub fn refuse(&mut self, psn: u32, verdict: Verdict) {
        let cum = psn.wrapping_add(1);
        self.ack(cum, |a| a.verdicts.push(wire::VerdictEntry::one(psn, verdict)));
    }
}
