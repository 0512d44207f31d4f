//! `srd`: measures, copies files and shows paths over software SRD.
//!
//! One file or folder per command; [`app`] is the protocol between client and server, described in
//! `docs/tool.md`.
#![forbid(unsafe_code)]

mod app;
mod args;
mod capture;
mod captured;
mod check;
mod cp;
mod device;
mod dropin;
mod failure;
mod files;
mod host;
mod key;
mod lab;
mod manual;
mod observe;
mod output;
mod path_orders;
mod path_probe;
mod path_users;
mod paths;
mod perf;
mod serve;
mod signals;
mod top;
mod trace;
mod transfer;
mod units;
mod wireshark;

use args::{Cli, Command};
use clap::Parser as _;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // The documents of the tool are there for those whose file is wrong.
    let needs_settings = !matches!(cli.command, Command::Man(_) | Command::Completions(_));
    if let Err(text) = srd::settings_file().map(drop)
        && needs_settings
    {
        return exit_code_of(Err(Failure::usage(text)));
    }
    if let Err(e) = device::port_base()
        && needs_settings
    {
        return exit_code_of(Err(e));
    }
    if let Err(text) = srd::log_from_env() {
        return exit_code_of(Err(Failure::usage(text)));
    }
    if let Command::Net(args) = &cli.command {
        // Before any thread starts: only single-threaded processes can create user namespaces.
        return net(args);
    }
    if let Command::Lab(command) = &cli.command {
        // A simulation needs no orderly end, so Ctrl-C keeps its default action.
        return exit_code_of(lab::run(command));
    }
    let done = signals::Stop::install().and_then(|stop| match cli.command {
        Command::Serve(args) => serve::run(&args, &stop),
        Command::Cp(args) => cp::run(&args, &stop),
        Command::Paths(args) => paths::run(&args, &stop),
        Command::Perf(args) => perf::run(&args, &stop),
        Command::Stat(args) => observe::stat::run(&args),
        Command::Export(args) => observe::export::run(&args, &stop),
        Command::Capture(args) => capture::run(&args, &stop),
        Command::Trace(args) => trace::run(&args, &stop),
        Command::Top(args) => top::run(&args, &stop),
        Command::Check(args) => check::run(&args, &stop),
        Command::Run(args) => dropin::run::run(&args, &stop),
        Command::Env(args) => dropin::run::print_env(&args),
        Command::Doctor(args) => dropin::doctor::run(&args, &stop),
        Command::Key(command) => key::run(&command),
        Command::Wireshark(args) => wireshark::run(&args),
        Command::Man(args) => manual::man(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Net(_) | Command::Lab(_) => Ok(()),
    });
    exit_code_of(done)
}

fn exit_code_of(done: failure::Result) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.code())
        }
    }
}

/// Runs `srd net`. Signals keep their default action: the kernel removes the namespaces.
fn net(args: &srd_testbed::NetArgs) -> ExitCode {
    srd_testbed::run(args).unwrap_or_else(|e| {
        let failure =
            if e.is_usage() { Failure::usage(e.to_string()) } else { Failure::new(e.to_string()) };
        failure.tell();
        ExitCode::from(failure.code())
    })
}
