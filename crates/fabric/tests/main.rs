//! All integration tests of this crate: one program, because each program is linked by itself.

mod common;

mod closed_forms;
mod ecmp;
mod faults;
mod limit;
mod lossless;
mod pfc;
mod ring;
mod shared;
mod storm;
mod windows;
