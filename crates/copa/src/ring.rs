//! The NIC's view of its ring: which packets wait above the threshold, and when they fall to it.

use crate::packet::Stream;
use srd_fabric::{RingPut, RingState};
use std::collections::VecDeque;

/// A packet above the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Above {
    pub stream: Stream,
    pub seq: u64,
    /// Position of its last byte.
    end_bytes: u64,
}

/// A threshold in a ring. A packet is above it if the bytes waiting before it, plus its own, exceed
/// the threshold.
#[derive(Clone, Debug)]
pub(crate) struct Threshold {
    share: f64,
    bytes: u64,
    above: VecDeque<Above>,
}

impl Threshold {
    /// A threshold at this share of the ring.
    pub const fn new(share: f64) -> Self {
        Self { share, bytes: u64::MAX, above: VecDeque::new() }
    }

    /// Notes that a packet was put into the ring. Returns true if it is at or below the threshold;
    /// otherwise [`Threshold::sunk`] returns it later.
    pub fn took(
        &mut self,
        ring: Option<&RingState>,
        put: &RingPut,
        stream: Stream,
        seq: u64,
    ) -> bool {
        let Some(ring) = ring else { return true };
        self.bytes = (ring.limit_bytes as f64 * self.share) as u64;
        if put.backlog_bytes <= self.bytes {
            return true;
        }
        self.above.push_back(Above { stream, seq, end_bytes: put.end_bytes });
        false
    }

    /// Removes the next packet that has fallen to the threshold when `written_bytes` are written.
    pub fn sunk(&mut self, written_bytes: u64) -> Option<Above> {
        let bytes = self.bytes;
        self.above.pop_front_if(|a| a.end_bytes.saturating_sub(bytes) <= written_bytes)
    }

    /// Bytes written at which the next packet falls to the threshold.
    pub fn sinks_at(&self) -> Option<u64> {
        self.above.front().map(|a| a.end_bytes.saturating_sub(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_fabric::HostId;

    #[test]
    fn packets_sink_in_order_as_bytes_before_them_are_written() {
        let mut t = Threshold::new(0.5);
        let stream = Stream { sender: HostId(0), number: 0 };
        let state = |backlog_bytes, written_bytes| RingState {
            backlog_bytes,
            limit_bytes: 1_000,
            bits_per_s: Some(1),
            written_bytes,
            dropped: 0,
        };
        let put = |end_bytes, backlog_bytes| RingPut { end_bytes, backlog_bytes, written_at: 0 };
        assert!(t.took(Some(&state(0, 0)), &put(300, 300), stream, 0));
        assert!(t.took(Some(&state(200, 100)), &put(600, 500), stream, 1));
        assert!(!t.took(Some(&state(500, 100)), &put(900, 800), stream, 2));
        assert!(!t.took(Some(&state(800, 100)), &put(950, 850), stream, 3));
        assert_eq!((t.sinks_at(), t.sunk(399)), (Some(400), None));
        assert_eq!(t.sunk(400).map(|a| a.seq), Some(2));
        assert_eq!((t.sinks_at(), t.sunk(460).map(|a| a.seq)), (Some(450), Some(3)));
        assert_eq!((t.sinks_at(), t.sunk(u64::MAX)), (None, None));
        assert!(t.took(None, &put(0, 0), stream, 4), "without a ring nothing waits");
    }
}
