//! An experiment as written down: one TOML file, read into plain data.

mod copa;
mod fault;
mod file;
mod goal;
mod host;
mod phase;
pub mod poisson;
mod tcp;

pub use copa::{CopaInitiatorSpec, CopaPolicySpec, CopaRecoverySpec, CopaSpec, CopaVerbSpec};
pub use fault::{FaultSpec, SlowSet};
pub use file::{EMBEDDED, SpecFile, embedded};
pub use goal::{FigureSpec, GoalSpec};
pub use host::{HostSpec, PlacementSpec};
pub use phase::{InjectionSpec, RatesSpec, SaaSpec, StaticSpec};
pub use poisson::PoissonSpec;
pub use tcp::TcpSpec;

use serde::{Deserialize, Serialize};

/// One case of an experiment, complete.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Name of the experiment.
    pub name: String,
    /// What the case is, in tables.
    #[serde(default)]
    pub case: String,
    /// The parts that the case's name was put together from: its own and one of each axis.
    #[serde(default)]
    pub labels: Vec<String>,
    /// One sentence: what is shown.
    pub title: String,
    /// Seeds run when the command line names no number.
    #[serde(default = "one")]
    pub seeds: u32,
    /// Simulated time after which a run is given up, ms.
    #[serde(default = "time_ms_max")]
    pub time_ms_max: u64,
    /// The network.
    pub network: Network,
    /// Which protocol the hosts speak.
    #[serde(default)]
    pub transport: Transport,
    /// SRD's settings.
    #[serde(default)]
    pub engine: EngineSpec,
    /// TCP's settings.
    #[serde(default)]
    pub tcp: TcpSpec,
    /// Computed rates (only with `transport = "saa"`).
    pub saa: Option<SaaSpec>,
    /// COPA's settings (only with `transport = "copa"`).
    pub copa: Option<CopaSpec>,
    /// Placements without packets (only with `transport = "static"`).
    #[serde(rename = "static")]
    pub placed: Option<StaticSpec>,
    /// What is between the cards of receivers and their memory; left out: nothing that waits.
    pub host: Option<HostSpec>,
    /// Written as `host = "quiet"`: what kernel and processors add, "ideal" (nothing), "quiet",
    /// "busy", or a file of `srd net record-noise` (SRD).
    pub host_model: Option<String>,
    /// Who sends what to whom.
    pub workload: Workload,
    /// What goes wrong.
    #[serde(default)]
    pub fault: Vec<FaultSpec>,
    /// What is recorded besides flow completion times.
    #[serde(default)]
    pub measure: Measure,
    /// What is aimed at; printed beside what came of it.
    #[serde(default)]
    pub goal: Vec<GoalSpec>,
}

impl Spec {
    /// Whether the first host of a flow reads from the second instead of sending to it.
    pub fn reads(&self) -> bool {
        let get = |c: &CopaSpec| c.verb == CopaVerbSpec::Get;
        self.transport == Transport::Copa && self.copa.as_ref().is_some_and(get)
    }
}

const fn one() -> u32 {
    1
}
const fn time_ms_max() -> u64 {
    1_000
}

/// Shape of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Three tiers of switches with `k` ports: `k^3 / 4` hosts.
    FatTree,
    /// `leaves`, `spines`, `hosts_per_leaf`, `cables_per_spine`.
    LeafSpine,
    /// `n` levels of switches with `k` ports down and `k` up: `k^n` hosts, full bisection; with
    /// `horizontal` cables between the switches of each ideal node.
    KAryNTree,
    /// The slides' example of two outputs that flows from shared and from other inputs share:
    /// 11 hosts.
    SharedInput,
    /// Two switches with `left` and `right` hosts and one cable.
    Dumbbell,
    /// Two hosts, one cable.
    BackToBack,
    /// An htsim `.topo` file, named by `file`.
    Topo,
}

