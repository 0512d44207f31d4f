//! RTT estimation and the retransmission timeout (RFC 6298 as the kernel computes it).

use crate::tcp::TcpConfig;
use srd_fabric::Ps;

/// Smoothed RTT, its variation and the retransmission timeout.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    srtt: i64,
    /// Mean deviation, times four.
    dev: i64,
    /// Largest `dev` of the current round.
    dev_max: i64,
    /// The variance term of the timeout; decays slowly.
    var: i64,
    /// The round of `dev_max` ends when this byte is acknowledged.
    round_end: u64,
    /// Minimum RTT.
    min: Ps,
    rto: Ps,
}

impl Rtt {
    pub const fn new(config: &TcpConfig) -> Self {
        let rto = config.rto_initial_ps;
        Self { srtt: 0, dev: 0, dev_max: 0, var: 0, round_end: 0, min: Ps::MAX, rto }
    }

    /// Adds a sample; `una` and `next` are the sender's SND.UNA and SND.NXT.
    pub fn sample(&mut self, rtt: Ps, una: u64, next: u64, config: &TcpConfig) {
        self.min = self.min.min(rtt.max(1));
        let floor = config.rto_min_ps as i64;
        let m = rtt.max(1) as i64;
        if self.srtt == 0 {
            self.srtt = m;
            self.dev = 2 * m;
            self.dev_max = self.dev.max(floor);
            self.var = self.dev_max;
            self.round_end = next;
        } else {
            let error = m - self.srtt;
            self.srtt = (self.srtt + error / 8).max(1);
            let mut change = error.abs() - self.dev / 4;
            if error < 0 && change > 0 {
                // A falling RTT should not raise the timeout much.
                change /= 8;
            }
            self.dev += change;
            if self.dev > self.dev_max {
                self.dev_max = self.dev;
                self.var = self.var.max(self.dev_max);
            }
            if una > self.round_end {
                if self.dev_max < self.var {
                    self.var -= (self.var - self.dev_max) / 4;
                }
                self.round_end = next;
                self.dev_max = floor;
            }
        }
        self.rto = ((self.srtt + self.var) as Ps).min(config.rto_max_ps);
    }

    /// Smoothed RTT; 0 before the first sample.
    pub const fn srtt(&self) -> Ps {
        self.srtt as Ps
    }

    /// Minimum RTT; `None` before the first sample.
    pub const fn min(&self) -> Option<Ps> {
        if self.min == Ps::MAX { None } else { Some(self.min) }
    }

    /// The timeout after `backoff` doublings.
    pub fn rto(&self, backoff: u32, config: &TcpConfig) -> Ps {
        let doubled = u128::from(self.rto) << backoff.min(40);
        doubled.min(u128::from(config.rto_max_ps)) as Ps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_fabric::{MS, US};

    #[test]
    fn the_timeout_is_the_round_trip_plus_a_floored_variance() {
        let config = TcpConfig::default().rto_min_ps(50 * MS);
        let mut rtt = Rtt::new(&config);
        assert_eq!(rtt.rto(0, &config), config.rto_initial_ps);
        rtt.sample(100 * US, 0, 1, &config);
        assert_eq!((rtt.srtt(), rtt.min()), (100 * US, Some(100 * US)));
        assert_eq!(rtt.rto(0, &config), 50 * MS + 100 * US);
        assert_eq!(rtt.rto(3, &config), 8 * (50 * MS + 100 * US));
        assert_eq!(rtt.rto(60, &config), config.rto_max_ps);
    }

    #[test]
    fn a_large_variance_raises_the_timeout_and_fades() {
        let config = TcpConfig::default().rto_min_ps(MS);
        let mut rtt = Rtt::new(&config);
        for i in 0..40 {
            rtt.sample(if i % 2 == 0 { 10 * MS } else { 30 * MS }, 2 * i, 2 * i + 1, &config);
        }
        let high = rtt.rto(0, &config);
        assert!(high > 50 * MS && high < 80 * MS, "{high}");
        for i in 40..200 {
            rtt.sample(20 * MS, 2 * i, 2 * i + 1, &config);
        }
        let low = rtt.rto(0, &config);
        assert!((21 * MS..22 * MS).contains(&low), "{low}");
    }

    #[test]
    fn a_falling_round_trip_raises_the_timeout_less_than_a_rising_one() {
        let config = TcpConfig::default().rto_min_ps(MS);
        let after = |last: Ps| {
            let mut rtt = Rtt::new(&config);
            (0..50).for_each(|i| rtt.sample(50 * MS, 2 * i, 2 * i + 1, &config));
            rtt.sample(last, 200, 201, &config);
            rtt.rto(0, &config) - rtt.srtt()
        };
        let (rise, fall) = (after(90 * MS), after(10 * MS));
        assert!(rise > 35 * MS && fall < 10 * MS, "{rise} {fall}");
    }
}
