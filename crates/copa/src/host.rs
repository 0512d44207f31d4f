//! A host: its NIC, the streams it sends and the streams it receives.

use crate::config::{CopaConfig, Policy, Verb};
use crate::initiator::Outgoing;
use crate::packet::{Ack, CopaPacket, Data, Nack, Stream};
use crate::ring::Threshold;
use crate::target::{Incoming, Verdict};
use srd_fabric::{Delivered, Host, HostId, HostIo, Outbound, Ps};
use std::collections::BTreeMap;
use std::rc::Rc;

/// First source port; the stream's number is added. A flow keeps its port and hence its path.
const SPORT_BASE: u32 = 49_152;
const SPORTS: u32 = 16_384;
/// Destination port.
const DPORT: u16 = 4_791;
/// Most doublings of the request timeout.
const BACKOFF_MAX: u32 = 6;

/// Counters of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data packets sent, retransmissions included.
    pub data_sent: u64,
    /// Data packets retransmitted.
    pub resent: u64,
    /// Acknowledgments of new data sent.
    pub acks_sent: u64,
    /// Duplicate acknowledgments sent.
    pub duplicates_sent: u64,
    /// NACKs sent.
    pub nacks_sent: u64,
    /// Duplicate acknowledgments received.
    pub duplicates_heard: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Data packets accepted.
    pub taken: u64,
    /// Data packets dropped because the ring was full.
    pub full: u64,
    /// Data packets received out of order and discarded (go-back-N).
    pub early: u64,
    /// Data packets received again.
    pub again: u64,
    /// Requests retransmitted.
    pub requests_repeated: u64,
    /// Frames dropped because of a wrong checksum.
    pub corrupt: u64,
    /// Packets refused by a full NIC queue.
    pub card_refused: u64,
}

impl Counters {
    /// Adds the counters of another host.
    pub const fn add(&mut self, other: &Self) {
        self.data_sent += other.data_sent;
        self.resent += other.resent;
        self.acks_sent += other.acks_sent;
        self.duplicates_sent += other.duplicates_sent;
        self.nacks_sent += other.nacks_sent;
        self.duplicates_heard += other.duplicates_heard;
        self.timeouts += other.timeouts;
        self.taken += other.taken;
        self.full += other.full;
        self.early += other.early;
        self.again += other.again;
        self.requests_repeated += other.requests_repeated;
        self.corrupt += other.corrupt;
        self.card_refused += other.card_refused;
    }
}

/// Progress of a flow's round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The flow.
    pub flow: u32,
    /// The round.
    pub round: u32,
    /// The time.
    pub at: Ps,
    /// The round is complete at its initiator: all is acknowledged (put), or in memory (get).
    pub done: bool,
    /// The round's data are in the receiver's memory.
    pub arrived: bool,
}

/// A stream that this host sends.
#[derive(Debug)]
struct Sending {
    flow: u32,
    dst: HostId,
    bytes: u64,
    /// The last round queued for sending.
    round: Option<u32>,
    out: Outgoing,
}

/// A flow that this host requests (get).
#[derive(Clone, Copy, Debug)]
struct Asking {
    flow: u32,
    from: HostId,
    bytes: u64,
    round: u32,
    /// When the request is retransmitted; [`Ps::MAX`] once data have arrived.
    due: Ps,
    tries: u32,
}

/// A simulated host.
#[derive(Debug)]
pub struct CopaHost {
    id: HostId,
    config: Rc<CopaConfig>,
    sending: Vec<Sending>,
    asking: Vec<Asking>,
    incoming: BTreeMap<Stream, Incoming>,
    threshold: Option<Threshold>,
    /// Stream to be served first.
    turn: usize,
    counters: Counters,
    ends: Vec<End>,
    arrived: Option<(u32, u32)>,
}

type Io<'a, 'b> = &'a mut HostIo<'b, CopaPacket>;

