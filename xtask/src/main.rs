//! `cargo xtask`: the entry point of all maintenance tasks of this repository.
#![forbid(unsafe_code)]

mod check;
mod ci;
mod demo;
mod fuzz;
mod instructions;
mod lab;
mod package;
mod paper_map;
mod report;
mod sanitize;
mod steps;
mod tables;
mod tidy;
mod wireshark;

use srd_acceptance::{Result, args, args::Args, mpi, process, suites, tools, verbs};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND [OPTIONS]      (or ./x COMMAND, which first looks for a C compiler)

Checks
  ci [--skip STEP]...          all checks below in order, with a table; stops at the first failure
  prebuild                     build what the steps after `test` run (`.ci/run`: beside the tests)
  lockfile                     Cargo.lock agrees with the manifests
  fmt [--check]                format the code, or only say what is not formatted
  lint                         clippy and rustdoc, every warning an error
  tidy                         house rules: lengths, layers, unsafe, links, banned words
  test [--quick]               all tests; --quick: unit tests only
  models                       the device's lock-free parts under other interleavings of their steps
  bench-instructions [--update]  count instructions per operation, compare with the table
  lab [--update]               compare the simulator's reduced set digit by digit with its tables
  paper-map [--update]         compare docs/paper-map.md with its template and docs/results
  report-age                   docs/performance.md is of the last 30 commits of the data path
  wireshark [--update]         compare the dissector's tables with docs/wire.md and docs/sealing.md
  check-seeds [--minutes M]    fault checker: corpus, canary, M minutes of fresh seeds (default 1),
                               a sample of planted bugs
  fuzz [--seconds N]           every fuzz target for N seconds (default 30)
  sanitize [--only PART]...    the models, Miri on the parts with unsafe that it can run, and
                               ThreadSanitizer on the device's tests; writes
                               docs/results/sanitize.txt (needs a nightly toolchain)

Runs
  demo                         Open MPI over SRD beside TCP on a network of namespaces whose two
                               spines fail in turn
  demo --net                   SRD and TCP side by side on such a network, without MPI
  demo --copy [--mib N] [--loss SHARE] [--paths N] [--mtu BYTES]
                               copy a file between two processes over 64 paths with losses
  verbs [--out DIR]            build libibverbs.so.1 and libefa.so.1 on software SRD
  acceptance [--short | --all] [--sealed] [--update] [--only WORD] [--srd PROGRAM]
             [--verbs DIR] [--mpi4py-src DIR] [--mpi-wheel DIR] [--impi DIR]
             [--libfabric DIR] [--efa-wheel DIR] [--mooncake DIR] [--nixl DIR] [--oneccl DIR]
             [--jax DIR] [--mpich DIR] [--pyverbs-src DIR] [--fabtests-bin DIR]
                               libfabric, perftest and MPI programs on SRD, on a fabric of
                               namespaces; --update writes docs/compatibility.md; --sealed: with a
                               key file, and what the spines forward is captured. The suites of
                               rdma-core and libfabric run if built copies are given; --update
                               then writes docs/conformance.md (which says how to build them)
  apps [--update] [--only WORD] [--srd PROGRAM] [--verbs DIR]
                               scientific applications (OpenFOAM, hpcc, LAMMPS) on that fabric,
                               over SRD and over TCP in turns
  report [OPTIONS]             SRD beside raw UDP and TCP; writes docs/performance.md
                               (--checksum, --sealed, --peers: only the section about the cost of
                               the checksum, about sealing beside TLS and QUIC, or about other
                               transports and libraries). --runs N, --seconds S: rounds, and
                               length of a run (5, 1); --quick: one short round, printed only;
                               --row NAME: one row, with all counters; --out FILE: another file
  mpi-figures [--rounds N] [--seconds S] [--srd PROGRAM] [--verbs DIR] [--print]
                               Open MPI over SRD beside Open MPI over TCP; writes its section of
                               docs/performance.md
  bench-core [--seconds N]     packets per CPU-second of the protocol core alone

Packages (docs/install.md)
  install --prefix DIR         build, and install the tool, the libraries, manual pages,
                               completions and the C header below DIR
  uninstall --prefix DIR       remove what `install` put there
  wheel [--glibc 2.28] [--arch aarch64]
                               Python wheel for pip; --glibc: for systems with that C library or a
                               newer one, --arch: for other processors (both download Zig)
  deb                          package for Debian and Ubuntu
  package-check                installs, uses and removes each of these

Machine
  install-deps [--all]         install missing apt packages, or print the command

Every command has --help. Steps of ci: lockfile fmt tidy paper-map report-age lint test models
demo lab acceptance package-check bench-instructions check-seeds fuzz (45 s in all).";

fn main() -> ExitCode {
    let mut args = Args::new(std::env::args().skip(1));
    match dispatch(&mut args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &mut Args) -> Result {
    let Some(command) = args.command() else {
        println!("{HELP}");
        return if args.flag("--help") || args.flag("-h") {
            Ok(())
        } else {
            Err("name a command".into())
        };
    };
    if args.flag("--help") || args.flag("-h") {
        println!("{HELP}");
        return Ok(());
    }
    match command.as_str() {
        "ci" => ci::run(args),
        "prebuild" => args.end().and_then(|()| ci::prebuild()),
        "fmt" => steps::fmt(args),
        "lockfile" => args.end().and_then(|()| steps::lockfile()),
        "lint" => args.end().and_then(|()| steps::lint()),
        "tidy" => args.end().and_then(|()| tidy::run()),
        "test" => steps::test(args),
        "models" => args.end().and_then(|()| steps::models()),
        "bench-instructions" => instructions::run_command(args),
        "bench-core" => instructions::bench_core(args),
        "lab" => lab::run_command(args),
        "paper-map" => paper_map::run_command(args),
        "wireshark" => wireshark::run_command(args),
        "check-seeds" => check::run_command(args),
        "fuzz" => fuzz::run_command(args),
        "sanitize" => sanitize::run_command(args),
        "report" => report::run_command(args),
        "report-age" => args.end().and_then(|()| report::age()),
        "mpi-figures" => mpi::run_command(args),
        "acceptance" => suites::run_command(args),
        "apps" => suites::apps_command(args),
        "verbs" => verbs::run_command(args),
        "install" => package::install_command(args),
        "uninstall" => package::uninstall_command(args),
        "wheel" => package::wheel_command(args),
        "deb" => package::deb_command(args),
        "package-check" => args.end().and_then(|()| package::check()),
        "demo" => demo::run_command(args),
        "install-deps" => tools::install(args),
        other => Err(format!("there is no command `{other}`; `cargo xtask --help` lists them")),
    }
}
