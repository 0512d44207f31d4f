//! Files under `loom`.

pub(crate) mod sync {
    pub(crate) use loom::sync::atomic;
}
#[path = "../../src/budget.rs"]
pub(crate) mod budget;
#[path = "../../src/dirty.rs"]
pub(crate) mod dirty;
