//! Acceptance: programs that others wrote for EFA run on the drop-in libraries, on a fabric of
//! network namespaces, and what comes of it is written into documents.
//!
//! `cargo xtask` calls these commands and shares with them what they stand on: arguments, other
//! programs, and builds of this repository.
#![forbid(unsafe_code)]

pub mod args;
pub mod mpi;
pub mod process;
pub mod suites;
pub mod tools;
pub mod verbs;

/// What a command ends with: its value, or the sentence to print.
pub type Result<T = ()> = std::result::Result<T, String>;
