//! A host: its connections, which share the card in turn, and the credits that it grants.

use super::receiver::{Arrived, Incoming, Pacer};
use super::sender::Acked;
use super::{Connection, UeConfig, UeCounters, UePacket};
use crate::deadlines::INDEX_MAX;
use crate::flow::{Done, FlowHost, Got, Repeats, Reports};
use crate::turns::Turns;
use srd_fabric::{Delivered, Host, HostId, HostIo, Outbound, Ps, Rng};
use std::collections::BTreeMap;
use std::sync::Arc;

/// UDP port of Ultra Ethernet.
const PORT: u16 = 4_793;
/// First source port, and number of first ports.
const PORT_FIRST: u64 = 32_768;
const PORTS: u64 = 31_744;
/// Random number streams of ports and of paths.
const STREAM_PORTS: u64 = 0x0e75;
const STREAM_PATHS: u64 = 0x0e76;

const TIMER: u32 = 0;
/// The card has room.
const CARD: u32 = 1;
/// The next credit may be granted.
const CREDIT: u32 = 2;

/// A simulated host with Ultra Ethernet's congestion control.
#[derive(Debug)]
pub struct UeHost {
    id: HostId,
    seed: u64,
    config: Arc<UeConfig>,
    conns: Vec<Connection>,
    incoming: BTreeMap<(u32, u32), Incoming>,
    pacer: Pacer,
    turns: Turns,
    /// Connections with unfinished messages.
    active: u64,
    ports: Rng,
    acks: u64,
    credits: u64,
    reports: Reports,
}

impl UeHost {
    /// A host without connections.
    pub fn new(id: HostId, config: Arc<UeConfig>, seed: u64) -> Self {
        Self {
            id,
            seed,
            config,
            conns: Vec::new(),
            incoming: BTreeMap::new(),
            pacer: Pacer::default(),
            turns: Turns::new(CARD),
            active: 0,
            ports: Rng::stream(seed, STREAM_PORTS, id.0.into()),
            acks: 0,
            credits: 0,
            reports: Reports::default(),
        }
    }

    /// A connection's sending end; `None` if there is no such connection.
    pub fn connection(&self, conn: u32) -> Option<&Connection> {
        self.conns.get(conn as usize)
    }

    /// Sum of the counters of all ends of this host.
    pub fn counters(&self) -> UeCounters {
        let mut sum =
            UeCounters { acks: self.acks, credits: self.credits, ..UeCounters::default() };
        self.conns.iter().for_each(|c| sum.add(&c.counters));
        sum.duplicates = self.incoming.values().map(|i| i.duplicates).sum();
        sum
    }

    /// Puts a connection that may send into the ring, and arms its timer.
    fn queue(&mut self, at: u32, io: &mut HostIo<'_, UePacket>) {
        let conn = &mut self.conns[at as usize];
        if !conn.queued && conn.ready(&self.config) {
            conn.queued = true;
            self.turns.add(at);
        }
        self.turns.deadlines.arm(TIMER, at, conn.timer_at, io);
    }

    /// Sends packets while the card has room: one on the wire and one behind it.
    fn pump(&mut self, io: &mut HostIo<'_, UePacket>) {
        let now = io.now();
        let (packet_bytes, line_bps) = (self.config.wire_bytes(), self.config.line_bps);
        while let Some(at) = self.turns.next(packet_bytes, line_bps, io) {
            let conn = &mut self.conns[at as usize];
            conn.queued = false;
            let Some(next) = conn.take(now, self.active, &self.config) else { continue };
            self.data_send(at, next, io);
            self.queue(at, io);
        }
    }

    fn data_send(&self, at: u32, next: super::sender::Next, io: &mut HostIo<'_, UePacket>) {
        let conn = &self.conns[at as usize];
        let probe = next.len == 0;
        let bytes =
            if probe { self.config.control_bytes } else { next.len + self.config.header_bytes };
        let out = Outbound {
            dst: conn.dst,
            sport: conn.sport.wrapping_add(next.entropy),
            dport: PORT,
            bytes,
            ect: !probe,
        };
        let super::sender::Next { psn, len, entropy, wanted, ask } = next;
        // A dead card drops the packet, as the wire would.
        let _ = io.send(out, UePacket::Data { conn: at, psn, len, entropy, wanted, ask });
    }

    fn data_in(&mut self, p: &Delivered<UePacket>, io: &mut HostIo<'_, UePacket>) {
        let UePacket::Data { conn, psn, len, entropy, wanted, ask } = p.payload else { return };
        let key = (p.src.0, conn);
        let incoming = self.incoming.entry(key).or_default();
        let arrived = Arrived { conn, psn, len, entropy, ask, marked: p.ce };
        let (ack, new) = incoming.on_data(&arrived, &self.config);
        if let Some(ack) = ack {
            self.acks += 1;
            let (dst, bytes) = (p.src, self.config.control_bytes);
            let out = Outbound { dst, sport: p.sport, dport: PORT, bytes, ect: false };
            let _ = io.send(out, ack);
        }
        if new {
            self.reports.got.push(Got { src: p.src, conn, bytes: len });
        }
        if self.config.rccc {
            self.pacer.want(key, incoming, wanted);
            // Who probes may wait for a credit that was lost.
            let granted = incoming.granted();
            if len == 0 && granted > 0 {
                self.credit_send(key, granted, io);
            }
            self.credits_grant(io);
        }
    }

