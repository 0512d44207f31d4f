//! Ultra Ethernet's congestion control and path selection, as published with the consortium's
//! simulator: NSCC (sender), RCCC (receiver), REPS and relatives.
//!
//! - Packets of a connection are sprayed over entropies ([`Balancing`]): paths whose packets came
//!   back unmarked are used again (REPS), else the next path without penalty.
//! - NSCC ([`Nscc`]): a window that grows and shrinks with marks and queueing delay.
//! - RCCC: the receiver paces credits for all its senders at just under its link's rate; a sender
//!   may send a first window before it has any.
//! - Losses: no switch of these networks trims packets. Beyond a number of packets out of order,
//!   or after a probe that met no queue, what is missing is sent again; else after a timeout.

mod config;
mod host;
mod nscc;
mod packet;
mod paths;
mod receiver;
mod sender;

pub use config::{Balancing, UeConfig, UeConfigError};
pub use host::UeHost;
pub use nscc::Nscc;
pub use packet::UePacket;
pub use sender::{Connection, UeCounters};

#[cfg(test)]
mod tests;
