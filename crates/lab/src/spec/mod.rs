//! Experiment specs: a TOML file parsed into plain data.

mod app;
mod copa;
mod fault;
mod file;
mod goal;
mod host;
mod phase;
mod plot;
pub mod poisson;
mod rc;
mod tcp;
mod ue;

pub use app::{AppAlgorithm, AppPattern, AppSpec, PublishedSpec};
pub use copa::{CopaInitiatorSpec, CopaPolicySpec, CopaRecoverySpec, CopaSpec, CopaVerbSpec};
pub use fault::{FaultSpec, SlowSet};
pub use file::{EMBEDDED, SpecFile, embedded};
pub use goal::{FigureSpec, GoalSpec};
pub use host::{HostSpec, PlacementSpec};
pub use phase::{InjectionSpec, RatesSpec, SaaSpec, StaticSpec};
pub use plot::{PlotKind, PlotSpec};
pub use poisson::PoissonSpec;
pub use rc::RcSpec;
pub use tcp::TcpSpec;
pub use ue::UeSpec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One case of an experiment, with all its settings.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Name of the experiment.
    pub name: String,
    /// Name of the case in tables.
    #[serde(default)]
    pub case: String,
    /// The parts of the case's name: its own and one of each axis. Set by the lab.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The case's value on each axis. Set by the lab.
    #[serde(default)]
    pub axis: Vec<AxisValue>,
    /// Title in one sentence: what the experiment shows.
    pub title: String,
    /// Why transports are compared that are not level, in one sentence. It silences the
    /// warnings, and the page has it instead (default: none).
    pub not_level: Option<String>,
    /// Number of seeds if the command line gives none.
    #[serde(default = "one")]
    pub seeds: u32,
    /// Simulated time after which a run is aborted, ms.
    #[serde(default = "time_ms_max")]
    pub time_ms_max: u64,
    /// The network.
    pub network: Network,
    /// Transport protocol of the hosts.
    #[serde(default)]
    pub transport: Transport,
    /// SRD's settings.
    #[serde(default)]
    pub engine: EngineSpec,
    /// TCP's settings.
    #[serde(default)]
    pub tcp: TcpSpec,
    /// RoCEv2's settings.
    #[serde(default)]
    pub rc: RcSpec,
    /// Settings of Ultra Ethernet's congestion control.
    #[serde(default)]
    pub ue: UeSpec,
    /// Settings of computed rates (only with `transport = "saa"`).
    pub saa: Option<SaaSpec>,
    /// COPA's settings (only with `transport = "copa"`).
    pub copa: Option<CopaSpec>,
    /// Settings of placements without packets (only with `transport = "static"`).
    #[serde(rename = "static")]
    pub placed: Option<StaticSpec>,
    /// Receive path between the cards of receivers and their memory; default: without delay.
    pub host: Option<HostSpec>,
    /// In a spec file `host = "quiet"`: model of kernel and processors (SRD): "ideal" (default, no
    /// delays), "quiet", "busy", or a file of `srd net record-noise`.
    pub host_model: Option<String>,
    /// Flows: who sends what to whom.
    pub workload: Workload,
    /// A parallel program (only with `workload.pattern = "app"`).
    pub app: Option<AppSpec>,
    /// In a spec file `[[workload.also]]`: further groups of flows in the same network, each with a
    /// transport of its own.
    #[serde(skip_deserializing, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Spec>,
    /// Faults.
    #[serde(default)]
    pub fault: Vec<FaultSpec>,
    /// Records besides flow completion times.
    #[serde(default)]
    pub measure: Measure,
    /// Goals, printed beside the results.
    #[serde(default)]
    pub goal: Vec<GoalSpec>,
    /// Figures at the head of the experiment's page.
    #[serde(default)]
    pub plot: Vec<PlotSpec>,
}

/// The value of a case on an axis.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AxisValue {
    /// Name of the axis.
    pub name: String,
    /// Label of the value.
    pub label: String,
    /// The field, if the values of the axis set one field, to a number each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

impl Spec {
    /// The case's value on the axis of this name.
    pub fn on(&self, axis: &str) -> Option<&AxisValue> {
        self.axis.iter().find(|a| a.name == axis)
    }

