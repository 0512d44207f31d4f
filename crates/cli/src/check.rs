//! `srd check`: the fault checker of `srd-check`, whose arguments and help are its own.

use crate::failure::{Failure, Result};
use crate::signals::Stop;
use clap::Args;
use srd_check::Trouble;

/// What follows `check`, as it is.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct CheckArgs {
    /// See `srd check --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    args: Vec<String>,
}

/// Runs it.
///
/// # Errors
/// Broken promises (told already), wrong usage, files that cannot be read or written.
pub fn run(args: &CheckArgs, stop: &Stop) -> Result {
    match srd_check::cli(&args.args, stop.flag()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::told()),
        Err(Trouble::Usage(why)) => Err(Failure::usage(why)),
        Err(Trouble::Failed(why)) => Err(Failure::new(why)),
        Err(Trouble::Unread) => Err(Failure::output_closed()),
    }
}
