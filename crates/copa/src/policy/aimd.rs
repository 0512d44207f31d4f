//! `aimd`: a window as in TCP. It doubles per round trip until the first loss, then grows by one
//! packet per round trip and halves in each round trip with a loss.

use super::Policy;
use srd_fabric::Ps;

/// Initial window in packets (RFC 6928).
const FIRST: f64 = 10.0;
/// Minimum window after a loss (RFC 5681).
const LEAST: f64 = 2.0;
/// Duplicates that indicate a loss (the slides, RFC 5681).
const DUPLICATES: u32 = 3;

#[derive(Debug)]
pub(crate) struct Aimd {
    window: f64,
    threshold: f64,
    duplicates: u32,
    /// Losses before this time belong to the round trip that has already halved the window.
    quiet_until: Ps,
}

impl Aimd {
    pub const fn new() -> Self {
        Self { window: FIRST, threshold: f64::MAX, duplicates: 0, quiet_until: 0 }
    }
}

impl Policy for Aimd {
    fn allows(&self, _: Ps, in_flight: u64) -> bool {
        (in_flight as f64) < self.window
    }

    fn acked(&mut self, _: Ps, packets: u64) {
        self.duplicates = 0;
        let packets = packets as f64;
        if self.window < self.threshold {
            self.window = (self.window + packets).min(self.threshold);
        } else {
            self.window += packets / self.window;
        }
    }

    fn duplicate(&mut self, now: Ps) -> bool {
        // Packets that were in flight when the window was halved still cause duplicates.
        if now < self.quiet_until {
            return false;
        }
        self.duplicates += 1;
        self.duplicates == DUPLICATES
    }

    fn lost(&mut self, now: Ps, rtt_ps: Ps) {
        if now < self.quiet_until {
            return;
        }
        self.duplicates = 0;
        self.quiet_until = now + rtt_ps;
        self.threshold = (self.window / 2.0).max(LEAST);
        self.window = self.threshold;
    }

    fn timed_out(&mut self) {
        self.threshold = (self.window / 2.0).max(LEAST);
        (self.window, self.duplicates, self.quiet_until) = (1.0, 0, 0);
    }

    fn reordering(&self) -> Option<u64> {
        Some(DUPLICATES.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_then_adds_one_per_window_and_halves_once_per_round_trip() {
        let mut p = Aimd::new();
        p.acked(0, 10);
        assert!(p.allows(0, 19) && !p.allows(0, 20));
        assert!(!p.duplicate(5) && !p.duplicate(6) && p.duplicate(7));
        p.lost(7, 100);
        p.lost(50, 100);
        assert!(!p.duplicate(60) && !p.duplicate(61) && !p.duplicate(62), "of the same round trip");
        assert!(p.allows(60, 9) && !p.allows(60, 10));
        (0..10).for_each(|_| p.acked(200, 1));
        assert!(p.allows(200, 10) && !p.allows(200, 11), "one packet more, not quite: {p:?}");
        p.timed_out();
        assert!(p.allows(300, 0) && !p.allows(300, 1));
        (0..3).for_each(|_| p.acked(300, 1));
        assert!(p.allows(300, 3) && !p.allows(300, 4), "slow start up to half of what it was");
    }
}