    /// The case's own name, without the labels of its axes.
    pub fn own_name(&self) -> &str {
        match self.labels.len() > self.axis.len() {
            true => &self.labels[0],
            false => "",
        }
    }

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Three tiers of switches with `k` ports: `k^3 / 4` hosts.
    FatTree,
    /// `leaves`, `spines`, `hosts_per_leaf`, `cables_per_spine`.
    LeafSpine,
    /// `n` levels of switches with `k` ports down and `k` up: `k^n` hosts, full bisection; with
    /// `horizontal` cables between the switches of each ideal node.
    KAryNTree,
    /// The slides' example of two outputs, each shared by flows from shared and from other inputs:
    /// 11 hosts.
    SharedInput,
    /// Two switches with `left` and `right` hosts and one cable.
    Dumbbell,
    /// `switches` switches in a circle, each with one cable to the next and `hosts_per_switch`
    /// hosts.
    Ring,
    /// Two hosts, one cable.
    BackToBack,
    /// An htsim `.topo` file, named by `file`.
    Topo,
}

/// The network. Fields that a shape does not use must be left out.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Shape of the topology.
    pub shape: Shape,
    /// Ports per switch (fat tree); downward and upward ports of each switch (k-ary n-tree).
    pub k: Option<u32>,
    /// Levels of switches (k-ary n-tree).
    pub n: Option<u32>,
    /// Cables from each switch to the next one of its ideal node (k-ary n-tree; default 0).
    pub horizontal: Option<u32>,
    /// How horizontal cables join the switches of an ideal node: "ring" (default) or "line".
    pub ring: Option<RingSpec>,
    /// Most consecutive horizontal cables of a packet, at least 1 (default: as many as pay, always
    /// less than a whole turn).
    pub ring_hops_max: Option<u32>,
    /// Routing: "ecmp", "oblivious" or "circuits" (the last two: k-ary n-tree).
    #[serde(default)]
    pub routing: Routing,
    /// Flow control: "drop" (full queues drop packets), "credits" or "pfc" (lossless).
    #[serde(default)]
    pub flow_control: FlowControlSpec,
    /// Input buffer of each link and lane in bytes (credits).
    pub input_bytes: Option<u64>,
    /// Bytes of an input held from which its sender is paused (pfc; default: 15 of the transport's
    /// largest packets).
    pub pfc_xoff_bytes: Option<u64>,
    /// Bytes of an input held at which its sender may continue (pfc; default: 12 of the
    /// transport's largest packets, or less than `pfc_xoff_bytes`).
    pub pfc_xon_bytes: Option<u64>,
    /// Room of each input above `pfc_xoff_bytes` (pfc; default: what its cable needs so that
    /// nothing is lost; less is refused).
    pub pfc_headroom_bytes: Option<u64>,
    /// Lanes of each link, 1 or 2 (credits; default 1, with horizontal cables 2).
    pub lanes: Option<u32>,
    /// Order in which outputs serve inputs: "rr" (round robin, default with credits) or "fcfs"
    /// (first come, first served, default with pfc).
    pub service: Option<ServiceSpec>,
    /// Circuit entries of each switch, one flow each (circuits; default: unlimited).
    pub circuit_entries: Option<u32>,
    /// How a switch compares outputs for a new flow: "least-flows" (default), "least-queue",
    /// "random" or "default" (circuits).
    pub adaptation: Option<AdaptationSpec>,
    /// Choice among equally good upward outputs: "drawn" (default) or "default" (circuits).
    pub ties: Option<TiesSpec>,
    /// Number of leaves (leaf-spine).
    pub leaves: Option<u32>,
    /// Number of spines (leaf-spine).
    pub spines: Option<u32>,
    /// Hosts under each leaf (leaf-spine).
    pub hosts_per_leaf: Option<u32>,
    /// Cables from each leaf to each spine (leaf-spine; default 1).
    pub cables_per_spine: Option<u32>,
    /// Number of switches (ring).
    pub switches: Option<u32>,
    /// Hosts of each switch (ring; default 1).
    pub hosts_per_switch: Option<u32>,
    /// Hosts on the left (dumbbell).
    pub left: Option<u32>,
    /// Hosts on the right (dumbbell).
    pub right: Option<u32>,
    /// Topology file (topo), relative to the spec file.
    pub file: Option<String>,
    /// Rate of host links in Gb/s.
    #[serde(default = "link_gbps")]
    pub link_gbps: f64,
    /// Rate of links between switches in Gb/s; default: that of host links.
    pub core_gbps: Option<f64>,
    /// Limit of each flow (addresses and ports) at its sender's card in Gb/s, at most `link_gbps`;
    /// default: none.
    pub flow_gbps: Option<f64>,
    /// Delay of each link in ns, switching included.
    #[serde(default = "link_delay_ns")]
    pub link_delay_ns: u64,
    /// Buffer of each switch port in bytes.
    #[serde(default = "buffer_bytes")]
    pub buffer_bytes: u64,
    /// Buffer of each switch in bytes, shared by its ports in place of their own buffers.
    pub shared_buffer_bytes: Option<u64>,
    /// Dynamic threshold: a queue may hold this many times the free part of the shared buffer
    /// (default 1).
    pub shared_buffer_alpha: Option<f64>,
    /// Backlog from which packets may be marked, bytes; 0 = no ECN. With buffers below 136,000
    /// bytes the default is a fifth of the buffer.
    #[serde(default = "ecn_bytes_min")]
    pub ecn_bytes_min: u64,
    /// Backlog from which every packet is marked, bytes. With buffers below 136,000 bytes the
    /// default is four fifths of the buffer.
    #[serde(default = "ecn_bytes_max")]
    pub ecn_bytes_max: u64,
    /// Probability of a mark just below `ecn_bytes_max`; it grows linearly from 0 at
    /// `ecn_bytes_min`.
    #[serde(default = "ecn_prob_max")]
    pub ecn_prob_max: f64,
}

