//! The atomics of files that `crates/srd/examples/models` runs under every order of their steps:
//! it puts others in their place.

pub use std::sync::atomic;
