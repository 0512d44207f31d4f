//! Messages that the kernel refused for now: copied, kept in order, and sent as soon as possible.

use super::{
    ring::SendRing,
    tx::{Kernel, Refusal, drop_count, segmentation_refused, sent_count, too_long},
};
use crate::{Counters, Part, TxReport};
use core::{mem, net::SocketAddr};
use std::collections::VecDeque;

/// Buffers kept for reuse; more are freed.
const POOL_BUFFERS_MAX: usize = 256;

/// One message, or its unsent rest.
struct Waiting {
    path: u8,
    dst: SocketAddr,
    segment_len: usize,
    bytes: Vec<u8>,
    /// Bytes sent so far.
    sent: usize,
    /// Whether to send its datagrams one by one.
    split: bool,
    /// Whether it was split because of an error that may mean that segmentation is not supported.
    suspect: bool,
}

impl Waiting {
    fn packets(&self) -> usize {
        (self.bytes.len() - self.sent).div_ceil(self.segment_len.max(1)).max(1)
    }
}

/// The backlog. It holds at most one batch, since nothing is pushed while it is not empty.
pub struct Backlog {
    waiting: VecDeque<Waiting>,
    pool: Vec<Vec<u8>>,
    ring: SendRing,
    /// Whether segmentation is permitted and no device has refused it.
    segments: bool,
    /// Paths whose socket was full at the last attempt.
    full: [u64; 4],
    /// Whether the kernel lacked memory at the last attempt; no descriptor reports when that ends.
    nobufs: bool,
}

impl Backlog {
    /// An empty backlog.
    pub fn new(segments: bool) -> Self {
        let ring = SendRing::with_capacity(1);
        let (waiting, pool) = (VecDeque::new(), Vec::new());
        Self { waiting, pool, ring, segments, full: [0; 4], nobufs: false }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Datagrams in it.
    pub fn packets(&self) -> usize {
        self.waiting.iter().map(Waiting::packets).sum()
    }

    /// Whether to build segmented messages.
    pub fn segments(&self) -> bool {
        self.segments
    }

    /// Whether no socket will report when to retry.
    pub fn timed(&self) -> bool {
        self.nobufs
    }

    /// Paths whose sockets will report when to retry.
    pub fn full_paths(&self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(|&path| self.is_full(path))
    }

    fn is_full(&self, path: u8) -> bool {
        self.full[usize::from(path >> 6)] & (1 << (path & 63)) != 0
    }

    /// Records that `path` accepted nothing because of `errno`.
    pub fn blocked(&mut self, path: u8, errno: i32) {
        if errno == libc::EAGAIN {
            self.full[usize::from(path >> 6)] |= 1 << (path & 63);
        } else {
            self.nobufs = true;
        }
    }

    /// Copies message `index` of `ring`.
    pub fn push(&mut self, path: u8, ring: &SendRing, index: usize, counters: &mut Counters) {
        let message = &ring.messages()[index];
        let mut bytes = self.pool.pop().unwrap_or_default();
        ring.message_copy(index, &mut bytes);
        counters.tx_backlogged += message.packets as u64;
        self.waiting.push_back(Waiting {
            path,
            dst: message.dst,
            segment_len: message.segment_len,
            bytes,
            sent: 0,
            split: false,
            suspect: false,
        });
    }

    /// Splits the last message into single datagrams, because of `errno`.
    pub fn last_split(&mut self, errno: i32, counters: &mut Counters) {
        if let Some(last) = self.waiting.back_mut() {
            last.refused(errno, &mut self.segments, counters);
        }
    }

    /// Sends what the kernel accepts. A full path is skipped until the next drain.
    pub fn drain<K: Kernel>(&mut self, k: &mut K, counters: &mut Counters, report: &mut TxReport) {
        (self.full, self.nobufs) = ([0; 4], false);
        let mut waiting = mem::take(&mut self.waiting);
        for _ in 0..waiting.len() {
            let Some(mut message) = waiting.pop_front() else { break };
            let blocked = self.nobufs || self.is_full(message.path);
            if !blocked && self.message_send(&mut message, k, counters, report) {
                message.bytes.clear();
                if self.pool.len() < POOL_BUFFERS_MAX {
                    self.pool.push(message.bytes);
                }
            } else {
                waiting.push_back(message);
            }
        }
        self.waiting = waiting;
    }

    /// Sends one message; false if it must wait.
    fn message_send<K: Kernel>(
        &mut self,
        m: &mut Waiting,
        kernel: &mut K,
        counters: &mut Counters,
        report: &mut TxReport,
    ) -> bool {
        loop {
            let left = &m.bytes[m.sent..];
            let whole = self.segments && !m.split && left.len() > m.segment_len;
            let chunk = if whole { left } else { &left[..left.len().min(m.segment_len)] };
            let packets = if whole { m.packets() } else { 1 };
            self.ring.clear();
            self.ring.message_start(m.dst, m.segment_len);
            self.ring.packets_add(packets, chunk.len());
            self.ring.part_push(Part::of_batch(chunk));
            counters.tx_syscalls += 1;
            match kernel.send(m.path, &self.ring, 0) {
                Ok(_) => {
                    sent_count(packets, chunk.len(), counters, report);
                    self.segments &= !m.suspect;
                    m.sent += chunk.len();
                }
                Err(errno) => match Refusal::of(errno, counters) {
                    Refusal::Retry => continue,
                    Refusal::Later => {
                        self.blocked(m.path, errno);
                        return false;
                    }
                    _ if whole && segmentation_refused(errno) => {
                        m.refused(errno, &mut self.segments, counters);
                        continue;
                    }
                    Refusal::TooLong => {
                        m.sent += chunk.len();
                        m.suspect = false;
                        too_long(kernel, m.dst, m.segment_len, counters, report);
                    }
                    Refusal::Drop => {
                        m.sent += chunk.len();
                        drop_count(errno, packets, counters, report);
                    }
                },
            }
            if m.sent >= m.bytes.len() {
                return true;
            }
        }
    }
}

impl Waiting {
    /// Handles a refused segmentation. EIO is final: the device does not support it. After other
    /// errors, which a small MTU may cause, segmentation is given up only if single datagrams are
    /// accepted.
    fn refused(&mut self, errno: i32, segments: &mut bool, counters: &mut Counters) {
        counters.tx_gso_refused += 1;
        self.split = true;
        self.suspect = matches!(errno, libc::EINVAL | libc::EOPNOTSUPP);
        *segments &= errno != libc::EIO;
    }
}
