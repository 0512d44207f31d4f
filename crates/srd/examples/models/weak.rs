//! Files under `loom`.

pub(crate) mod sync {
    pub(crate) use loom::sync::{Mutex, atomic};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> loom::sync::MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }
}
#[path = "../../src/budget.rs"]
pub(crate) mod budget;
#[path = "../../src/dirty.rs"]
pub(crate) mod dirty;
#[path = "tasks.rs"]
pub(crate) mod tasks;
#[path = "../../src/wakers.rs"]
pub(crate) mod wakers;
