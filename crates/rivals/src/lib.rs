//! Other transports on the simulated network, for comparison with SRD: TCP, RoCEv2's reliable
//! connection ([`rc`]), and Ultra Ethernet's congestion control ([`ue`]).
//!
//! TCP: sender and receiver state machines that behave as in the Linux kernel: CUBIC with HyStart
//! (or Reno, DCTCP, BBR), SACK, RACK with tail loss probes, proportional rate reduction, undo of
//! spurious reductions (Eifel, D-SACK, F-RTO), delayed acks with quick acks at the start, restart
//! after idle, small queues, per-flow ECMP, Multipath TCP. Every parameter is in [`TcpConfig`] and
//! printed by [`TcpConfig::parameters`]; the crate's README compares the model with measurements
//! of a kernel and lists what is left out.
//!
//! ```
//! use srd_fabric::{HostId, Port, SEC, US, WorldConfig, back_to_back};
//! use srd_rivals::{TcpConfig, TcpNet};
//!
//! let wire = back_to_back(Port::new(10_000_000_000, 5 * US));
//! let mut net = TcpNet::new(wire, WorldConfig::new(1), TcpConfig::default())?;
//! let conn = net.connect(HostId(0), HostId(1));
//! let id = net.message_at(conn, 100 * US, 1_000_000);
//! assert!(net.run_done(SEC));
//! let fct_ps = net.message(id).and_then(|m| m.fct_ps()).expect("it arrived");
//! assert!(fct_ps > 800 * US && fct_ps < 900 * US, "{fct_ps}");
//! # Ok::<(), srd_rivals::NetError>(())
//! ```
#![forbid(unsafe_code)]

mod deadlines;
mod flow;
mod messages;
pub mod rc;
mod tcp;
mod turns;
pub mod ue;

pub use flow::{Done, FlowHost, Got, Repeats, Reports};
pub use tcp::{
    Ack, Algorithm, BbrMode, ConfigError, Conn, Counters, Message, MessageId, NetError, Receiver,
    Recovery, Round, SACK_BLOCKS, Scheduler, Sender, SlowStart, State, TcpConfig, TcpHost, TcpNet,
    TcpSegment,
};

/// Runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
