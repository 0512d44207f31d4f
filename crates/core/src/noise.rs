//! Noise of this host: how long packets take from their timestamp to the card, and how late timers
//! are. It is measured, and the floors of timeouts and delay targets follow from it (rule CC-28).

use crate::config::{LossConfig, RateConfig};
use crate::time::Span;
use crate::tuning::{
    NOISE_EACH, NOISE_FALL, NOISE_HEDGE, NOISE_REORDER, NOISE_RISE, NOISE_TAIL, NOISE_TARGET,
    NOISE_TIMEOUT, NOISE_WIRES,
};
use core::sync::atomic::{AtomicU32, Ordering};

/// Estimate of the ninetieth percentile of spans, in one word: a step up for a sample above it, a
/// ninth of that step down for another one (the frugal quantiles of Ma, Muthukrishnan and Sandler).
#[derive(Clone, Copy, Debug, Default)]
struct Percentile(u32);

impl Percentile {
    fn note(&mut self, took_ns: u32) {
        let step = (self.0 / NOISE_RISE).max(NOISE_FALL);
        self.0 = if took_ns > self.0 {
            self.0.saturating_add(step).min(took_ns)
        } else {
            self.0.saturating_sub(step / NOISE_FALL).max(took_ns.min(self.0))
        };
    }
}

/// Measures the noise of one engine's host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    calls: u32,
    handover: Percentile,
    lateness: Percentile,
}

impl Meter {
    /// Whether this call is to give a sample: one in [`NOISE_EACH`] does.
    #[inline(always)]
    pub fn samples(&mut self) -> bool {
        self.calls = self.calls.wrapping_add(1);
        self.calls.is_multiple_of(NOISE_EACH)
    }
    /// Packets reached the card `took` after their timestamp.
    pub fn handover(&mut self, took: Span) {
        self.handover.note(ns(took));
    }
    /// A timer fired `late` after its deadline.
    pub fn lateness(&mut self, late: Span) {
        self.lateness.note(ns(late));
    }
    /// The larger of the two ninetieth percentiles, in ns.
    pub fn ns(&self) -> u32 {
        self.handover.0.max(self.lateness.0)
    }
}

fn ns(span: Span) -> u32 {
    u32::try_from(span.0).unwrap_or(u32::MAX)
}

/// Floors of times that follow from the noise, in ns, shared by the path contexts of an engine.
/// They change while they are shared; only one thread at a time uses the engine, so relaxed memory
/// ordering suffices.
#[derive(Debug)]
pub(crate) struct Floors {
    /// The noise that they were computed for.
    noise: AtomicU32,
    noise_ns_min: u32,
    noise_ns_max: u32,
    /// The floors, by purpose.
    target: Floor,
    reorder: Floor,
    hedge: Floor,
    tail: Floor,
    timeout: Floor,
}

/// One floor: the configured time, or `times` times the noise if that is more.
#[derive(Debug)]
struct Floor {
    configured_ns: u32,
    times: u32,
    now_ns: AtomicU32,
}

impl Floor {
    fn new(configured: Span, times: u32) -> Self {
        Self { configured_ns: ns(configured), times, now_ns: AtomicU32::new(0) }
    }
    fn set(&self, noise_ns: u32) {
        debug_assert!(self.times > 0, "a floor rests on the noise");
        let now = noise_ns.saturating_mul(self.times).max(self.configured_ns);
        self.now_ns.store(now, Ordering::Relaxed);
    }
    #[inline(always)]
    fn ns(&self) -> u32 {
        self.now_ns.load(Ordering::Relaxed)
    }
}

impl Floors {
    /// Floors of a host that was not measured yet: its noise is taken to be the transmission time
    /// of some full packets, which cannot be told from a queue anyway.
    pub fn new(rate: &RateConfig, loss: &LossConfig, mtu: u16) -> Self {
        let wires = NOISE_WIRES * u64::from(mtu) * 1_000_000_000 / rate.line_bytes_per_sec.max(1);
        let noise_ns_max = ns(rate.noise_max);
        let noise_ns_min = ns(Span(wires)).min(noise_ns_max);
        let floors = Self {
            noise: AtomicU32::new(noise_ns_min),
            noise_ns_min,
            noise_ns_max,
            target: Floor::new(rate.target_min.max(Span(1)), NOISE_TARGET),
            reorder: Floor::new(loss.reorder_min, NOISE_REORDER),
            hedge: Floor::new(loss.hedge_min, NOISE_HEDGE),
            tail: Floor::new(loss.tlp_min, NOISE_TAIL),
            timeout: Floor::new(loss.rto_min, NOISE_TIMEOUT),
        };
        floors.compute(noise_ns_min);
        floors
    }

