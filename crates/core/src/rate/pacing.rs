//! Pacing: the time of the next send, exact to fractions of a nanosecond. A sender that is late may
//! catch up by a bounded amount.

use crate::time::{Span, Time};
use crate::tuning::BURST;

#[derive(Debug)]
pub(crate) struct Pacing {
    next: Time,
    /// Fraction of a ns of `next`, in units of 2^-32 ns.
    next_fraction: u32,
    /// Bytes that may leave in one burst.
    burst_bytes: u32,
    /// How far `next` may lie in the past: what a late sender may catch up at once.
    lag_max: Span,
    /// ns per byte in units of 2^-32.
    ns_per_byte: u64,
}

/// ns per byte at `rate`, in units of 2^-32 ns.
fn ns_per_byte(rate: u64) -> u64 {
    let exact = (1_000_000_000u128 << 32) / u128::from(rate.max(1));
    u64::try_from(exact).unwrap_or(u64::MAX)
}

/// Bytes that may leave in one burst at `rate`.
pub(crate) fn burst_bytes(rate: u64, burst_max: u32, mtu: u16) -> u32 {
    let timed = u128::from(rate) * u128::from(BURST.0) / 1_000_000_000;
    let bytes = timed.min(u128::from(burst_max)) as u32;
    bytes.max(u32::from(mtu))
}

impl Pacing {
    pub(crate) fn new(now: Time, rate: u64, burst_max: u32, mtu: u16) -> Self {
        let mut pacing = Self {
            next: now,
            next_fraction: 0,
            burst_bytes: 0,
            lag_max: Span::ZERO,
            ns_per_byte: 0,
        };
        pacing.rate_set(rate, burst_max, mtu);
        pacing
    }

    /// Sets the rate in bytes per second; `burst_max` bounds the bytes that may leave faster.
    pub(crate) fn rate_set(&mut self, rate: u64, burst_max: u32, mtu: u16) {
        self.ns_per_byte = ns_per_byte(rate);
        self.burst_bytes = burst_bytes(rate, burst_max, mtu);
        self.late_set(burst_max.saturating_sub(u32::from(mtu)));
    }

    /// Sets how many bytes a late sender may catch up at once.
    pub(crate) fn late_set(&mut self, bytes: u32) {
        (self.lag_max, _) = self.cost(bytes);
    }

    /// Time that `bytes` take at the rate: whole ns and the fraction.
    fn cost(&self, bytes: u32) -> (Span, u32) {
        let exact = u128::from(bytes) * u128::from(self.ns_per_byte);
        (Span(u64::try_from(exact >> 32).unwrap_or(u64::MAX)), exact as u32)
    }

    pub(crate) fn on_sent(&mut self, now: Time, bytes: u32) {
        if now.since(self.next) > self.lag_max {
            self.next = Time(now.0 - self.lag_max.0.min(now.0));
            self.next_fraction = 0;
        }
        let (span, fraction) = self.cost(bytes);
        let (fraction, carry) = self.next_fraction.overflowing_add(fraction);
        self.next_fraction = fraction;
        self.next = self.next + span + Span(u64::from(carry));
    }

    /// A packet was sent that does not wait for the pacer. It reduces what a late sender may catch
    /// up, but never delays data; otherwise a peer that causes many acknowledgments could hold back
    /// our data for ever.
    pub(crate) fn on_free(&mut self, now: Time, bytes: u32) {
        if self.next >= now {
            return;
        }
        self.on_sent(now, bytes);
        if self.next > now {
            self.next = now;
            self.next_fraction = 0;
        }
    }

    /// When the next packet may leave.
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    pub(crate) fn burst_bytes(&self) -> u32 {
        self.burst_bytes
    }
}
