//! The command line of `srd net`.

use crate::{
    bench::{BenchArgs, other_work::OtherArgs, worker::WorkerArgs},
    capture::CaptureArgs,
    check::CheckArgs,
    crowd::CrowdArgs,
    demo::DemoArgs,
    fault::{Fault, Place},
    hostile::readers::ReaderArgs,
    noise::NoiseArgs,
    soak::SoakArgs,
    spec::FabricSpec,
    units,
};
use clap::{Args, Subcommand};
use std::{ffi::OsString, time::Duration};

const EXAMPLES: &str = "Examples:
  srd net demo                                  SRD beside TCP while a spine fails
  srd net up                                    4 spines, 2 leaves with 2 hosts each
  srd net exec h1x0 -- srd serve --ip 10.1.1.10 &
  srd net exec h0x0 -- srd perf bw 10.1.1.10
  srd net fail spine 0 --blackhole --for 3s
  srd net down

It needs no root, where the kernel allows user namespaces.";

/// Options of `srd net`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct NetArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: NetCommand,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum NetCommand {
    /// Build a fabric in the background; it exists until `down`
    Up(UpArgs),
    /// Remove a fabric and end the processes in it
    Down {
        /// Which fabric
        #[command(flatten)]
        name: NameArg,
        /// Remove all fabrics of this user
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// List the fabrics, with their hosts and addresses
    Status {
        /// Only this fabric [default: all]
        #[arg(long)]
        name: Option<String>,
    },
    /// Run a command on a host, spine or leaf
    Exec {
        /// Which fabric
        #[command(flatten)]
        name: NameArg,
        /// Host, as h0x0 (leaf, number), spine, as s0, or leaf, as l0
        node: String,
        /// The command with its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Predict which spine each source port between two hosts takes, and verify it by counters; or
    /// list which spine each path of the running devices takes
    Paths {
        /// Which fabric
        #[command(flatten)]
        name: NameArg,
        /// Sending host
        from: String,
        /// Receiving host, at another leaf
        to: String,
        /// First source port
        #[arg(long, default_value_t = 40_000)]
        port: u16,
        /// Number of source ports
        #[arg(long, default_value_t = 64)]
        count: u16,
        /// Destination port
        #[arg(long, default_value_t = srd::PORT_BASE_DEFAULT)]
        dst_port: u16,
        /// In place of ports: the paths of the devices that run on the sending host and have spoken
        /// with the receiving one, as numbers for `srd paths deny`
        #[arg(long, conflicts_with_all = ["port", "count"])]
        devices: bool,
    },
    /// Inject a fault into a spine or a link
    Fail {
        /// Which fabric
        #[command(flatten)]
        name: NameArg,
        /// Place of the fault
        #[command(subcommand)]
        place: FailPlace,
    },
    /// Remove all faults that `fail` injected
    Heal {
        /// Which fabric
        #[command(flatten)]
        name: NameArg,
    },
    /// Record the packets of SRD that arrive at a node, and count how many of them are sealed
    Capture(CaptureArgs),
    /// Measure SRD beside the kernel's TCP, on a separate fabric
    Bench(BenchArgs),
    /// Run SRD and TCP transfers while a spine fails, and show the effect on each
    Demo(DemoArgs),
    /// Check that SRD survives kill -9, SIGSTOP, restarts, many processes and peers, packet floods
    /// and lying peers
    Check(CheckArgs),
    /// Run transfers for a long time under losses, flapping links, black holes, stops and restarts
    Soak(SoakArgs),
    /// Record the delays of this host's kernel and processors, for simulated hosts of `srd lab`
    RecordNoise(NoiseArgs),
    /// Internal to `check`: run many engines on one host
    #[command(hide = true)]
    Crowd(CrowdArgs),
    /// Internal to `check`: issue RDMA reads until killed
    #[command(hide = true)]
    Reader(ReaderArgs),
    /// Internal to `bench`: run one process of a measurement
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// Internal to `bench --busy`: keep one processor busy
    #[command(hide = true)]
    OtherWork(OtherArgs),
    /// Internal to `up`: hold a fabric
    #[command(hide = true)]
    Hold {
        /// Name of the fabric
        #[arg(long)]
        name: String,
        /// Specification of the fabric as JSON
        #[arg(long)]
        spec: String,
        /// Remove the fabric when this process ends
        #[arg(long)]
        until_pid: Option<i32>,
    },
}

/// Which fabric.
#[derive(Clone, Debug, Args)]
pub struct NameArg {
    /// Name of the fabric
    #[arg(long, default_value = "net")]
    pub name: String,
}

/// Options of `up`.
#[derive(Clone, Debug, Args)]
pub struct UpArgs {
    /// Which fabric
    #[command(flatten)]
    pub name: NameArg,
    /// The fabric to build
    #[command(flatten)]
    pub fabric: FabricArgs,
    /// Remove the fabric when this process ends (for a shell: `--until-pid $$`)
    #[arg(long, value_name = "PID")]
    pub until_pid: Option<i32>,
}

/// The fabric to build.
#[derive(Clone, Debug, Args)]
pub struct FabricArgs {
    /// Spines: the number of paths between two leaves
    #[arg(long, default_value_t = 4)]
    pub spines: u8,
    /// Leaves
    #[arg(long, default_value_t = 2)]
    pub leaves: u8,
    /// Hosts per leaf
    #[arg(long, default_value_t = 2)]
    pub hosts: u8,
    /// Rate between host and leaf, in bits per second
    #[arg(long, value_name = "RATE", default_value = "200M", value_parser = units::rate_bits)]
    pub host_rate: u64,
    /// Rate between leaf and spine, in bits per second
    #[arg(long, value_name = "RATE", default_value = "200M", value_parser = units::rate_bits)]
    pub uplink_rate: u64,
    /// Queue of each switch port in bytes
    #[arg(long, value_name = "BYTES", default_value = "200k", value_parser = units::bytes)]
    pub queue: u64,
    /// Transmit queue of each host in bytes
    #[arg(long, value_name = "BYTES", default_value = "8M", value_parser = units::bytes)]
    pub nic_queue: u64,
    /// MTU of all links in bytes
    #[arg(long, default_value_t = 9000)]
    pub mtu: u16,
    /// Seed of the ECMP hashes: the same seed maps the same ports to the same spines
    #[arg(long, default_value_t = 1)]
    pub seed: u32,
    /// Leaves stop using a link without carrier at once (ignore_routes_with_linkdown=1)
    #[arg(long)]
    pub linkdown_aware: bool,
    /// Additional IPv4 addresses per host, for MPTCP subflows
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub extra: u8,
    /// Links per host, each with its own interface (e0, e1, ...) and address
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub rails: u8,
}

impl FabricArgs {
    /// The specification of the fabric.
    pub fn spec(&self) -> FabricSpec {
        FabricSpec {
            spines: self.spines,
            leaves: self.leaves,
            hosts: self.hosts,
            host_bits_per_sec: self.host_rate,
            uplink_bits_per_sec: self.uplink_rate,
            queue_bytes: self.queue,
            nic_queue_bytes: self.nic_queue,
            mtu: self.mtu,
            seed: self.seed,
            linkdown_aware: self.linkdown_aware,
            extra: self.extra,
            rails: self.rails,
        }
    }
}

/// Place of a fault.
#[derive(Clone, Debug, Subcommand)]
pub enum FailPlace {
    /// A spine with all its links
    Spine {
        /// Number of the spine
        spine: u8,
        /// Kind of fault
        #[command(flatten)]
        how: FailArgs,
    },
    /// One link
    Link {
        /// Number of the leaf
        leaf: u8,
        /// Number of the spine
        spine: u8,
        /// Kind of fault
        #[command(flatten)]
        how: FailArgs,
    },
}

impl FailPlace {
    /// The place, and the fault's options.
    pub fn parts(&self) -> (Place, &FailArgs) {
        match self {
            Self::Spine { spine, how } => (Place::Spine(*spine), how),
            Self::Link { leaf, spine, how } => (Place::Link { leaf: *leaf, spine: *spine }, how),
        }
    }
}

/// Kind and duration of a fault.
#[derive(Clone, Debug, Args)]
#[group(id = "how")]
pub struct FailArgs {
    #[command(flatten)]
    fault: FaultArg,
    /// Remove the fault after this time [default: at `srd net heal`]
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    pub lasting: Option<Duration>,
}

#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
struct FaultArg {
    /// Drop all packets without notice
    #[arg(long)]
    blackhole: bool,
    /// Take the link down: both ends lose carrier
    #[arg(long)]
    link_down: bool,
    /// Drop this share of the packets in each direction
    #[arg(long, value_name = "SHARE", value_parser = units::share_ppm)]
    loss: Option<u32>,
    /// Reduce the link to this rate in bits per second
    #[arg(long, value_name = "RATE", value_parser = units::rate_bits)]
    rate: Option<u64>,
}

impl FailArgs {
    /// The fault that the options describe.
    pub fn fault(&self) -> Fault {
        match (self.fault.loss, self.fault.rate) {
            (Some(ppm), _) => Fault::Loss(ppm),
            (_, Some(bits)) => Fault::Rate(bits),
            _ if self.fault.link_down => Fault::LinkDown,
            _ => Fault::Blackhole,
        }
    }
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