    fn compute(&self, noise_ns: u32) {
        self.noise.store(noise_ns, Ordering::Relaxed);
        for floor in [&self.target, &self.reorder, &self.hedge, &self.tail, &self.timeout] {
            floor.set(noise_ns);
        }
    }

    /// Takes a new measurement of the host.
    pub fn noise_set(&self, meter: &Meter) {
        debug_assert!(self.noise_ns_min <= self.noise_ns_max, "edges in order: {self:?}");
        let noise_ns = meter.ns().clamp(self.noise_ns_min, self.noise_ns_max);
        if noise_ns != self.noise_ns() {
            self.compute(noise_ns);
        }
    }

    /// The noise that they were computed for.
    pub fn noise_ns(&self) -> u32 {
        self.noise.load(Ordering::Relaxed)
    }
    /// Least target of queueing delay. Rule CC-28.
    #[inline(always)]
    pub fn target_ns(&self) -> u32 {
        self.target.ns()
    }
    /// Least reordering slack between paths.
    #[inline(always)]
    pub fn reorder_ns(&self) -> u32 {
        self.reorder.ns()
    }
    /// Least wait before a lone packet is copied.
    #[inline(always)]
    pub fn hedge_ns(&self) -> u32 {
        self.hedge.ns()
    }
    /// Least tail-loss probe timeout.
    #[inline(always)]
    pub fn tail_ns(&self) -> u32 {
        self.tail.ns()
    }
    /// Least retransmission timeout.
    #[inline(always)]
    pub fn timeout_ns(&self) -> u32 {
        self.timeout.ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineConfig;
    use crate::rng::Rng;

    #[test]
    fn nine_of_ten_samples_are_below() {
        let mut rng = Rng::from_seed(1);
        for scale in [100, 10_000, 1_000_000] {
            let mut p = Percentile::default();
            for _ in 0..20_000 {
                p.note(rng.below(scale));
            }
            let wanted = f64::from(scale) * 0.9;
            let off = (f64::from(p.0) - wanted).abs() / wanted;
            assert!(off < 0.12, "{} of {scale}", p.0);
        }
    }

    #[test]
    fn a_rare_stall_is_no_noise_and_a_quiet_host_is_trusted_again() {
        let mut m = Meter::default();
        for i in 0..10_000 {
            m.handover(if i % 20 == 0 { Span::from_ms(4) } else { Span::from_us(2) });
        }
        assert!((1_500..3_000).contains(&m.ns()), "{}", m.ns());
        (0..10_000).for_each(|_| m.lateness(Span::from_us(40)));
        assert!((38_000..=40_000).contains(&m.ns()), "{}", m.ns());
        (0..10_000).for_each(|_| m.lateness(Span::ZERO));
        assert!(m.ns() < 3_000, "{}", m.ns());
    }

    #[test]
    fn it_stays_between_some_wires_and_its_ceiling() {
        let mut cfg = EngineConfig::sockets("10.0.0.1".parse().unwrap(), 0, 8900);
        cfg.rate.line_bytes_per_sec = 12_500_000_000;
        let n = Floors::new(&cfg.rate, &cfg.loss, cfg.mtu);
        assert_eq!(n.noise_ns(), 5_696, "eight packets of 8900 bytes at 100 Gb/s");
        let mut m = Meter::default();
        (0..1_000).for_each(|_| m.handover(Span::from_ms(1)));
        n.noise_set(&m);
        assert_eq!((n.noise_ns(), n.timeout_ns()), (25_000, 2_000_000));
        (0..10_000).for_each(|_| m.handover(Span::ZERO));
        n.noise_set(&m);
        assert_eq!((n.noise_ns(), n.target_ns()), (5_696, 22_784));
    }
}