/// See [`Network::ring`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RingSpec {
    /// The last switch is joined to the first.
    #[default]
    Ring,
    /// The last switch has no successor.
    Line,
}

/// See [`Network::routing`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// Shortest paths, with a hash among equals.
    #[default]
    Ecmp,
    /// By the destination alone (d-mod-k).
    Oblivious,
    /// Each flow chooses its path once and keeps it.
    Circuits,
}

/// See [`Network::flow_control`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_fabric::FlowControl")]
pub enum FlowControlSpec {
    #[default]
    Drop,
    Credits,
    Pfc,
}

/// See [`Network::service`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_fabric::Service")]
pub enum ServiceSpec {
    Rr,
    Fcfs,
}

/// See [`Network::adaptation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_fabric::routing::Adaptation")]
pub enum AdaptationSpec {
    LeastFlows,
    LeastQueue,
    Random,
    Default,
}

/// See [`Network::ties`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
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
// Defaults: five bandwidth-delay products of 11 us at 100 Gb/s, marks from a fifth to four fifths
// of one, as in the published reference results (tail drop, commodity switch).
const fn buffer_bytes() -> u64 {
    680_000
}
const fn ecn_bytes_min() -> u64 {
    27_200
}
const fn ecn_bytes_max() -> u64 {
    108_800
}
const fn ecn_prob_max() -> f64 {
    1.0
}

/// Settings of the engine.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSpec {
    /// Defaults for the fields below: "datacenter" or "sockets".
    pub defaults: DefaultsSpec,
    /// Payload of a full packet in bytes.
    pub mtu: u16,
    /// Operation that carries flows: "write", "write-imm" or "send".
    pub verb: VerbSpec,
    /// Largest RDMA write in bytes.
    pub message_bytes: u32,
    /// Whether all flows of a host share one queue pair.
    pub qp_shared: bool,
    /// Paths per peer, a power of two up to 256; default: that of `defaults`.
    pub paths: Option<u16>,
    /// Path policy: "srd" (default), "oblivious", "ecmp", "rtt-p2c", or one that the program adds.
    pub path_policy: Option<String>,
    /// Parameters of an added path policy, numbers by name.
    pub path_parameters: BTreeMap<String, f64>,
    /// Rate policy: "srd" (default), "fixed", or one that the program adds.
    pub rate_policy: Option<String>,
    /// Parameters of an added rate policy, numbers by name.
    pub rate_parameters: BTreeMap<String, f64>,
    /// What is told of hosts that fall behind, and obeyed: "off", "stop-go" or "budget" (default).
    pub host_policy: Option<HostPolicySpec>,
    /// Rate of the fixed policy in Gb/s (default 10).
    pub fixed_gbps: Option<f64>,
    /// Window of the fixed policy in bytes (default 1 MiB).
    pub fixed_inflight_bytes: Option<u64>,
    /// Whether receivers grant credits; default: true, unless `line_learnt`.
    pub credits: Option<bool>,
    /// The line rate is not told, but learnt.
    pub line_learnt: bool,
    /// Data packets per acknowledgment; default: that of `defaults`.
    pub ack_every: Option<u16>,
    /// Packets of a burst on one path, at most, 1 to 64; default: that of `defaults`.
    pub burst_packets: Option<u16>,
    /// Engines of a sending host, each with its own contexts, which model its processes; flows are
    /// assigned to them in turn.
    pub senders_per_host: u32,
    /// Engines of a receiving host.
    pub receivers_per_host: u32,
    /// Whether the engines of a host share what they know of remote addresses, as the processes of
    /// a user do.
    pub host_shared: bool,
    /// Receiver's treatment of a packet that arrives before an earlier one of its flow: "any"
    /// (accepts it) or "drop".
    pub order: OrderSpec,
    /// Base RTT given to the engine before its first measurement, in us; default: the network's.
    pub rtt_initial_us: Option<f64>,
    /// Guards of the law of congestion that are turned off: names of `srd_core::guards::Guard`.
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
            path_parameters: BTreeMap::new(),
            rate_policy: None,
            rate_parameters: BTreeMap::new(),
            host_policy: None,
            fixed_gbps: None,
            fixed_inflight_bytes: None,
            credits: None,
            ack_every: None,
            burst_packets: None,
            senders_per_host: 1,
            receivers_per_host: 1,
            line_learnt: false,
            host_shared: true,
            order: OrderSpec::Any,
            rtt_initial_us: None,
            guards_off: Vec::new(),
        }
    }
}

