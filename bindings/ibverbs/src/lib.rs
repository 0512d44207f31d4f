//! libibverbs.so.1 and libefa.so.1 on software SRD.
//!
//! A thin layer that implements the C interface of verbs and efadv with the device of the crate
//! [`srd`]. Programs written for EFA (libfabric's `efa` provider and the MPI libraries on it,
//! perftest, UCX) run unmodified, without EFA hardware and without kernel RDMA. It contains no
//! protocol: it maps objects, checks and names of verbs to calls of [`srd`].
//!
//! `cargo xtask verbs` links this crate into `libibverbs.so.1` with the symbol versions of
//! `link/ibverbs.map`; `libefa.so.1` is a jump table into it. `srd run` starts programs with both
//! libraries. See `docs/drop-in.md`.
#![allow(non_camel_case_types, reason = "names of the C interface")]

pub mod abi;
#[cfg(test)]
mod calls_tests;
mod channel;
pub mod comp_cntr;
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
mod per_qp;
mod qp;
#[cfg(test)]
mod rails_tests;
mod recv;
mod refused;
mod senders;
pub mod settings;
mod stack;
mod stubs;
mod sysfs;
mod tail;
mod text;
mod unpolled;
mod wr;
