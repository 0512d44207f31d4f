//! A host: its queue pairs, which share the card in turn.

use super::receiver::{Arrived, Responder};
use super::sender::TimedOut;
use super::{QueuePair, RcConfig, RcCounters, RcPacket};
use crate::deadlines::INDEX_MAX;
use crate::flow::{Done, FlowHost, Got, Repeats, Reports};
use crate::turns::Turns;
use srd_fabric::{Delivered, Host, HostId, HostIo, Outbound, Ps, Rng};
use std::collections::BTreeMap;
use std::sync::Arc;

/// RoCEv2's UDP port.
const PORT: u16 = 4_791;
/// Source ports of RoCEv2.
const PORT_FIRST: u64 = 49_152;
const PORTS: u64 = 16_384;
/// Random number stream of ports.
const STREAM_PORTS: u64 = 0x20ce;

const TIMEOUT: u32 = 0;
/// A queue pair may send at its rate, or exists again.
const WAKE: u32 = 1;
/// The card has room.
const CARD: u32 = 2;

/// A simulated host with reliable connections.
#[derive(Debug)]
pub struct RcHost {
    config: Arc<RcConfig>,
    qps: Vec<QueuePair>,
    responders: BTreeMap<(u32, u32), Responder>,
    turns: Turns,
    ports: Rng,
    acks: u64,
    cnps: u64,
    becns: u64,
    reports: Reports,
}

impl RcHost {
    /// A host without queue pairs.
    pub fn new(id: HostId, config: Arc<RcConfig>, seed: u64) -> Self {
        Self {
            config,
            qps: Vec::new(),
            responders: BTreeMap::new(),
            turns: Turns::new(CARD),
            ports: Rng::stream(seed, STREAM_PORTS, id.0.into()),
            acks: 0,
            cnps: 0,
            becns: 0,
            reports: Reports::default(),
        }
    }

    /// A queue pair's sending end; `None` if there is no such queue pair.
    pub fn queue_pair(&self, qp: u32) -> Option<&QueuePair> {
        self.qps.get(qp as usize)
    }

    /// Sum of the counters of all ends of this host.
    pub fn counters(&self) -> RcCounters {
        let (acks, cnps, becns) = (self.acks, self.cnps, self.becns);
        let mut sum = RcCounters { acks, cnps, becns, ..RcCounters::default() };
        self.qps.iter().for_each(|q| sum.add(&q.counters));
        for r in self.responders.values() {
            sum.early += r.early;
            sum.duplicates += r.duplicates;
        }
        sum
    }

    fn port(&mut self) -> u16 {
        (PORT_FIRST + self.ports.below(PORTS)) as u16
    }

    /// Puts a queue pair that may send into the ring, and arms its timeout.
    fn queue(&mut self, at: u32, io: &mut HostIo<'_, RcPacket>) {
        let qp = &mut self.qps[at as usize];
        if !qp.queued && qp.ready(io.now(), &self.config) {
            qp.queued = true;
            self.turns.add(at);
        }
        self.turns.deadlines.arm(TIMEOUT, at, qp.timeout_at, io);
    }

    /// Sends packets while the card has room: one on the wire and one behind it.
    fn pump(&mut self, io: &mut HostIo<'_, RcPacket>) {
        let now = io.now();
        let (packet_bytes, line_bps) =
            (self.config.mtu + self.config.header_bytes, self.config.line_bps);
        while let Some(at) = self.turns.next(packet_bytes, line_bps, io) {
            let qp = &mut self.qps[at as usize];
            qp.queued = false;
            if qp.next_at > now {
                self.turns.deadlines.arm(WAKE, at, qp.next_at, io);
                continue;
            }
            let Some(next) = qp.take(now, &self.config) else { continue };
            let out = Outbound {
                dst: qp.dst,
                sport: qp.sport,
                dport: PORT,
                bytes: next.len + self.config.header_bytes,
                ect: self.config.marks(),
            };
            let life = qp.life;
            let data =
                RcPacket::Data { qp: at, life, psn: next.psn, len: next.len, last: next.last };
            // A dead card drops the packet, as the wire would.
            let _ = io.send(out, data);
            self.queue(at, io);
        }
    }

