//! The C interface of software SRD. The header `include/srd.h` is made from this crate and
//! committed; a test compares the two. `examples/pingpong.c` is a complete program.
#![allow(non_camel_case_types, reason = "type names are those of the C header")]
#![allow(clippy::missing_safety_doc, reason = "one contract for all: the head of the header")]

mod cq;
mod device;
mod fail;
mod handle;
mod mr;
mod path_events;
mod qp;
mod stats;

pub use cq::*;
pub use device::*;
pub use fail::srd_last_error;
pub use mr::*;
pub use path_events::*;
pub use qp::*;
pub use stats::*;
