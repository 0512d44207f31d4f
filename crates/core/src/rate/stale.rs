//! A base RTT that is not true any more, because the way to the peer became longer.

use super::{Link, Round};
use crate::guards::Guard;
use crate::tuning::{STALE_RATE, STALE_ROUNDS, STALE_STEADY};

/// Rounds in a row in which all paths were late by as much, although less and less was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StaleBase {
    rounds: u8,
    /// Least and greatest delay of nearly all paths in these rounds, in ns.
    least_ns: u32,
    most_ns: u32,
    /// Rate before the first of them, in bytes per second.
    rate: u64,
}

impl StaleBase {
    /// Takes a round at `rate`. `above`: its delay was longer than that rate tolerates. Returns by
    /// how many ns the base RTT is to rise (0: not).
    ///
    /// Senders that follow the law empty a queue that is longer than they tolerate within a few
    /// rounds. A delay that stays while the rate falls to half is that of a longer way; it would
    /// count as a queue until the least round trip of the former way is forgotten, up to ten
    /// seconds later.
    /// Rule CC-49.
    pub(super) fn on_round(&mut self, link: &Link, round: &Round, rate: u64, above: bool) -> u32 {
        let queue_ns = u32::try_from(round.shared_ns).unwrap_or(u32::MAX);
        let (least_ns, most_ns) = (self.least_ns.min(queue_ns), self.most_ns.max(queue_ns));
        let goes_on = above && round.lost_permille == 0 && link.guards.has(Guard::StaleBase);
        *self = if !goes_on {
            Self::default()
        } else if self.rounds > 0 && u64::from(least_ns) >= STALE_STEADY.of(most_ns.into()) {
            let rounds = (self.rounds + 1).min(STALE_ROUNDS);
            Self { rounds, least_ns, most_ns, ..*self }
        } else {
            Self { rounds: 1, least_ns: queue_ns, most_ns: queue_ns, rate }
        };
        debug_assert!(self.least_ns <= self.most_ns, "{self:?}");
        if self.rounds < STALE_ROUNDS || rate > STALE_RATE.of(self.rate) {
            return 0;
        }
        core::mem::take(self).least_ns
    }
}
