//! The system's allocator, which also counts who holds how many bytes.
#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicI64, AtomicUsize, Ordering},
};

/// Owners of memory: everybody else, the requester, the responder.
pub const OWNERS: usize = 3;

static OWNER: AtomicUsize = AtomicUsize::new(0);
static LIVE: [AtomicI64; OWNERS] = [const { AtomicI64::new(0) }; OWNERS];

/// Counts what is asked for, without the allocator's own overhead.
pub struct Counting;

fn count(bytes: i64) {
    LIVE[OWNER.load(Ordering::Relaxed)].fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: hands every call on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Whatever is allocated or freed until the result is dropped counts for `owner`.
pub fn owned_by(owner: usize) -> Turn {
    Turn(OWNER.swap(owner, Ordering::Relaxed))
}

/// See [`owned_by`].
pub struct Turn(usize);

impl Drop for Turn {
    fn drop(&mut self) {
        OWNER.store(self.0, Ordering::Relaxed);
    }
}

/// Bytes that `owner` holds.
pub fn live(owner: usize) -> i64 {
    LIVE[owner].load(Ordering::Relaxed)
}