impl CopaHost {
    /// A host without flows.
    pub fn new(id: HostId, config: Rc<CopaConfig>) -> Self {
        let threshold = match config.policy {
            Policy::DupAck(share) => Some(Threshold::new(share)),
            _ => None,
        };
        Self {
            id,
            config,
            sending: Vec::new(),
            asking: Vec::new(),
            incoming: BTreeMap::new(),
            threshold,
            turn: 0,
            counters: Counters::default(),
            ends: Vec::new(),
            arrived: None,
        }
    }

    /// Adds a flow of `bytes` that this host sends to `peer` (put) or requests from `peer` (get).
    /// Returns the token of the call that starts it; the round goes into the token's high half.
    pub fn flow_add(&mut self, flow: u32, peer: HostId, bytes: u64) -> u64 {
        match self.config.verb {
            Verb::Put => {
                self.sending_add(flow, peer, bytes);
                self.sending.len() as u64 - 1
            }
            Verb::Get => {
                let (due, tries) = (Ps::MAX, 0);
                self.asking.push(Asking { flow, from: peer, bytes, round: 0, due, tries });
                self.asking.len() as u64 - 1
            }
        }
    }

    fn sending_add(&mut self, flow: u32, dst: HostId, bytes: u64) {
        let out = Outgoing::new(&self.config);
        self.sending.push(Sending { flow, dst, bytes, round: None, out });
    }

    /// The counters.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Progress since the last call.
    pub fn ends_take(&mut self) -> Vec<End> {
        std::mem::take(&mut self.ends)
    }

    /// Flow and payload of the last accepted packet, if one was accepted since the last call.
    pub const fn arrived_take(&mut self) -> Option<(u32, u32)> {
        self.arrived.take()
    }

    /// Packets acknowledged without a gap, per received stream.
    pub fn acknowledged(&self) -> impl Iterator<Item = (Stream, u64)> {
        self.incoming.iter().map(|(stream, i)| (*stream, i.acknowledged()))
    }

    /// Packets in the retransmit buffer, per sent stream.
    pub fn unacknowledged(&self) -> impl Iterator<Item = u64> {
        self.sending.iter().map(|s| s.out.unacknowledged())
    }

    /// Sends a packet that takes `bytes` on the wire.
    fn emit(&mut self, io: Io<'_, '_>, dst: HostId, number: u32, bytes: u32, packet: CopaPacket) {
        let sport = (SPORT_BASE + number % SPORTS) as u16;
        let out = Outbound { dst, sport, dport: DPORT, bytes, ect: false };
        if io.send(out, packet).is_err() {
            self.counters.card_refused += 1;
        }
    }

    fn ack_send(&mut self, io: Io<'_, '_>, ack: Ack) {
        if ack.own {
            self.counters.acks_sent += 1;
        } else {
            self.counters.duplicates_sent += 1;
        }
        let bytes = self.config.control_bytes;
        self.emit(io, ack.stream.sender, ack.stream.number, bytes, CopaPacket::Ack(ack));
    }

    fn nack_send(&mut self, io: Io<'_, '_>, nack: Nack) {
        self.counters.nacks_sent += 1;
        let bytes = self.config.control_bytes;
        self.emit(io, nack.stream.sender, nack.stream.number, bytes, CopaPacket::Nack(nack));
    }

    /// Acknowledges packets that have fallen to the threshold, each packet by itself.
    fn sinks(&mut self, io: Io<'_, '_>) {
        let Some(written) = io.rx_ring().map(|r| r.written_bytes) else { return };
        while let Some(above) = self.threshold.as_mut().and_then(|t| t.sunk(written)) {
            let incoming = self.incoming.get_mut(&above.stream);
            if let Some(ack) = incoming.map(|i| i.sunk(above.seq)) {
                self.ack_send(io, ack);
            }
        }
        io.rx_ring_call(self.threshold.as_ref().and_then(Threshold::sinks_at));
    }

