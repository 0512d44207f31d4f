//! SRD's own control: a rate from the delivery rate and the median path's queueing delay.
//!
//! Congested is when the *majority of paths* is late, or when less comes back than was sent. One
//! bad path is a matter of path choice and must not slow the connection.

use super::{Link, RatePolicy, Round};

/// Beyond this many targets of queueing delay the rate is what was delivered.
const HEAVY_TARGETS: u64 = 4;
/// Lost share beyond which the loss is congestion's.
const HEAVY_PERMILLE: u32 = 50;
/// Packets in a round under which its delivery rate is too coarse to accuse the network.
const PACKETS_TRUSTED: u64 = 8;
/// First window where the RTT is not known yet.
const FIRST_UNKNOWN_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct SrdRate {
    rate: u64,
    /// Rounds in a row that delivered less than was sent.
    short: u8,
    /// Rounds in a row without a queue: increases quicken.
    clear: u8,
    /// The last round was cut to what was delivered: its echo must not be cut again.
    hold: bool,
    /// No round has ended yet: the first window.
    first: bool,
}

impl SrdRate {
    pub(crate) fn new(line: u64) -> Self {
        Self { rate: line, short: 0, clear: 0, hold: false, first: true }
    }

    /// The rate after heavy congestion: what was delivered, at most eight times less at once.
    fn cut(&self, round: &Round) -> u64 {
        let floor = if round.app_limited { self.rate / 2 } else { self.rate / 8 };
        round.delivered.max(floor).min(self.rate)
    }

    fn increase(&mut self, link: &Link, queue: u64) -> u64 {
        self.clear = if queue * 4 < link.target_ns { (self.clear + 1).min(4) } else { 0 };
        // Additive, the same for all senders whatever they have: that is what makes them equal.
        let share = if self.clear >= 4 { 16 } else { 64 };
        let room = link.target_ns - queue;
        let step = u128::from(link.line / share) * u128::from(room) / u128::from(link.target_ns);
        let packet = Link::rate(link.mtu, link.base_ns) * 3 / 20;
        self.rate.saturating_add(step as u64).saturating_add(packet)
    }

    fn decide(&mut self, link: &Link, round: &Round, queue: u64) -> u64 {
        let target = link.target_ns;
        let lossy = round.lost_permille > HEAVY_PERMILLE;
        let held = core::mem::take(&mut self.hold);
        if queue > HEAVY_TARGETS * target || (lossy && queue > target / 2) {
            if held {
                return self.rate;
            }
            self.hold = true;
            return self.cut(round);
        }
        if queue > target {
            // A rate that the inflight cap kept from being used is no rate to come down from.
            let used = if round.app_limited { self.rate } else { round.delivered * 2 };
            let from = self.rate.min(used);
            let less = u128::from(from) * u128::from(queue - target) * 4 / (u128::from(queue) * 5);
            return (from - less as u64).max(from / 2);
        }
        if lossy {
            return (self.rate / 20 * 17).max(round.delivered.min(self.rate));
        }
        let short = round.packets >= PACKETS_TRUSTED
            && !round.app_limited
            && round.delivered < round.sent / 10 * 9;
        self.short = if short { self.short.saturating_add(1) } else { 0 };
        if self.short >= 2 && queue > target / 4 {
            let up = round.delivered / 20 * 21;
            return up.max(self.rate / 20 * 17).min(self.rate);
        }
        self.increase(link, queue)
    }
}

impl RatePolicy for SrdRate {
    fn rate(&self) -> u64 {
        self.rate
    }

    fn inflight_max(&self, link: &Link) -> u64 {
        let bdp = Link::bytes(link.line, link.base_ns);
        if self.first {
            let most = if link.base_known { bdp } else { bdp.min(FIRST_UNKNOWN_MAX) };
            return most.max(4 * link.mtu);
        }
        let most = (bdp + bdp / 2).max(Link::bytes(link.line, link.base_ns + link.target_ns));
        let wanted = Link::bytes(self.rate, link.base_ns + link.target_ns);
        wanted.clamp(2 * link.mtu, most.max(2 * link.mtu))
    }

    fn on_round(&mut self, link: &Link, round: &Round) {
        let Some(queue) = round.queue_ns else { return };
        self.first = false;
        let rate = self.decide(link, round, queue);
        if rate < self.rate {
            self.clear = 0;
        }
        self.rate = rate.clamp(link.rate_min(), link.line);
    }

    fn on_restart(&mut self, link: &Link) {
        *self = Self::new(link.line);
    }
}
