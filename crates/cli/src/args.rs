//! The command line.

use crate::{
    capture::CaptureArgs,
    check::CheckArgs,
    cp::CpArgs,
    dropin::{
        doctor::DoctorArgs,
        run::{EnvArgs, RunArgs},
    },
    key::KeyCommand,
    manual::{CompletionsArgs, ManArgs},
    observe::{export::ExportArgs, stat::StatArgs},
    paths::PathsArgs,
    perf::PerfArgs,
    serve::ServeArgs,
    top::TopArgs,
    trace::TraceArgs,
    wireshark::WiresharkArgs,
};
use clap::{Parser, Subcommand};

/// Exit codes, for `--help`.
const EXIT_CODES: &str = "Exit codes: 0 done, 1 the operation failed, 2 wrong usage, \
                          130 ended by Ctrl-C or SIGTERM (a server ends with 0).";

/// Version and commit, from the build script.
const VERSION: &str = env!("SRD_VERSION");

/// Software SRD: reliable datagrams and RDMA over ordinary UDP, sprayed over many paths.
#[derive(Parser)]
#[command(name = "srd", version = VERSION, about, after_help = EXIT_CODES)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Serve measurements, file copies and path probes of other hosts
    Serve(ServeArgs),
    /// Copy a file to or from a server's folder
    Cp(CpArgs),
    /// Show round-trip time, share of packets, state and losses of each path to a server
    Paths(PathsArgs),
    /// Measure latency, bandwidth or message rate against a server
    Perf(PerfArgs),
    /// Show what all processes of this host that use SRD have done and do, and their peers
    Stat(StatArgs),
    /// Export what all processes of this host that use SRD do, as metrics for Prometheus
    Export(ExportArgs),
    /// Show what all processes of this user on this host send: rate, round trip, cap, losses, share
    Top(TopArgs),
    /// Record the packets of running processes, for Wireshark (pcapng)
    Capture(CaptureArgs),
    /// Record what running processes do, or what a capture holds, as a trace for Perfetto
    Trace(TraceArgs),
    /// Run the fault checker: simulated networks with random faults, where each guarantee must hold
    Check(CheckArgs),
    /// Start a program that uses EFA (MPI, libfabric, perftest) so that it runs on software SRD
    Run(RunArgs),
    /// Print the environment variables that `srd run` sets, for a shell
    Env(EnvArgs),
    /// Check this host and the network path to a server, and print how to fix each problem
    Doctor(DoctorArgs),
    /// Make, show and change the key file with which hosts encrypt and authenticate packets
    #[command(subcommand)]
    Key(KeyCommand),
    /// Run experiments in a simulated data center of 2 to 8,192 hosts: SRD's engine beside TCP
    #[command(subcommand)]
    Lab(srd_lab::cli::Command),
    /// Build a leaf-spine fabric of network namespaces, and measure SRD beside TCP on it
    Net(srd_testbed::NetArgs),
    /// Print or install the dissector for Wireshark, or write a capture without its seals
    Wireshark(WiresharkArgs),
    /// Print the manual page, or write the pages of all commands
    Man(ManArgs),
    /// Print completions of commands and options for a shell
    Completions(CompletionsArgs),
}
