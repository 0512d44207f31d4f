//! The list of wakers under `loom` without its fences, which the models must find out.

pub(crate) mod sync {
    pub(crate) use crate::weak::sync::{Mutex, lock};

    pub(crate) mod atomic {
        pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

        pub(crate) fn fence(_: Ordering) {}
    }
}
#[path = "tasks.rs"]
pub(crate) mod tasks;
#[path = "../../src/wakers.rs"]
pub(crate) mod wakers;
