//! Rate, inflight and credits towards one remote address.

use crate::time::{Span, Time};

/// The receiver's side of credits: hands out the link to the peers that have something to send.
#[derive(Debug)]
pub struct Granter {
    rate: u64,
    grant: u32,
    next: Time,
    ring: std::collections::VecDeque<(u32, u64)>,
}

impl Granter {
    /// For a link of this rate.
    pub fn new(line_bytes_per_sec: u64, mtu: u16) -> Self {
        let rate = (line_bytes_per_sec / 100 * 98).max(1);
        Self { rate, grant: 4 * u32::from(mtu), next: Time(0), ring: Default::default() }
    }

    /// Peer `ctx` has up to `packets_max` more packets to send; `arrived_bytes` of it just came.
    pub fn on_backlog(&mut self, _now: Time, ctx: u32, packets_max: u32, _arrived_bytes: u32) {
        let want = u64::from(packets_max) * u64::from(self.grant) / 4;
        match self.ring.iter_mut().find(|e| e.0 == ctx) {
            Some(e) => e.1 = want,
            None if want > 0 => self.ring.push_back((ctx, want)),
            None => {}
        }
    }

    /// Peer `ctx` is gone.
    pub fn forget(&mut self, ctx: u32) {
        self.ring.retain(|e| e.0 != ctx);
    }

    /// When [`Self::poll`] has something to do next.
    pub fn next(&self) -> Time {
        if self.ring.is_empty() { Time::NEVER } else { self.next }
    }

    /// The next grant: which peer, how many bytes.
    pub fn poll(&mut self, now: Time) -> Option<(u32, u32)> {
        if now < self.next {
            return None;
        }
        let (ctx, left) = self.ring.pop_front()?;
        let bytes = left.min(u64::from(self.grant)) as u32;
        if left > u64::from(bytes) {
            self.ring.push_back((ctx, left - u64::from(bytes)));
        }
        self.next = now.max(self.next) + Span(u64::from(bytes) * 1_000_000_000 / self.rate);
        (bytes > 0).then_some((ctx, bytes))
    }
}
