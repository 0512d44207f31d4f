//! A piece of payload, by address.
//!
//! Payload stays in the user's memory until a flush, which the compiler cannot check. This module
//! states the conditions that whoever creates a [`Part`], and every datapath, must meet.
#![allow(unsafe_code, reason = "the one place that turns payload addresses into bytes")]

use crate::{
    Datapath, RxDatagram, capture::Capture, fault::Fault, mem::MemDatapath, udp::UdpDatapath,
    watch::Watch,
};
use std::io::Write;

/// A contract that every [`Datapath`] fulfils.
///
/// # Safety
/// Once `tx_flush` or `tx_discard` has returned, the datapath never reads a [`Part`] passed to it
/// before: its memory may be gone. A wrapper forwards both calls.
pub unsafe trait ReleasesParts {}

// SAFETY: it forwards all calls.
unsafe impl<D: Datapath + ?Sized> ReleasesParts for Box<D> {}
// SAFETY: flush and discard drop all parts of its queue; its backlog holds copies.
unsafe impl ReleasesParts for UdpDatapath {}
// SAFETY: it copies payload on push and keeps no part.
unsafe impl ReleasesParts for MemDatapath {}
// SAFETY: held packets are copies; it forwards flush and discard.
unsafe impl<D: Datapath> ReleasesParts for Fault<D> {}
// SAFETY: recorded packets are copies; it forwards flush and discard.
unsafe impl<D: Datapath, W: Write + Send> ReleasesParts for Capture<D, W> {}
// SAFETY: it forwards all calls.
unsafe impl<D: Datapath, F: FnMut(&RxDatagram<'_>) + Send> ReleasesParts for Watch<D, F> {}

/// A piece of payload memory that a datapath reads when it flushes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Part {
    ptr: *const u8,
    len: usize,
}

// SAFETY: a Part is an address; the contract of `Part::new` holds on every thread.
unsafe impl Send for Part {}
// SAFETY: as above; a shared Part only permits reading.
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

    /// `len` bytes at offset `at` of an arena that outlives the part's use, as for
    /// [`of_batch`](Self::of_batch). It can be [extended](Self::extend) within the arena.
    pub(crate) fn of_arena(arena: &[u8], at: usize, len: usize) -> Self {
        assert!(at <= arena.len() && len <= arena.len() - at);
        // The address comes from the whole arena, so that it stays valid for what follows.
        // SAFETY: within the arena, by the check above.
        unsafe { Self::new(arena.as_ptr().add(at), len) }
    }

    /// Appends `next`, a part of the same arena, if it is adjacent; returns whether it is.
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

    /// Its address.
    pub const fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// Its bytes, in place.
    pub fn look<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: the creator of the part guarantees that the bytes are readable while it is in
        // use.
        look(unsafe { core::slice::from_raw_parts(self.ptr, self.len) })
    }

    /// Appends its bytes to `out`.
    pub fn copy_into(&self, out: &mut Vec<u8>) {
        self.look(|bytes| out.extend_from_slice(bytes));
    }
}
