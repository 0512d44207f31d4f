//! A host: sends its flows' packets in order, at assigned rates or as fast as the network accepts
//! them, and answers control packets.

use crate::assign::Rate;
use crate::control::{CONTROL_BYTES, Control, Event, FlowControl, Numbers, State};
use crate::inject::{Injection, Pacer};
use crate::phase::{Arrival, Phase};
use srd_fabric::{Delivered, FlowId, Host, HostId, HostIo, Outbound, Ps, RegisterOp, Tag};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;

/// Source of the rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rates {
    /// No rates.
    None,
    /// Assigned once before the phase: flows announce themselves ahead of it, and when all are
    /// announced, each queries its rate once ([`ANNOUNCE`], [`ASK`]).
    Optimal,
    /// Assigned by control packets during the phase.
    Distributed,
}

/// Settings shared by all hosts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaaConfig {
    /// Source of the rates.
    pub rates: Rates,
    /// How packets are paced at a rate.
    pub injection: Injection,
    /// Bytes of a full packet on the wire, including room for a probe.
    pub packet_bytes: u32,
    /// Time of a full packet at line rate.
    pub packet_ps: Ps,
    /// A probe rides on one of this many packets of a flow.
    pub probe_packets: u32,
    /// Retransmission timeout of control packets.
    pub timeout_ps: Ps,
}

/// Value in the high half of a call's token in place of a round: the flow announces itself ahead of
/// its phase (optimal rates).
pub const ANNOUNCE: u32 = u32::MAX;
/// As [`ANNOUNCE`]: the flow queries its rate.
pub const ASK: u32 = u32::MAX - 1;

/// A packet: data, a control packet, or data with a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaaPacket {
    /// Number of the flow in the phase.
    flow: u32,
    /// Index among the flow's packets; none = no data.
    seq: Option<u32>,
    /// Number of packets of the flow.
    packets: u32,
    round: u32,
    control: Option<Control>,
}

impl SaaPacket {
    /// The flow whose data it carries, if any.
    pub fn data_of(&self) -> Option<u32> {
        self.seq.map(|_| self.flow)
    }
}

/// The sending end of a flow.
#[derive(Clone, Debug)]
struct Sending {
    flow: u32,
    dst: HostId,
    /// Its circuit.
    circuit: Option<FlowId>,
    /// w_f: bytes on the wire.
    bytes: u64,
    packets: u32,
    /// Index of the next packet; equal to `packets` when all have been sent.
    next: u32,
    round: u32,
    started_at: Ps,
    /// Latest assigned rate.
    told: Option<Rate>,
    pacer: Pacer,
    control: FlowControl,
    /// Only the entry with this stamp in the queue of flows is valid.
    stamp: u64,
}

/// The receiving end of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Receiving {
    /// Packets of this round that have arrived.
    came: u32,
}

/// A simulated host.
#[derive(Debug)]
pub struct SaaHost {
    id: HostId,
    config: Rc<SaaConfig>,
    phase: Rc<Phase>,
    sending: Vec<Sending>,
    numbers: Numbers,
    /// By flow and round.
    receiving: BTreeMap<(u32, u32), Receiving>,
    /// Control packets and answers waiting for the NIC; they are sent first.
    urgent: VecDeque<(HostId, SaaPacket, Tag)>,
    /// Flows with data to send, ordered by: due time, turn, index in `sending`, stamp.
    queue: BinaryHeap<Reverse<(Ps, u64, u32, u64)>>,
    /// Flows whose announcement or withdrawal is unanswered.
    unanswered: Vec<u32>,
    /// Counter that makes flows with the same due time take turns.
    turn: u64,
}

impl SaaHost {
    /// A host without flows.
    pub const fn new(id: HostId, config: Rc<SaaConfig>, phase: Rc<Phase>) -> Self {
        Self {
            id,
            config,
            phase,
            sending: Vec::new(),
            numbers: Numbers::new(),
            receiving: BTreeMap::new(),
            urgent: VecDeque::new(),
            queue: BinaryHeap::new(),
            unanswered: Vec::new(),
            turn: 0,
        }
    }

