//! The transmit queue: sends packets with as few system calls as possible.
//!
//! A flush sorts packets by path (stably, so that packets of one path keep their order), because
//! each path has its own socket. On one path, consecutive packets with the same destination and
//! size become one segmented message; all messages of a path go in one system call.

use super::{backlog::Backlog, ring::SendRing};
use crate::{Counters, Part, TooLong, TxPacket, TxPushError, TxReport, route};
use core::net::SocketAddr;

/// Most bytes of one segmented message: less than the 64 KiB of an IP datagram with its headers.
const MESSAGE_BYTES_MAX: usize = 65_000;
/// Longest datagram: the size of the block of zeros that padding comes from.
pub const PAYLOAD_BYTES_MAX: usize = 65_507;
static ZEROS: [u8; PAYLOAD_BYTES_MAX] = [0; PAYLOAD_BYTES_MAX];
/// Datagrams up to this length are copied when pushed. Measured on Linux 6.18: each part of a
/// message costs the kernel about 28 ns, two per packet; copying 1400 bytes ourselves costs half of
/// that.
const COPY_BYTES_MAX: usize = 2_048;
const NONE: u32 = u32::MAX;

/// Sends messages: the sockets, or a script in tests.
pub trait Kernel {
    /// Sends messages of `ring` from index `from` on over `path`'s socket. Returns how many were
    /// accepted (at least one), or the error number of the first.
    fn send(&mut self, path: u8, ring: &SendRing, from: usize) -> Result<usize, i32>;

    /// Sends one datagram over `path`'s socket with the shortest call there is. Returns whether it
    /// was accepted; if not, [`Kernel::send`] tells why.
    fn send_lone(&mut self, path: u8, dst: SocketAddr, datagram: Part) -> bool;

    /// Current MTU of the link, if known.
    fn link_mtu(&self) -> Option<u32>;
}

/// Reaction to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The error is not about this message: call again.
    Retry,
    /// The kernel has no room now: keep the message in the backlog.
    Later,
    /// The message is longer than the link allows.
    TooLong,
    /// Drop it: the error is permanent.
    Drop,
}

impl Refusal {
    /// Classifies an error number, and counts it unless packets are to be counted.
    pub fn of(errno: i32, counters: &mut Counters) -> Self {
        match errno {
            libc::EINTR => Self::Retry,
            libc::EAGAIN => {
                counters.tx_would_block += 1;
                Self::Later
            }
            libc::ENOBUFS | libc::ENOMEM => {
                counters.tx_nobufs += 1;
                Self::Later
            }
            libc::EMSGSIZE => Self::TooLong,
            _ => Self::Drop,
        }
    }
}

struct Queued {
    dst: SocketAddr,
    len: usize,
    pad: usize,
    arena_at: usize,
    arena_len: usize,
    parts_at: usize,
    parts_len: usize,
    /// Next packet of the same path.
    next: u32,
}

#[derive(Clone, Copy)]
struct PathList {
    first: u32,
    last: u32,
}

const EMPTY_LIST: PathList = PathList { first: NONE, last: NONE };

/// Limits of the transmit queue.
#[derive(Clone, Copy, Debug)]
pub struct TxLimits {
    /// Packets between two flushes.
    pub batch_max: usize,
    /// Packets in one segmented message; 1 = no segmentation.
    pub segments_max: usize,
    /// Bytes in one datagram.
    pub payload_max: usize,
    /// Whether destinations are IPv4.
    pub v4: bool,
}

/// Packets queued since the last flush, and the backlog of refused ones.
pub struct TxQueue {
    limits: TxLimits,
    queue: Vec<Queued>,
    parts: Vec<Part>,
    /// Headers, and whole datagrams that are short or need a finisher.
    arena: Vec<u8>,
    lists: Vec<PathList>,
    /// Paths with packets, in the order of their first packet.
    active: Vec<u8>,
    ring: SendRing,
    backlog: Backlog,
}

impl TxQueue {
    /// An empty queue for `paths` paths.
    pub fn new(limits: TxLimits, paths: usize) -> Self {
        Self {
            limits,
            queue: Vec::with_capacity(limits.batch_max),
            parts: Vec::with_capacity(limits.batch_max * 2),
            arena: Vec::with_capacity(limits.batch_max * COPY_BYTES_MAX),
            lists: vec![EMPTY_LIST; paths],
            active: Vec::with_capacity(paths),
            ring: SendRing::with_capacity(limits.batch_max),
            backlog: Backlog::new(limits.segments_max > 1),
        }
    }

