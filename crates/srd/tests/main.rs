//! All integration tests of this crate: one program, because each program is linked by itself.

mod common;

mod counters;
mod ending;
mod errors;
mod examples;
mod lifecycle;
mod messages;
mod overload;
mod path_control;
mod polls;
mod rails;
mod rdma;
mod robust;
mod sealed;
mod sealed_engines;
mod sealed_rotation;
mod shards;
mod shared;
mod slow_reader;
mod tasks;
mod ud;

#[path = "../examples/pair.rs"]
#[expect(dead_code, reason = "its command line is not used here")]
mod pair;

#[path = "../examples/tasks.rs"]
#[expect(dead_code, reason = "its command line is not used here")]
mod tasks_pair;
