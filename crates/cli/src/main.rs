//! `srd`: measure, copy files and look at paths over software SRD.
//!
//! One file or folder per command; [`app`] is the protocol between client and server, see
//! `docs/tool.md`.
#![forbid(unsafe_code)]

mod app;
mod args;
mod cp;
mod device;
mod failure;
mod files;
mod host;
mod output;
mod paths;
mod perf;
mod serve;
mod signals;
mod transfer;
mod units;

use args::{Cli, Command};
use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = signals::Stop::install().and_then(|stop| match cli.command {
        Command::Serve(args) => serve::run(&args, &stop),
        Command::Cp(args) => cp::run(&args, &stop),
        Command::Paths(args) => paths::run(&args, &stop),
        Command::Perf(args) => perf::run(&args, &stop),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.code())
        }
    }
}
