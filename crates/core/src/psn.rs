//! Arithmetic of packet sequence numbers: 32 bits that wrap, compared within half the circle.

/// `a - b` as a signed distance.
pub(crate) const fn diff(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// Whether `a` comes before `b`.
#[cfg(not(planted_bugs))]
pub(crate) const fn before(a: u32, b: u32) -> bool {
    diff(a, b) < 0
}
#[cfg(planted_bugs)]
pub(crate) fn before(a: u32, b: u32) -> bool {
    if planted!(PsnUnsigned) { a < b } else { diff(a, b) < 0 }
}

/// The 64-bit number nearest to `reference` whose low 32 bits are `low`.
pub(crate) fn expand(low: u32, reference: u64) -> u64 {
    if planted!(TxNumHighKept) {
        return reference & !u64::from(u32::MAX) | u64::from(low);
    }
    let delta = low.wrapping_sub(reference as u32) as i32;
    reference.wrapping_add(delta as i64 as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(before(u32::MAX, 0));
        assert!(!before(0, u32::MAX));
        assert_eq!(diff(3, u32::MAX), 4);
    }

    #[test]
    fn expansion_finds_the_nearest() {
        let r = 0x1_0000_0005;
        assert_eq!(expand(0x0000_0007, r), 0x1_0000_0007);
        assert_eq!(expand(0xFFFF_FFFE, r), 0x0_FFFF_FFFE);
    }
}
