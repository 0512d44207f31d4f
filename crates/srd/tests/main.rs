//! All integration tests of this crate: one program, because each program is linked by itself.

mod common;

mod errors;
mod lifecycle;
mod messages;
mod overload;
mod path_control;
mod rails;
mod rdma;
mod robust;
mod sealed;
mod sealed_engines;
mod sealed_rotation;
mod shards;
mod shared;
mod slow_reader;
mod ud;
