//! A piece of payload, by address.
//!
//! Payload stays where the user has it until a flush, which the compiler cannot watch over. What
//! has to be promised for that, by whoever makes a [`Part`] and by every datapath, is in here.
#![allow(unsafe_code, reason = "the one place that turns payload addresses into bytes")]

use crate::{Datapath, capture::Capture, fault::Fault, mem::MemDatapath, udp::UdpDatapath};
use std::io::Write;

/// A promise that every [`Datapath`] makes.
///
/// # Safety
/// Once `tx_flush` or `tx_discard` has returned, the datapath never again looks at a [`Part`] that
/// it was given before: its memory may be gone. One that wraps another hands both calls on.
pub unsafe trait ReleasesParts {}

// SAFETY: it makes no call of its own.
unsafe impl<D: Datapath + ?Sized> ReleasesParts for Box<D> {}
// SAFETY: its queue drops all parts in flush and discard; its backlog holds copies.
unsafe impl ReleasesParts for UdpDatapath {}
// SAFETY: it copies payload when it is pushed and keeps no part.
unsafe impl ReleasesParts for MemDatapath {}
// SAFETY: what it holds back is a copy; it hands flush and discard on.
unsafe impl<D: Datapath> ReleasesParts for Fault<D> {}
// SAFETY: what it records is a copy; it hands flush and discard on.
unsafe impl<D: Datapath, W: Write + Send> ReleasesParts for Capture<D, W> {}

/// A piece of payload memory that a datapath reads when it flushes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Part {
    ptr: *const u8,
    len: usize,
}

// SAFETY: a Part is an address; the promise made to `Part::new` holds on every thread.
unsafe impl Send for Part {}
// SAFETY: as above; a shared Part offers reading only.
unsafe impl Sync for Part {}

impl Part {
    /// No bytes.
    pub const EMPTY: Self = Self { ptr: core::ptr::NonNull::dangling().as_ptr(), len: 0 };

    /// The `len` bytes at `ptr`. With a length of 0 the address does not matter.
    ///
    /// # Safety
    /// The bytes must be readable for as long as the part is used: until the last
    /// [`Datapath`](crate::Datapath) that it was pushed into has returned from `tx_flush` or
    /// `tx_discard`, or was dropped. Nobody may write to them during these calls.
    pub const unsafe fn new(ptr: *const u8, len: usize) -> Self {
        if len == 0 { Self::EMPTY } else { Self { ptr, len } }
    }

    /// For [`TxBatch`](crate::TxBatch) only, which flushes or discards before the borrow ends.
    pub(crate) const fn of_batch(bytes: &[u8]) -> Self {
        // SAFETY: `send_batch` keeps the promise, panics included.
        unsafe { Self::new(bytes.as_ptr(), bytes.len()) }
    }

    /// `len` bytes from `at` on of an arena that outlives the part's use, as for
    /// [`of_batch`](Self::of_batch). It may be [`extend`](Self::extend)ed within the arena.
    pub(crate) fn of_arena(arena: &[u8], at: usize, len: usize) -> Self {
        assert!(at <= arena.len() && len <= arena.len() - at);
        // The address comes from the whole arena, so that it stays valid for what follows.
        // SAFETY: within the arena, by the check above.
        unsafe { Self::new(arena.as_ptr().add(at), len) }
    }

    /// Takes in `next`, a part of the same arena, if it follows at once; tells whether it does.
    pub(crate) fn extend(&mut self, next: &Self) -> bool {
        let follows = self.len > 0 && self.ptr.wrapping_add(self.len) == next.ptr;
        self.len += if follows { next.len } else { 0 };
        follows
    }

    /// Its length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it starts.
    pub const fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// Shows its bytes where they lie.
    pub fn look<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: whoever made the part promised that the bytes are readable while it is in use.
        look(unsafe { core::slice::from_raw_parts(self.ptr, self.len) })
    }

    /// Appends its bytes to `out`.
    pub fn copy_into(&self, out: &mut Vec<u8>) {
        self.look(|bytes| out.extend_from_slice(bytes));
    }
}
