//! Measurements of SRD and the kernel's TCP on the same fabric, in turns within one run.

pub mod block;
pub mod conditions;
pub mod contender;
pub mod drain;
mod fct;
pub mod kernel;
mod load;
pub mod mpi;
mod orders;
pub mod other_work;
pub mod pings;
pub mod protocol;
mod slowhost;
pub mod srd_side;
mod stream;
pub mod table;
pub mod tcp_side;
mod tcp_slow;
pub mod times;
mod trace;
pub mod worker;

use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    ns::privileges_take,
    spec::FabricSpec,
};
use block::FlowStats;
use clap::{Args, ValueEnum};
use conditions::Busy;
use contender::Contender;
use other_work::OtherWork;
use std::path::PathBuf;

/// Sender and receiver of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Sending host: leaf, number.
    pub from: (u8, u8),
    /// Receiving host: leaf, number.
    pub to: (u8, u8),
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Start time in ns of the monotonic clock.
    pub start_ns: u64,
    /// Statistics per flow, by flow number.
    pub flows: Vec<FlowStats>,
    /// Blocks that were sent (SRD: accepted), but did not arrive.
    pub lost: u64,
    /// Blocks that arrived more than once.
    pub duplicated: u64,
    /// Blocks that arrived damaged.
    pub damaged: u64,
    /// Blocks whose send failed.
    pub failed: u64,
    /// Error of the first failed send.
    pub why: String,
}

impl Outcome {
    /// Bytes that arrived.
    pub fn bytes(&self) -> u64 {
        self.flows.iter().map(|f| f.bytes).sum()
    }

    /// Completion times of the flows in ms.
    pub fn fct_ms(&self) -> Vec<f64> {
        let ms = |f: &FlowStats| f.last_ns.saturating_sub(self.start_ns) as f64 / 1e6;
        self.flows.iter().map(ms).collect()
    }

    /// Longest time from a block's due time to its arrival, in ms.
    pub fn late_ms(&self) -> f64 {
        self.flows.iter().map(|f| f.late_ns).max().unwrap_or(0) as f64 / 1e6
    }

    /// Goodput in bits per second within `[from, to)` ms of the run.
    pub fn bits_per_sec(&self, from_ms: u64, to_ms: u64) -> f64 {
        let per = block::BUCKET_NS / 1_000_000;
        let range = (from_ms / per) as usize..(to_ms / per) as usize;
        let in_range = |f: &FlowStats| -> u64 {
            let end = range.end.min(f.buckets.len());
            f.buckets.get(range.start..end).unwrap_or(&[]).iter().map(|b| u64::from(*b)).sum()
        };
        let bytes: u64 = self.flows.iter().map(in_range).sum();
        bytes as f64 * 8.0 / ((to_ms - from_ms) as f64 / 1000.0)
    }

    /// Whether a block was lost, duplicated or damaged, or a send failed.
    pub fn is_wrong(&self) -> bool {
        self.lost + self.duplicated + self.damaged + self.failed > 0
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Balance of one transfer over the uplinks
    Shares,
    /// 48 senders to one receiver at 1 Gb/s: 64 KB, 200 KB, 2 MB each
    Incast,
    /// Open MPI: ranks on 4 hosts send to the ranks of one host after a barrier (SRD paper, fig. 2)
    MpiIncast,
    /// 8 hosts to 8 hosts, 16 flows each, uplinks half loaded: flow completion times
    Fig6,
    /// One spine drops all packets for 1 s and for 3 s
    Blackhole,
    /// One spine goes down, with leaves that ignore and that obey the loss of carrier
    Linkdown,
    /// One link repeatedly goes down and up
    Flap,
    /// One percent of the packets is lost
    Loss,
    /// One uplink has a quarter of the rate of the others
    Slowpath,
    /// Competition with heavy TCP flows on the same links
    Coexist,
    /// A receiver that drives its device slower than its port, and 1, 4, 12 senders to it
    Slowhost,
}

/// Options of `bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_enum)]
    pub scenario: Scenario,
    /// Few draws and short runs, to test the scenario rather than to measure
    #[arg(long)]
    pub quick: bool,
    /// Seeds of the ECMP hashes to measure ("draws") [default: 10; quick: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub draws: Option<u32>,
    /// Runs per draw [default: 5; quick: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Contenders: srd, srd-processes (12 per host), srd-one-path; each may be followed by -off,
    /// -stop-go or -budget, the reaction to a receiving host that is slower than its link, and then
    /// by -no-credits, without receiver credits, or by -unknown for a port that tells no rate.
    /// cubic, bbr, reno, also with -cached for connections that begin with what earlier ones
    /// measured; mptcp, cubic-v6; each TCP contender also with -50ms for a minimum retransmission
    /// timeout of 50 ms instead of 200
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub with: Vec<String>,
    /// Seed of the first draw
    #[arg(long, default_value_t = 1)]
    pub seed: u32,
    /// Bytes per flow, for incast and fig6 [default: the scenario's sizes]
    #[arg(long, value_name = "BYTES", value_parser = crate::units::bytes)]
    pub bytes: Option<u64>,
    /// MTU of the fabric
    #[arg(long, default_value_t = 9000)]
    pub mtu: u16,
    /// Write the state of each SRD process to a file in this folder, every 10 ms
    #[arg(long, value_name = "FOLDER")]
    pub trace: Option<PathBuf>,
    /// Beside other work: a process per processor that computes all the time, at the same priority
    #[arg(long)]
    pub busy: bool,
    /// Rate of the ports, for incast, fig6, mpi-incast and slowhost, in bits per second [default:
    /// 1G; fig6: 200M]
    #[arg(long, value_name = "RATE", value_parser = crate::units::rate_bits)]
    pub rate: Option<u64>,
    /// Sending ranks on four hosts, for mpi-incast; a quarter as many receive on the fifth
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..=256))]
    pub ranks: Option<u32>,
    /// Bytes per message, for mpi-incast [default: 8Ki,64Ki,512Ki,2Mi,8Mi; quick: 64Ki]
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        value_parser = crate::units::bytes
    )]
    pub sizes: Vec<u64>,
    /// What the receiver of slowhost takes, in bits per second with a unit, as 200M [default: a
    /// fifth of the rate of the ports]
    #[arg(long, value_name = "RATE", value_parser = crate::units::rate_bits_unit)]
    pub drain: Option<u64>,
    /// Sending hosts, for slowhost [default: 1,4,12; quick: 4]
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u8).range(1..=32)
    )]
    pub senders: Vec<u8>,
    /// Write a table (CSV) and a plot (SVG) to this folder, for mpi-incast
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

