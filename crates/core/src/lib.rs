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
//! Time is an argument, randomness is seeded by the caller, payload never enters: a packet to send
//! is headers plus a reference to the work request's bytes, a packet received turns into a
//! placement that the caller carries out. No clock, thread, socket or allocation per packet.
#![forbid(unsafe_code)]

/// Whether a bug is planted and on (see `planted`): in a release, `false` for the compiler.
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
pub mod guards;
mod hash;
mod ids;
mod lane;
pub mod limits;
mod networks;
mod noise;
mod objects;
mod outbox;
mod params;
pub mod path;
mod peer;
#[cfg(planted_bugs)]
pub mod planted;
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
pub use path::{HOST_SENDERS_MAX, HostNote, HostView};
pub use peer::ContextState;
pub use random::Randomness;
pub use rng::Rng;
pub use srd_wire as wire;
pub use time::{Span, Time};
