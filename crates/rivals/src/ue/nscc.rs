//! NSCC: the window of one connection, from marks and queueing delay.
//!
//! An acknowledgment is one of four cases: unmarked and below the target delay, the window grows in
//! proportion to what is missing of it; unmarked and above, it grows by a constant share
//! (fairness); marked and above, it shrinks once per round trip; marked and below, only the path is
//! changed. If delay is far beyond the target or packets are lost, and far less than a window was
//! acknowledged within a round trip, the window becomes what was acknowledged (quick adaptation).

use super::UeConfig;
use srd_fabric::{Ps, US};

/// Reference network of the published constants: 100 Gb/s and 12 us.
const REFERENCE_BYTES: f64 = 150_000.0;
const REFERENCE_PS: f64 = 12e6;
/// Gain of the mean delay.
const DELAY_GAIN: f64 = 0.0125;
/// Strength of a decrease, and the least factor of one.
const GAMMA: f64 = 0.8;
const DECREASE_MOST: f64 = 0.5;
/// Quick adaptation: delay in targets, and share of the largest window.
const QUICK_TARGETS: f64 = 4.0;
const QUICK_SHARE: f64 = 1.0 / 8.0;
/// Packets after which increases take effect.
const ADJUST_PACKETS: f64 = 8.0;
/// Delay below which a queue counts as empty.
const EMPTY_PS: Ps = US;

/// Window of one connection.
#[derive(Clone, Debug)]
pub struct Nscc {
    window: f64,
    window_max: f64,
    packet: f64,
    target: f64,
    base_rtt: Ps,
    network_rtt: Ps,
    /// Gains: proportional (bytes), fair (bytes), per round trip (bytes), fast (share).
    proportional: f64,
    fair: f64,
    per_round: f64,
    fast: f64,
    /// Increases that have not taken effect, times the window; bytes acknowledged since.
    increase: f64,
    acked: f64,
    adjusted_at: Ps,
    mean_delay: f64,
    decreased_at: Option<Ps>,
    /// Bytes acknowledged without any queue, and whether the window grows fast.
    empty: f64,
    fast_on: bool,
    /// Quick adaptation: end of the period, bytes acknowledged in it, a loss in it, and bytes whose
    /// acknowledgments are of packets sent before the last adaptation.
    period_end: Option<Ps>,
    achieved: f64,
    loss: bool,
    ignore: f64,
    ignored: f64,
}

impl Nscc {
    /// A connection that starts with the largest window.
    pub fn new(config: &UeConfig) -> Self {
        let scale = config.bdp_bytes() / REFERENCE_BYTES;
        let mss = f64::from(config.mtu);
        let target = config.target_ps as f64;
        let window_max = config.window_bytes_max();
        Self {
            window: window_max,
            window_max,
            packet: config.wire_bytes().into(),
            target,
            base_rtt: config.base_rtt_ps,
            network_rtt: config.base_rtt_ps,
            proportional: 4.0 * mss * scale * target / REFERENCE_PS,
            fair: 5.0 * mss * scale,
            per_round: 0.15 * mss * scale,
            fast: 0.25 * scale,
            increase: 0.0,
            acked: 0.0,
            adjusted_at: 0,
            mean_delay: 0.0,
            decreased_at: None,
            empty: 0.0,
            fast_on: false,
            period_end: None,
            achieved: 0.0,
            loss: false,
            ignore: 0.0,
            ignored: 0.0,
        }
    }

    /// The window in bytes.
    pub const fn window(&self) -> f64 {
        self.window
    }

    /// Mean queueing delay in ps.
    pub const fn mean_delay(&self) -> f64 {
        self.mean_delay
    }

    /// Queueing delay of a round trip, which also corrects the base round trip.
    pub fn delay_of(&mut self, rtt: Ps, marked: bool) -> Ps {
        self.base_rtt = self.base_rtt.min(rtt);
        let delay = rtt - self.base_rtt;
        let sample = if !marked && delay as f64 > self.target {
            // Other paths are free.
            self.base_rtt as f64 * 0.25
        } else {
            delay as f64
        };
        self.mean_delay += DELAY_GAIN * (sample - self.mean_delay);
        delay
    }

    /// `bytes` were acknowledged; `delay`: of the packet that caused it, `None` if unknown.
    /// `flight`: bytes in flight.
    pub fn on_ack(&mut self, now: Ps, bytes: f64, delay: Option<Ps>, marked: bool, flight: f64) {
        self.achieved += bytes;
        self.acked += bytes;
        self.ignored += bytes;
        let delay = delay.map_or(self.mean_delay, |d| d as f64);
        if self.quick(now, false, marked, delay, flight) {
            return;
        }
        match (marked, delay >= self.target) {
            (false, true) => self.increase += self.fair * bytes,
            (false, false) => self.grow(bytes, delay),
            (true, true) => self.shrink(now),
            (true, false) => {}
        }
        self.bound();
        let round = now.saturating_sub(self.adjusted_at) > self.network_rtt;
        if self.acked > ADJUST_PACKETS * self.packet || round {
            self.window += self.increase / self.window;
            if round {
                self.window += self.per_round;
                self.adjusted_at = now;
            }
            (self.increase, self.acked) = (0.0, 0.0);
            self.bound();
        }
    }

    /// `bytes` were lost.
    pub fn on_loss(&mut self, now: Ps, bytes: f64, flight: f64) {
        self.ignored += bytes;
        self.loss = true;
        if !self.quick(now, true, true, 0.0, flight) {
            self.window -= bytes;
            self.bound();
        }
    }

    fn bound(&mut self) {
        self.window = self.window.clamp(self.packet, self.window_max);
    }

    fn grow(&mut self, bytes: f64, delay: f64) {
        if delay < EMPTY_PS as f64 {
            self.empty += bytes;
            if self.fast_on || self.empty > self.window {
                self.window += bytes * self.fast;
                self.fast_on = true;
                return;
            }
        } else {
            self.empty = 0.0;
        }
        self.fast_on = false;
        self.increase += self.proportional * bytes * (1.0 - delay / self.target);
    }

    fn shrink(&mut self, now: Ps) {
        (self.fast_on, self.empty) = (false, 0.0);
        let due = self.decreased_at.is_none_or(|at| now - at > self.base_rtt);
        if due && self.mean_delay > self.target {
            let over = (self.mean_delay - self.target) / self.mean_delay;
            self.window *= (1.0 - GAMMA * over).max(DECREASE_MOST);
            self.decreased_at = Some(now);
        }
    }

    /// Quick adaptation. Returns true if the event has no other effect.
    fn quick(&mut self, now: Ps, lost: bool, marked: bool, delay: f64, flight: f64) -> bool {
        let mut done = false;
        if self.ignored < self.ignore && marked {
            done = true;
        } else if self.period_end.is_none_or(|end| now > end) {
            let far = self.loss || lost || delay > QUICK_TARGETS * self.target;
            if self.period_end.is_some() && far && self.achieved < QUICK_SHARE * self.window_max {
                self.window = self.achieved;
                self.bound();
                (self.ignore, self.ignored, self.loss) = (flight, 0.0, false);
                done = true;
            }
            self.achieved = 0.0;
            self.period_end = Some(now + self.base_rtt + self.target as Ps);
        }
        if done {
            (self.increase, self.acked) = (0.0, 0.0);
        }
        done
    }
}
