//! Seeds from the operating system: tags, incarnations, cookies and keys must not be guessable.

use crate::DeviceError;
use srd_core::Randomness;
use std::io;

/// A random number source with 256 bits of the kernel's entropy for secrets, and 256 others for
/// everything else. Fails rather than use weaker entropy.
pub(crate) fn randomness_from_os() -> Result<Randomness, DeviceError> {
    let mut secret = [0; 32];
    os_random(&mut secret)?;
    let mut fast = [0; 32];
    os_random(&mut fast)?;
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(fast.chunks_exact(8)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    Ok(Randomness::from_entropy(secret, words))
}

/// Fills `bytes` with the kernel's random bytes, of which nobody else gets any.
pub(crate) fn os_random(bytes: &mut [u8]) -> Result<(), DeviceError> {
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: the pointer and the length are those of a slice that is ours to write.
        let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        if n > 0 {
            rest = &mut rest[n as usize..];
            continue;
        }
        let source = io::Error::last_os_error();
        if source.kind() != io::ErrorKind::Interrupted {
            return Err(DeviceError::Os { what: "reading random bytes (getrandom)", source });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_draws_differ() {
        let (mut a, mut b) = ([0; 32], [0; 32]);
        os_random(&mut a).unwrap();
        os_random(&mut b).unwrap();
        assert_ne!(a, b);
        assert!(a[..16] != [0; 16] && a[16..] != [0; 16], "filled to the end");
    }
}
