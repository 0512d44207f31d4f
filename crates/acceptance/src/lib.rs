//! Acceptance tests: unmodified programs for EFA run on the drop-in libraries, on a fabric of
//! network namespaces, and the results are written to documents.
//!
//! `cargo xtask` calls these commands, and also uses their modules for arguments, for other
//! programs, and for builds of this repository.
#![forbid(unsafe_code)]

pub mod args;
pub mod mpi;
pub mod process;
pub mod suites;
pub mod tools;
pub mod verbs;

/// Result of a command: a value, or an error text.
pub type Result<T = ()> = std::result::Result<T, String>;
