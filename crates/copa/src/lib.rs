//! COPA's transport on the simulated network: reliable puts and gets over UDP and Ethernet, one
//! path per flow, on a lossy fabric, and four policies for hosts that fall behind their links.
//!
//! After T. Chong, V. Krishnan, "Addressing Endpoint-Induced Congestion in a Scale-Out Accelerator
//! Domain" (OFA Virtual Workshop 2023, slides). A receiver's ring between card and memory has a
//! threshold: packets at or below it are acknowledged; one above it is not, and a duplicate of the
//! last acknowledgment tells its sender to stop, until it has sunk below. What the slides leave
//! open is decided in `docs/copa.md`.
#![forbid(unsafe_code)]

mod config;
mod host;
mod initiator;
mod packet;
mod policy;
mod ring;
mod target;

pub use config::{ConfigError, CopaConfig, Policy, Reaction, Recovery, Verb};
pub use host::{CopaHost, Counters, End};
pub use packet::{Ack, CopaPacket, Data, HEADER_BYTES, Nack, Stream};
