//! The queue between the network and this host's memory, and the rate at which the host drains it.
//!
//! The datapath reports what waits ([`RxWaiting`]); a report holds until the next one. While
//! something waits, the bytes taken per time are the rate at which the host drains the queue. Above
//! a threshold the senders are told that the host falls behind, and each is told its share of what
//! may be in flight.

use crate::api::RxWaiting;
use crate::config::HostPolicy;
use crate::time::{Span, Time};
use crate::tuning::{
    DRAIN_PKTS, DRAIN_SAMPLE, DRAIN_WEIGHT, HOST_BUDGET_MIN, HOST_EMPTY_RTTS, HOST_GRANT_MAX,
    HOST_GRANT_MIN, HOST_SENDER_PKTS, HOST_SLACK_PKTS, HOST_SLACK_SHARE, HOST_THRESHOLD,
    HOST_THRESHOLD_PKTS, HOST_THRESHOLD_RTTS,
};

/// Contexts examined in one call after the queue has crossed the threshold.
pub(crate) const TELL_SCAN: usize = 1024;

/// State of the host's receive queue.
#[derive(Debug)]
pub(crate) struct HostQueue {
    policy: HostPolicy,
    mtu: u64,
    /// The configured initial RTT, which stands for the RTT of all senders.
    rtt: Span,
    told: RxWaiting,
    above: bool,
    /// Bytes taken from the network since `since`.
    taken: u64,
    /// When the present measurement of the drain rate began, and the bytes that waited then.
    since: Time,
    waited: u64,
    /// When something last waited.
    busy_at: Time,
    /// Measured drain rate of the host, in bytes per second; 0: not known.
    drain: u64,
    /// `drain` was raised since it was last measured.
    guessed: bool,
    /// Contexts whose peers send.
    senders: u32,
    /// The first context that was not yet told of the last crossing of the threshold.
    tell_from: Option<usize>,
}

impl HostQueue {
    pub fn new(now: Time, policy: HostPolicy, mtu: u16, rtt: Span) -> Self {
        Self {
            policy,
            mtu: u64::from(mtu),
            rtt,
            told: RxWaiting::default(),
            above: false,
            taken: 0,
            since: now,
            waited: 0,
            busy_at: now,
            drain: 0,
            guessed: false,
            senders: 0,
            tell_from: None,
        }
    }

    /// Notes an accepted packet of `bytes` bytes that waited for `waited`. A host that reads all
    /// there is and then does other things reports an empty queue at each turn, although it falls
    /// behind: the time for which packets have waited shows that.
    #[inline(always)]
    pub fn take(&mut self, now: Time, bytes: usize, waited: Span) {
        self.taken += bytes as u64;
        if waited > self.rtt.scale(HOST_EMPTY_RTTS, 1) {
            self.busy_at = now;
        }
    }

    /// Takes a report of the datapath of what waits.
    /// Rule CC-29.
    pub fn tell(&mut self, now: Time, w: &RxWaiting) {
        let before = core::mem::replace(&mut self.told, *w);
        if w.limit_bytes == 0 {
            // A report of an empty queue need not state the limit: the last known one stays.
            self.told.limit_bytes = before.limit_bytes;
        }
        if w.bytes > 0 {
            self.busy_at = now;
        } else if now.since(self.busy_at) > self.rtt.scale(HOST_EMPTY_RTTS, 1) {
            self.rise(now);
        }
        self.drain_measure(now, before.bytes > 0 && w.bytes > 0);
        let least = self.catches_up_at().unwrap_or_else(|| self.threshold());
        let above = w.bytes > least && self.policy != HostPolicy::Off;
        if core::mem::replace(&mut self.above, above) != above {
            self.tell_from = Some(0);
        }
    }

    /// Doubles the drain rate after nothing has waited for a while, because the host is faster than
    /// measured, by an unknown factor. Once two round trips drain half of the room, the rate is no
    /// limit any more. Dropping the limit at once would let the senders flood the host.
    fn rise(&mut self, now: Time) {
        (self.drain, self.busy_at, self.guessed) = (self.drain.saturating_mul(2), now, true);
        let drained = self.in_rtts(self.rtt.scale(HOST_THRESHOLD_RTTS, 1));
        if drained >= HOST_THRESHOLD.of(self.told.limit_bytes) {
            self.drain = 0;
        }
    }

