//! Versioned structures: the caller's may be shorter or longer than ours.

use std::ptr;

/// Reads a structure of `len` bytes; missing fields are zero. `None` if it is null or empty, or has
/// a value in fields unknown here.
///
/// # Safety
/// `from` is null or has `len` bytes; `T` consists of numbers only.
pub(crate) unsafe fn read_tail<T: Default + Copy>(from: *const T, len: usize) -> Option<T> {
    if from.is_null() || len == 0 {
        return None;
    }
    let known = len.min(size_of::<T>());
    let mut value = T::default();
    // SAFETY: `known` bytes are there on both sides, and any bytes make a `T`.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast(), known) };
    // SAFETY: `len` bytes are there.
    let rest = (known..len).all(|i| unsafe { from.cast::<u8>().add(i).read() } == 0);
    rest.then_some(value)
}

/// Writes a structure of `len` bytes; fields unknown here become zero.
///
/// # Safety
/// `to` has `len` bytes.
pub(crate) unsafe fn write_tail<T: Copy>(to: *mut T, len: usize, value: &T) {
    // SAFETY: `len` bytes are there, and no more than the value has is copied from it.
    unsafe {
        ptr::write_bytes(to.cast::<u8>(), 0, len);
        let known = len.min(size_of::<T>());
        ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), to.cast(), known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_is_filled_up_and_longer_must_end_in_zeros() {
        let mut bytes = [0_u64; 3];
        (bytes[0], bytes[1]) = (u64::from_ne_bytes([1; 8]), 0);
        let from = bytes.as_ptr().cast::<[u32; 4]>();
        // SAFETY: the array has 24 bytes.
        unsafe {
            assert_eq!(read_tail(from, 4), Some([0x0101_0101, 0, 0, 0]));
            assert_eq!(read_tail(from, 24), Some([0x0101_0101, 0x0101_0101, 0, 0]));
            assert_eq!(read_tail(from, 0), None);
        }
        bytes[2] = 1;
        let from = bytes.as_ptr().cast::<[u32; 4]>();
        // SAFETY: the array has 24 bytes.
        unsafe {
            assert_eq!(read_tail(from, 24), None);
            assert_eq!(read_tail::<u32>(std::ptr::null(), 4), None);
        }
    }

    #[test]
    fn writing_clears_what_is_not_known() {
        let mut bytes = [u32::MAX; 3];
        // SAFETY: the array has 12 bytes.
        unsafe { write_tail(bytes.as_mut_ptr().cast(), 8, &7_u32) };
        assert_eq!(bytes, [7, 0, u32::MAX]);
    }
}
