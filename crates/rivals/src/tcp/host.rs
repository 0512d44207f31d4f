//! A host: its connections, their timers and the planned application calls.

use crate::tcp::TcpConfig;
use crate::tcp::bundle::Bundle;
use crate::tcp::joined::Joined;
use crate::tcp::receiver::{Arrived, Receiver};
use crate::tcp::report::{Conn, Counters, Message};
use crate::tcp::segment::{Ack, TcpSegment, UNKNOWN};
use crate::tcp::sender::Sender;
use srd_fabric::rng::mix64;
use srd_fabric::{Delivered, Host, HostId, HostIo, Ps};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Position of the deadline's kind above the connection end's number: a sender's timer, a sender
/// waiting for the NIC or pacer, a receiver's delayed ack. Kinds are kept apart so that a frequent
/// deadline does not replace a distant one.
const KIND_SHIFT: u32 = 30;
const TIMER: u32 = 0;
const WAKE: u32 = 1;
const DELAYED: u32 = 2;
const INDEX: u32 = (1 << KIND_SHIFT) - 1;

/// A planned application call.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// Write bytes to a connection.
    Write { conn: u32, bytes: u64 },
    /// Open a connection and write bytes to it.
    Flow { dst: HostId, ports: (u16, u16), bytes: u64, conn: u32 },
}

/// A simulated host that runs TCP.
#[derive(Debug)]
pub struct TcpHost {
    id: HostId,
    config: Arc<TcpConfig>,
    senders: Vec<Option<Sender>>,
    receivers: Vec<Receiver>,
    /// Receiving ends by sending host and the sender's number, for segments sent before the sender
    /// knew the receiver's number.
    known: BTreeMap<(u32, u32), u32>,
    /// Connections over several subflows that begin here, by their first subflow.
    bundles: BTreeMap<u32, Bundle>,
    /// Receiving ends of such connections, by sending host and first subflow.
    joined: BTreeMap<(u32, u32), Joined>,
    jobs: Vec<Job>,
    /// Deadlines. For each kind and end only the one in `queued` is valid; others are stale.
    heap: BinaryHeap<Reverse<(Ps, u32)>>,
    queued: [Vec<Ps>; 3],
    /// Messages received by all hosts that share this counter.
    received: Arc<AtomicU64>,
    corrupt: u64,
}

impl TcpHost {
    /// A host without connections. `received` counts the messages that arrive here and may be
    /// shared by several hosts.
    pub fn new(id: HostId, config: Arc<TcpConfig>, received: Arc<AtomicU64>) -> Self {
        Self {
            id,
            config,
            senders: Vec::new(),
            receivers: Vec::new(),
            known: BTreeMap::new(),
            bundles: BTreeMap::new(),
            joined: BTreeMap::new(),
            jobs: Vec::new(),
            heap: BinaryHeap::new(),
            queued: [const { Vec::new() }; 3],
            received,
            corrupt: 0,
        }
    }

    /// Opens a connection now. `ports` are source and destination port; the path follows from them.
    ///
    /// # Panics
    /// If a host opens 2^30 connections.
    pub fn connect(
        &mut self,
        dst: HostId,
        ports: (u16, u16),
        io: &mut HostIo<'_, TcpSegment>,
    ) -> Conn {
        let conn = self.reserve();
        self.open(conn, dst, ports, io);
        Conn { src: self.id, index: conn }
    }

    /// Writes a message to a connection now.
    ///
    /// # Panics
    /// If the connection does not exist or is not open yet.
    pub fn write(&mut self, conn: Conn, bytes: u64, io: &mut HostIo<'_, TcpSegment>) {
        let now = io.now();
        let sender = self.senders[conn.index as usize].as_mut().expect("a connection that is open");
        let dst = sender.dst;
        let start_ps = now;
        let message = Message { conn, dst, bytes, start_ps, received_ps: None, acked_ps: None };
        if let Some(bundle) = self.bundles.get_mut(&conn.index) {
            bundle.post(message);
            self.bundle_serve(conn.index, io);
            return;
        }
        sender.post(now, message, &self.config, io);
        self.arm_sender(conn.index, io);
    }

