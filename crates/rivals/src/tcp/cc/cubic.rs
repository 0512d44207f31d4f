//! CUBIC (RFC 9438): the window is a cubic function of the time since the last loss, and never
//! below what Reno would have.

use srd_fabric::{Ps, SEC};

/// Scale of the cubic, segments per second cubed.
const C: f64 = 0.4;
/// Multiplicative decrease: share of the window kept after a loss.
const BETA: f64 = 0.7;
/// Segments per round trip by which the Reno-friendly estimate grows with this `BETA`.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Before the first loss the kernel grows by at least one segment per this many acknowledged.
const EVERY_FIRST: u32 = 20;
/// Growth is at most one segment per two acknowledged.
const EVERY_MIN: u32 = 2;

/// State of CUBIC.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cubic {
    /// Start of the current congestion avoidance epoch; `None` until its first ack.
    epoch: Option<Ps>,
    /// W_max: window before the last loss, lowered by fast convergence; 0 = no loss yet.
    max: f64,
    /// Plateau of the current cubic.
    origin: f64,
    /// Seconds from the epoch to the plateau.
    k: f64,
    /// W_est, the Reno-friendly window.
    reno: f64,
    /// Window before the last loss: above it W_est grows by a whole segment per round trip.
    prior: f64,
}

impl Cubic {
    /// Segments to be acknowledged per segment of growth.
    pub fn every(&mut self, now: Ps, srtt: Ps, size: u32, acked: u32) -> u32 {
        let w = f64::from(size);
        let epoch = *self.epoch.get_or_insert_with(|| {
            if self.max > w {
                self.k = cube_root((self.max - w) / C);
                self.origin = self.max;
            } else {
                self.k = 0.0;
                self.origin = w;
            }
            self.reno = w;
            now
        });
        // The cubic's value one round trip from now.
        let t = seconds(now.saturating_sub(epoch).saturating_add(srtt)) - self.k;
        let target = (self.origin + C * t * t * t).clamp(w, 1.5 * w);
        let mut every = if target > w { w / (target - w) } else { 100.0 * w };
        if self.max == 0.0 {
            every = every.min(f64::from(EVERY_FIRST));
        }
        let alpha = if self.reno < self.prior { ALPHA } else { 1.0 };
        self.reno += alpha * f64::from(acked) / w;
        if self.reno > w {
            every = every.min(w / (self.reno - w));
        }
        (every as u32).max(EVERY_MIN)
    }

    /// Reacts to a loss; returns the new slow start threshold.
    pub fn reduce(&mut self, size: u32) -> u32 {
        let w = f64::from(size);
        self.epoch = None;
        self.prior = w;
        // Fast convergence: a window that shrinks twice in a row releases bandwidth for new flows.
        self.max = if w < self.max { w * (1.0 + BETA) / 2.0 } else { w };
        ((w * BETA) as u32).max(2)
    }

    /// Resets the state after a timeout.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Moves the epoch so that idle time does not count as growth time.
    pub fn shift(&mut self, idle_since: Ps, now: Ps) {
        if let Some(epoch) = &mut self.epoch {
            *epoch = (*epoch + now.saturating_sub(idle_since)).min(now);
        }
    }

    /// Whether the congestion avoidance epoch is at least a second old, or has not begun.
    pub fn settled(&self, now: Ps) -> bool {
        self.epoch.is_none_or(|epoch| now.saturating_sub(epoch) >= SEC)
    }
}

fn seconds(ps: Ps) -> f64 {
    ps as f64 / SEC as f64
}

/// Cube root of `x` >= 0, by operations that give the same bits on every machine.
pub(crate) fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // First guess: a third of the exponent. Each Newton step doubles the number of correct digits.
    let bits = x.to_bits() / 3 + 0x2A9F_7893_0000_0000;
    let mut y = f64::from_bits(bits);
    for _ in 0..5 {
        y -= (y - x / (y * y)) / 3.0;
    }
    y
}