    /// Handles a data packet.
    fn data(&mut self, io: Io<'_, '_>, data: &Data) {
        self.sinks(io);
        let answered = |a: &&mut Asking| a.flow == data.flow && a.round <= data.round;
        if let Some(asking) = self.asking.iter_mut().find(answered) {
            asking.due = Ps::MAX;
        }
        let config = &self.config;
        let nacks = config.policy != Policy::Aimd;
        let incoming = self.incoming.entry(data.stream).or_insert_with(|| {
            Incoming::new(data.stream, config.recovery, nacks, config.outstanding_packets.into())
        });
        let (verdict, nack) = incoming.arrived(data.seq, data.round, data.end);
        if let Some(nack) = nack {
            self.nack_send(io, nack);
        }
        match verdict {
            Verdict::Take => self.take(io, data),
            Verdict::Early | Verdict::Duplicate => {
                if verdict == Verdict::Early {
                    self.counters.early += 1;
                } else {
                    self.counters.again += 1;
                }
                let ack = self.incoming[&data.stream].refused(data.seq);
                if let Some(ack) = ack {
                    self.ack_send(io, ack);
                }
            }
        }
    }

    /// Puts a packet into the ring and answers it; drops it if the ring is full.
    fn take(&mut self, io: Io<'_, '_>, data: &Data) {
        let ring = io.rx_ring();
        let put = io.rx_ring_put();
        let Some(incoming) = self.incoming.get_mut(&data.stream) else { return };
        let Ok(put) = put else {
            self.counters.full += 1;
            let nack = incoming.dropped(data.seq);
            let stop = nack.and_then(|_| incoming.refused(data.seq));
            if let Some(nack) = nack {
                self.nack_send(io, nack);
            }
            if let Some(stop) = stop {
                self.ack_send(io, stop);
            }
            return;
        };
        self.counters.taken += 1;
        let took = |t: &mut Threshold| t.took(ring.as_ref(), &put, data.stream, data.seq);
        let green = self.threshold.as_mut().is_none_or(took);
        let ack = incoming.took(data.seq, green);
        while let Some(round) = incoming.round_arrived() {
            let done = self.config.verb == Verb::Get;
            let (flow, at) = (data.flow, put.written_at);
            self.ends.push(End { flow, round, at, done, arrived: true });
        }
        self.arrived = Some((data.flow, data.len));
        self.ack_send(io, ack);
        if !green {
            io.rx_ring_call(self.threshold.as_ref().and_then(Threshold::sinks_at));
        }
    }

    /// Handles a request for data.
    fn requested(&mut self, from: HostId, flow: u32, round: u32, bytes: u64) {
        let is = |s: &Sending| s.dst == from && s.flow == flow;
        let i = self.sending.iter().position(is).unwrap_or_else(|| {
            self.sending_add(flow, from, bytes);
            self.sending.len() - 1
        });
        // Ignore a repeated request; a lost request is included in the next one.
        let first = self.sending[i].round.map_or(0, |last| last + 1);
        (first..=round).for_each(|round| self.hand_in(i, round));
    }

    fn hand_in(&mut self, i: usize, round: u32) {
        let s = &mut self.sending[i];
        s.round = Some(round);
        s.out.hand_in(round, s.bytes.div_ceil(self.config.payload_bytes.into()).max(1));
    }

    fn ask(&mut self, now: Ps, i: usize, io: Io<'_, '_>) {
        let rtts = u64::from(self.config.timeout_rtts);
        let a = &mut self.asking[i];
        a.due = now + ((rtts * self.config.rtt_ps) << a.tries.min(BACKOFF_MAX));
        let request = CopaPacket::Request { flow: a.flow, round: a.round, bytes: a.bytes };
        let (from, number, bytes) = (a.from, a.flow, self.config.control_bytes);
        self.emit(io, from, number, bytes, request);
    }