    /// How many packets may be pushed now.
    pub fn room(&self) -> usize {
        if self.backlog.is_empty() { self.limits.batch_max - self.queue.len() } else { 0 }
    }

    /// The backlog.
    pub fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    /// Queues a packet.
    pub fn push(&mut self, packet: &TxPacket<'_>) -> Result<(), TxPushError> {
        let (len, max) = (packet.wire_len(), self.limits.payload_max);
        if len > max {
            return Err(TxPushError::TooLong { len, max });
        }
        if packet.dst.is_ipv4() != self.limits.v4 {
            return Err(TxPushError::BadFamily);
        }
        let Some(list) = self.lists.get_mut(usize::from(packet.path)) else {
            return Err(TxPushError::BadPath { path: packet.path, paths: self.lists.len() });
        };
        if !self.backlog.is_empty() || self.queue.len() >= self.limits.batch_max {
            return Err(TxPushError::Full);
        }
        let index = self.queue.len() as u32;
        if list.first == NONE {
            list.first = index;
            self.active.push(packet.path);
        } else {
            self.queue[list.last as usize].next = index;
        }
        list.last = index;
        let arena_at = self.arena.len();
        let (parts_at, mut pad) = (self.parts.len(), 0);
        if packet.headers.len() == len && packet.finish.is_none() {
            self.arena.extend_from_slice(packet.headers);
        } else if packet.finish.is_some() || copies(len) {
            packet.gather_into(&mut self.arena);
        } else {
            pad = packet.pad_len();
            self.arena.extend_from_slice(packet.headers);
            self.parts.extend_from_slice(packet.payload);
        }
        self.queue.push(Queued {
            dst: packet.dst,
            len,
            pad,
            arena_at,
            arena_len: self.arena.len() - arena_at,
            parts_at,
            parts_len: self.parts.len() - parts_at,
            next: NONE,
        });
        Ok(())
    }

    /// Discards the packets pushed since the last flush.
    pub fn discard(&mut self) {
        for path in self.active.drain(..) {
            self.lists[usize::from(path)] = EMPTY_LIST;
        }
        self.queue.clear();
        self.parts.clear();
        self.arena.clear();
        self.ring.clear();
    }

    /// Sends the backlog, then the queue. Afterwards the queue is empty.
    pub fn flush<K: Kernel>(&mut self, kernel: &mut K, counters: &mut Counters) -> TxReport {
        let mut report = TxReport::default();
        if !self.backlog.is_empty() {
            self.backlog.drain(kernel, counters, &mut report);
        }
        if !self.lone_send(kernel, counters, &mut report) {
            for i in 0..self.active.len() {
                let path = self.active[i];
                self.ring_fill(path);
                self.ring_send(path, kernel, counters, &mut report);
            }
        }
        self.discard();
        report.backlog = self.backlog.packets();
        report
    }

    /// Sends the queue, if it is a single packet in one piece, without making a message of it:
    /// every packet of a ping-pong is one. Returns whether it was sent.
    fn lone_send<K: Kernel>(
        &self,
        kernel: &mut K,
        counters: &mut Counters,
        report: &mut TxReport,
    ) -> bool {
        let ([path], [packet]) = (&self.active[..], &self.queue[..]) else { return false };
        if packet.arena_len != packet.len {
            return false;
        }
        counters.tx_syscalls += 1;
        let datagram = Part::of_arena(&self.arena, packet.arena_at, packet.len);
        let sent = kernel.send_lone(*path, packet.dst, datagram);
        if sent {
            sent_count(1, packet.len, counters, report);
        }
        sent
    }

    /// Puts the packets of one path into the ring as messages.
    fn ring_fill(&mut self, path: u8) {
        self.ring.clear();
        let segments_max = if self.backlog.segments() { self.limits.segments_max } else { 1 };
        let mut next = self.lists[usize::from(path)].first;
        while let Some(first) = self.queue.get(next as usize) {
            self.ring.message_start(first.dst, first.len);
            let (mut packets, mut bytes) = (0, 0);
            while let Some(packet) = self.queue.get(next as usize) {
                let fits = packet.dst == first.dst
                    && packet.len <= first.len
                    && packet.len > 0
                    && packets < segments_max
                    && bytes + packet.len <= MESSAGE_BYTES_MAX;
                if packets > 0 && !fits {
                    break;
                }
                let head = Part::of_arena(&self.arena, packet.arena_at, packet.arena_len);
                self.ring.packets_add(1, packet.len);
                self.ring.arena_part_push(head);
                for part in &self.parts[packet.parts_at..][..packet.parts_len] {
                    self.ring.part_push(*part);
                }
                if packet.pad > 0 {
                    self.ring.part_push(Part::of_batch(&ZEROS[..packet.pad]));
                }
                (packets, bytes, next) = (packets + 1, bytes + packet.len, packet.next);
                if packet.len < first.len {
                    break;
                }
            }
        }
    }

