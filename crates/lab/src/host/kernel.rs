//! Model of the kernel and thread between an engine and its card on a real host: a socket that
//! buffers packets, wake-up delays, durations of system calls, segmented sends, and stolen
//! processor time.
//!
//! The engine's thread works in turns, as on sockets: it receives one batch, processes timers,
//! polls one batch of packets, and hands them over as segmented sends, each of which takes time.
//! Then it starts over, and sleeps only if it found nothing. Meanwhile packets wait in the socket
//! with the kernel's timestamp.

use super::{SrdHost, host_of, ps_of, time_of};
use crate::host::SPORT_BASE;
use crate::noise::HostModel;
use crate::packet::{LabPacket, wire_bytes};
use srd_core::{RxMeta, RxWaiting, Span, Time, Transmit, TxSink};
use srd_fabric::{Delivered, HostIo, NS, Outbound, Ps, Rng};
use std::collections::VecDeque;
use std::sync::Arc;

/// Packets polled per turn, as by the device on sockets.
const TX_BATCH: usize = 64;
/// Largest segmented send in bytes, as in the datapath.
const BURST_BYTES_MAX: u32 = 65_000;
/// Most bytes that wait for the card: 64 paths with a send buffer of 64 KiB each.
const CARD_BYTES_MAX: u64 = 64 * 65_536;
/// Target size of a batch in packets and bytes, as in the datapath.
const BATCH_PACKETS: usize = 64;
const BATCH_BYTES: u64 = 256 << 10;
/// Shortest turn.
const TURN_PS_MIN: Ps = 100 * NS;

/// Counters of the kernel model of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// Receive calls that returned packets.
    pub receives: u64,
    /// Packets returned by receive calls.
    pub received: u64,
    /// Segmented sends.
    pub sends: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that did not fit into the socket.
    pub socket_drops: u64,
    /// Processor time stolen from turns, ps.
    pub stolen_ps: u64,
    /// Longest wait of a packet between its arrival and its receive call, ps.
    pub waited_ps_max: u64,
    /// Share of the time from its first turn to the end of its last one that a process was in
    /// turns, with what was stolen from them, in thousandths.
    pub busy_permille_max: u64,
}

impl KernelCounts {
    /// The sum of both; the larger of the longest waits and of the shares.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            receives: self.receives + other.receives,
            received: self.received + other.received,
            sends: self.sends + other.sends,
            sent: self.sent + other.sent,
            socket_drops: self.socket_drops + other.socket_drops,
            stolen_ps: self.stolen_ps + other.stolen_ps,
            waited_ps_max: self.waited_ps_max.max(other.waited_ps_max),
            busy_permille_max: self.busy_permille_max.max(other.busy_permille_max),
        }
    }
}

/// A packet in the socket.
struct Waiting {
    packet: Delivered<LabPacket>,
    arrived: Ps,
    /// Time from which the process can see the packet.
    visible: Ps,
}

/// Kernel model of one process.
pub(super) struct Kernel {
    model: Arc<HostModel>,
    rng: Rng,
    inbox: VecDeque<Waiting>,
    inbox_bytes: u64,
    /// Packets on their way to the card, with the end of the call that hands them over.
    outbox: VecDeque<(Ps, Outbound, LabPacket)>,
    outbox_bytes: u64,
    /// Start of the next turn; `Ps::MAX` = the thread sleeps without a deadline.
    turn_at: Ps,
    /// End of the present turn.
    free_at: Ps,
    /// Start and end of the next stolen span.
    stolen: (Ps, Ps),
    /// Start of the first turn, and time spent in turns.
    began_at: Option<Ps>,
    busy_ps: Ps,
    /// Packets that the next receive call asks for.
    want: usize,
    counts: KernelCounts,
}

impl Kernel {
    pub(super) fn new(model: Arc<HostModel>, rng: Rng) -> Self {
        let mut kernel = Self {
            model,
            rng,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            turn_at: Ps::MAX,
            free_at: 0,
            stolen: (0, 0),
            began_at: None,
            busy_ps: 0,
            want: 1,
            counts: KernelCounts::default(),
        };
        kernel.stolen_next();
        kernel
    }

    pub(super) fn counts(&self) -> KernelCounts {
        let all_ps = self.began_at.map_or(0, |began| self.free_at - began).max(1);
        KernelCounts { busy_permille_max: self.busy_ps * 1000 / all_ps, ..self.counts }
    }

    fn stolen_next(&mut self) {
        let from = self.stolen.1 + self.model.stolen_gap.draw_ps(&mut self.rng).max(NS);
        self.stolen = (from, from + self.model.stolen.draw_ps(&mut self.rng));
    }

    /// When a thread that becomes runnable at `now` runs.
    fn runs_at(&mut self, now: Ps) -> Ps {
        while self.stolen.1 <= now {
            self.stolen_next();
        }
        if self.stolen.0 <= now { self.stolen.1 } else { now }
    }

