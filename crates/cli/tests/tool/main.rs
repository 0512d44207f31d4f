//! The tool as users run it: real processes on the loopback interface.

mod capture;
mod common;
mod conf;
mod copy;
mod export;
mod hostile;
mod limits;
mod log;
mod paths;
mod perf;
mod sealed;
mod stat;
mod top;
mod trace;
mod trouble;
mod usage;
mod wireshark;
