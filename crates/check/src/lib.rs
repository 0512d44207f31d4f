//! Fault checker for the SRD core.
//!
//! One seed makes a world: hosts, engines, queue pairs, sizes, policies, a network and a random set
//! of faults. Engines are those of `srd-core`, the network is `srd-fabric`. Oracles check every
//! packet, placement and completion; after a phase with faults the network heals, and then
//! everything must end. `docs/reliability.md` names each promise and its oracle.
#![forbid(unsafe_code)]

mod app;
mod args;
pub mod class;
pub mod cli;
pub mod corpus;
mod cover;
pub mod crowd;
mod deaf;
mod denial;
mod draw;
mod emit;
mod engines;
mod faults;
mod focus;
mod host;
pub mod hostile;
mod json;
pub mod kill;
pub mod ledger;
mod machine;
mod mirror;
mod node;
mod packet;
mod poll;
mod receive;
mod recorder;
pub mod runner;
pub mod scenario;
mod schedule;
#[cfg(feature = "sealed")]
pub mod sealed;
mod shards;
pub mod shrink;
mod stranger;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod trace;
mod watchdog;
pub mod workload;
pub mod world;

pub use class::{Class, Classes};
pub use cli::{HELP, Trouble, cli};
pub use ledger::{Oracle, Tally, Tamper, Violation};
pub use scenario::{Limits, Scenario};
pub use world::{Options, Outcome, run};
