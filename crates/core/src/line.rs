//! The line rate of the local port: told, or learnt from what is delivered.
//!
//! Virtual ports, as those of most virtual machines and containers, tell no rate, or one that
//! nothing enforces. The line rate is the scale of the control: a sender starts with it, rises by a
//! share of it, and tolerates the more delay the further it is below it. Too large a scale makes
//! senders swing, too small a one slows them down. So it begins in the middle, and doubles when
//! half of it is delivered without congestion. It never falls: a congested round tells of a part of
//! some bottleneck, not of the port, and of two senders with scales of their own parts the one with
//! the smaller part keeps it.
//! Rule CC-44.

use crate::config::RateConfig;
use crate::tuning::{LINE_FIRST, LINE_OVER};
use core::sync::atomic::{AtomicU64, Ordering};

/// The rate, shared by the path contexts of an engine. It changes while it is shared; only one
/// thread at a time uses the engine, so relaxed memory ordering suffices.
#[derive(Debug)]
pub(crate) struct Line {
    /// Bytes per second.
    now: AtomicU64,
    /// The rate that was told, or the most that is believed.
    most: u64,
    learnt: bool,
}

impl Line {
    pub fn new(rate: &RateConfig) -> Self {
        let most = rate.line_bytes_per_sec.max(1);
        let first = if rate.line_learnt { LINE_FIRST.min(most) } else { most };
        Self { now: AtomicU64::new(first), most, learnt: rate.line_learnt }
    }

    /// The rate in bytes per second.
    #[inline(always)]
    pub fn bytes_per_sec(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub fn is_learnt(&self) -> bool {
        self.learnt
    }

    fn set(&self, bytes_per_sec: u64) {
        debug_assert!(self.learnt, "a rate that was told stays");
        self.now.store(bytes_per_sec.clamp(1, self.most), Ordering::Relaxed);
    }

    /// A round without congestion delivered so many bytes per second. Returns whether the rate has
    /// doubled.
    pub fn on_calm_round(&self, delivered: u64) -> bool {
        let line = self.bytes_per_sec();
        let raised = self.learnt && line < self.most && delivered >= line / LINE_OVER;
        if raised {
            self.set(line.saturating_mul(LINE_OVER));
        }
        raised
    }

    /// Other engines of this host send at this rate, in bytes per second.
    pub fn at_least(&self, bytes_per_sec: u64) {
        if self.learnt && bytes_per_sec > self.bytes_per_sec() {
            self.set(bytes_per_sec);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineConfig;

    const GBPS: u64 = 125_000_000;

    fn line(learnt: bool) -> Line {
        let ip = std::net::IpAddr::from([192, 0, 2, 1]);
        let mut cfg = EngineConfig::sockets(ip, 0, 4096);
        cfg.rate.line_learnt = learnt;
        Line::new(&cfg.rate)
    }

    #[test]
    fn what_is_delivered_without_congestion_raises_the_rate() {
        let line = line(true);
        assert_eq!(line.bytes_per_sec(), 10 * GBPS);
        let rates = [(4, 10), (5, 20), (9, 20), (12, 40), (30, 80), (60, 100), (90, 100)];
        for (delivered, after) in rates {
            let before = line.bytes_per_sec();
            let raised = line.on_calm_round(delivered * GBPS);
            assert_eq!(line.bytes_per_sec(), after * GBPS, "{delivered} Gb/s were delivered");
            assert_eq!(raised, after * GBPS > before);
        }
    }

    #[test]
    fn a_rate_that_was_told_stays_and_one_of_other_engines_counts() {
        let told = line(false);
        assert!(!told.on_calm_round(90 * GBPS));
        told.at_least(400 * GBPS);
        assert_eq!(told.bytes_per_sec(), 100 * GBPS);
        let learnt = line(true);
        learnt.at_least(5 * GBPS);
        assert_eq!(learnt.bytes_per_sec(), 10 * GBPS);
        learnt.at_least(25 * GBPS);
        assert_eq!(learnt.bytes_per_sec(), 25 * GBPS, "what other engines found");
    }
}