    /// Grants the credits that are due.
    fn credits_grant(&mut self, io: &mut HostIo<'_, UePacket>) {
        let now = io.now();
        while self.pacer.waits() {
            if self.pacer.next_at > now {
                return self.turns.deadlines.arm(CREDIT, 0, self.pacer.next_at, io);
            }
            let Some(key) = self.pacer.next() else { return };
            let Some(incoming) = self.incoming.get_mut(&key) else { continue };
            let granted = self.pacer.grant(now, key, incoming, &self.config);
            self.credit_send(key, granted, io);
        }
    }

    /// Tells a sender the sum of its credit, on any path.
    fn credit_send(&mut self, key: (u32, u32), granted: u64, io: &mut HostIo<'_, UePacket>) {
        self.credits += 1;
        let out = Outbound {
            dst: HostId(key.0),
            sport: (PORT_FIRST + self.ports.below(PORTS)) as u16,
            dport: PORT,
            bytes: self.config.control_bytes,
            ect: false,
        };
        let _ = io.send(out, UePacket::Credit { conn: key.1, granted });
    }

    fn ack_in(&mut self, now: Ps, conn: u32, acked: &Acked, io: &mut HostIo<'_, UePacket>) {
        let Some(c) = self.conns.get_mut(conn as usize) else { return };
        let (done, before) = (&mut self.reports.done, c.active());
        c.on_ack(now, acked, &self.config, |tag| done.push(Done { tag, at: now }));
        self.active -= u64::from(before && !c.active());
        self.queue(conn, io);
    }
}

impl FlowHost<UePacket> for UeHost {
    fn connect(&mut self, dst: HostId) -> u32 {
        let at = self.conns.len() as u32;
        assert!(at < INDEX_MAX, "a host has at most 2^29 connections");
        let sport = (PORT_FIRST + self.ports.below(PORTS)) as u16;
        let paths =
            Rng::stream(self.seed, STREAM_PATHS, u64::from(self.id.0) << 32 | u64::from(at));
        self.conns.push(Connection::new(dst, sport, &self.config, paths));
        at
    }

    fn post(&mut self, conn: u32, tag: u64, bytes: u64, io: &mut HostIo<'_, UePacket>) {
        let c = &mut self.conns[conn as usize];
        self.active += u64::from(!c.active());
        c.post(tag, bytes, &self.config);
        self.queue(conn, io);
        self.pump(io);
    }

    fn reports(&mut self) -> &mut Reports {
        &mut self.reports
    }

    fn repeats(&self) -> Repeats {
        let UeCounters { repeated: packets, timeouts, duplicates, acks, .. } = self.counters();
        Repeats { packets, timeouts, duplicates, acks }
    }

    fn state_bytes(&self) -> u64 {
        let sent = self.conns.iter().map(Connection::held_bytes).sum::<usize>();
        (sent + self.incoming.len() * size_of::<Incoming>()) as u64
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let c = self.counters();
        vec![
            ("sent", c.sent),
            ("sent again", c.repeated),
            ("timeouts", c.timeouts),
            ("probes", c.probes),
            ("acks", c.acks),
            ("credits", c.credits),
            ("duplicates", c.duplicates),
        ]
    }
}

impl Host<UePacket> for UeHost {
    fn on_packet(&mut self, now: Ps, p: Delivered<UePacket>, io: &mut HostIo<'_, UePacket>) {
        if p.corrupt != 0 {
            return;
        }
        match p.payload {
            UePacket::Data { .. } => return self.data_in(&p, io),
            UePacket::Ack { conn, expected, psn, base, bits, early, entropy, marked, probe } => {
                let acked = Acked { expected, psn, base, bits, early, entropy, marked, probe };
                self.ack_in(now, conn, &acked, io);
            }
            UePacket::Credit { conn, granted } => {
                let Some(c) = self.conns.get_mut(conn as usize) else { return };
                c.on_credit(granted);
                self.queue(conn, io);
            }
        }
        self.pump(io);
    }

    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, UePacket>) {
        while let Some((kind, at)) = self.turns.deadlines.due(now, io) {
            match kind {
                TIMER => {
                    if self.conns[at as usize].on_timer(now, &self.config) {
                        let probe = self.conns[at as usize].probe(self.active, &self.config);
                        self.data_send(at, probe, io);
                    }
                    self.queue(at, io);
                }
                CREDIT => self.credits_grant(io),
                _ => {}
            }
        }
        self.pump(io);
    }

    fn on_room(&mut self, _: Ps, io: &mut HostIo<'_, UePacket>) {
        self.pump(io);
    }

    fn on_call(&mut self, _: Ps, _: u64, _: &mut HostIo<'_, UePacket>) {}
}
