//! `srd lab`: experiments on the simulated network.

use crate::failure::{Failure, Result};
use srd_lab::cli::{Command, Failure as LabFailure, execute};

/// # Errors
/// What was asked for makes no sense, or its results cannot be written.
pub fn run(command: &Command) -> Result {
    execute(command, "srd").map_err(|e| match e {
        LabFailure::Usage(text) => Failure::usage(text),
        LabFailure::Failed(text) => Failure::new(text),
        LabFailure::OutputClosed => Failure::output_closed(),
    })
}
