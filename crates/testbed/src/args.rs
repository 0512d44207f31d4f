//! The command line of `srd net`.

use crate::{
    bench::{BenchArgs, worker::WorkerArgs},
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

/// Options of `srd net`.
#[derive(Clone, Debug, Args)]
pub struct NetArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: NetCommand,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum NetCommand {
    /// Bring a fabric up: it stays until `down`, in the background
    Up(UpArgs),
    /// Take a fabric down and end what runs in it
    Down {
        /// Which
        #[command(flatten)]
        name: NameArg,
        /// All fabrics of this user
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// List the fabrics that are up, with their hosts and addresses
    Status,
    /// Run a command on a host (or spine or leaf)
    Exec {
        /// Which fabric
        #[command(flatten)]
        name: NameArg,
        /// Host, as h0x0 (leaf, number); s0 and l0 are spines and leaves
        node: String,
        /// The command with its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Predict the spine of source ports between two hosts, and check it against counters
    Paths {
        /// Which fabric
        #[command(flatten)]
        name: NameArg,
        /// Host that sends
        from: String,
        /// Host that receives, at another leaf
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
    },
    /// Break a spine or a link
    Fail {
        /// Which fabric
        #[command(flatten)]
        name: NameArg,
        /// What breaks
        #[command(subcommand)]
        place: FailPlace,
    },
    /// Repair everything that `fail` broke
    Heal {
        /// Which fabric
        #[command(flatten)]
        name: NameArg,
    },
    /// Measure SRD beside the kernel's TCP, on a fabric of the measurement's own
    Bench(BenchArgs),
    /// Data moves through SRD and through TCP, and a spine dies: who notices?
    Demo(DemoArgs),
    /// Check what real processes must survive: kill -9, SIGSTOP, restarts, crowds, floods,
    /// liars
    Check(CheckArgs),
    /// Transfer for a long time through losses, flaps, black holes, stops and restarts
    Soak(SoakArgs),
    /// Record what this host's kernel and processors add to times, for hosts of `srd lab`
    RecordNoise(NoiseArgs),
    /// Many engines of one host; `check` starts it
    #[command(hide = true)]
    Crowd(CrowdArgs),
    /// A process that reads until it is killed; `check` starts it
    #[command(hide = true)]
    Reader(ReaderArgs),
    /// A process of a measurement; `bench` starts it
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// Holds a fabric; `up` starts it
    #[command(hide = true)]
    Hold {
        /// Name of the fabric
        #[arg(long)]
        name: String,
        /// What to build, as JSON
        #[arg(long)]
        spec: String,
        /// End with this process
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
    /// What to build
    #[command(flatten)]
    pub fabric: FabricArgs,
    /// Take the fabric down when this process ends (a shell: `--until-pid $$`)
    #[arg(long, value_name = "PID")]
    pub until_pid: Option<i32>,
}

/// What to build.
#[derive(Clone, Debug, Args)]
pub struct FabricArgs {
    /// Spines: as many ways from leaf to leaf
    #[arg(long, default_value_t = 4)]
    pub spines: u8,
    /// Leaves
    #[arg(long, default_value_t = 2)]
    pub leaves: u8,
    /// Hosts of each leaf
    #[arg(long, default_value_t = 2)]
    pub hosts: u8,
    /// Rate between host and leaf, in bits per second
    #[arg(long, value_name = "RATE", default_value = "200M", value_parser = units::rate_bits)]
    pub host_rate: u64,
    /// Rate between leaf and spine, in bits per second
    #[arg(long, value_name = "RATE", default_value = "200M", value_parser = units::rate_bits)]
    pub uplink_rate: u64,
    /// Queue of each switch port
    #[arg(long, value_name = "BYTES", default_value = "200k", value_parser = units::bytes)]
    pub queue: u64,
    /// Transmit queue of each host
    #[arg(long, value_name = "BYTES", default_value = "8M", value_parser = units::bytes)]
    pub nic_queue: u64,
    /// MTU of all links in bytes
    #[arg(long, default_value_t = 9000)]
    pub mtu: u16,
    /// Draw of the ECMP hashes: the same number, the same ports on the same spines
    #[arg(long, default_value_t = 1)]
    pub seed: u32,
    /// Leaves leave a link without carrier at once (ignore_routes_with_linkdown=1)
    #[arg(long)]
    pub linkdown_aware: bool,
    /// Additional IPv4 addresses per host, for MPTCP subflows
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub extra: u8,
    /// Cables of each host, each with an interface (e0, e1, ...) and an address of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub rails: u8,
}

impl FabricArgs {
    /// The fabric described.
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

/// What breaks.
#[derive(Clone, Debug, Subcommand)]
pub enum FailPlace {
    /// A spine with all its links
    Spine {
        /// Number of the spine
        spine: u8,
        /// How
        #[command(flatten)]
        how: FailArgs,
    },
    /// One link
    Link {
        /// Number of the leaf
        leaf: u8,
        /// Number of the spine
        spine: u8,
        /// How
        #[command(flatten)]
        how: FailArgs,
    },
}

impl FailPlace {
    /// Place and manner.
    pub fn parts(&self) -> (Place, &FailArgs) {
        match self {
            Self::Spine { spine, how } => (Place::Spine(*spine), how),
            Self::Link { leaf, spine, how } => (Place::Link { leaf: *leaf, spine: *spine }, how),
        }
    }
}

/// How it breaks.
#[derive(Clone, Debug, Args)]
#[group(id = "how")]
pub struct FailArgs {
    #[command(flatten)]
    fault: FaultArg,
    /// Repair it after this time; without, it stays until `srd net heal`
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    pub lasting: Option<Duration>,
}

#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
struct FaultArg {
    /// Swallow every packet, silently
    #[arg(long)]
    blackhole: bool,
    /// Take the link down: both ends lose the carrier
    #[arg(long)]
    link_down: bool,
    /// Lose this share of the packets, in each direction
    #[arg(long, value_name = "SHARE", value_parser = units::share_ppm)]
    loss: Option<u32>,
    /// Slow down to this rate in bits per second
    #[arg(long, value_name = "RATE", value_parser = units::rate_bits)]
    rate: Option<u64>,
}

impl FailArgs {
    /// The fault described.
    pub fn fault(&self) -> Fault {
        match (self.fault.loss, self.fault.rate) {
            (Some(ppm), _) => Fault::Loss(ppm),
            (_, Some(bits)) => Fault::Rate(bits),
            _ if self.fault.link_down => Fault::LinkDown,
            _ => Fault::Blackhole,
        }
    }
}
