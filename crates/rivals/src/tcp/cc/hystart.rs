//! HyStart: ends slow start before it overflows a queue.

use super::{AckInfo, Window};
use srd_fabric::{MS, Ps};

/// Windows below this never leave slow start, segments.
const WINDOW_MIN: u32 = 16;
/// Round trip samples per round that are evaluated.
const SAMPLES: u32 = 8;
/// Bounds of the delay increase that ends slow start, an eighth of the minimum RTT.
const DELAY_MIN: Ps = 4 * MS;
const DELAY_MAX: Ps = 16 * MS;
/// Acks further apart than this do not belong to one ack train.
const TRAIN_GAP: Ps = 2 * MS;

/// The kernel's HyStart: slow start ends when an ack train lasts half the minimum round trip, which
/// means that the window fills the path, or when the delay rises above the bound.
#[derive(Clone, Debug)]
pub(crate) struct HyStart {
    paced: bool,
    found: bool,
    rtt_min: Ps,
    round_end: u64,
    round_start: Ps,
    ack_last: Ps,
    rtt_round: Ps,
    samples: u32,
    begun: bool,
}

impl HyStart {
    pub const fn new(paced: bool) -> Self {
        Self {
            paced,
            found: false,
            rtt_min: Ps::MAX,
            round_end: 0,
            round_start: 0,
            ack_last: 0,
            rtt_round: Ps::MAX,
            samples: 0,
            begun: false,
        }
    }

    /// Resets everything, the minimum RTT included.
    pub const fn reset(&mut self) {
        *self = Self::new(self.paced);
    }

    pub fn on_ack(&mut self, ack: &AckInfo, window: &mut Window) {
        let Some(rtt) = ack.rtt else { return };
        self.rtt_min = self.rtt_min.min(rtt);
        if self.found {
            return;
        }
        if !self.begun || ack.una > self.round_end {
            self.begun = true;
            self.round_start = ack.now;
            self.ack_last = ack.now;
            self.round_end = ack.next;
            self.rtt_round = Ps::MAX;
            self.samples = 0;
        }
        if window.size < WINDOW_MIN {
            return;
        }
        if ack.now - self.ack_last <= TRAIN_GAP {
            self.ack_last = ack.now;
            let whole = self.rtt_min + ack.burst_ps.min(MS);
            let limit = if self.paced { whole } else { whole / 2 };
            self.found = ack.now - self.round_start > limit;
        }
        self.rtt_round = self.rtt_round.min(rtt);
        if self.samples < SAMPLES {
            self.samples += 1;
        } else if self.rtt_round > self.rtt_min + (self.rtt_min / 8).clamp(DELAY_MIN, DELAY_MAX) {
            self.found = true;
        }
        if self.found {
            window.threshold = window.size;
        }
    }
}

/// Divisor of the growth once the delay has risen.
const SLOWED: u32 = 4;
/// Rounds of slower growth before slow start ends.
const ROUNDS: u32 = 5;

/// HyStart++ (RFC 9406).
#[derive(Clone, Debug)]
pub(crate) struct HyStartPlusPlus {
    round_end: u64,
    rtt_last: Ps,
    rtt_round: Ps,
    samples: u32,
    /// RTT at which slower growth (conservative slow start) began, and rounds since.
    slow: Option<(Ps, u32)>,
    /// Acknowledged segments not yet converted into window by slower growth.
    left: u32,
}

impl HyStartPlusPlus {
    pub const fn new() -> Self {
        Self {
            round_end: 0,
            rtt_last: Ps::MAX,
            rtt_round: Ps::MAX,
            samples: 0,
            slow: None,
            left: 0,
        }
    }

    /// Acknowledged segments that count toward growth.
    pub const fn slowed(&mut self, acked: u32) -> u32 {
        if self.slow.is_none() {
            return acked;
        }
        self.left += acked;
        let counted = self.left / SLOWED;
        self.left %= SLOWED;
        counted
    }

    pub fn on_ack(&mut self, ack: &AckInfo, window: &mut Window) {
        if ack.una > self.round_end {
            self.round_end = ack.next;
            (self.rtt_last, self.rtt_round, self.samples) = (self.rtt_round, Ps::MAX, 0);
            if let Some((_, rounds)) = &mut self.slow {
                *rounds += 1;
                if *rounds >= ROUNDS {
                    window.threshold = window.size;
                    self.slow = None;
                    return;
                }
            }
        }
        let Some(rtt) = ack.rtt else { return };
        self.rtt_round = self.rtt_round.min(rtt);
        self.samples += 1;
        if self.samples < SAMPLES || self.rtt_last == Ps::MAX {
            return;
        }
        match self.slow {
            None => {
                let rise = (self.rtt_last / 8).clamp(DELAY_MIN, DELAY_MAX);
                if self.rtt_round >= self.rtt_last.saturating_add(rise) {
                    self.slow = Some((self.rtt_round, 0));
                }
            }
            // The RTT fell again, so the rise was not a queue: resume slow start.
            Some((base, _)) if self.rtt_round < base => self.slow = None,
            Some(_) => {}
        }
    }
}
