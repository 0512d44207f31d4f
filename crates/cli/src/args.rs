//! The command line.

use crate::{
    check::CheckArgs,
    cp::CpArgs,
    dropin::{
        doctor::DoctorArgs,
        run::{EnvArgs, RunArgs},
    },
    paths::PathsArgs,
    perf::PerfArgs,
    serve::ServeArgs,
};
use clap::{Parser, Subcommand};

/// What the exit codes mean, for the help.
const EXIT_CODES: &str = "Exit codes: 0 done, 1 the operation failed, 2 wrong usage, \
                          130 ended by Ctrl-C or SIGTERM (a server ends with 0).";

/// Software SRD: reliable datagrams and RDMA over ordinary UDP, sprayed over many paths.
#[derive(Parser)]
#[command(name = "srd", version, about, after_help = EXIT_CODES)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Answer measurements, copies and path probes of other hosts
    Serve(ServeArgs),
    /// Copy a file to or from a server's folder
    Cp(CpArgs),
    /// Show the paths to a server: round-trip time, share, health, losses
    Paths(PathsArgs),
    /// Measure latency, bandwidth or message rate against a server
    Perf(PerfArgs),
    /// Run the protocol in worlds made of seeds, with faults: what is promised must hold
    Check(CheckArgs),
    /// Start a program for EFA (MPI, libfabric, perftest) so that it runs on software SRD
    Run(RunArgs),
    /// Print what `srd run` sets, for a shell
    Env(EnvArgs),
    /// Check this host and the way to a server, and say what mends each finding
    Doctor(DoctorArgs),
    /// Experiments on a simulated datacenter: the same engine, 2 to 8,192 hosts, TCP beside it
    #[command(subcommand)]
    Lab(srd_lab::cli::Command),
    /// A leaf-spine fabric of network namespaces, and measurements of SRD beside TCP on it
    Net(srd_testbed::NetArgs),
}