    /// When work that would end at `at` ends, with stolen spans added.
    fn ends_at(&mut self, mut at: Ps) -> Ps {
        while self.stolen.0 < at {
            let taken = self.stolen.1 - self.stolen.0;
            self.counts.stolen_ps += taken;
            at += taken;
            self.stolen_next();
        }
        at
    }

    /// Handles the arrival of a packet at the socket.
    fn arrive(&mut self, now: Ps, packet: Delivered<LabPacket>) {
        let bytes = u64::from(packet.bytes);
        // The kernel also counts its own memory per packet, about as much again.
        if self.inbox_bytes + bytes > self.model.socket_bytes / 2 {
            self.counts.socket_drops += 1;
            return;
        }
        let stamp = now + self.model.stamp.draw_ps(&mut self.rng);
        // Packets become visible in the order of arrival.
        let visible = stamp.max(self.inbox.back().map_or(0, |w| w.visible));
        self.inbox.push_back(Waiting { packet, arrived: now, visible });
        self.inbox_bytes += bytes;
        let wakes = if now < self.free_at {
            self.free_at.max(visible)
        } else {
            visible + self.model.wake.draw_ps(&mut self.rng)
        };
        self.turn_at = self.turn_at.min(wakes);
    }

    /// The packets that one receive call returns.
    fn receive(&mut self, now: Ps) -> Vec<Waiting> {
        // A receive call asks for more than the last one returned; the model has what one returns
        // whose predecessor returned little.
        let most = (self.model.batch.at(self.rng.unit()) as usize).max(self.want);
        let seen = self.inbox.partition_point(|w| w.visible <= now).min(most);
        let batch: Vec<Waiting> = self.inbox.drain(..seen).collect();
        let before = self.inbox_bytes;
        for w in &batch {
            self.inbox_bytes -= u64::from(w.packet.bytes);
            self.counts.waited_ps_max = self.counts.waited_ps_max.max(now - w.arrived);
        }
        let by_bytes = BATCH_BYTES as usize * seen / ((before - self.inbox_bytes) as usize).max(1);
        self.want = (2 * seen + 1).min(BATCH_PACKETS).min(by_bytes.max(1));
        self.counts.receives += u64::from(seen > 0);
        self.counts.received += seen as u64;
        batch
    }

    /// Duration of a receive call that returns `packets` packets.
    fn receive_ps(&mut self, packets: usize) -> Ps {
        match packets {
            0 => 0,
            1 => self.model.recv.draw_ps(&mut self.rng),
            n => n as Ps * self.model.recv_packet.draw_ps(&mut self.rng),
        }
    }

    /// The timestamp with the kernel's resolution.
    fn stamp_of(&self, visible: Ps) -> Ps {
        let step = self.model.stamp_step_ns * NS;
        visible / step * step
    }

    /// Hands packets over as segmented sends; returns the end of the last call.
    fn send(&mut self, from: Ps, mut packets: Vec<Polled>) -> Ps {
        // Like the datapath: path by path, with the packets of one path in order.
        packets.sort_by_key(|p| p.path);
        let (mut at, mut rest) = (from, packets.as_slice());
        let burst_max = self.model.burst_max();
        while let Some(first) = rest.first() {
            let n = burst_len(rest, burst_max);
            at += self.model.send_ps(n, &mut self.rng);
            at = self.ends_at(at);
            (self.counts.sends, self.counts.sent) =
                (self.counts.sends + 1, self.counts.sent + n as u64);
            debug_assert!(rest[..n].iter().all(|p| p.path == first.path));
            for p in &rest[..n] {
                self.outbox_bytes += u64::from(p.out.bytes);
                self.outbox.push_back((at, p.out, p.packet.clone()));
            }
            rest = &rest[n..];
        }
        at
    }

    /// Hands packets whose call has ended to the card.
    fn release(&mut self, now: Ps, io: &mut HostIo<'_, LabPacket>) -> u64 {
        let mut refused = 0;
        while self.outbox.front().is_some_and(|(at, ..)| *at <= now)
            && let Some((_, out, packet)) = self.outbox.pop_front()
        {
            self.outbox_bytes -= u64::from(out.bytes);
            refused += u64::from(io.send(out, packet).is_err());
        }
        refused
    }

    fn next(&self) -> Ps {
        self.turn_at.min(self.outbox.front().map_or(Ps::MAX, |(at, ..)| *at))
    }
}

