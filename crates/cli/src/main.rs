//! `srd`: measure, copy files and look at paths over software SRD.
//!
//! One file or folder per command; [`app`] is the protocol between client and server, see
//! `docs/tool.md`.
#![forbid(unsafe_code)]

mod app;
mod args;
mod check;
mod cp;
mod device;
mod dropin;
mod failure;
mod files;
mod host;
mod lab;
mod output;
mod paths;
mod perf;
mod serve;
mod signals;
mod transfer;
mod units;

use args::{Cli, Command};
use clap::Parser as _;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Command::Net(args) = &cli.command {
        // Before anything that may start a thread: user namespaces are for single threads.
        return net(args);
    }
    if let Command::Lab(command) = &cli.command {
        // Nothing to end in good order: the first Ctrl-C ends it.
        return told(lab::run(command));
    }
    let done = signals::Stop::install().and_then(|stop| match cli.command {
        Command::Serve(args) => serve::run(&args, &stop),
        Command::Cp(args) => cp::run(&args, &stop),
        Command::Paths(args) => paths::run(&args, &stop),
        Command::Perf(args) => perf::run(&args, &stop),
        Command::Check(args) => check::run(&args, &stop),
        Command::Run(args) => dropin::run::run(&args, &stop),
        Command::Env(args) => dropin::run::print_env(&args),
        Command::Doctor(args) => dropin::doctor::run(&args, &stop),
        Command::Net(_) | Command::Lab(_) => Ok(()),
    });
    told(done)
}

fn told(done: failure::Result) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.code())
        }
    }
}

/// The fabric of namespaces ends by signals as the system does it: namespaces need no cleaning up.
fn net(args: &srd_testbed::NetArgs) -> ExitCode {
    srd_testbed::run(args).unwrap_or_else(|e| {
        let failure =
            if e.is_usage() { Failure::usage(e.to_string()) } else { Failure::new(e.to_string()) };
        failure.tell();
        ExitCode::from(failure.code())
    })
}
