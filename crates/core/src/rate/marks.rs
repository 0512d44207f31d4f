//! Marks of switches on all packets that do not end (ECN).

use super::{Link, Round, rival};
use crate::guards::Guard;
use crate::tuning::{
    MARKED_CUT, MARKED_OTHERS, MARKED_ROUNDS, RIVAL_LITTLE, RIVAL_MARKED_ROUNDS, RIVAL_STEADY,
};

/// Bytes in which [`Marks::delivered`] counts.
const UNIT: u64 = 1 << 12;

/// Rounds in a row in which switches marked all packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// How many, up to [`RIVAL_MARKED_ROUNDS`].
    rounds: u8,
    /// Others keep the queue, who do not hear marks: it stayed the same while the rate fell.
    others: bool,
    /// Least and largest queueing delay in ns since the rate began to fall.
    least_ns: u32,
    most_ns: u32,
    /// The rate from which it fell, in bytes per second.
    rate: u64,
    /// What was delivered when the marks had lasted for [`MARKED_ROUNDS`], in [`UNIT`]s per second.
    delivered: u32,
    /// Decreases of the rate without an increase between them.
    falls: u8,
}

impl Marks {
    /// Takes a round with that rate.
    pub(super) fn on_round(&mut self, link: &Link, round: &Round, rate: u64) {
        if !round.marked_all || !link.guards.has(Guard::MarkedOn) || planted!(MarksUncounted) {
            let rounds = if planted!(MarksKept) { self.rounds } else { 0 };
            *self = Self { rounds, ..Self::default() };
            return;
        }
        if round.app_limited && self.rounds >= MARKED_ROUNDS {
            return;
        }
        let queue_ns = u32::try_from(rival::queue(round)).unwrap_or(u32::MAX);
        let stands = u64::from(queue_ns) > link.unsure_ns;
        let most_ns = if self.others { self.most_ns } else { self.most_ns.max(queue_ns) };
        let least_ns = self.least_ns.min(queue_ns);
        let rounds = (self.rounds + 1).min(RIVAL_MARKED_ROUNDS);
        let delivered = match self.rounds < MARKED_ROUNDS {
            true => u32::try_from(round.delivered / UNIT).unwrap_or(u32::MAX),
            false => self.delivered,
        };
        let steady = u64::from(least_ns) >= RIVAL_STEADY.of(most_ns.into());
        if self.rounds < MARKED_ROUNDS || !steady || !stands {
            let rounds = if stands { rounds } else { rounds.min(MARKED_ROUNDS) };
            let (least_ns, most_ns) = (queue_ns, queue_ns);
            *self = Self { rounds, others: false, least_ns, most_ns, rate, delivered, ..*self };
            return;
        }
        let others = self.others || rate <= MARKED_OTHERS.of(self.rate);
        let others = others && link.guards.has(Guard::Rivals);
        *self = Self { rounds, others, least_ns, most_ns, ..*self };
        debug_assert!(self.least_ns > 0, "a queue stands");
    }

    /// The law lowers the rate, or leaves it as it is or raises it.
    pub(super) fn on_change(&mut self, lowers: bool) {
        self.falls = if lowers { (self.falls + 1).min(RIVAL_MARKED_ROUNDS) } else { 0 };
    }

    /// Whether they are a reason to lower the rate.
    /// Rule CC-43.
    pub(super) fn count(&self, round: &Round) -> bool {
        self.rounds >= MARKED_ROUNDS && !self.others && !round.app_limited
    }

    /// Whether they have gone on for so long that others must keep the queue: the rate, now `rate`,
    /// fell to next to nothing of what was delivered, or is little and did nothing but fall. Equals
    /// on a link keep their shares, although all of their packets may be marked for long, where
    /// switches mark at shorter queues than the law aims at.
    pub(super) fn are_of_rivals(&self, link: &Link, rate: u64) -> bool {
        let low = rate <= MARKED_OTHERS.of(u64::from(self.delivered) * UNIT);
        let falls = self.falls >= RIVAL_MARKED_ROUNDS && rate <= RIVAL_LITTLE.of(link.line);
        self.rounds >= RIVAL_MARKED_ROUNDS && (low || falls)
    }

    /// The rate after one more round of that kind.
    pub(super) fn cut(rate: u64) -> u64 {
        let less = MARKED_CUT.of(rate);
        debug_assert!(less <= rate, "a share of it");
        rate - less
    }
}
