//! Copies between private memory and registered memory, which others may touch at the same time.
//!
//! As with any RDMA device, bytes that a peer writes while the owner reads are torn: old and new
//! bytes mixed. That must be the *only* consequence, so these copies are not plain loads and
//! stores, which the compiler may assume to be free of races. Miri cannot execute inline assembly
//! and uses the portable copy.

/// Up to this many bytes, moves of 16 bytes are faster than a string instruction.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const MOVES_BYTES_MAX: usize = 256;
/// Bytes of an SSE register.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const XMM: usize = 16;

/// Copies `len` bytes from `src` to `dst`, either of which others may access meanwhile.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes during the call, without overlap.
#[inline]
pub(crate) unsafe fn copy_shared(src: *const u8, dst: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len > MOVES_BYTES_MAX {
        // SAFETY: ranges as promised by the caller; the ABI keeps the direction flag clear. The
        // compiler cannot look into the instruction and so derives nothing from a race.
        unsafe {
            core::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rdi") dst => _,
                inout("rsi") src => _,
                options(nostack, preserves_flags)
            );
        }
        return;
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= XMM {
        let last = len - XMM;
        let mut i = 0;
        while i < last {
            // SAFETY: i + 16 <= len.
            unsafe { move_16(src.add(i), dst.add(i)) };
            i += XMM;
        }
        // SAFETY: the last 16 bytes; some of them may have been copied already.
        unsafe { move_16(src.add(last), dst.add(last)) };
        return;
    }
    // SAFETY: ranges as promised by the caller.
    unsafe { copy_words(src, dst, len) }
}

/// Copies 16 bytes at any alignment, by instructions opaque to the compiler.
///
/// # Safety
/// As [`copy_shared`], for 16 bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn move_16(src: *const u8, dst: *mut u8) {
    // SAFETY: ranges as promised by the caller; every x86_64 has SSE2.
    unsafe {
        core::arch::asm!(
            "movups {x}, [{src}]",
            "movups [{dst}], {x}",
            x = out(xmm_reg) _,
            src = in(reg) src,
            dst = in(reg) dst,
            options(nostack, preserves_flags)
        );
    }
}

/// The portable copy: volatile words, then volatile bytes.
///
/// # Safety
/// As [`copy_shared`].
unsafe fn copy_words(src: *const u8, dst: *mut u8, len: usize) {
    const WORD: usize = size_of::<u64>();
    let mut i = 0;
    if src.addr() % WORD == dst.addr() % WORD {
        let head = src.align_offset(WORD).min(len);
        while i < head {
            // SAFETY: i < len.
            unsafe { dst.add(i).write_volatile(src.add(i).read_volatile()) };
            i += 1;
        }
        while len - i >= WORD {
            // SAFETY: a whole word is left, and both pointers are aligned here.
            unsafe {
                dst.add(i).cast::<u64>().write_volatile(src.add(i).cast::<u64>().read_volatile());
            }
            i += WORD;
        }
    }
    while i < len {
        // SAFETY: i < len.
        unsafe { dst.add(i).write_volatile(src.add(i).read_volatile()) };
        i += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_arrives_whole() {
        let src: Vec<u8> = (0..400_u32).map(|i| (i * 7 + 3) as u8).collect();
        for len in (0..40).chain([127, 128, 129, 255, 256, 257, 300]) {
            for (from, to) in [(0, 0), (1, 1), (3, 0), (0, 5), (7, 7), (8, 1)] {
                let mut dst = vec![0xEE_u8; 400];
                // SAFETY: from, to and len stay within the 400 bytes of both vectors.
                unsafe { copy_shared(src.as_ptr().add(from), dst.as_mut_ptr().add(to), len) };
                assert_eq!(dst[to..to + len], src[from..from + len]);
                assert!(dst[..to].iter().chain(&dst[to + len..]).all(|&b| b == 0xEE));
                // SAFETY: as above.
                unsafe { copy_words(src.as_ptr().add(from), dst.as_mut_ptr().add(to), len) };
                assert_eq!(dst[to..to + len], src[from..from + len]);
            }
        }
    }
}
