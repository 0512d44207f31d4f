//! A host: its connections, their timers and the planned application calls.

use crate::tcp::TcpConfig;
use crate::tcp::receiver::{Arrived, Receiver};
use crate::tcp::report::{Conn, Counters, Message};
use crate::tcp::segment::{TcpSegment, UNKNOWN};
use crate::tcp::sender::Sender;
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

    /// A connection's sending end; `None` while it is planned but not open.
    pub fn sender(&self, conn: Conn) -> Option<&Sender> {
        self.senders.get(conn.index as usize)?.as_ref()
    }

    /// All sending ends.
    pub fn senders(&self) -> impl Iterator<Item = &Sender> {
        self.senders.iter().flatten()
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
        sum
    }

    fn reserve(&mut self) -> u32 {
        let conn = self.senders.len() as u32;
        assert!(conn < INDEX, "a host has at most 2^30 connections");
        self.senders.push(None);
        self.queued[TIMER as usize].push(Ps::MAX);
        self.queued[WAKE as usize].push(Ps::MAX);
        conn
    }

    fn open(&mut self, conn: u32, dst: HostId, ports: (u16, u16), io: &mut HostIo<'_, TcpSegment>) {
        let now = io.now();
        let mut sender =
            Sender::new(Conn { src: self.id, index: conn }, dst, ports, now, &self.config);
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
            TcpSegment::Data { conn, peer, seq, len, messages, ts, cwr } => {
                let at = self.receiver_at(packet.src, conn, peer, ports);
                let (ce, sport) = (packet.ce, packet.sport);
                let data = Arrived { seq, len, messages, ts, cwr, ce, sport };
                let receiver = &mut self.receivers[at as usize];
                let done = receiver.on_data(now, &data, &self.config, io);
                if done > 0 {
                    self.received.fetch_add(u64::from(done), Ordering::Relaxed);
                }
                self.arm_receiver(at, io);
            }
            TcpSegment::Ack(ack) => {
                let Some(Some(sender)) = self.senders.get_mut(ack.conn as usize) else { return };
                sender.on_ack(now, &ack, &self.config, io);
                self.arm_sender(ack.conn, io);
            }
            TcpSegment::Syn { conn, ts } => {
                let at = self.receiver_at(packet.src, conn, UNKNOWN, ports);
                self.receivers[at as usize].syn_ack_send(ts, &self.config, io);
            }
            TcpSegment::SynAck { conn, peer, ts_echo } => {
                let Some(Some(sender)) = self.senders.get_mut(conn as usize) else { return };
                sender.on_syn_ack(now, peer, ts_echo, &self.config, io);
                self.arm_sender(conn, io);
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
                self.arm_sender(index, io);
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
