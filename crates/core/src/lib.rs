//! The SRD protocol core: reliability, multipath and congestion control without any I/O.
//!
//! ```text
//!   post_send ──▶ ┌──────────────────────────────────────────────┐ ──▶ cq_poll (completions)
//!   post_recv ──▶ │ Engine                                       │ ──▶ poll_event
//!                 │  tx: turn → gate → path → cut → emit         │
//!   handle ─────▶ │  rx: arrive → window → deliver → ack         │ ──▶ poll_transmit (packets)
//!   handle_timeout│  loss, paths, rate, handshake                │ ──▶ next_timeout
//!                 └──────────────────────────────────────────────┘
//! ```
//!
//! Time is an argument, and randomness is seeded by the caller. Payload never enters the core: a
//! packet to send consists of headers and a reference to the work request's bytes, and a received
//! packet yields a placement that the caller carries out. The core has no clock, thread or socket,
//! and allocates nothing per packet.
#![forbid(unsafe_code)]

/// Whether a planted bug is on (see `planted`); a constant `false` in builds without planted bugs.
#[cfg(planted_bugs)]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::on($crate::planted::Bug::$bug)
    };
}
#[cfg(not(planted_bugs))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

mod api;
mod bucket;
pub mod config;
pub mod counters;
mod engine;
pub mod events;
mod fair_bucket;
pub mod guards;
mod hash;
mod ids;
mod lane;
pub mod limits;
mod line;
mod memory;
mod networks;
mod noise;
mod objects;
mod outbox;
mod params;
pub mod path;
mod peer;
#[cfg(planted_bugs)]
pub mod planted;
pub mod policy;
mod psn;
mod random;
pub mod rate;
mod ring;
pub mod rng;
mod rx;

mod state;
pub mod time;
mod timer;
mod tuning;
mod tx;

pub use api::*;
pub use config::EngineConfig;
pub use engine::{ContextStats, Engine, ObjectError};
pub use ids::Ctx as ContextId;
pub use objects::qp::{QpAttr, QpInit, QpModify, QpState};
pub use path::{DenyError, HOST_SENDERS_MAX, HostNote, HostView, PathMask};
pub use peer::ContextState;
pub use psn::{Psn, TxNum};
pub use random::Randomness;
pub use rng::Rng;
pub use srd_wire as wire;
pub use time::{Span, Time};
