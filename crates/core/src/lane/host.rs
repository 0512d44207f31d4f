//! What waits between the network and this host's memory, and how fast the host takes it.
//!
//! The datapath tells what waits ([`RxWaiting`]); it counts until told anew. While something waits,
//! the bytes that are taken per time are the rate at which the host drains. Above a threshold the
//! senders are told that the host falls behind, and each is told its part of what may be under way.

use crate::api::RxWaiting;
use crate::config::HostPolicy;
use crate::time::{Span, Time};
use crate::tuning::{
    DRAIN_PKTS, DRAIN_SAMPLE, DRAIN_WEIGHT, HOST_BUDGET_MIN, HOST_EMPTY_RTTS, HOST_GRANT_MAX,
    HOST_GRANT_MIN, HOST_SLACK_PKTS, HOST_SLACK_SHARE, HOST_THRESHOLD, HOST_THRESHOLD_PKTS,
    HOST_THRESHOLD_RTTS,
};

/// Contexts looked at in one go when a crossing is told.
pub(crate) const TELL_SCAN: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct HostQueue {
    policy: HostPolicy,
    mtu: u64,
    /// Round trip that is assumed.
    rtt: Span,
    told: RxWaiting,
    above: bool,
    /// Bytes taken from the network since `since`.
    taken: u64,
    /// When the present measurement of the drain began, and what waited then.
    since: Time,
    waited: u64,
    /// When something waited last.
    busy_at: Time,
    /// Bytes per second at which the host drains; 0 = not known.
    drain: u64,
    /// It was measured longer ago, and has risen since.
    guessed: bool,
    /// Contexts from this one on have not been told of the last crossing.
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
            tell_from: None,
        }
    }

    /// So many bytes of a packet that is wanted have come, after it waited that long. A host that
    /// reads all there is and then does other things is told to be empty at each turn, and is not:
    /// the time that packets wait for it says so.
    #[inline(always)]
    pub fn take(&mut self, now: Time, bytes: usize, waited: Span) {
        self.taken += bytes as u64;
        if waited > self.rtt.scale(HOST_EMPTY_RTTS, 1) {
            self.busy_at = now;
        }
    }

    /// The datapath tells what waits.
    /// Rule CC-29.
    pub fn tell(&mut self, now: Time, w: &RxWaiting) {
        let before = core::mem::replace(&mut self.told, *w);
        if w.limit_bytes == 0 {
            // Nobody asks for the room of what is empty.
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

    /// Nothing has waited for a while: the host is faster than was measured, nobody knows by how
    /// much. It is taken to be twice as fast each time, and no limit any more when what it drains
    /// in two round trips is all that may wait: what waits was the senders' part, and all of the
    /// room at once would come as a flood.
    fn rise(&mut self, now: Time) {
        (self.drain, self.busy_at, self.guessed) = (self.drain.saturating_mul(2), now, true);
        let drained = self.in_rtts(self.rtt.scale(HOST_THRESHOLD_RTTS, 1));
        if drained >= HOST_THRESHOLD.of(self.told.limit_bytes) {
            self.drain = 0;
        }
    }

    /// What was taken while something waited all the time, per time.
    fn drain_measure(&mut self, now: Time, waiting: bool) {
        let span = now.since(self.since);
        if waiting {
            // A card has taken what waits already: only what has left its ring was drained.
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

    /// Bytes that may wait before senders are told: half of the room, but no more than the host
    /// drains in two round trips, or 16 packets: what waits longer serves nobody.
    fn threshold(&self) -> u64 {
        let half = HOST_THRESHOLD.of(self.told.limit_bytes);
        if self.drain == 0 {
            return half;
        }
        let drained = self.in_rtts(self.rtt.scale(HOST_THRESHOLD_RTTS, 1));
        half.min(drained.max(HOST_THRESHOLD_PKTS * self.mtu))
    }

    /// Bytes that the host drains in that time.
    fn in_rtts(&self, span: Span) -> u64 {
        (u128::from(self.drain) * u128::from(span.0) / 1_000_000_000) as u64
    }

    /// What may wait at most for the host to be behind no more; `None` while it is not.
    pub fn catches_up_at(&self) -> Option<u64> {
        let threshold = self.threshold();
        let slack = HOST_SLACK_SHARE.of(threshold).min(HOST_SLACK_PKTS * self.mtu);
        self.above.then_some(threshold - slack)
    }

    /// Whether senders are told that the host falls behind.
    pub fn is_above(&self) -> bool {
        self.above
    }

    /// Full packets that wait.
    pub fn depth_packets(&self) -> u16 {
        u16::try_from(self.told.bytes.div_ceil(self.mtu.max(1))).unwrap_or(u16::MAX)
    }

    /// Bytes that all senders together may have under way, with a round trip of `rtt`; `None`: the
    /// host is no limit.
    /// Rule CC-30.
    pub fn budget(&self, rtt: Span) -> Option<u32> {
        if self.policy != HostPolicy::Budget || self.drain == 0 {
            return None;
        }
        // What waits in a card was acknowledged: it counts as under way no more.
        let acknowledged = if self.told.handled { self.told.bytes } else { 0 };
        let drained = self.in_rtts(rtt);
        let bytes = (drained + self.threshold()).saturating_sub(acknowledged);
        let bytes = bytes.max(HOST_BUDGET_MIN.of(drained));
        Some(u32::try_from(bytes).unwrap_or(u32::MAX - 1))
    }

    /// Rate of credits in bytes per second that keeps half of the threshold waiting; `None`: the
    /// host is no limit.
    /// Rule CC-31.
    pub fn grant_rate(&self) -> Option<u64> {
        if self.policy == HostPolicy::Off || self.drain == 0 {
            return None;
        }
        let threshold = u128::from(self.threshold().max(1));
        let rate = u128::from(self.drain);
        // The drain's rate times 5/4 where nothing waits, 1 at half of the threshold.
        let more = rate / 4;
        let less = rate * u128::from(self.told.bytes) / (2 * threshold);
        let least = HOST_GRANT_MIN.of(self.drain);
        let wanted = u64::try_from((rate + more).saturating_sub(less)).unwrap_or(u64::MAX);
        Some(wanted.clamp(least, HOST_GRANT_MAX.of(self.drain)).max(1))
    }

    /// Contexts whose senders are to be told now: from this one on, at most [`TELL_SCAN`] of
    /// `contexts`.
    pub fn tell_take(&mut self, contexts: usize) -> Option<core::ops::Range<usize>> {
        let from = self.tell_from?;
        let to = contexts.min(from + TELL_SCAN);
        self.tell_from = (to < contexts).then_some(to);
        Some(from..to)
    }

    /// Whether senders have not been told yet.
    pub fn is_telling(&self) -> bool {
        self.tell_from.is_some()
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