    /// Adds a flow that this host sends; returns the token of the call that starts it (in the low
    /// half; the round goes into the high half). `jitter`: random bits for the phase of its
    /// injection.
    pub fn flow_add(&mut self, flow: u32, jitter: u32) -> u64 {
        let of = self.phase.flows()[flow as usize];
        debug_assert_eq!(of.src, self.id);
        let c = &self.config;
        let index = self.sending.len() as u32;
        let packets = u32::try_from(of.bytes.div_ceil(c.packet_bytes.into()))
            .expect("the lab bounds flows to 2^38 bytes");
        self.sending.push(Sending {
            flow,
            dst: of.dst,
            circuit: None,
            bytes: of.bytes,
            packets,
            // Nothing to send before its start.
            next: packets,
            round: 0,
            started_at: 0,
            told: None,
            pacer: Pacer::new(c.injection, c.packet_ps, jitter),
            control: FlowControl::new(index, of.bytes, c.probe_packets, c.timeout_ps),
            stamp: 0,
        });
        index.into()
    }

    /// Starts a flow.
    fn start(&mut self, now: Ps, i: usize, round: u32, io: &mut HostIo<'_, SaaPacket>) {
        let s = &mut self.sending[i];
        debug_assert!(s.next == s.packets, "a flow starts when it has ended");
        (s.next, s.round, s.started_at) = (0, round, now);
        if s.circuit.is_none() {
            s.circuit = Some(io.flow_open(s.dst));
        }
        match self.config.rates {
            Rates::None => {
                s.pacer.rate_set(now, Rate::LINE);
                self.flow_queue(i);
            }
            Rates::Optimal => {
                s.pacer.restart(now);
                self.flow_queue(i);
            }
            Rates::Distributed => {
                s.pacer.stop();
                s.told = None;
                let control = s.control.announce(now, &mut self.numbers);
                self.unanswered.push(i as u32);
                self.control_queue(i, control);
            }
        }
    }

    /// Before the phase: announces a flow, or queries its rate once all are announced.
    fn prepare(&mut self, now: Ps, i: usize, what: u32, io: &mut HostIo<'_, SaaPacket>) {
        let s = &mut self.sending[i];
        s.circuit.get_or_insert_with(|| io.flow_open(s.dst));
        let control = if what == ANNOUNCE {
            self.unanswered.push(i as u32);
            Some(s.control.announce(now, &mut self.numbers))
        } else {
            self.confirm(now, i);
            None
        };
        if let Some(control) = control {
            self.control_queue(i, control);
        }
    }

    /// Queries whether the flow's rate is still valid.
    fn confirm(&mut self, now: Ps, i: usize) {
        if let Some(control) = self.sending[i].control.confirm(now, &mut self.numbers) {
            self.unanswered.push(i as u32);
            self.control_queue(i, control);
        }
    }

    /// Puts a flow into the queue of flows with data.
    fn flow_queue(&mut self, i: usize) {
        let s = &mut self.sending[i];
        let due = s.pacer.due();
        if s.next >= s.packets || due == Ps::MAX {
            return;
        }
        s.stamp += 1;
        self.turn += 1;
        self.queue.push(Reverse((due, self.turn, i as u32, s.stamp)));
    }

    /// Puts a control packet into the NIC's queue.
    fn control_queue(&mut self, i: usize, control: Control) {
        // A withdrawal follows the last data packet and is the last packet of its circuit: it frees
        // entries as it passes, so that flows starting when the data has arrived find them free.
        let last = control.event == Event::Withdraw;
        self.control_push(i, control, last);
    }