/// Origin of the engine's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultsSpec {
    /// For a dedicated network with known rate and base RTT.
    Datacenter,
    /// As shipped for sockets, with the rate of its link known.
    Sockets,
}

/// Transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// The engine of this project.
    #[default]
    Srd,
    /// TCP.
    Tcp,
    /// RoCEv2's reliable connection.
    Rc,
    /// Ultra Ethernet's congestion control and path selection.
    Ue,
    /// Packets in order over a lossless network, with or without computed rates.
    Saa,
    /// COPA's transport: receivers tell senders when their host is the bottleneck.
    Copa,
    /// No packets: flows are placed, and counted on their links.
    Static,
}

/// See [`EngineSpec::order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "explained where it is used")]
pub enum OrderSpec {
    Any,
    Drop,
}

/// See [`EngineSpec::verb`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of crate::host::Verb")]
pub enum VerbSpec {
    Write,
    WriteImm,
    Send,
}

/// See [`EngineSpec::host_policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_core::config::HostPolicy")]
pub enum HostPolicySpec {
    Off,
    StopGo,
    Budget,
}

/// Traffic pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// `senders` hosts of different pods or leaves, `flows_per_pair` flows each, to host 0.
    Incast,
    /// Every host to another, each host receiving from one.
    Permutation,
    /// `permutations` superposed permutations.
    Permutations,
    /// Every host to every other in one step.
    AllToAll,
    /// Every host to its neighbours on a three-dimensional torus.
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
    /// Every host to the host `shift` places further.
    Shift,
    /// Host `2 i` to host `2 i + 1`, for `pairs` pairs.
    Pairs,
    /// An htsim `.cm` file, named by `file`, times in `unit`.
    Cm,
    /// Flows of random sizes at random times between any hosts: `[workload.poisson]`.
    Poisson,
    /// A parallel program: `[app]`.
    App,
    /// A parallel program as GOAL text, named by `file`.
    Goal,
}

/// See [`Workload::placing`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placing {
    /// Rank i on host i.
    #[default]
    Linear,
    /// Ranks on hosts drawn from the seed, as a busy cluster's scheduler leaves them.
    Drawn,
}

/// Unit of start times in a `.cm` file, which dialects of the format differ in and the file does
/// not state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CmUnit {
    /// Picoseconds (csg-htsim and the generators).
    Ps,
    /// Microseconds (uet-htsim).
    Us,
}

