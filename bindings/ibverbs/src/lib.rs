//! libibverbs.so.1 and libefa.so.1 on software SRD.
//!
//! A thin layer of verbs' and efadv's C interface over the device of the crate [`srd`]: programs
//! written for EFA (libfabric's `efa` provider and the MPI libraries on it, perftest, UCX) run
//! unmodified, without EFA hardware and without kernel RDMA. There is no protocol in here: objects,
//! checks and names of verbs on one side, calls of [`srd`] on the other.
//!
//! `cargo xtask verbs` links this crate into `libibverbs.so.1` with the symbol versions of
//! `link/ibverbs.map`; `libefa.so.1` is a table of jumps into it. `srd run` starts programs so that
//! they find both. See `docs/drop-in.md`.
#![allow(non_camel_case_types, reason = "names of the C interface")]

pub mod abi;
mod channel;
mod context;
mod cq;
mod cq_ex;
mod devices;
mod efadv;
mod errno;
mod events;
mod exit;
mod guard;
mod load;
pub mod num;
mod opened;
mod pd;
mod peers;
mod qp;
#[cfg(test)]
mod rails_tests;
mod recv;
mod senders;
pub mod settings;
mod stubs;
mod sysfs;
mod tail;
mod text;
mod unpolled;
mod wr;
