//! `dup-ack`: duplicates report that the receiver's ring is above its threshold.

use super::Policy;
use srd_fabric::Ps;

/// Queues delay answers: an interval up to a quarter longer than the last one counts as equal.
const SETTLE_QUARTERS: Ps = 5;

/// A duplicate stops the sender, an acknowledgment of new data resumes it.
///
/// While the ring is above its threshold, each arriving packet causes a duplicate, and each packet
/// written to memory lets another fall to the threshold, which causes an acknowledgment of new
/// data: the sender receives both alternately. If the next duplicate comes within the time of one
/// packet, the sender sends one packet for each one drained; if it comes later, it sends two, and
/// the ring fills up whatever its size. Which one happens depends on the phase of two clocks
/// (measured in `docs/copa.md`). Therefore a resumption waits for the arrival interval of two
/// packets, and a duplicate within that time cancels it.
/// two of its packets were apart as they came, and a duplicate within that time takes it back.
#[derive(Debug)]
pub(crate) struct StopGo {
    /// A resumption is waiting for a possible duplicate.
    settles: bool,
    /// Longest wait.
    rtt_ps: Ps,
    /// When a packet was last answered for the first time, and the interval to the one before.
    answered_at: Ps,
    interval_ps: Ps,
    /// The sender may send from this time on; [`Ps::MAX`]: it is stopped.
    go_at: Ps,
}

impl StopGo {
    pub const fn new(rtt_ps: Ps, settles: bool) -> Self {
        Self { settles, rtt_ps, answered_at: 0, interval_ps: 0, go_at: 0 }
    }
}

impl Policy for StopGo {
    fn allows(&self, now: Ps, _: u64) -> bool {
        now >= self.go_at
    }
    fn answered(&mut self, now: Ps) {
        self.interval_ps = (now - self.answered_at).min(self.rtt_ps);
        self.answered_at = now;
    }
    fn acked(&mut self, now: Ps, _: u64) {
        let settle = if self.settles { self.interval_ps * SETTLE_QUARTERS / 4 } else { 0 };
        self.go_at = self.go_at.min(now + settle);
    }
    fn duplicate(&mut self, _: Ps) -> bool {
        self.go_at = Ps::MAX;
        false
    }
    fn timed_out(&mut self) {
        self.go_at = 0;
    }
    fn wakes_at(&self, now: Ps) -> Option<Ps> {
        (now < self.go_at && self.go_at < Ps::MAX).then_some(self.go_at)
    }
}

/// After a duplicate the sender sends one packet per newly acknowledged packet, until a round trip
/// has passed without a duplicate.
#[derive(Debug)]
pub(crate) struct Clocked {
    rtt_ps: Ps,
    until: Ps,
    credit: u64,
}

impl Clocked {
    pub const fn new(rtt_ps: Ps) -> Self {
        Self { rtt_ps, until: 0, credit: 0 }
    }
}

impl Policy for Clocked {
    fn allows(&self, now: Ps, _: u64) -> bool {
        now >= self.until || self.credit > 0
    }
    fn sent(&mut self, _: Ps) {
        self.credit = self.credit.saturating_sub(1);
    }
    fn acked(&mut self, now: Ps, packets: u64) {
        if now < self.until {
            self.credit += packets;
        }
    }
    fn duplicate(&mut self, now: Ps) -> bool {
        if now >= self.until {
            self.credit = 0;
        }
        self.until = now + self.rtt_ps;
        false
    }
    fn timed_out(&mut self) {
        (self.until, self.credit) = (0, 0);
    }
    fn wakes_at(&self, now: Ps) -> Option<Ps> {
        (now < self.until).then_some(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_and_go() {
        for settles in [false, true] {
            let mut p = StopGo::new(1_000, settles);
            assert!(p.allows(0, 1 << 40));
            (0..5).for_each(|i| p.answered(8 * i));
            p.duplicate(40);
            assert!(!p.allows(40, 0) && !p.allows(Ps::MAX - 1, 0));
            p.acked(42, 1);
            let go_at = if settles { 52 } else { 42 };
            assert!(!p.allows(go_at - 1, 0) && p.allows(go_at, 0));
            assert_eq!(p.wakes_at(41), Some(go_at));
            p.acked(44, 1);
            assert!(p.allows(go_at, 0), "what has begun to wait does not wait longer");
            p.duplicate(48);
            assert!(!p.allows(1 << 40, 0), "the stop wins");
            p.timed_out();
            assert!(p.allows(48, 0), "silence starts it, too");
        }
    }

    #[test]
    fn one_for_each_that_is_acknowledged_until_a_round_trip_is_clear() {
        let mut p = Clocked::new(100);
        assert!(p.allows(0, 0));
        p.duplicate(10);
        assert!(!p.allows(10, 0));
        p.acked(20, 2);
        p.sent(20);
        p.sent(20);
        assert!(!p.allows(20, 0));
        p.duplicate(50);
        assert_eq!((p.wakes_at(60), p.allows(149, 0), p.allows(150, 0)), (Some(150), false, true));
        p.sent(150);
        assert_eq!(p.wakes_at(150), None);
        p.duplicate(160);
        assert!(!p.allows(160, 0), "no credit is left of before");
    }
}