/// Number of packets at the head of a list that fit one segmented send.
fn burst_len(packets: &[Polled], burst_max: usize) -> usize {
    let (mut n, mut bytes) = (0, 0);
    for p in packets {
        let first = &packets[0];
        let fits = p.path == first.path
            && (p.out.dst, p.out.dport) == (first.out.dst, first.out.dport)
            && p.out.bytes <= first.out.bytes
            && n < burst_max
            && bytes + p.out.bytes <= BURST_BYTES_MAX;
        if n > 0 && !fits {
            break;
        }
        (n, bytes) = (n + 1, bytes + p.out.bytes);
        // A shorter packet ends a segmented send.
        if p.out.bytes < first.out.bytes {
            break;
        }
    }
    n
}

/// A packet that the engine emitted.
#[derive(Clone)]
struct Polled {
    path: u8,
    out: Outbound,
    packet: LabPacket,
}

/// Collects the engine's packets.
#[derive(Default)]
struct Collect(Vec<Polled>);

impl TxSink for Collect {
    fn push(&mut self, t: &Transmit<'_>) {
        let udp = t.packet.headers_len() as u32 + u32::from(t.packet.payload_len);
        let out = Outbound {
            dst: host_of(t.dst.ip),
            sport: SPORT_BASE + u16::from(t.path),
            dport: t.dst.port,
            bytes: wire_bytes(udp.max(u32::from(t.padded_len))),
            ect: true,
        };
        self.0.push(Polled { path: t.path, out, packet: LabPacket::new(&t.packet) });
    }
}

impl SrdHost {
    /// Like [`SrdHost`]'s `on_packet`, through a socket.
    pub(super) fn kernel_packet(
        &mut self,
        now: Ps,
        p: Delivered<LabPacket>,
        io: &mut HostIo<'_, LabPacket>,
    ) {
        if let Some(kernel) = &mut self.kernel {
            kernel.arrive(now, p);
        }
        self.kernel_rearm(io);
    }

    /// Like `on_timer`: a turn starts, or a call's packets are handed over.
    pub(super) fn kernel_timer(&mut self, now: Ps, io: &mut HostIo<'_, LabPacket>) {
        let Some(kernel) = &mut self.kernel else { return };
        self.card_refused += kernel.release(now, io);
        if kernel.turn_at <= now {
            self.kernel_turn(now, io);
        }
        self.kernel_rearm(io);
    }

    /// Starts a turn for posted work as soon as the thread runs.
    pub(super) fn kernel_posted(&mut self, now: Ps, io: &mut HostIo<'_, LabPacket>) {
        let Some(kernel) = &mut self.kernel else { return };
        kernel.turn_at = kernel.turn_at.min(kernel.free_at.max(now));
        self.kernel_timer(now, io);
    }

    fn kernel_rearm(&self, io: &mut HostIo<'_, LabPacket>) {
        match self.kernel.as_ref().map_or(Ps::MAX, |k| k.next()) {
            Ps::MAX => io.timer_clear(),
            at => io.timer_set(at),
        }
    }

    fn kernel_turn(&mut self, now: Ps, io: &mut HostIo<'_, LabPacket>) {
        let Some(mut kernel) = self.kernel.take() else { return };
        let runs_at = kernel.runs_at(now);
        if runs_at > now {
            kernel.turn_at = runs_at;
        } else {
            self.turn_with(&mut kernel, now, io);
            self.sample(now);
            self.card_refused += kernel.release(now, io);
        }
        self.kernel = Some(kernel);
    }

