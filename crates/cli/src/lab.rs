//! `srd lab`: experiments in the network simulator.

use crate::failure::{Failure, Result};
use srd_lab::cli::{Command, Failure as LabFailure, Program, execute};
use std::ffi::OsString;

/// # Errors
/// The experiment is invalid, or its results cannot be written.
pub fn run(command: &Command) -> Result {
    if matches!(command, Command::Run(_)) {
        // May restart this process, so it comes before everything else.
        srd_lab::huge_pages(&std::env::args_os().collect::<Vec<OsString>>());
    }
    let program = Program { name: "srd", commit: option_env!("SRD_COMMIT") };
    execute(command, program).map_err(|e| match e {
        LabFailure::Usage(text) => Failure::usage(text),
        LabFailure::Failed(text) => Failure::new(text),
        LabFailure::OutputClosed => Failure::output_closed(),
    })
}
