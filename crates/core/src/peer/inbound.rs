//! One-way delay of received packets above the recent minimum.
//!
//! The clocks of two hosts differ by an unknown constant, so a one-way delay cannot be measured,
//! but its excess over another one can. A round trip consists of the delay of the packet and that
//! of its acknowledgment. With the excess of the acknowledgment known, the forward path is blamed
//! for its own delay only.

use crate::time::{Span, Time};
use crate::tuning::INBOUND_WINDOW_HALF;

/// The recent minimum of the one-way delay.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Arrival here minus departure there, in units of 16 ns, modulo the 32 bits of the timestamp
    /// in packets: the minimum since `began`, and that of the half window before.
    least_now: u32,
    least_before: u32,
    began: Option<Time>,
}

impl Inbound {
    /// Forgets the minimum, because a clock was set or stood still.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Notes a packet that was sent at `sent` by its sender's clock. Returns its one-way delay
    /// above the recent minimum.
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

/// The smaller of two delays, modulo 2^32.
fn least(a: u32, b: u32) -> u32 {
    if (b.wrapping_sub(a) as i32) < 0 { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clocks that differ by any amount, up to half of the timestamp's range, and wrap.
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