    /// Sends what the policies permit while the NIC is idle, and sets the timer for the next step.
    /// Nothing queues in the NIC, so that a stop takes effect at once.
    fn pump(&mut self, now: Ps, io: Io<'_, '_>) {
        let n = self.sending.len();
        while io.nic_backlog_bytes() == 0 {
            let turns = (self.turn..self.turn + n).map(|k| k % n);
            let Some(k) = turns.into_iter().find(|k| self.sending[*k].out.ready(now)) else {
                break;
            };
            self.turn = (k + 1) % n;
            self.data_send(now, k, io);
        }
        let ready = self.sending.iter().any(|s| s.out.ready(now));
        let sends = if ready { io.nic_free_at() } else { Ps::MAX };
        let due = self.sending.iter().map(|s| s.out.due(now)).min().unwrap_or(Ps::MAX);
        let asks = self.asking.iter().map(|a| a.due).min().unwrap_or(Ps::MAX);
        match sends.min(due).min(asks) {
            Ps::MAX => io.timer_clear(),
            at => io.timer_set(at),
        }
    }

    fn data_send(&mut self, now: Ps, k: usize, io: Io<'_, '_>) {
        let payload = u64::from(self.config.payload_bytes);
        let s = &mut self.sending[k];
        let Some(sent) = s.out.send(now) else { return };
        let packets = s.bytes.div_ceil(payload).max(1);
        let last = sent.seq + 1 == sent.end;
        let len = if last { s.bytes - (packets - 1) * payload } else { payload } as u32;
        let stream = Stream { sender: self.id, number: k as u32 };
        let (dst, flow) = (s.dst, s.flow);
        self.counters.data_sent += 1;
        self.counters.resent += u64::from(sent.again);
        let (seq, round, end) = (sent.seq, sent.round, sent.end);
        let packet = CopaPacket::Data(Data { stream, flow, seq, len, round, end });
        self.emit(io, dst, k as u32, len + self.config.overhead_bytes, packet);
    }

    /// Reports the rounds that an answer completed.
    fn rounds_end(&mut self, now: Ps, k: usize) {
        let s = &mut self.sending[k];
        while let Some(round) = s.out.round_ended() {
            if self.config.verb == Verb::Put {
                let flow = s.flow;
                self.ends.push(End { flow, round, at: now, done: true, arrived: false });
            }
        }
    }
}

impl Host<CopaPacket> for CopaHost {
    fn on_packet(&mut self, now: Ps, p: Delivered<CopaPacket>, io: Io<'_, '_>) {
        if p.corrupt != 0 {
            self.counters.corrupt += 1;
            return;
        }
        match p.payload {
            CopaPacket::Request { flow, round, bytes } => {
                self.requested(p.src, flow, round, bytes);
            }
            CopaPacket::Data(data) => self.data(io, &data),
            CopaPacket::Ack(ack) => {
                let k = ack.stream.number as usize;
                if let Some(s) = self.sending.get_mut(k) {
                    let heard = s.out.acked(now, &ack);
                    self.counters.duplicates_heard += u64::from(heard.duplicate);
                    self.rounds_end(now, k);
                }
            }
            CopaPacket::Nack(nack) => {
                let k = nack.stream.number as usize;
                if let Some(s) = self.sending.get_mut(k) {
                    s.out.missed(now, &nack);
                    self.rounds_end(now, k);
                }
            }
        }
        self.pump(now, io);
    }

    fn on_ring(&mut self, _: Ps, io: Io<'_, '_>) {
        self.sinks(io);
    }

    fn on_timer(&mut self, now: Ps, io: Io<'_, '_>) {
        for s in &mut self.sending {
            self.counters.timeouts += u64::from(s.out.timeout(now));
        }
        for i in 0..self.asking.len() {
            if self.asking[i].due <= now {
                self.asking[i].tries += 1;
                self.counters.requests_repeated += 1;
                self.ask(now, i, io);
            }
        }
        self.pump(now, io);
    }

    /// Starts a round of a flow.
    fn on_call(&mut self, now: Ps, token: u64, io: Io<'_, '_>) {
        let (i, round) = ((token & 0xFFFF_FFFF) as usize, (token >> 32) as u32);
        match self.config.verb {
            Verb::Put => self.hand_in(i, round),
            Verb::Get => {
                (self.asking[i].round, self.asking[i].tries) = (round, 0);
                self.ask(now, i, io);
            }
        }
        self.pump(now, io);
    }
}