/// The network. Fields that a shape does not use must be left out.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Shape.
    pub shape: Shape,
    /// Ports per switch (fat tree); ports down and up of each (k-ary n-tree).
    pub k: Option<u32>,
    /// Levels of switches (k-ary n-tree).
    pub n: Option<u32>,
    /// Cables from each switch to the next of its ideal node (k-ary n-tree; default 0).
    pub horizontal: Option<u32>,
    /// How these cables join the switches of an ideal node: "ring" (default) or "line".
    pub ring: Option<RingSpec>,
    /// Most of these cables that a packet takes one after the other, at least 1 (default: as far as
    /// it pays, never back to where it began).
    pub ring_hops_max: Option<u32>,
    /// Which link a packet takes from a switch: "ecmp", "oblivious" or "circuits" (the last two:
    /// k-ary n-tree).
    #[serde(default)]
    pub routing: Routing,
    /// What keeps queues from overflowing: "drop" (nothing: packets are lost) or "credits".
    #[serde(default)]
    pub flow_control: FlowControlSpec,
    /// Input buffer of each link and lane in bytes (credits).
    pub input_bytes: Option<u64>,
    /// Lanes of each link, 1 or 2 (credits; default 1, with horizontal cables 2).
    pub lanes: Option<u32>,
    /// How outputs serve inputs: "rr" (in turn, default) or "fcfs" (credits).
    pub service: Option<ServiceSpec>,
    /// Entries of each switch, one flow each (circuits; default: as many as are wanted).
    pub circuit_entries: Option<u32>,
    /// How a switch compares outputs for a new flow: "least-flows" (default), "least-queue",
    /// "random" or "default" (circuits).
    pub adaptation: Option<AdaptationSpec>,
    /// Which of equally good outputs upwards: "drawn" (default) or "default" (circuits).
    pub ties: Option<TiesSpec>,
    /// Leaves (leaf-spine).
    pub leaves: Option<u32>,
    /// Spines (leaf-spine).
    pub spines: Option<u32>,
    /// Hosts under each leaf (leaf-spine).
    pub hosts_per_leaf: Option<u32>,
    /// Cables from each leaf to each spine (leaf-spine; default 1).
    pub cables_per_spine: Option<u32>,
    /// Hosts on the left (dumbbell).
    pub left: Option<u32>,
    /// Hosts on the right (dumbbell).
    pub right: Option<u32>,
    /// The topology's file (topo), relative to the spec file.
    pub file: Option<String>,
    /// Rate of host links in Gb/s.
    #[serde(default = "link_gbps")]
    pub link_gbps: f64,
    /// Rate of links between switches in Gb/s; default: that of host links.
    pub core_gbps: Option<f64>,
    /// Delay of each link in ns, switching included.
    #[serde(default = "link_delay_ns")]
    pub link_delay_ns: u64,
    /// Buffer of each switch port in bytes.
    #[serde(default = "buffer_bytes")]
    pub buffer_bytes: u64,
    /// Buffer of each switch in bytes, shared by its ports, which then have none of their own.
    pub shared_buffer_bytes: Option<u64>,
    /// A queue may hold this many times what of the shared buffer is free (default 1).
    pub shared_buffer_alpha: Option<f64>,
    /// Backlog from which packets may be marked, bytes; 0 = no ECN.
    #[serde(default = "ecn_bytes_min")]
    pub ecn_bytes_min: u64,
    /// Backlog from which every packet is marked, bytes.
    #[serde(default = "ecn_bytes_max")]
    pub ecn_bytes_max: u64,
}

/// See [`Network::ring`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RingSpec {
    /// From the last switch on to the first.
    #[default]
    Ring,
    /// The last switch has no next one.
    Line,
}

/// See [`Network::routing`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// Shortest ways, equal ones by a hash.
    #[default]
    Ecmp,
    /// By the destination alone (d-mod-k).
    Oblivious,
    /// Each flow chooses its way once and keeps it.
    Circuits,
}

/// See [`Network::flow_control`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_fabric::FlowControl")]
pub enum FlowControlSpec {
    #[default]
    Drop,
    Credits,
}

/// See [`Network::service`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_fabric::Service")]
pub enum ServiceSpec {
    Rr,
    Fcfs,
}

/// See [`Network::adaptation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_fabric::routing::Adaptation")]
pub enum AdaptationSpec {
    LeastFlows,
    LeastQueue,
    Random,
    Default,
}

/// See [`Network::ties`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_fabric::routing::Ties")]
pub enum TiesSpec {
    Drawn,
    Default,
}

const fn link_gbps() -> f64 {
    100.0
}
const fn link_delay_ns() -> u64 {
    1_000
}
// Five bandwidth-delay products of 11 us at 100 Gb/s, marks from a fifth to four fifths of one:
// the setting of the published anchors (tail drop, commodity switch).
const fn buffer_bytes() -> u64 {
    680_000
}
const fn ecn_bytes_min() -> u64 {
    27_200
}
const fn ecn_bytes_max() -> u64 {
    108_800
}