impl BenchArgs {
    /// Number of draws.
    pub fn draws(&self) -> u32 {
        self.draws.unwrap_or(if self.quick { 2 } else { 10 })
    }

    /// Number of runs per draw.
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 2 } else { 5 })
    }

    /// Refuses options that the scenario does not have, and unknown contenders.
    ///
    /// # Errors
    /// There is such an option; the text names the scenarios that have it. Or a name is unknown.
    pub fn validate(&self) -> Result {
        use Scenario::{Fig6, Incast, MpiIncast, Slowhost};
        let given = [
            ("--rate", self.rate.is_some(), &[Incast, Fig6, MpiIncast, Slowhost][..]),
            ("--bytes", self.bytes.is_some(), &[Incast, Fig6]),
            ("--ranks", self.ranks.is_some(), &[MpiIncast]),
            ("--sizes", !self.sizes.is_empty(), &[MpiIncast]),
            ("--out", self.out.is_some(), &[MpiIncast]),
            ("--drain", self.drain.is_some(), &[Slowhost]),
            ("--senders", !self.senders.is_empty(), &[Slowhost]),
        ];
        for (option, is_given, scenarios) in given {
            if is_given && !scenarios.contains(&self.scenario) {
                let name = |s: &Scenario| s.to_possible_value().map(|v| v.get_name().to_owned());
                let names: Vec<String> = scenarios.iter().filter_map(name).collect();
                return Err(NetError::usage(format!(
                    "{option} is an option of the scenarios {}",
                    names.join(", ")
                )));
            }
        }
        // Before a fabric is built, which takes root and seconds.
        self.contenders(&[])?;
        if self.scenario == Slowhost { slowhost::drain_check(self) } else { Ok(()) }
    }

    /// The contenders named on the command line, or else `defaults`.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn contenders(&self, defaults: &[&str]) -> Result<Vec<Contender>> {
        let named: Vec<&str> = if self.with.is_empty() {
            defaults.to_vec()
        } else {
            self.with.iter().map(String::as_str).collect()
        };
        named.into_iter().map(|n| Ok(Contender::parse(n)?.traced(self.trace.as_deref()))).collect()
    }
}

/// Runs a measurement.
///
/// # Errors
/// The fabric cannot be built, or a measurement fails.
pub fn run(args: &BenchArgs) -> Result {
    args.validate()?;
    privileges_take()?;
    let began = Busy::start();
    let other = OtherWork::of(args.busy)?;
    measure(args)?;
    if other.count() > 0 { crate::say(&began.other_text(&other)) } else { Ok(()) }
}

fn measure(args: &BenchArgs) -> Result {
    match args.scenario {
        Scenario::Incast => fct::incast(args),
        Scenario::MpiIncast => mpi::incast(args),
        Scenario::Fig6 => fct::fig6(args),
        Scenario::Shares => load::shares(args),
        Scenario::Slowpath => load::slowpath(args),
        Scenario::Loss => load::loss(args),
        Scenario::Coexist => load::coexist(args),
        Scenario::Blackhole => stream::blackhole(args),
        Scenario::Linkdown => stream::linkdown(args),
        Scenario::Flap => stream::flap(args),
        Scenario::Slowhost => slowhost::slowhost(args),
    }
}

/// The common properties of all measurements' fabrics.
fn fabric_of(args: &BenchArgs) -> FabricSpec {
    FabricSpec { mtu: args.mtu, extra: 7, seed: args.seed, ..FabricSpec::default() }
}

/// Builds the fabric of a measurement and prints its properties.
fn fabric_build(spec: &FabricSpec) -> Result<Fabric> {
    let (fabric, notes) = Fabric::build(spec)?;
    for n in notes {
        crate::note(&format!("srd net: note: {n}"));
    }
    crate::say(&format!("fabric: {}", spec.describe()))?;
    for line in conditions::fixed(&fabric) {
        crate::say(&line)?;
    }
    Ok(fabric)
}

/// The contenders that the kernel supports. Prints a reason for each of the others.
fn supported(fabric: &Fabric, list: Vec<Contender>) -> Result<Vec<Contender>> {
    let mut out = Vec::new();
    for contender in list {
        match contender.probe(fabric) {
            Ok(()) => out.push(contender),
            Err(e) => crate::say(&format!("without {}: {e}", contender.name()))?,
        }
    }
    if out.is_empty() { Err(NetError::new("no contender is left to measure")) } else { Ok(out) }
}
