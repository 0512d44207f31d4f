//! The reaction point of DCQCN: the rate of one queue pair.

use super::DcqcnConfig;
use srd_fabric::Ps;

/// Rate of one queue pair. Timers are evaluated when the rate is asked for, which gives the same
/// rate at every departure.
#[derive(Clone, Debug)]
pub struct Dcqcn {
    config: DcqcnConfig,
    line_bps: f64,
    rate_bps: f64,
    target_bps: f64,
    alpha: f64,
    /// Increases by time and by bytes since the last notification.
    by_time: u32,
    by_bytes: u32,
    bytes: u64,
    alpha_at: Ps,
    increase_at: Ps,
}

impl Dcqcn {
    /// A queue pair at line rate.
    pub const fn new(config: DcqcnConfig, line_bps: f64) -> Self {
        Self {
            config,
            line_bps,
            rate_bps: line_bps,
            target_bps: line_bps,
            alpha: 1.0,
            by_time: 0,
            by_bytes: 0,
            bytes: 0,
            alpha_at: Ps::MAX,
            increase_at: Ps::MAX,
        }
    }

    /// The rate at `now`.
    pub fn rate_bps(&mut self, now: Ps) -> f64 {
        while self.alpha_at <= now || self.increase_at <= now {
            if self.alpha_at <= self.increase_at {
                self.alpha *= 1.0 - self.config.gain;
                self.alpha_at += self.config.alpha_ps;
            } else {
                self.by_time += 1;
                self.increase_at += self.config.increase_ps;
                self.increase();
            }
            if self.rate_bps >= self.line_bps && self.alpha < 1e-9 {
                // Nothing changes until the next notification.
                (self.alpha_at, self.increase_at) = (Ps::MAX, Ps::MAX);
            }
        }
        self.rate_bps
    }

    /// Present estimate of the share of marked packets.
    pub const fn alpha(&self) -> f64 {
        self.alpha
    }

    /// A notification has arrived.
    pub fn notified(&mut self, now: Ps) {
        self.rate_bps(now);
        self.target_bps = self.rate_bps;
        self.rate_bps = (self.rate_bps * (1.0 - self.alpha / 2.0)).max(self.config.rate_bps_min);
        self.alpha = (1.0 - self.config.gain) * self.alpha + self.config.gain;
        (self.by_time, self.by_bytes, self.bytes) = (0, 0, 0);
        self.alpha_at = now.saturating_add(self.config.alpha_ps);
        self.increase_at = now.saturating_add(self.config.increase_ps);
    }

    /// Bytes have been sent.
    pub fn sent(&mut self, bytes: u32) {
        if self.increase_at == Ps::MAX {
            return;
        }
        self.bytes += u64::from(bytes);
        if self.bytes >= self.config.increase_bytes {
            self.bytes -= self.config.increase_bytes;
            self.by_bytes += 1;
            self.increase();
        }
    }

    /// One rate increase: fast recovery, then additive, then hyper increase.
    fn increase(&mut self) {
        let (most, least) = (self.by_time.max(self.by_bytes), self.by_time.min(self.by_bytes));
        if least > self.config.fast_steps {
            let steps = least - self.config.fast_steps;
            self.target_bps += f64::from(steps) * self.config.hyper_bps;
        } else if most > self.config.fast_steps {
            self.target_bps += self.config.additive_bps;
        }
        self.target_bps = self.target_bps.min(self.line_bps);
        self.rate_bps = f64::midpoint(self.rate_bps, self.target_bps).min(self.line_bps);
    }
}