/// What is set in the engine besides the simulator's defaults.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSpec {
    /// Which defaults the fields below change: "datacenter" or "sockets".
    pub defaults: DefaultsSpec,
    /// Payload of a full packet in bytes.
    pub mtu: u16,
    /// How flows become messages: "write", "write-imm" or "send".
    pub verb: VerbSpec,
    /// Largest RDMA write in bytes.
    pub message_bytes: u32,
    /// One queue pair for all flows of a host.
    pub qp_shared: bool,
    /// Paths per peer; default: the engine's.
    pub paths: Option<u16>,
    /// "srd", "oblivious", "ecmp" or "rtt-p2c".
    pub path_policy: Option<PathPolicySpec>,
    /// "srd" or "fixed".
    pub rate_policy: Option<RatePolicySpec>,
    /// Rate of the fixed policy in Gb/s.
    pub fixed_gbps: Option<f64>,
    /// Inflight cap of the fixed policy in bytes.
    pub fixed_inflight_bytes: Option<u64>,
    /// Receiver credits.
    pub credits: Option<bool>,
    /// Packets per acknowledgment.
    pub ack_every: Option<u16>,
    /// Engines of a host that sends, each with its own contexts: its processes, among which its
    /// flows take turns.
    pub senders_per_host: u32,
    /// The same of a host that receives.
    pub receivers_per_host: u32,
    /// What a receiver does with packets that come before an earlier one of their flow: "any"
    /// (takes them) or "drop".
    pub order: OrderSpec,
    /// Base RTT that the engine is told before it has measured one, in us; default: the network's.
    pub rtt_initial_us: Option<f64>,
    /// Special cases of the law of congestion that are off: names of `srd_core::guards::Guard`.
    pub guards_off: Vec<String>,
}

impl Default for EngineSpec {
    fn default() -> Self {
        Self {
            defaults: DefaultsSpec::Datacenter,
            mtu: 4096,
            verb: VerbSpec::Write,
            message_bytes: 1 << 30,
            qp_shared: false,
            paths: None,
            path_policy: None,
            rate_policy: None,
            fixed_gbps: None,
            fixed_inflight_bytes: None,
            credits: None,
            ack_every: None,
            senders_per_host: 1,
            receivers_per_host: 1,
            order: OrderSpec::Any,
            rtt_initial_us: None,
            guards_off: Vec::new(),
        }
    }
}

/// Where the engine's defaults come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultsSpec {
    /// A whole fabric of one known rate and base RTT.
    Datacenter,
    /// What runs on sockets, told the rate of its link.
    Sockets,
}

/// Which protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// The engine of this project.
    #[default]
    Srd,
    /// The rival.
    Tcp,
    /// Packets in order over a lossless network, with computed rates or none.
    Saa,
    /// COPA's: receivers tell senders when their host falls behind.
    Copa,
    /// No packets: flows are placed, and counted where they meet.
    Static,
}

/// See [`EngineSpec::order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "explained where it is used")]
pub enum OrderSpec {
    Any,
    Drop,
}

/// See [`EngineSpec::verb`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of crate::host::Verb")]
pub enum VerbSpec {
    Write,
    WriteImm,
    Send,
}

/// See [`EngineSpec::path_policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_core::config::PathPolicy")]
pub enum PathPolicySpec {
    Srd,
    Oblivious,
    Ecmp,
    #[serde(rename = "rtt-p2c")]
    RttP2c,
}

/// See [`EngineSpec::rate_policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_core::config::RatePolicy")]
pub enum RatePolicySpec {
    Srd,
    Fixed,
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// `senders` hosts of different pods or leaves, `flows_per_pair` flows each, to host 0.
    Incast,
    /// Every host to another, each host receiving once.
    Permutation,
    /// `permutations` of these at once.
    Permutations,
    /// Every host to every other at once.
    AllToAll,
    /// Every host to its neighbours on a grid of three dimensions.
    Halo,
    /// The eight flows of the network "shared-input".
    SharedInput,
    /// Recursive doubling: in step i, host h exchanges with h xor 2^i, after a barrier.
    Allreduce,
    /// Host `i` of the first leaf to host `i` of the second, for `pairs` hosts, `flows_per_pair`
    /// flows each.
    LeafPairs,
    /// Every host to the next `peers` hosts.
    Ring,
    /// Host `2 i` to host `2 i + 1`, for `pairs` pairs.
    Pairs,
    /// An htsim `.cm` file, named by `file`, times in `unit`.
    Cm,
    /// Flows of drawn sizes at random times between any hosts: `[workload.poisson]`.
    Poisson,
}

