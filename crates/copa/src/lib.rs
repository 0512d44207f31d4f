//! COPA's transport on the simulated network: reliable puts and gets over UDP and Ethernet, one
//! path per flow, on a lossy fabric, with four policies against hosts that are slower than their
//! links.
//!
//! After T. Chong, V. Krishnan, "Addressing Endpoint-Induced Congestion in a Scale-Out Accelerator
//! Domain" (OFA Virtual Workshop 2023, slides). A receiver's ring between NIC and memory has a
//! threshold: packets at or below it are acknowledged. A packet above it causes a duplicate of the
//! last acknowledgment, which tells the sender to stop until the ring has drained to the threshold.
//! `docs/copa.md` lists the decisions that the slides leave open.
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