/// Settings of the flows.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Traffic pattern.
    pub pattern: Pattern,
    /// Name of this group of flows in tables, where there are several; default: its transport.
    pub name: Option<String>,
    /// Size of each flow in bytes.
    #[serde(default = "flow_bytes")]
    pub bytes: u64,
    /// Senders (incast).
    pub senders: Option<u32>,
    /// Pairs of hosts.
    pub pairs: Option<u32>,
    /// Hosts of each leaf that have no flows, from its first on (leaf-pairs; default 0).
    #[serde(default)]
    pub skip_hosts: u32,
    /// Peers of each host (ring).
    pub peers: Option<u32>,
    /// Distance between sender and receiver in host numbers (shift).
    pub shift: Option<u32>,
    /// Pairs whose flows share leaves, but no host, with the flows of an incast: from hosts beside
    /// its senders to hosts beside its receiver. They are reported apart (incast; default 0).
    #[serde(default)]
    pub victims: u32,
    /// Number of superposed permutations.
    pub permutations: Option<u32>,
    /// Sizes are drawn uniformly from `bytes` to this many times `bytes`; default 1: all are equal.
    #[serde(default = "one")]
    pub bytes_spread: u32,
    /// Placement of an application's ranks on hosts: "linear" or "drawn" (all-to-all, halo,
    /// allreduce, app, goal).
    #[serde(default)]
    pub placing: Placing,
    /// Processes of each host (default 1). They execute a program's ranks, as many in a row as it
    /// has (app, goal; messages between the ranks of a host arrive at once); or each sends its own
    /// flows to every process of the other host (incast, permutation, leaf-pairs, pairs, ring,
    /// shift).
    #[serde(default = "one")]
    pub processes_per_host: u32,
    /// Background pairs, drawn from the seed among hosts without other flows. They send from the
    /// first round on and are not measured.
    #[serde(default)]
    pub background_pairs: u32,
    /// Size of each background flow in bytes.
    #[serde(default = "flow_bytes")]
    pub background_bytes: u64,
    /// Window of the background flows in bytes, independent of queues, like a connection that
    /// reacts to losses only; 0 = SRD's own control, on one path.
    #[serde(default)]
    pub background_window_bytes: u64,
    /// Whether each pair also sends in the other direction.
    #[serde(default)]
    pub both_ways: bool,
    /// Flows of each pair (default 1).
    #[serde(default = "one")]
    pub flows_per_pair: u32,
    /// Whether flows never end: the run lasts `time_ms_max`, and only its series are meaningful.
    /// `bytes` is then an upper bound of what a flow sends.
    #[serde(default)]
    pub endless: bool,
    /// Number of repetitions of all flows; the next round starts `barrier_us` after the last flow's
    /// end.
    #[serde(default = "one")]
    pub rounds: u32,
    /// Time between rounds in us.
    #[serde(default = "barrier_us")]
    pub barrier_us: u64,
    /// Upper bound of the random delay of a flow's start in its round, us.
    #[serde(default)]
    pub jitter_ns: u64,
    /// Bytes that each pair exchanges before the first round to open its contexts; 0 = cold start.
    #[serde(default = "warm_bytes")]
    pub warm_bytes: u64,
    /// Start of the first round in us.
    #[serde(default = "start_us")]
    pub start_us: u64,
    /// File of a matrix (cm) or of a schedule (goal), relative to the spec file.
    pub file: Option<String>,
    /// Unit of the matrix' start times.
    pub unit: Option<CmUnit>,
    /// Load and sizes of flows (poisson).
    pub poisson: Option<PoissonSpec>,
}

/// Default of [`Workload::bytes`].
pub const fn flow_bytes() -> u64 {
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

/// Settings of the records.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Interval of the goodput series in us; 0 = none.
    pub goodput_us: u64,
    /// Whether each flow has a series, too (SRD: writes only).
    pub flows: bool,
    /// Whether the first seed's run records flows, links, queues, losses and paths for the report.
    /// Set by `--out`.
    pub observe: bool,
    /// Interval of the recorded series in us; 0 = some 200 intervals over the expected time.
    pub interval_us: u64,
    /// Whether to record how long packets would wait for earlier ones of their flow (SRD, writes
    /// only).
    pub order: bool,
    /// Whether to record what the network sees of packets: order of arrival, losses and the time
    /// until the lost part arrives, time under way, and the paths of an only flow (SRD: writes
    /// only).
    pub trace: bool,
    /// Whether to measure the completion of the whole workload, until the last byte has arrived, in
    /// units of its largest flow at line rate (SRD: writes only).
    pub phase: bool,
    /// Whether to compute the fluid optimum of the flows.
    pub fluid: bool,
    /// Whether the run is recorded for Perfetto: set by `--perfetto`, and no field of a file.
    #[serde(skip)]
    pub timeline: bool,
}