/// See [`Workload::placing`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placing {
    /// Rank i on host i.
    #[default]
    Linear,
    /// Any rank on any host, by the seed: what a busy cluster's scheduler leaves.
    Drawn,
}

/// Unit of start times in a `.cm` file: the dialects differ and the file does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CmUnit {
    /// Picoseconds (csg-htsim and the generators).
    Ps,
    /// Microseconds (uet-htsim).
    Us,
}

/// The flows.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Pattern.
    pub pattern: Pattern,
    /// Bytes of each flow.
    #[serde(default = "flow_bytes")]
    pub bytes: u64,
    /// Senders (incast).
    pub senders: Option<u32>,
    /// Pairs of hosts.
    pub pairs: Option<u32>,
    /// Peers of each host (ring).
    pub peers: Option<u32>,
    /// Superposed permutations.
    pub permutations: Option<u32>,
    /// Flows have up to so many times `bytes`, drawn evenly from it on; default 1: all are equal.
    #[serde(default = "one")]
    pub bytes_spread: u32,
    /// On which hosts an application's ranks are: "linear" or "drawn" (all-to-all, halo,
    /// allreduce).
    #[serde(default)]
    pub placing: Placing,
    /// Pairs of hosts besides, drawn from the seed among those that are in no other flow, that
    /// load the network from the first round on and are not measured.
    #[serde(default)]
    pub background_pairs: u32,
    /// Bytes that each of them sends.
    #[serde(default = "flow_bytes")]
    pub background_bytes: u64,
    /// They keep this much under way whatever the queue, as a connection does that slows down for
    /// losses alone; 0 = SRD's own control, on one path.
    #[serde(default)]
    pub background_window_bytes: u64,
    /// Each pair also sends in the other direction.
    #[serde(default)]
    pub both_ways: bool,
    /// Flows of each pair (default 1).
    #[serde(default = "one")]
    pub flows_per_pair: u32,
    /// Flows never end: the run lasts `time_ms_max`, and only series are of interest. `bytes` is
    /// then how much a flow would send at most.
    #[serde(default)]
    pub endless: bool,
    /// How often all flows run; the next round starts `barrier_us` after the last flow's end.
    #[serde(default = "one")]
    pub rounds: u32,
    /// Time between rounds.
    #[serde(default = "barrier_us")]
    pub barrier_us: u64,
    /// Each flow starts up to this much later than its round, at random.
    #[serde(default)]
    pub jitter_ns: u64,
    /// Each pair exchanges this much before the first round, so that contexts are open; 0 = cold.
    #[serde(default = "warm_bytes")]
    pub warm_bytes: u64,
    /// First round, in us.
    #[serde(default = "start_us")]
    pub start_us: u64,
    /// Matrix file (cm), relative to the spec file.
    pub file: Option<String>,
    /// Unit of its times.
    pub unit: Option<CmUnit>,
    /// Load and sizes (poisson).
    pub poisson: Option<PoissonSpec>,
}

const fn flow_bytes() -> u64 {
    2_000_000
}
const fn barrier_us() -> u64 {
    5
}
const fn warm_bytes() -> u64 {
    4_096
}
const fn start_us() -> u64 {
    300
}

/// What is recorded.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Interval of the goodput series in us; 0 = none.
    pub goodput_us: u64,
    /// A series for each flow, too (SRD: writes only).
    pub flows: bool,
    /// Look inside the first seed's run for the report: flows, links, queues, losses, paths. Set by
    /// `--out`.
    pub observe: bool,
    /// Interval of these series in us; 0 = some 200 of them over the expected time.
    pub interval_us: u64,
    /// How long packets would wait for earlier ones of their flow (SRD, writes only).
    pub order: bool,
    /// The whole workload's completion, in units of its largest flow at line rate: until the last
    /// byte has arrived (SRD: writes only).
    pub phase: bool,
    /// The fluid optimum of the same flows, beside the floor.
    pub fluid: bool,
}
