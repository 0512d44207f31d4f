//! `srd check`: runs the fault checker `srd-check`, which parses its own arguments and has its own
//! help.

use crate::failure::{Failure, Result};
use crate::signals::Stop;
use clap::Args;
use srd_check::Trouble;

/// The arguments after `check`, passed on unchanged.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct CheckArgs {
    /// See `srd check --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    args: Vec<String>,
}

/// Runs the checker.
///
/// # Errors
/// Violations (reported already), wrong usage, files that cannot be read or written.
pub fn run(args: &CheckArgs, stop: &Stop) -> Result {
    match srd_check::cli(&args.args, stop.flag()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::reported()),
        Err(Trouble::Usage(why)) => Err(Failure::usage(why)),
        Err(Trouble::Failed(why)) => Err(Failure::new(why)),
        Err(Trouble::Unread) => Err(Failure::output_closed()),
    }
}