    fn turn_with(&mut self, kernel: &mut Kernel, now: Ps, io: &HostIo<'_, LabPacket>) {
        let t = time_of(now);
        let batch = kernel.receive(now);
        let (taken, mut read_until) = (batch.len(), t);
        for w in batch {
            let stamp = kernel.stamp_of(w.visible);
            let meta = RxMeta {
                src_ip: super::ip_of(w.packet.src),
                ce: w.packet.ce,
                rxq_drops: kernel.counts.socket_drops as u32,
                waited: Span((now - stamp) / NS),
            };
            self.packet_take(now, &w.packet, &meta);
            read_until = time_of(stamp);
        }
        if taken > 0 {
            // Like the datapath: what is left after a batch that left something.
            let left = kernel.inbox.front().is_some_and(|w| w.visible <= now);
            let waiting = RxWaiting {
                bytes: if left { kernel.inbox_bytes } else { 0 },
                limit_bytes: kernel.model.socket_bytes / 2,
                handled: false,
            };
            self.engine.rx_waiting(t, &waiting);
            self.engine.rx_burst_end(t);
        }
        if kernel.inbox.is_empty() {
            read_until = t;
        }
        if self.engine.next_timeout() <= t {
            self.engine.handle_timeout_unread(t, read_until.min(t));
        }
        self.completions_take(now);
        self.share_turn(t);
        let waits = io.nic_backlog_bytes() + kernel.outbox_bytes;
        let mut polled = Collect::default();
        if waits < CARD_BYTES_MAX {
            self.engine.poll_transmit(t, TX_BATCH, &mut polled);
            self.completions_take(now);
        }
        let received = kernel.receive_ps(taken);
        let after = kernel.ends_at(now + received.max(TURN_PS_MIN));
        let sends = !polled.0.is_empty();
        kernel.free_at = kernel.send(after, polled.0);
        kernel.began_at.get_or_insert(now);
        kernel.busy_ps += kernel.free_at - now;
        if sends {
            self.engine.handover_note(|| Span((kernel.free_at - now) / NS));
        }
        // The earliest time at which the card has room.
        let room = self.card_ps(waits.saturating_sub(CARD_BYTES_MAX / 2));
        let next = self.engine.next_timeout();
        let work = match next {
            Time(0) if waits >= CARD_BYTES_MAX => now + room,
            Time(0) => kernel.free_at,
            Time::NEVER => Ps::MAX,
            due if ps_of(due) <= kernel.free_at => kernel.free_at,
            due => ps_of(due) + kernel.model.wake.draw_ps(&mut kernel.rng),
        };
        let unread = kernel.inbox.front().map_or(Ps::MAX, |w| w.visible);
        kernel.turn_at = work.min(unread).max(kernel.free_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::SMALL;
    use srd_core::wire::{Backlog, Body, Flags, Header, Packet, PacketType};
    use srd_fabric::{HostId, SEC};

    fn kernel() -> Kernel {
        Kernel::new(Arc::new(HostModel::parse(SMALL).unwrap()), Rng::new(7))
    }

    fn packet() -> LabPacket {
        let header = Header {
            kind: PacketType::Ack,
            flags: Flags(0),
            backlog: Backlog(0),
            path: 0,
            slot: 0,
            dst_tag: 0,
            tx_num: 0,
            timestamp: Time(0).to_wire(),
            psn: 0,
            una_delta: 0,
            ack_echo: 0,
        };
        LabPacket::new(&Packet { header, ack: None, body: Body::Ack, payload_len: 0 })
    }

    #[test]
    fn time_is_stolen_in_turn() {
        let mut k = kernel();
        // 100 us of running alternate with 2 us of stolen time.
        let us = 1_000 * NS;
        assert_eq!(k.runs_at(99 * us), 99 * us);
        assert_eq!(k.runs_at(101 * us), 102 * us);
        assert_eq!(k.runs_at(150 * us), 150 * us);
        assert_eq!(k.ends_at(203 * us), 205 * us, "the second time falls into the work");
        assert_eq!(k.counts.stolen_ps, 2 * us);
    }

    #[test]
    fn a_receive_call_takes_more_while_more_waits() {
        let mut model = HostModel::parse(SMALL).unwrap();
        model.socket_bytes = 1 << 24;
        let mut k = Kernel::new(Arc::new(model), Rng::new(7));
        let arrived = |bytes| Delivered {
            src: HostId(1),
            sport: 1,
            dport: 1,
            bytes,
            ce: false,
            corrupt: 0,
            sent_ps: 0,
            waited_ps: 0,
            register_max: 0,
            payload: packet(),
        };
        let mut taken = |bytes, packets: usize| {
            (0..packets).for_each(|_| k.arrive(0, arrived(bytes)));
            let mut sizes = Vec::new();
            while !k.inbox.is_empty() {
                sizes.push(k.receive(SEC).len());
            }
            sizes
        };
        // The model's calls return 8. Up to 64 packets, or 256 KiB: 29 of 9,000 bytes.
        assert_eq!(taken(100, 300), [8, 17, 35, 64, 64, 64, 48]);
        assert_eq!(taken(9_000, 100), [64, 29, 7]);
        assert_eq!(taken(100, 1), [1]);
    }

    #[test]
    fn bursts_end_with_another_path_another_peer_or_a_shorter_packet() {
        let packet = packet();
        let of = |path, dst, bytes| Polled {
            path,
            out: Outbound { dst: HostId(dst), sport: 1, dport: 1, bytes, ect: true },
            packet: packet.clone(),
        };
        let full: Vec<Polled> = (0..10).map(|_| of(1, 2, 4_000)).collect();
        assert_eq!(burst_len(&full, 8), 8);
        assert_eq!(burst_len(&full[..3], 8), 3);
        assert_eq!(burst_len(&[of(1, 2, 4_000), of(1, 2, 90), of(1, 2, 90)], 8), 2);
        assert_eq!(burst_len(&[of(1, 2, 90), of(1, 2, 4_000)], 8), 1);
        assert_eq!(burst_len(&[of(1, 2, 90), of(2, 2, 90)], 8), 1);
        assert_eq!(burst_len(&[of(1, 2, 90), of(1, 3, 90)], 8), 1);
        assert_eq!(burst_len(&[of(1, 2, 60_000), of(1, 2, 60_000)], 8), 1);
    }
}
