//! Atomics of the files that `crates/srd/examples/models` checks under every interleaving: the
//! models substitute their own.

pub use std::sync::atomic;
