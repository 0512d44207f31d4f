//! Time in the core: nanoseconds that the caller passes in, from any monotonic clock.

use core::ops::{Add, AddAssign, Sub};

/// A point in time, in nanoseconds since an origin of the caller's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Time {
    /// Later than any time that occurs; stands for "no deadline".
    pub const NEVER: Self = Self(u64::MAX);
    /// Time since `earlier`; zero if `earlier` lies ahead.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
    /// The clock value that packets carry: 32 bits in units of 16 ns.
    pub const fn to_wire(self) -> u32 {
        (self.0 >> 4) as u32
    }
    /// Time since a clock value of [`Self::to_wire`] that is at most 68 s old, with a resolution of
    /// 16 ns.
    pub const fn since_wire(self, sent: u32) -> Span {
        Span((self.to_wire().wrapping_sub(sent) as u64) << 4)
    }
}

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// From microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us * 1_000)
    }
    /// From milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }
    /// From seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1_000_000_000)
    }
    /// `self * num / den` without overflow for spans below centuries.
    pub const fn scale(self, num: u64, den: u64) -> Self {
        debug_assert!(den > 0, "a share of something");
        Self((self.0 as u128 * num as u128 / den as u128) as u64)
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, rhs: Span) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, rhs: Span) {
        *self = *self + rhs;
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl Sub for Span {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}
