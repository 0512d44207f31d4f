//! All integration tests of this crate: one program, because each program is linked by itself.

mod common;
mod wire;

mod bbr;
mod closed_forms;
mod kernel;
mod mptcp;
mod recovery;
mod robust;
mod sending;
