//! TCP on the simulated network, for comparison with SRD.
//!
//! Sender and receiver state machines that behave as in the Linux kernel: CUBIC with HyStart (or
//! Reno, or DCTCP), SACK, RACK with tail loss probes, proportional rate reduction, undo of spurious
//! reductions (Eifel, D-SACK, F-RTO), delayed acks with quick acks at the start, restart after
//! idle, small queues, per-flow ECMP. Every parameter is in [`TcpConfig`] and printed by
//! [`TcpConfig::parameters`]; the crate's README compares the model with measurements of a kernel
//! and lists what is left out.
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

mod cc;
mod config;
mod host;
mod net;
mod receiver;
mod report;
mod rtt;
mod segment;
mod sender;

pub use config::{Algorithm, ConfigError, Recovery, SlowStart, TcpConfig};
pub use host::TcpHost;
pub use net::{NetError, Round, TcpNet};
pub use receiver::Receiver;
pub use report::{Conn, Counters, Message, MessageId};
pub use segment::{Ack, SACK_BLOCKS, TcpSegment};
pub use sender::{Sender, State};

/// Runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
