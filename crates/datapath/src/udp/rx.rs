//! Receives a batch, splits merged datagrams and passes them on.

use super::{control::Received, ring::RecvRing};
use crate::{Counters, RxDatagram, RxReport, sys};
use std::{io, os::fd::BorrowedFd};

/// Target size of a batch in datagrams and bytes: enough to amortize the system call, few enough
/// that they are acknowledged in time and are still in the cache when they are copied.
const BATCH_DATAGRAMS: usize = 64;
const BATCH_BYTES: usize = 256 << 10;

/// A longer waiting time means that the clock was set between arrival and read.
const WAIT_NS_MAX: u64 = 10_000_000_000;

/// Messages to request after a batch of `count` messages with this many datagrams and bytes.
fn want_next(count: usize, datagrams: usize, bytes: usize) -> usize {
    if datagrams <= 1 {
        // The same without the divisions, which take as long as twenty other instructions each: one
        // message is no longer than a quarter of the bytes.
        return 2 * count + 1;
    }
    let by_datagrams = BATCH_DATAGRAMS * count / datagrams.max(1);
    let by_bytes = BATCH_BYTES * count / bytes.max(1);
    (2 * count + 1).min(by_datagrams.min(by_bytes).max(1))
}

/// Receive buffers and state kept between batches.
pub struct RxQueue {
    ring: RecvRing,
    /// Messages to request next. Grows up to the target size while batches come back full, and is
    /// small otherwise, so that a single packet costs no second poll of the socket.
    want: usize,
    drops: u32,
}

impl RxQueue {
    /// Receives at most `batch_max` messages at once.
    pub fn new(batch_max: usize) -> Self {
        Self { ring: RecvRing::new(batch_max), want: 1, drops: 0 }
    }

    /// Datagrams that the kernel has dropped (wraps around).
    pub fn drops(&self) -> u32 {
        self.drops
    }

    /// Receives one batch.
    pub fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        counters: &mut Counters,
        sink: &mut dyn FnMut(RxDatagram<'_>),
    ) -> io::Result<RxReport> {
        counters.rx_syscalls += 1;
        let asked = self.want;
        let count = match self.ring.receive(fd, asked) {
            Ok(count) => count,
            // An error caused by an earlier packet (ICMP) does not mean that no datagram is
            // waiting.
            Err(libc::EAGAIN | libc::EINTR | libc::ECONNREFUSED | libc::ENOMEM | libc::ENOBUFS) => {
                0
            }
            Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
        };
        let bytes_before = counters.rx_bytes;
        // The clock of the kernel's arrival stamps.
        let taken_ns = if count > 0 { sys::clock_ns(libc::CLOCK_REALTIME) } else { 0 };
        let mut total = 0;
        for index in 0..count {
            total += self.message_pass(index, taken_ns, counters, sink);
        }
        let bytes = (counters.rx_bytes - bytes_before) as usize;
        self.want = want_next(count, total, bytes).min(self.ring.capacity());
        Ok(RxReport { datagrams: total, more: count == asked })
    }

    /// Counts a message, passes its datagrams on, and returns their number.
    fn message_pass(
        &mut self,
        index: usize,
        taken_ns: u64,
        counters: &mut Counters,
        sink: &mut dyn FnMut(RxDatagram<'_>),
    ) -> usize {
        let message = self.ring.message(index);
        let told = Received::parse(message.control);
        if let Some(drops) = told.drops {
            counters.rxq_drops += u64::from(drops.wrapping_sub(self.drops));
            self.drops = drops;
        }
        let Some(src) = message.src.filter(|_| !message.truncated) else {
            counters.rx_truncated += 1;
            return 0;
        };
        let len = message.bytes.len();
        let segment_len = told.segment_len.unwrap_or(len).max(1);
        let packets = if len <= segment_len { 1 } else { len.div_ceil(segment_len) };
        counters.rx_packets += packets as u64;
        counters.rx_bytes += len as u64;
        counters.rx_ce += if told.ce { packets as u64 } else { 0 };
        if packets > 1 {
            counters.rx_gro_batches += 1;
            counters.rx_gro_packets += packets as u64;
        }
        let waited_ns = told.arrived_ns.map_or(0, |at| taken_ns.saturating_sub(at));
        // If the clock was set meanwhile, the waiting time is unknown.
        let waited_ns = if waited_ns < WAIT_NS_MAX { waited_ns } else { 0 };
        let rxq_drops = self.drops;
        let mut rest = message.bytes;
        for _ in 0..packets {
            let (bytes, after) = rest.split_at_mut(rest.len().min(segment_len));
            sink(RxDatagram { src, ce: told.ce, rxq_drops, waited_ns, bytes });
            rest = after;
        }
        packets
    }
}

#[cfg(test)]
mod tests {
    use super::want_next;

    #[test]
    fn batches_grow_up_to_what_is_read_at_once() {
        assert_eq!(want_next(0, 0, 0), 1);
        assert_eq!(want_next(1, 1, 64), 3);
        assert_eq!(want_next(3, 3, 192), 7);
        assert_eq!(want_next(60, 60, 3_840), 64);
        assert_eq!(want_next(9, 72, 72 * 1_400), 8, "eight merged datagrams each");
        assert_eq!(want_next(7, 49, 49 * 8_900), 4, "merged jumbo packets: by bytes");
        assert_eq!(want_next(1, 1, 65_507), 3);
    }
}
