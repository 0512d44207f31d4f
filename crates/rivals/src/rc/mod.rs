//! The reliable connection (RC) of InfiniBand and RoCEv2: messages of packets, in order, on one
//! path per queue pair.
//!
//! - The sender numbers packets (PSN) and sends them in turn with the host's other queue pairs, at
//!   line rate, at a static rate, or at the rate of DCQCN ([`Dcqcn`]) or of InfiniBand's congestion
//!   control ([`IbCc`]).
//! - Recovery [`Recovery::GoBackN`]: the receiver drops what comes early and asks for the missing
//!   packet once (NAK); the sender goes back to it. [`Recovery::Irn`]: the receiver keeps what
//!   comes early and reports it; the sender repeats what is missing, within a window of one
//!   bandwidth-delay product (Mittal et al., "Revisiting network support for RDMA", 2018).
//! - The Local ACK timeout is 4.096 µs × 2^t. After `retry_cnt` timeouts in a row the next one
//!   breaks the queue pair; a new one, with another port and path, continues `reconnect_ps` later
//!   and repeats unfinished messages from their first byte.

mod config;
mod dcqcn;
mod host;
mod packet;
mod rate;
mod receiver;
mod sender;

pub use config::{
    CCTI_TIMER_UNIT_PS, DcqcnConfig, IbCcConfig, RcConfig, RcConfigError, Recovery, STATIC_GBPS,
};
pub use dcqcn::Dcqcn;
pub use host::RcHost;
pub use packet::RcPacket;
pub use rate::IbCc;
pub use sender::{QueuePair, RcCounters};

#[cfg(test)]
mod tests;
