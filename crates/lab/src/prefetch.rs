//! Prefetching memory, for runs that do not fit the caches.

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Asks the processor to fetch memory that will be needed. Does nothing on processors other than
/// x86-64.
#[inline]
pub fn prefetch(at: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (at.addr() / LINE..(at.addr() + bytes).div_ceil(LINE)).map(|n| n * LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that a program could see, and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.with_addr(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, bytes);
}

#[cfg(test)]
mod tests {
    use super::prefetch;

    #[test]
    fn any_address_may_be_prefetched() {
        let value = [7u8; 300];
        prefetch(value.as_ptr(), value.len());
        prefetch(std::ptr::null(), 1);
        assert_eq!(value, [7; 300], "nothing changes");
    }
}
