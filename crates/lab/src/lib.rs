//! The lab: turns an experiment's spec into runs on the simulated network, a table and files.
//!
//! Hosts run the same engine as on sockets ([`SrdHost`]); the network is `srd-fabric`. A run is
//! single-threaded and follows from its seed alone; several runs execute in parallel.
//!
//! [`wire_bytes`] defines which bytes are counted.
#![deny(unsafe_code)]

mod app;
mod away;
mod batch;
mod board;
mod cdf;
mod check;
#[cfg(feature = "cli")]
pub mod cli;
mod congestion;
mod copa;
mod faults;
pub mod figure;
mod figures;
mod figures_app;
mod figures_away;
mod figures_copa;
mod figures_goal;
mod figures_host;
mod figures_load;
mod figures_mixed;
mod figures_phase;
mod figures_rival;
mod figures_trace;
mod floor;
mod fluid;
#[cfg(feature = "cli")]
mod guards;
mod host;
mod level;
mod limits;
mod mixed;
mod network;
mod noise;
pub mod observe;
mod packet;
mod pages;
mod pattern;
mod pauses;
mod plots;
mod poisson;
mod policy;
#[allow(unsafe_code, reason = "a prefetch has an address for its operand")]
mod prefetch;
mod report;
mod request;
mod result;
mod rings;
mod rival;
mod rounds;
mod run;
mod saa;
mod server;
pub mod spec;
mod srd;
mod state;
mod stats;
mod tcp;
mod timeline;
mod trace;
mod watch;
mod workload;

pub use app::{AppOutcome, OpId, Play, Program, Schedule, amdahl};
pub use away::AwayOutcome;
pub use batch::{Job, Seeds, jobs_of, run_all, run_until};
pub use board::{Board, FlowEnd, SharedBoard};
pub use cdf::SizeCdf;
pub use check::check;
pub use congestion::Met;
pub use copa::CopaOutcome;
pub use faults::faults_of;
pub use figures::figures;
pub use floor::{Drain, Drains, FloorFlow, FlowEndAt, Framing, Ways, ack_wire_bytes, floors};
pub use host::{
    KernelCounts, Remote, SrdHost, SrdSettings, Verb, engine_config, ip_of, socket_config,
};
pub use noise::{Distribution, HostModel};
pub use packet::{
    ETHERNET_BYTES, ETHERNET_FRAME_BYTES_MIN, ETHERNET_GAP_BYTES, LabPacket, wire_bytes,
};
pub use pages::huge_pages;
pub use pauses::{PauseOutcome, TierPauses};
pub use plots::plots;
pub use poisson::OpenLoop;
pub use policy::{Parameters, path_policy_add, rate_policy_add};
pub use report::{
    Origin, csv, json, page_with, series_csv, summaries_join, summary_csv, summary_page,
    summary_table, table,
};
#[cfg(feature = "cli")]
pub use report::{page, plot_library};
pub use request::Request;
pub use result::{Detail, OrderCost, RunResult, Tally};
pub use rings::RingOutcome;
pub use rival::RivalOutcome;
pub use run::run;
pub use saa::SaaOutcome;
pub use state::HostState;
pub use stats::{Quantiles, Summary};
pub use timeline::{EngineEvents, Posted, Recorder};
pub use trace::TraceOutcome;
pub use workload::{Flow, Flows, Trigger};