    /// Measures the drain rate: the bytes taken per time while something waited without break.
    fn drain_measure(&mut self, now: Time, waiting: bool) {
        let span = now.since(self.since);
        if waiting {
            // With a network card, what waits counts as taken already; only what has left its ring
            // was drained.
            let left = if self.told.handled { self.told.bytes } else { 0 };
            let then = if self.told.handled { self.waited } else { 0 };
            let drained = (self.taken + then).saturating_sub(left);
            if span < DRAIN_SAMPLE.of_span(self.rtt) || drained < DRAIN_PKTS * self.mtu {
                return;
            }
            let rate = u128::from(drained) * 1_000_000_000 / u128::from(span.0.max(1));
            let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
            self.drain = match self.drain {
                0 => rate,
                _ if core::mem::take(&mut self.guessed) => rate,
                old if rate > old => old + DRAIN_WEIGHT.of(rate - old),
                old => old - DRAIN_WEIGHT.of(old - rate),
            }
            .max(1);
        }
        (self.taken, self.since, self.waited) = (0, now, self.told.bytes);
    }

    /// Notes how many contexts have peers that send.
    pub fn senders_set(&mut self, senders: u32) {
        self.senders = senders;
    }

    /// Bytes that may wait before senders are told: half of the room, but no more than the host
    /// drains in two round trips (or 16 packets, or two of each sender), because longer waiting
    /// only adds delay. A sender with less than two packets has none under way while the
    /// acknowledgment of the last one waits for its process.
    fn threshold(&self) -> u64 {
        let half = HOST_THRESHOLD.of(self.told.limit_bytes);
        if self.drain == 0 {
            return half;
        }
        let drained = self.in_rtts(self.rtt.scale(HOST_THRESHOLD_RTTS, 1));
        debug_assert!(self.mtu > 0, "packets have a size");
        let packets = HOST_THRESHOLD_PKTS.max(HOST_SENDER_PKTS * u64::from(self.senders));
        half.min(drained.max(packets * self.mtu))
    }

    /// Bytes that the host drains in the time `span`.
    fn in_rtts(&self, span: Span) -> u64 {
        (u128::from(self.drain) * u128::from(span.0) / 1_000_000_000) as u64
    }

    /// Queue length in bytes at which the host counts as caught up again; `None` while it is not
    /// behind.
    pub fn catches_up_at(&self) -> Option<u64> {
        let threshold = self.threshold();
        let slack = HOST_SLACK_SHARE.of(threshold).min(HOST_SLACK_PKTS * self.mtu);
        self.above.then_some(threshold - slack)
    }

    /// Whether senders are told that the host falls behind.
    pub fn is_above(&self) -> bool {
        self.above
    }

    /// Length of the queue in full packets, rounded up.
    pub fn depth_packets(&self) -> u16 {
        u16::try_from(self.told.bytes.div_ceil(self.mtu.max(1))).unwrap_or(u16::MAX)
    }

    /// Bytes that all senders together may have in flight at a round trip time of `rtt`; `None`:
    /// the host is no limit.
    /// Rule CC-30.
    pub fn budget(&self, rtt: Span) -> Option<u32> {
        if self.policy != HostPolicy::Budget || self.drain == 0 {
            return None;
        }
        // What waits in a network card was acknowledged, so senders do not count it as in flight.
        let acknowledged = if self.told.handled { self.told.bytes } else { 0 };
        let drained = self.in_rtts(rtt);
        let bytes = (drained + self.threshold()).saturating_sub(acknowledged);
        let bytes = bytes.max(HOST_BUDGET_MIN.of(drained));
        Some(u32::try_from(bytes).unwrap_or(u32::MAX - 1))
    }

    /// Credit rate in bytes per second that keeps the queue at half of the threshold; `None`: the
    /// host is no limit, or senders keep to a budget anyway.
    /// Rule CC-31.
    pub fn grant_rate(&self) -> Option<u64> {
        if self.policy != HostPolicy::StopGo || self.drain == 0 {
            return None;
        }
        let threshold = u128::from(self.threshold().max(1));
        let rate = u128::from(self.drain);
        // 5/4 of the drain rate with an empty queue, 1 at half of the threshold.
        let more = rate / 4;
        let less = rate * u128::from(self.told.bytes) / (2 * threshold);
        let least = HOST_GRANT_MIN.of(self.drain);
        let wanted = u64::try_from((rate + more).saturating_sub(less)).unwrap_or(u64::MAX);
        Some(wanted.clamp(least, HOST_GRANT_MAX.of(self.drain)).max(1))
    }

    /// Takes the next range of contexts whose senders are to be told of a crossing: at most
    /// [`TELL_SCAN`] of `contexts`.
    pub fn tell_take(&mut self, contexts: usize) -> Option<core::ops::Range<usize>> {
        let from = self.tell_from?;
        let to = contexts.min(from + TELL_SCAN);
        self.tell_from = (to < contexts).then_some(to);
        Some(from..to)
    }

    /// Whether some senders are still to be told of a crossing.
    pub fn is_telling(&self) -> bool {
        self.tell_from.is_some()
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
