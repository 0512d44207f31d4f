//! DCTCP (RFC 8257): the window shrinks by the share of marked segments.

use super::AckInfo;

/// Weight of the newest window in the estimate: 1/16.
const GAIN: f64 = 1.0 / 16.0;

/// Estimates the share of marked segments.
#[derive(Clone, Debug)]
pub(crate) struct Dctcp {
    alpha: f64,
    acked: u64,
    marked: u64,
    round_end: u64,
}

impl Dctcp {
    pub const fn new() -> Self {
        Self { alpha: 1.0, acked: 0, marked: 0, round_end: 0 }
    }

    pub fn on_ack(&mut self, ack: &AckInfo) {
        self.acked += u64::from(ack.acked);
        if ack.ece {
            self.marked += u64::from(ack.acked);
        }
        if ack.una > self.round_end {
            if self.acked > 0 {
                let share = self.marked as f64 / self.acked as f64;
                self.alpha += GAIN * (share - self.alpha);
            }
            (self.acked, self.marked, self.round_end) = (0, 0, ack.next);
        }
    }

    /// New threshold: reduced by the marked share after marks, by half after a loss.
    pub fn reduce(&self, size: u32, ece: bool) -> u32 {
        let share = if ece { self.alpha / 2.0 } else { 0.5 };
        ((f64::from(size) * (1.0 - share)) as u32).max(2)
    }
}
