//! The tool as its users run it: real processes on loopback.

mod common;
mod copy;
mod hostile;
mod perf;
mod trouble;
mod usage;