    fn answer(&mut self, now: Ps, p: &Delivered<RcPacket>, io: &mut HostIo<'_, RcPacket>) {
        let RcPacket::Data { qp, life, psn, len, last } = p.payload else { return };
        let (src, ce) = (p.src, p.ce);
        let responder = self.responders.entry((src.0, qp)).or_default();
        let arrived = Arrived { src, qp, life, psn, last, ce };
        let answer = responder.on_data(now, &arrived, &self.config);
        let mut send = |bytes, packet| {
            let out = Outbound { dst: src, sport: p.sport, dport: PORT, bytes, ect: false };
            let _ = io.send(out, packet);
        };
        if answer.notify {
            self.cnps += 1;
            send(self.config.cnp_bytes, RcPacket::Cnp { qp, life });
        }
        if let Some(ack) = answer.ack {
            self.acks += 1;
            send(self.config.ack_bytes, ack);
        }
        if answer.new {
            self.reports.got.push(Got { src: arrived.src, conn: qp, bytes: len });
        }
    }
}

impl FlowHost<RcPacket> for RcHost {
    /// Makes a queue pair with a random source port.
    fn connect(&mut self, dst: HostId) -> u32 {
        let qp = self.qps.len() as u32;
        assert!(qp < INDEX_MAX, "a host has at most 2^29 queue pairs");
        let sport = self.port();
        self.qps.push(QueuePair::new(dst, sport, &self.config));
        qp
    }

    fn post(&mut self, qp: u32, tag: u64, bytes: u64, io: &mut HostIo<'_, RcPacket>) {
        self.qps[qp as usize].post(tag, bytes, &self.config);
        self.queue(qp, io);
        self.pump(io);
    }

    fn reports(&mut self) -> &mut Reports {
        &mut self.reports
    }

    fn repeats(&self) -> Repeats {
        let c = self.counters();
        let RcCounters { repeated: packets, timeouts, duplicates, acks, .. } = c;
        Repeats { packets, timeouts, duplicates, acks }
    }

    fn state_bytes(&self) -> u64 {
        let sent = self.qps.iter().map(QueuePair::held_bytes);
        (sent.sum::<usize>() + self.responders.values().map(Responder::held_bytes).sum::<usize>())
            as u64
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let c = self.counters();
        vec![
            ("sent", c.sent),
            ("sent again", c.repeated),
            ("timeouts", c.timeouts),
            ("went back", c.went_back),
            ("queue pairs broken", c.broken),
            ("acks", c.acks),
            (
                "congestion notifications",
                if self.config.ib_cc.is_some() { c.becns } else { c.cnps },
            ),
            ("early", c.early),
            ("duplicates", c.duplicates),
        ]
    }
}

impl Host<RcPacket> for RcHost {
    fn on_packet(&mut self, now: Ps, p: Delivered<RcPacket>, io: &mut HostIo<'_, RcPacket>) {
        if p.corrupt != 0 {
            return;
        }
        match p.payload {
            RcPacket::Data { .. } => self.answer(now, &p, io),
            RcPacket::Ack { qp, life, expected, kept, nak, becn } => {
                let Some(q) = self.qps.get_mut(qp as usize).filter(|q| q.life == life) else {
                    return;
                };
                if q.down_until > now {
                    return;
                }
                if becn {
                    self.becns += 1;
                    q.rate.iter_mut().for_each(|rate| rate.notified(now));
                }
                let done = &mut self.reports.done;
                q.on_ack(now, (expected, kept, nak), &self.config, |tag| {
                    done.push(Done { tag, at: now });
                });
                self.queue(qp, io);
                self.pump(io);
            }
            RcPacket::Cnp { qp, life } => {
                let found = self.qps.get_mut(qp as usize).filter(|q| q.life == life);
                if let Some(rate) = found.and_then(|q| q.rate.as_mut()) {
                    rate.notified(now);
                }
            }
        }
    }

    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, RcPacket>) {
        while let Some((kind, at)) = self.turns.deadlines.due(now, io) {
            match kind {
                TIMEOUT => {
                    let qp = &mut self.qps[at as usize];
                    if qp.on_timeout(now, &self.config) == TimedOut::Broken {
                        let until = qp.down_until;
                        self.turns.deadlines.arm(WAKE, at, until, io);
                    }
                    self.queue(at, io);
                }
                WAKE => {
                    let qp = &self.qps[at as usize];
                    if qp.down_until != 0 && qp.down_until <= now {
                        let sport = self.port();
                        self.qps[at as usize].renew(sport, &self.config);
                    }
                    self.queue(at, io);
                }
                _ => {}
            }
        }
        self.pump(io);
    }

    fn on_room(&mut self, _: Ps, io: &mut HostIo<'_, RcPacket>) {
        self.pump(io);
    }

    fn on_call(&mut self, _: Ps, _: u64, _: &mut HostIo<'_, RcPacket>) {}
}
