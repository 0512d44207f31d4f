//! Unit tests of the parts that oracles are made of: models of engines, accounts of packets, and
//! the worlds themselves as data. An oracle that is wrong here blames the engine, or nobody.

mod ledger;
mod mirror;
mod plans;
mod recorder;
mod runner;
mod scenario;
mod summary;
mod trace;