    /// Plans a write and returns the token for [`srd_fabric::World::call_at`].
    pub(crate) fn plan_write(&mut self, conn: u32, bytes: u64) -> u64 {
        self.jobs.push(Job::Write { conn, bytes });
        self.jobs.len() as u64 - 1
    }

    /// Plans a flow on a new connection and returns the connection and the token.
    pub(crate) fn plan_flow(&mut self, dst: HostId, ports: (u16, u16), bytes: u64) -> (Conn, u64) {
        let conn = self.reserve();
        self.jobs.push(Job::Flow { dst, ports, bytes, conn });
        (Conn { src: self.id, index: conn }, self.jobs.len() as u64 - 1)
    }

    /// Bytes of the ends of all connections, with their lists of segments.
    pub fn state_bytes(&self) -> u64 {
        let sent = self.senders.iter().flatten().map(Sender::held_bytes).sum::<usize>();
        let received = self.receivers.iter().map(Receiver::held_bytes).sum::<usize>();
        (sent + received) as u64
    }

    /// A connection's sending end; `None` while it is planned but not open.
    pub fn sender(&self, conn: Conn) -> Option<&Sender> {
        self.senders.get(conn.index as usize)?.as_ref()
    }

    /// All sending ends.
    pub fn senders(&self) -> impl Iterator<Item = &Sender> {
        self.senders.iter().flatten()
    }

    /// The subflows of a connection, or its only sending end.
    pub fn subflows(&self, conn: Conn) -> impl Iterator<Item = &Sender> {
        let count = self.bundles.get(&conn.index).map_or(1, |b| b.count as usize);
        self.senders.iter().skip(conn.index as usize).take(count).flatten()
    }

    /// Messages written to a connection that begins here.
    pub fn messages(&self, conn: Conn) -> &[Message] {
        match self.bundles.get(&conn.index) {
            Some(bundle) => bundle.messages(),
            None => self.sender(conn).map_or(&[], Sender::messages),
        }
    }

    /// Arrival times of the messages of a connection that ends here.
    pub fn arrivals(&self, conn: Conn) -> &[Ps] {
        match self.joined.get(&(conn.src.0, conn.index)) {
            Some(joined) => &joined.arrivals,
            None => self.receiver(conn).map_or(&[], Receiver::arrivals),
        }
    }

    /// Bytes of a connection that have arrived here in order.
    pub fn received_bytes(&self, conn: Conn) -> u64 {
        match self.joined.get(&(conn.src.0, conn.index)) {
            Some(joined) => joined.next,
            None => self.receiver(conn).map_or(0, Receiver::received_bytes),
        }
    }

    /// Bytes of a connection received in order per interval of [`TcpConfig::sample_ps`].
    pub fn samples(&self, conn: Conn) -> &[u64] {
        match self.joined.get(&(conn.src.0, conn.index)) {
            Some(joined) => &joined.samples,
            None => self.receiver(conn).map_or(&[], Receiver::samples),
        }
    }

    /// A connection's receiving end; `None` until its first packet has arrived.
    pub fn receiver(&self, conn: Conn) -> Option<&Receiver> {
        let at = *self.known.get(&(conn.src.0, conn.index))?;
        self.receivers.get(at as usize)
    }