    fn control_push(&mut self, i: usize, control: Control, last: bool) {
        let s = &self.sending[i];
        let add = match control.event {
            Event::Announce => s.bytes as i64,
            Event::Withdraw => -(s.bytes as i64),
            Event::Probe | Event::Answer => 0,
        };
        let tag = Tag { flow: s.circuit, last, register: self.register(add, control.number) };
        let packet = SaaPacket {
            flow: s.flow,
            seq: None,
            packets: s.packets,
            round: s.round,
            control: Some(control),
        };
        self.urgent.push_back((s.dst, packet, tag));
    }

    /// How a control packet changes links. No two hosts use the same number.
    fn register(&self, add: i64, number: u32) -> Option<RegisterOp> {
        Some(RegisterOp { add, number: u64::from(self.id.0) << 32 | u64::from(number) })
    }

    /// Sends what may leave while the NIC is empty, and sets the timer for the next step.
    fn pump(&mut self, now: Ps, io: &mut HostIo<'_, SaaPacket>) {
        while self.next_ready(now) && io.room_want() {
            if let Some((dst, packet, tag)) = self.urgent.pop_front() {
                emit(io, dst, CONTROL_BYTES, tag, packet);
            } else if let Some(Reverse((_, _, i, _))) = self.queue.pop() {
                self.data_send(now, i as usize, io);
            }
        }
        let queued = self.queue.peek().map_or(Ps::MAX, |Reverse((due, ..))| *due);
        // A due packet already waits for the NIC, which will call back.
        let next = if queued > now { queued } else { Ps::MAX };
        let next = next.min(self.repeat_at());
        if next == Ps::MAX {
            io.timer_clear();
        } else {
            io.timer_set(next);
        }
    }

    /// Whether a flow may send now. Drops stale entries, whose flows have another rate since.
    fn next_ready(&mut self, now: Ps) -> bool {
        if !self.urgent.is_empty() {
            return true;
        }
        while let Some(Reverse((due, _, i, stamp))) = self.queue.peek() {
            if self.sending[*i as usize].stamp == *stamp {
                return *due <= now;
            }
            self.queue.pop();
        }
        false
    }

    /// When the first unanswered event must be retransmitted.
    fn repeat_at(&self) -> Ps {
        let waiting = self.unanswered.iter().map(|i| self.sending[*i as usize].control.due());
        waiting.min().unwrap_or(Ps::MAX)
    }

    /// Retransmits events whose timeout has expired.
    fn repeats(&mut self, now: Ps) {
        for k in 0..self.unanswered.len() {
            let i = self.unanswered[k] as usize;
            if self.sending[i].control.due() <= now {
                let control = self.sending[i].control.repeat(now);
                // A retransmitted withdrawal finds no circuit where the first has passed, and it
                // may overtake data that the first follows: it frees no circuit.
                self.control_push(i, control, false);
            }
        }
    }

    /// Sends the next packet of a flow that is due.
    fn data_send(&mut self, now: Ps, i: usize, io: &mut HostIo<'_, SaaPacket>) {
        let distributed = self.config.rates == Rates::Distributed;
        let s = &mut self.sending[i];
        let full = u64::from(self.config.packet_bytes);
        let bytes = (s.bytes - u64::from(s.next) * full).min(full) as u32;
        let control = if distributed { s.control.probe(&mut self.numbers) } else { None };
        let packet = SaaPacket {
            flow: s.flow,
            seq: Some(s.next),
            packets: s.packets,
            round: s.round,
            control,
        };
        s.next += 1;
        s.pacer.sent(now);
        let (dst, circuit, ended) = (s.dst, s.circuit, s.next == s.packets);
        let last = ended && self.config.rates == Rates::None;
        let register = control.and_then(|c| self.register(0, c.number));
        emit(io, dst, bytes, Tag { flow: circuit, last, register }, packet);
        if last {
            self.sending[i].circuit = None;
        }
        if !ended {
            self.flow_queue(i);
        } else if distributed {
            let control = self.sending[i].control.withdraw(now, &mut self.numbers);
            self.control_queue(i, control);
            self.unanswered.push(i as u32);
        }
    }
}

