//! Leaving slow start before it overflows a queue.

use super::{AckInfo, Window};
use srd_fabric::{MS, Ps};

/// Below this window slow start goes on.
const WINDOW_MIN: u32 = 16;
/// Samples per round that count.
const SAMPLES: u32 = 8;
/// Bounds of the delay that ends slow start: an eighth of the least one, within these.
const DELAY_MIN: Ps = 4 * MS;
const DELAY_MAX: Ps = 16 * MS;
/// Acks further apart than this are no train.
const TRAIN_GAP: Ps = 2 * MS;

/// The kernel's HyStart: acks that come in one train for half the least round trip mean that the
/// window fills the path; so does a delay above the bound.
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

    /// Starts anew; the least round trip time is of the time before, too, only until the next one.
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

/// Growth is divided by this once the delay has risen.
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
    /// Round trip time at which slower growth began, and rounds since.
    slow: Option<(Ps, u32)>,
    /// Acknowledged segments that slower growth has not used yet.
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

    /// Acknowledged segments that count.
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
            // The rise was not of the queue: grow as before.
            Some((base, _)) if self.rtt_round < base => self.slow = None,
            Some(_) => {}
        }
    }
}
