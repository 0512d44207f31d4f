//! The system allocator, with a counter of allocated bytes per owner.
#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicI64, AtomicUsize, Ordering},
};

/// Number of owners of memory: everything else, the requester, the responder.
pub const OWNERS: usize = 3;

static OWNER: AtomicUsize = AtomicUsize::new(0);
static LIVE: [AtomicI64; OWNERS] = [const { AtomicI64::new(0) }; OWNERS];

/// Counts requested bytes, without the allocator's overhead.
pub struct Counting;

fn count(bytes: i64) {
    LIVE[OWNER.load(Ordering::Relaxed)].fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: passes every call to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Attributes allocations and frees to `owner` until the result is dropped.
pub fn owned_by(owner: usize) -> Turn {
    Turn(OWNER.swap(owner, Ordering::Relaxed))
}

/// Restores the previous owner when dropped; see [`owned_by`].
pub struct Turn(usize);

impl Drop for Turn {
    fn drop(&mut self) {
        OWNER.store(self.0, Ordering::Relaxed);
    }
}

/// Bytes allocated by `owner`.
pub fn live(owner: usize) -> i64 {
    LIVE[owner].load(Ordering::Relaxed)
}