impl SaaHost {
    /// Handles an answer.
    fn answered(&mut self, now: Ps, answer: &Control) {
        let i = answer.flow as usize;
        let Some(s) = self.sending.get_mut(i) else { return };
        let before = s.control.state();
        let most = s.control.answer(answer);
        let after = s.control.state();
        if before != after {
            self.unanswered.retain(|k| *k as usize != i);
        }
        if let Some(most) = most {
            self.phase.most_noted(most);
        }
        let rate = most.and_then(|most| Rate::new(s.bytes, most));
        if let Some(rate) = rate {
            let changed = s.told.replace(rate) != Some(rate);
            if self.config.rates == Rates::Distributed {
                self.phase.rate_noted(s.flow, now - s.started_at, changed);
            }
            // An unconfirmed rate is not used: flows that start at once might together exceed a
            // link.
            if after == State::Running || self.config.rates == Rates::Optimal {
                let before = s.pacer.rate();
                s.pacer.rate_set(now, rate);
                if before != Some(rate) {
                    self.flow_queue(i);
                }
            }
        }
        if after == State::Told && self.config.rates == Rates::Distributed {
            self.confirm(now, i);
        }
        if after == State::Ended && before != after {
            self.close(i);
        }
    }

    /// The flow's weight was subtracted from the links, and its circuit freed.
    fn close(&mut self, i: usize) {
        let s = &mut self.sending[i];
        self.phase.control_add(&s.control.counters_take());
        s.circuit = None;
    }

    /// Handles a data packet.
    fn received(&mut self, now: Ps, packet: &SaaPacket, seq: u32) {
        let key = (packet.flow, packet.round);
        let r = self.receiving.entry(key).or_default();
        if r.came < seq {
            self.phase.early_add();
        }
        r.came += 1;
        if r.came == packet.packets {
            self.receiving.remove(&key);
            self.phase.arrived(Arrival { flow: packet.flow, round: packet.round, at: now });
        }
    }
}

impl Host<SaaPacket> for SaaHost {
    fn on_packet(&mut self, now: Ps, packet: Delivered<SaaPacket>, io: &mut HostIo<'_, SaaPacket>) {
        let (from, most) = (packet.src, packet.register_max);
        let packet = packet.payload;
        match packet.control {
            Some(answer) if answer.event == Event::Answer => self.answered(now, &answer),
            Some(asked) => {
                let value = u64::try_from(most).unwrap_or(0);
                let control = Some(Control { event: Event::Answer, value, ..asked });
                let answer = SaaPacket { seq: None, control, ..packet.clone() };
                self.phase.answer_add();
                self.urgent.push_back((from, answer, Tag::default()));
            }
            None => {}
        }
        if let Some(seq) = packet.seq {
            self.received(now, &packet, seq);
        }
        self.pump(now, io);
    }

    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, SaaPacket>) {
        self.repeats(now);
        self.pump(now, io);
    }

    fn on_room(&mut self, now: Ps, io: &mut HostIo<'_, SaaPacket>) {
        self.pump(now, io);
    }

    /// Starts a flow, or prepares it.
    fn on_call(&mut self, now: Ps, token: u64, io: &mut HostIo<'_, SaaPacket>) {
        let (i, what) = ((token & 0xFFFF_FFFF) as usize, (token >> 32) as u32);
        match what {
            ANNOUNCE | ASK => self.prepare(now, i, what, io),
            round => self.start(now, i, round, io),
        }
        self.pump(now, io);
    }
}

/// Passes a packet to the NIC, which is empty.
fn emit(io: &mut HostIo<'_, SaaPacket>, dst: HostId, bytes: u32, tag: Tag, packet: SaaPacket) {
    // Switches hash the ports: all packets of a flow have the same.
    let sport = packet.flow as u16 | 1;
    let out = Outbound { dst, sport, dport: 4_791, bytes, ect: false };
    let sent = io.send_tagged(out, tag, packet);
    debug_assert!(sent.is_ok(), "an empty card takes a packet");
}
