//! Seeds from the operating system: tags, incarnations and cookies must not be guessable.

use crate::DeviceError;
use srd_core::Rng;
use std::io;

/// A generator seeded with 256 bits of the kernel's entropy. Fails rather than fall back.
pub(crate) fn rng_from_os() -> Result<Rng, DeviceError> {
    let mut words = [0_u64; 4];
    let bytes = size_of_val(&words);
    let mut filled = 0;
    while filled < bytes {
        // SAFETY: the range [filled, bytes) lies within `words`; any bit pattern is a valid u64.
        let n = unsafe {
            libc::getrandom(words.as_mut_ptr().cast::<u8>().add(filled).cast(), bytes - filled, 0)
        };
        if n > 0 {
            filled += n as usize;
            continue;
        }
        let source = io::Error::last_os_error();
        if source.kind() != io::ErrorKind::Interrupted {
            return Err(DeviceError::Os { what: "reading random bytes (getrandom)", source });
        }
    }
    Ok(Rng::from_entropy(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_seeds_differ() {
        let (mut a, mut b) = (rng_from_os().unwrap(), rng_from_os().unwrap());
        assert_ne!((a.next_u64(), a.next_u64()), (b.next_u64(), b.next_u64()));
    }
}