    /// Sends the ring over `path`. Refused messages go to the backlog.
    fn ring_send<K: Kernel>(
        &mut self,
        path: u8,
        kernel: &mut K,
        counters: &mut Counters,
        report: &mut TxReport,
    ) {
        let mut at = 0;
        while at < self.ring.messages().len() {
            counters.tx_syscalls += 1;
            match kernel.send(path, &self.ring, at) {
                Ok(taken) => {
                    for message in &self.ring.messages()[at..at + taken] {
                        sent_count(message.packets, message.bytes, counters, report);
                    }
                    at += taken;
                }
                Err(errno) => {
                    let message = &self.ring.messages()[at];
                    let segmented = message.packets > 1;
                    match Refusal::of(errno, counters) {
                        Refusal::Retry => {}
                        Refusal::Later => {
                            for index in at..self.ring.messages().len() {
                                self.backlog.push(path, &self.ring, index, counters);
                            }
                            self.backlog.blocked(path, errno);
                            return;
                        }
                        _ if segmented && segmentation_refused(errno) => {
                            self.backlog.push(path, &self.ring, at, counters);
                            self.backlog.last_split(errno, counters);
                            self.backlog.drain(kernel, counters, report);
                            at += 1;
                        }
                        Refusal::TooLong => {
                            let (dst, len) = (message.dst, message.segment_len);
                            too_long(kernel, dst, len, counters, report);
                            at += 1;
                        }
                        Refusal::Drop => {
                            drop_count(errno, message.packets, counters, report);
                            at += 1;
                        }
                    }
                }
            }
        }
    }
}

/// Whether a datagram of `len` bytes is copied when it is pushed.
pub fn copies(len: usize) -> bool {
    len <= COPY_BYTES_MAX
}

/// Errors of a segmented send that single datagrams may avoid. EIO: the device has no checksum
/// offload. EINVAL, EMSGSIZE: a segment exceeds the MTU, or the kernel has smaller limits.
pub fn segmentation_refused(errno: i32) -> bool {
    matches!(errno, libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP)
}

/// Counts `packets` datagrams that the kernel accepted in one message.
pub fn sent_count(packets: usize, bytes: usize, counters: &mut Counters, report: &mut TxReport) {
    report.sent += packets;
    counters.tx_packets += packets as u64;
    counters.tx_bytes += bytes as u64;
    if packets > 1 {
        counters.tx_gso_batches += 1;
        counters.tx_gso_packets += packets as u64;
    }
}

/// Counts a datagram that the link cannot carry.
pub fn too_long<K: Kernel>(
    kernel: &K,
    dst: SocketAddr,
    len: usize,
    counters: &mut Counters,
    report: &mut TxReport,
) {
    counters.tx_too_long += 1;
    report.dropped += 1;
    // Reading the MTU costs system calls: once per flush.
    let known = report.too_long.and_then(|t| t.mtu).or_else(|| kernel.link_mtu());
    // A link with a sufficient MTU is not the one that refused the packet.
    let mtu = known.filter(|&mtu| route::udp_payload_max(mtu, dst.ip()) < len);
    report.too_long = Some(TooLong { dst, len, mtu });
}

/// Counts dropped datagrams by the kind of error.
pub fn drop_count(errno: i32, packets: usize, counters: &mut Counters, report: &mut TxReport) {
    report.dropped += packets;
    let counter = match errno {
        libc::ECONNREFUSED => &mut counters.tx_refused,
        libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN | libc::EHOSTDOWN => {
            &mut counters.tx_unreachable
        }
        libc::EPERM | libc::EACCES => &mut counters.tx_forbidden,
        _ => {
            counters.tx_other_errno = errno;
            &mut counters.tx_other
        }
    };
    *counter += packets as u64;
}

#[cfg(test)]
mod tests;