    /// Sum of the counters of all ends of this host.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters { corrupt: self.corrupt, ..Counters::default() };
        self.senders().for_each(|s| sum.add(s.counters()));
        self.receivers.iter().for_each(|r| sum.add(r.counters()));
        sum.reinjected = self.bundles.values().map(|b| b.reinjected).sum();
        sum.joined_duplicates = self.joined.values().map(|j| j.duplicates).sum();
        sum
    }

    /// Reserves the numbers of a connection's subflows; returns the first.
    fn reserve(&mut self) -> u32 {
        let conn = self.senders.len() as u32;
        let count = self.config.subflows;
        assert!(conn + count < INDEX, "a host has at most 2^30 connections");
        for _ in 0..count {
            self.senders.push(None);
            self.queued[TIMER as usize].push(Ps::MAX);
            self.queued[WAKE as usize].push(Ps::MAX);
        }
        conn
    }

    /// Opens a connection: its first subflow, after whose handshake the others follow.
    fn open(&mut self, conn: u32, dst: HostId, ports: (u16, u16), io: &mut HostIo<'_, TcpSegment>) {
        self.subflow_open(conn, conn, dst, ports, io);
        if self.config.subflows > 1 {
            self.bundles.insert(conn, Bundle::new(conn, self.config.subflows));
            if !self.config.handshake {
                self.others_open(conn, io);
            }
        }
    }

    /// Opens the subflows of a connection after the first, from other ports.
    fn others_open(&mut self, first: u32, io: &mut HostIo<'_, TcpSegment>) {
        let Some(sender) = &self.senders[first as usize] else { return };
        let (dst, (sport, dport)) = (sender.dst, sender.ports());
        for i in 1..self.config.subflows {
            if self.senders[(first + i) as usize].is_none() {
                let drawn = mix64(u64::from(sport) << 32 | u64::from(first)) as u16;
                // Odd steps: ports of a connection differ.
                let step = (drawn | 1).wrapping_mul(i as u16);
                self.subflow_open(first + i, first, dst, (sport.wrapping_add(step), dport), io);
            }
        }
    }

    /// Lets a connection over subflows use what changed at one of them.
    fn bundle_serve(&mut self, first: u32, io: &mut HostIo<'_, TcpSegment>) {
        let now = io.now();
        let Some(bundle) = self.bundles.get_mut(&first) else { return };
        let numbers = bundle.first..bundle.first + bundle.count;
        for sender in
            self.senders[numbers.start as usize..numbers.end as usize].iter_mut().flatten()
        {
            if sender.fallen_take() {
                bundle.fallen(sender);
            }
        }
        bundle.schedule(now, &mut self.senders, &self.config, io);
        numbers.for_each(|no| self.arm_sender(no, io));
    }

    /// Serves the connection of a sending end, or arms the end if it is alone.
    fn sender_done(&mut self, no: u32, io: &mut HostIo<'_, TcpSegment>) {
        match self.senders[no as usize].as_ref().and_then(Sender::group) {
            Some(first) => self.bundle_serve(first, io),
            None => self.arm_sender(no, io),
        }
    }

    fn ack_in(&mut self, now: Ps, ack: &Ack, io: &mut HostIo<'_, TcpSegment>) {
        let Some(Some(sender)) = self.senders.get(ack.conn as usize) else { return };
        let growth = sender.group().and_then(|first| {
            let bundle = self.bundles.get_mut(&first)?;
            bundle.acked(now, ack.data_ack);
            bundle.growth(&self.senders, ack.conn, &self.config)
        });
        let Some(Some(sender)) = self.senders.get_mut(ack.conn as usize) else { return };
        sender.growth = growth.unwrap_or(0.0);
        sender.on_ack(now, ack, &self.config, io);
        self.sender_done(ack.conn, io);
    }

    fn subflow_open(
        &mut self,
        conn: u32,
        first: u32,
        dst: HostId,
        ports: (u16, u16),
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        let now = io.now();
        let mut sender =
            Sender::new(Conn { src: self.id, index: conn }, dst, ports, now, &self.config);
        if self.config.subflows > 1 {
            sender.join(first);
        }
        if self.config.handshake {
            sender.syn_send(now, &self.config, io);
        }
        self.senders[conn as usize] = Some(sender);
        self.arm_sender(conn, io);
    }

    /// Makes sure that a deadline is queued; [`Ps::MAX`] = no deadline.
    #[inline]
    fn arm(&mut self, kind: u32, index: u32, at: Ps, io: &mut HostIo<'_, TcpSegment>) {
        let queued = &mut self.queued[kind as usize][index as usize];
        if at < *queued {
            *queued = at;
            self.heap.push(Reverse((at, kind << KIND_SHIFT | index)));
            io.timer_set_earlier(at);
        }
    }

    fn arm_sender(&mut self, conn: u32, io: &mut HostIo<'_, TcpSegment>) {
        let Some(sender) = &self.senders[conn as usize] else { return };
        let (timer, wake) = (sender.timer_at(), sender.wake_at());
        self.arm(TIMER, conn, timer, io);
        self.arm(WAKE, conn, wake, io);
    }

    fn arm_receiver(&mut self, at: u32, io: &mut HostIo<'_, TcpSegment>) {
        let deadline = self.receivers[at as usize].deadline();
        self.arm(DELAYED, at, deadline, io);
    }

    /// Number of a connection's receiving end, which is created if it is new.
    fn receiver_at(&mut self, src: HostId, conn: u32, peer: u32, ports: (u16, u16)) -> u32 {
        let right = |r: &Receiver| r.src == src && r.conn == conn;
        if peer != UNKNOWN && self.receivers.get(peer as usize).is_some_and(right) {
            return peer;
        }
        *self.known.entry((src.0, conn)).or_insert_with(|| {
            let at = self.receivers.len() as u32;
            self.receivers.push(Receiver::new(conn, at, src, ports, &self.config));
            self.queued[DELAYED as usize].push(Ps::MAX);
            at
        })
    }
}

