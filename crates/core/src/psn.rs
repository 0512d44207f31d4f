//! Packet sequence numbers and transmission numbers: types with wrapping arithmetic, so that
//! neither is mixed up with the other or with a count.

use core::fmt;

/// Packet sequence number of one direction of a context: 32 bits that wrap, compared within half of
/// the number space (serial number arithmetic). It implements no `Ord`: which of two comes first
/// depends on the part of the number space in use.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Psn(pub u32);

/// As a bare number: traces name the field.
impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Psn {
    /// The PSN `n` after it.
    #[inline(always)]
    pub(crate) const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }
    /// The PSN `n` before it.
    #[inline(always)]
    pub(crate) const fn minus(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }
    /// The one after it.
    #[inline(always)]
    pub(crate) const fn next(self) -> Self {
        self.plus(1)
    }
    /// Number of steps from `first` to this PSN.
    #[inline(always)]
    pub(crate) const fn since(self, first: Self) -> u32 {
        self.0.wrapping_sub(first.0)
    }
    /// The signed distance from `other` to here.
    #[inline(always)]
    pub(crate) const fn diff(self, other: Self) -> i32 {
        self.since(other) as i32
    }
    /// Whether it comes before `other`.
    #[inline(always)]
    #[cfg(not(planted_bugs))]
    pub(crate) const fn is_before(self, other: Self) -> bool {
        self.diff(other) < 0
    }
    /// Whether it comes before `other`.
    #[cfg(planted_bugs)]
    pub(crate) fn is_before(self, other: Self) -> bool {
        if planted!(PsnUnsigned) { self.0 < other.0 } else { self.diff(other) < 0 }
    }
    /// Whether it lies in `first..end` on the circle.
    #[inline(always)]
    pub(crate) fn is_within(self, first: Self, end: Self) -> bool {
        self.diff(first) >= 0 && self.is_before(end)
    }
    /// Its place in a ring of `len` entries, a power of two.
    #[inline(always)]
    pub(crate) const fn place(self, len: usize) -> usize {
        debug_assert!(len.is_power_of_two());
        self.0 as usize & (len - 1)
    }
}

/// PSNs from `first` on, up to but not including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PsnRange {
    pub first: Psn,
    pub end: Psn,
}

/// Transmission number, unique to each packet of a context, retransmissions included: 64 bits, of
/// which packets and echoes carry the lower 32.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TxNum(pub u64);

/// The lower 32 bits of a transmission number, which packets and echoes carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxLow(pub u32);

/// As a bare number: traces name the field.
impl fmt::Debug for TxNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl TxNum {
    /// The number after it.
    #[inline(always)]
    pub(crate) const fn next(self) -> Self {
        self.plus(1)
    }
    /// The number before it.
    #[inline(always)]
    pub(crate) const fn prev(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }
    /// The number `n` after it.
    #[inline(always)]
    pub(crate) const fn plus(self, n: u64) -> Self {
        Self(self.0.wrapping_add(n))
    }
    /// The signed distance from `other` to here.
    #[inline(always)]
    pub(crate) const fn diff(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }
    /// The bits that packets carry.
    #[inline(always)]
    pub(crate) const fn low(self) -> TxLow {
        TxLow(self.0 as u32)
    }
    /// The number nearest to `reference` whose lower bits are `low`.
    #[inline(always)]
    pub(crate) fn nearest(low: TxLow, reference: Self) -> Self {
        if planted!(TxNumHighKept) {
            return Self(reference.0 & !u64::from(u32::MAX) | u64::from(low.0));
        }
        let delta = low.0.wrapping_sub(reference.low().0) as i32;
        reference.plus(delta as i64 as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        let (last, first) = (Psn(u32::MAX), Psn(0));
        assert!(last.is_before(first) && !first.is_before(last) && !first.is_before(first));
        assert_eq!((last.next(), first.minus(1), Psn(3).diff(last)), (first, last, 4));
        assert_eq!((Psn(3).since(last), last.diff(Psn(3))), (4, -4));
    }

    #[test]
    fn a_range_holds_its_first_and_not_its_end() {
        let (first, end) = (Psn(u32::MAX - 1), Psn(2));
        let within = |p: u32| Psn(p).is_within(first, end);
        assert!(within(u32::MAX - 1) && within(0) && within(1));
        assert!(!within(u32::MAX - 2) && !within(2) && !within(1 << 30));
        assert!(!first.is_within(first, first), "an empty one holds nothing");
    }

    #[test]
    fn a_place_in_a_ring_goes_on_over_the_wrap() {
        let places = [Psn(u32::MAX - 1), Psn(u32::MAX), Psn(0), Psn(1)].map(|p| p.place(64));
        assert_eq!(places, [62, 63, 0, 1]);
    }

    #[test]
    fn the_nearest_number_is_found() {
        let r = TxNum(0x1_0000_0005);
        assert_eq!(TxNum::nearest(TxLow(7), r), TxNum(0x1_0000_0007));
        assert_eq!(TxNum::nearest(TxLow(0xFFFF_FFFE), r), TxNum(0x0_FFFF_FFFE));
        assert_eq!(TxNum(u64::MAX).next().diff(TxNum(0).prev()), 1);
        assert_eq!(r.prev().low(), TxLow(4));
    }
}
