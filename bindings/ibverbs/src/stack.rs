//! The stack of the program, as calls of this library leave it.
//!
//! The datagram endpoint of libfabric 1.17 (provider `efa`) reads completions in the format that
//! the program chose, and then passes on fields that this format lacks: they are whatever earlier
//! calls left on the stack. If bit 61 of the word that it takes for flags is set, libfabric follows
//! a null pointer. Opening a device takes far more stack than a kernel's driver does, and its
//! configuration has such words, so it leaves zeros behind instead.

use std::hint::black_box;

/// More than the 24 KiB of completions that libfabric keeps on the stack, and what calls it.
const CLEARED_BYTES: usize = 64 << 10;

/// Fills the stack below the caller with zeros.
#[inline(never)]
pub(crate) fn clear() {
    black_box(&mut [0_u8; CLEARED_BYTES]);
}
