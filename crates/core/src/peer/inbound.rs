//! How much longer than the quickest of late a packet was on its way to us.
//!
//! The clocks of two hosts differ by an unknown constant, so a way's time cannot be told, but what
//! it takes more than another can. A round trip is the way there and the way of the
//! acknowledgment; only by this can the first be blamed for what is its own.

use crate::time::{Span, Time};
use crate::tuning::INBOUND_WINDOW_HALF;

/// The quickest way of late.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Arrival here minus departure there in units of 16 ns, on the circle of the clock in packets:
    /// the least since `began`, and of the half window before.
    least_now: u32,
    least_before: u32,
    began: Option<Time>,
}

impl Inbound {
    /// What is known says nothing any more: a clock was set, or stood still.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// A packet arrived that left at `sent` by its sender's clock. Returns by how much it was
    /// slower than the quickest.
    pub fn on_packet(&mut self, arrived: Time, sent: u32) -> Span {
        let way = arrived.to_wire().wrapping_sub(sent);
        match self.began.map(|began| arrived.since(began)) {
            Some(age) if age <= INBOUND_WINDOW_HALF => {
                self.least_now = least(self.least_now, way);
            }
            Some(age) if age <= INBOUND_WINDOW_HALF.scale(2, 1) => {
                self.least_before = self.least_now;
                (self.least_now, self.began) = (way, Some(arrived));
            }
            _ => {
                (self.least_now, self.least_before) = (way, way);
                self.began = Some(arrived);
            }
        }
        let quickest = least(self.least_now, self.least_before);
        Span(u64::from(way.wrapping_sub(quickest)) << 4)
    }
}

/// The earlier of two on the circle.
fn least(a: u32, b: u32) -> u32 {
    if (b.wrapping_sub(a) as i32) < 0 { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clocks that are half a circle apart, and wrap.
    #[test]
    fn excess_is_over_the_quickest_of_two_seconds() {
        for offset in [0, 0x7FFF_FFF0, 0x8000_0000, u32::MAX - 2] {
            let mut inbound = Inbound::default();
            let mut take = |ms: u64, way_us: u64| {
                let at = Time(ms * 1_000_000);
                let sent = Time(at.0 - way_us * 1000).to_wire().wrapping_add(offset);
                inbound.on_packet(at, sent).0.div_ceil(1000)
            };
            assert_eq!(take(1000, 500), 0, "the first is the quickest so far");
            assert_eq!(take(1001, 80), 0);
            assert_eq!(take(1002, 580), 500);
            assert_eq!(take(2500, 180), 100, "of the half window before");
            assert_eq!(take(3600, 180), 0, "forgotten");
            assert_eq!(take(9000, 990), 0, "a long silence forgets all");
            assert_eq!(take(9001, 34_990), 34_000, "a leap of a clock");
            inbound.forget();
            assert_eq!(inbound.on_packet(Time(9_002_000_000), 0), Span::ZERO);
        }
    }
}
