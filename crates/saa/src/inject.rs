//! Injection: when the next packet of a flow may leave its host at the flow's rate.

use crate::assign::Rate;
use srd_fabric::Ps;

/// How a host paces packets at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// One packet per W_f / w_f packet times, the first after a phase of the flow's own. A packet
    /// is never early. After a late packet the next one follows a whole period later: catching up
    /// would be a burst, and keeping the old times would make the same packets collide in each
    /// period again. Stronger than a leaky bucket.
    Exact,
    /// A leaky bucket of this many packets: missed packets are made up for, up to this burst.
    Bucket {
        /// At least 1.
        packets: u32,
    },
    /// As fast as the NIC accepts them.
    None,
}

/// Pacer of one flow.
#[derive(Clone, Debug)]
pub struct Pacer {
    injection: Injection,
    /// Time of one packet at line rate.
    packet_ps: Ps,
    /// Phase within the first period, in units of 2^-32.
    phase: u32,
    rate: Option<Rate>,
    /// Exact: when the next packet may leave. Bucket: when the bucket would be empty.
    origin: Ps,
    /// Exact: when the last packet left.
    last: Option<Ps>,
}

impl Pacer {
    /// A pacer for a flow without a rate. `packet_ps`: time of a full packet at line rate; `phase`:
    /// random bits drawn from the seed.
    pub const fn new(injection: Injection, packet_ps: Ps, phase: u32) -> Self {
        Self { injection, packet_ps, phase, rate: None, origin: 0, last: None }
    }

    /// The flow's rate, if it has one.
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Sets or changes the rate.
    pub fn rate_set(&mut self, now: Ps, rate: Rate) {
        if self.rate == Some(rate) {
            return;
        }
        let period = rate.due(self.packet_ps, 1);
        match self.injection {
            Injection::None => {}
            Injection::Bucket { .. } => {
                if self.rate.is_none() {
                    self.origin = now;
                }
            }
            Injection::Exact => match (self.rate, self.last) {
                (None, _) => {
                    let shift = (u128::from(period) * u128::from(self.phase)) >> 32;
                    (self.origin, self.last) = (now + shift as Ps, None);
                }
                // The current period counts from the packet that began it.
                (Some(_), Some(last)) => self.origin = last.saturating_add(period),
                (Some(_), None) => {}
            },
        }
        self.rate = Some(rate);
    }

    /// Starts or restarts the flow at its rate.
    pub fn restart(&mut self, now: Ps) {
        if let Some(rate) = self.rate.take() {
            self.rate_set(now, rate);
        }
    }

    /// Removes the rate.
    pub const fn stop(&mut self) {
        self.rate = None;
    }

    /// When the next packet may leave; a time in the past means now, [`Ps::MAX`] means no rate.
    pub fn due(&self) -> Ps {
        let Some(rate) = self.rate else { return Ps::MAX };
        match self.injection {
            Injection::None => 0,
            Injection::Exact => self.origin,
            Injection::Bucket { packets } => {
                let depth = u64::from(packets.max(1)) - 1;
                self.origin.saturating_sub(rate.due(self.packet_ps, depth))
            }
        }
    }

    /// Records a packet that leaves at `now`, not before [`Pacer::due`].
    pub fn sent(&mut self, now: Ps) {
        let Some(rate) = self.rate else { return };
        debug_assert!(now >= self.due(), "a packet left early");
        match self.injection {
            Injection::None => {}
            Injection::Exact => {
                self.last = Some(now);
                self.origin = now.saturating_add(rate.due(self.packet_ps, 1));
            }
            Injection::Bucket { .. } => {
                self.origin = self.origin.max(now).saturating_add(rate.due(self.packet_ps, 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_fabric::Rng;

    const PACKET: Ps = 1_000;

    fn third() -> Rate {
        Rate::new(1, 3).expect("a share")
    }

    /// Departure times if the NIC is busy for a while after each of `stalls`.
    fn times(mut pacer: Pacer, n: usize, stall: impl Fn(usize) -> Ps) -> Vec<Ps> {
        let mut now = 0;
        let mut out = Vec::new();
        for i in 0..n {
            now = pacer.due().max(now) + stall(i);
            pacer.sent(now);
            out.push(now);
        }
        out
    }

    fn started(injection: Injection, phase: u32) -> Pacer {
        let mut pacer = Pacer::new(injection, PACKET, phase);
        assert_eq!(pacer.due(), Ps::MAX, "no rate, no packet");
        pacer.rate_set(0, third());
        pacer
    }

    #[test]
    fn exact_is_one_packet_per_period_from_its_phase_on_and_counts_from_the_last() {
        let half = started(Injection::Exact, 1 << 31);
        assert_eq!(times(half, 4, |_| 0), [1_500, 4_500, 7_500, 10_500]);
        // A late flow continues from there; the missed time is not made up for.
        let late = |i| [0, 400, 7_000, 0, 0][i];
        let got = times(started(Injection::Exact, 0), 5, late);
        assert_eq!(got, [0, 3_400, 13_400, 16_400, 19_400]);
    }

    #[test]
    fn a_bucket_makes_up_for_what_was_missed_and_no_more() {
        let bucket = || started(Injection::Bucket { packets: 3 }, 0);
        assert_eq!(times(bucket(), 5, |_| 0), [0, 0, 0, 3_000, 6_000], "a full bucket at first");
        let stall = |i| if i == 3 { 30_000 } else { 0 };
        let got = times(bucket(), 8, stall);
        assert_eq!(got[3..], [33_000, 33_000, 33_000, 36_000, 39_000]);
        let leaky = times(started(Injection::Bucket { packets: 1 }, 0), 3, |_| 0);
        assert_eq!(leaky, [0, 3_000, 6_000]);
    }

    #[test]
    fn never_more_than_the_rate_over_any_span_of_whole_periods() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let w = rng.range(1, 50);
            let rate = Rate::new(w, w + rng.below(400)).expect("a share");
            let mut pacer = Pacer::new(Injection::Exact, PACKET, rng.next_u64() as u32);
            pacer.rate_set(rng.below(10_000), rate);
            let stalls: Vec<Ps> = (0..80).map(|_| rng.below(3) * rng.below(4_000)).collect();
            let got = times(pacer, 80, |i| stalls[i]);
            for (i, from) in got.iter().enumerate() {
                for (j, to) in got.iter().enumerate().skip(i + 1) {
                    // n packets span at least n - 1 whole periods.
                    let least = rate.due(PACKET, (j - i) as u64);
                    assert!(to - from >= least, "seed {seed}: packets {i} to {j}");
                }
            }
        }
    }

    #[test]
    fn a_new_rate_counts_from_the_last_packet() {
        let mut pacer = started(Injection::Exact, 0);
        pacer.sent(0);
        pacer.sent(3_000);
        pacer.rate_set(4_000, Rate::new(1, 10).expect("a share"));
        assert_eq!(pacer.due(), 13_000);
        pacer.rate_set(5_000, Rate::LINE);
        assert_eq!(pacer.due(), 4_000);
        assert_eq!(started(Injection::None, 7).due(), 0);
    }
}