impl Host<TcpSegment> for TcpHost {
    fn on_packet(
        &mut self,
        now: Ps,
        packet: Delivered<TcpSegment>,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        if packet.corrupt != 0 {
            self.corrupt += 1;
            return;
        }
        let ports = (packet.sport, packet.dport);
        match packet.payload {
            TcpSegment::Data { conn, peer, seq, len, messages, ts, cwr, group, dsn } => {
                let at = self.receiver_at(packet.src, conn, peer, ports);
                let (ce, sport) = (packet.ce, packet.sport);
                let data = Arrived { seq, len, messages, ts, cwr, ce, sport, dsn };
                let receiver = &mut self.receivers[at as usize];
                let joined = (group != UNKNOWN)
                    .then(|| self.joined.entry((packet.src.0, group)).or_default());
                let done = receiver.on_data(now, &data, joined, &self.config, io);
                if done > 0 {
                    self.received.fetch_add(u64::from(done), Ordering::Relaxed);
                }
                self.arm_receiver(at, io);
            }
            TcpSegment::Ack(ack) => self.ack_in(now, &ack, io),
            TcpSegment::Syn { conn, ts } => {
                let at = self.receiver_at(packet.src, conn, UNKNOWN, ports);
                self.receivers[at as usize].syn_ack_send(ts, &self.config, io);
            }
            TcpSegment::SynAck { conn, peer, ts_echo } => {
                let Some(Some(sender)) = self.senders.get_mut(conn as usize) else { return };
                sender.on_syn_ack(now, peer, ts_echo, &self.config, io);
                if sender.group() == Some(conn) {
                    self.others_open(conn, io);
                }
                self.sender_done(conn, io);
            }
        }
    }

    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, TcpSegment>) {
        while let Some(Reverse((at, end))) = self.heap.peek().copied() {
            if at > now {
                io.timer_set(at);
                return;
            }
            self.heap.pop();
            let (kind, index) = (end >> KIND_SHIFT, end & INDEX);
            let queued = &mut self.queued[kind as usize][index as usize];
            if *queued != at {
                continue;
            }
            *queued = Ps::MAX;
            if kind == DELAYED {
                self.receivers[index as usize].on_deadline(now, &self.config, io);
                self.arm_receiver(index, io);
            } else if let Some(sender) = &mut self.senders[index as usize] {
                sender.on_deadline(now, &self.config, io);
                self.sender_done(index, io);
            }
        }
    }

    fn on_call(&mut self, _: Ps, token: u64, io: &mut HostIo<'_, TcpSegment>) {
        match self.jobs[token as usize] {
            Job::Write { conn, bytes } => {
                self.write(Conn { src: self.id, index: conn }, bytes, io);
            }
            Job::Flow { dst, ports, bytes, conn } => {
                self.open(conn, dst, ports, io);
                self.write(Conn { src: self.id, index: conn }, bytes, io);
            }
        }
    }
}
