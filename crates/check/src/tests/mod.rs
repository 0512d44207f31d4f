//! Unit tests of what the oracles are made of: models of engines, ledgers of packets, and worlds as
//! data. An error here blames the engine wrongly, or hides its bugs.

mod class;
mod draw;
mod ledger;
mod mirror;
mod plans;
mod recorder;
mod runner;
mod scenario;
mod summary;
mod trace;
