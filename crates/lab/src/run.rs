//! One run: a spec and a seed become a world, its flows, and what came of them.

use crate::board::{Board, FlowEnd, SharedBoard};
use crate::faults::faults_of;
use crate::floor::{FloorFlow, Framing, Ways, floors};
use crate::host::{SrdHost, SrdSettings, Verb, engine_config};
use crate::packet::LabPacket;
use crate::spec::{EngineSpec, PathPolicySpec, RatePolicySpec, Spec, VerbSpec};
use crate::stats::Summary;
use crate::workload::{Flow, Flows};
use srd_core::config::{EngineConfig, PathPolicy, RatePolicy};
use srd_core::counters::Counters;
use srd_core::wire::PacketType;
use srd_fabric::rng::stream_seed;
use srd_fabric::{Drops, HostId, MS, Ps, Rng, Topology, US, World, WorldConfig};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// Events between two looks at the board.
const LOOK_EVERY: u64 = 256;
/// Numbers of warming flows, which are not measured.
const WARM: u32 = 1 << 31;
/// Warming flows start within this time, so that they do not collide.
const WARM_SPREAD: Ps = 50 * US;

/// What came of one run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The case as run.
    pub spec: Spec,
    /// Its seed.
    pub seed: u64,
    /// Hosts of the network.
    pub hosts: u32,
    /// Completion times: `[round][flow]`, `None` = did not end in time.
    pub fct_ps: Vec<Vec<Option<Ps>>>,
    /// Floor of each flow.
    pub floor_ps: Vec<Ps>,
    /// The flows.
    pub flows: Vec<Flow>,
    /// Largest base RTT between a flow's ends.
    pub base_rtt_ps: Ps,
    /// Summary of the above.
    pub summary: Summary,
    /// Requests that ended in error.
    pub failures: u64,
    /// Different data packets that the ended flows consist of.
    pub data_packets: u64,
    /// Engine counters, all hosts together.
    pub counters: Counters,
    /// Packets lost by the network.
    pub drops: Drops,
    /// Packets marked by queues.
    pub marked: u64,
    /// Packets sent by hosts, of any kind.
    pub packets_sent: u64,
    /// Events of the network.
    pub events: u64,
    /// Simulated time at the end.
    pub end_ps: Ps,
    /// CPU time of the event loop.
    pub cpu_ns: u64,
    /// Wall time of the event loop.
    pub wall_ns: u64,
    /// Largest resident memory of the process so far, in bytes.
    pub memory_bytes: u64,
    /// Hash of every delivery.
    pub hash: u64,
    /// Payload bytes placed per interval of `spec.measure.goodput_us`.
    pub goodput: Vec<u64>,
    /// The engines' configuration.
    pub engine: EngineConfig,
}

impl RunResult {
    /// Flows (of all rounds) that did not end.
    pub fn unfinished(&self) -> usize {
        self.fct_ps.iter().flatten().filter(|f| f.is_none()).count()
    }
    /// Retransmissions per hundred data packets.
    pub fn retransmitted_percent(&self) -> f64 {
        100.0 * self.counters.retrans_pkts as f64 / self.data_packets.max(1) as f64
    }
    /// Data packets end to end per second of CPU time.
    pub fn packets_per_cpu_s(&self) -> f64 {
        self.data_packets as f64 * 1e9 / self.cpu_ns.max(1) as f64
    }
}

type SrdWorld = World<LabPacket, SrdHost>;

/// The state of a run under way.
struct Running<'a> {
    spec: &'a Spec,
    flows: &'a Flows,
    tokens: Vec<u64>,
    world: SrdWorld,
    board: SharedBoard,
    round: u32,
    /// When each flow of the present round started.
    started: Vec<Option<Ps>>,
    fct: Vec<Vec<Option<Ps>>>,
    left: usize,
    fired: Vec<u32>,
    seen_ends: usize,
    seen_arrivals: usize,
}

/// Runs `spec` with `seed`. `folder`: where the files it names are looked for.
///
/// # Errors
/// If the spec does not fit together; the text names the field.
pub fn run(spec: &Spec, folder: &Path, seed: u64) -> Result<RunResult, String> {
    let topo = spec.network.build(folder)?;
    let flows = spec.workload.flows(&topo, folder, seed)?;
    if flows.flows.is_empty() {
        return Err("the workload has no flows".into());
    }
    let (settings, base_rtt) = settings_of(spec, &topo, &flows)?;
    let framing = framing_of(&settings);
    let floor_flows: Vec<FloorFlow> = flows.flows.iter().map(floor_flow).collect();
    let floor_ps = floors(&topo, &framing, &floor_flows);
    let faults = faults_of(&spec.fault, &topo, seed)?;
    let hosts = topo.hosts();
    let mut running = Running::new(spec, &flows, topo, &settings, seed)?;
    for (at, fault) in faults {
        running.world.fault_at(at, fault).map_err(|e| e.to_string())?;
    }
    let (cpu, wall) = (cpu_ns(), Instant::now());
    running.go();
    let (cpu_ns, wall_ns) = (cpu_ns() - cpu, wall.elapsed().as_nanos() as u64);
    let per_round: u64 = flows.flows.iter().map(|f| framing.packets(f.bytes)).sum();
    let Running { world, fct, board, .. } = running;
    let totals = world.totals();
    debug_assert!(totals.conserved());
    Ok(RunResult {
        spec: spec.clone(),
        seed,
        hosts,
        summary: Summary::of(&fct, &floor_ps),
        data_packets: per_round * fct.len() as u64,
        fct_ps: fct,
        floor_ps,
        flows: flows.flows.clone(),
        base_rtt_ps: base_rtt,
        failures: board.failures(),
        counters: counters_of(&world),
        drops: totals.drops,
        marked: totals.marked,
        packets_sent: totals.sent,
        events: totals.events,
        end_ps: world.now(),
        cpu_ns,
        wall_ns,
        memory_bytes: memory_bytes_max(),
        hash: world.run_hash(),
        goodput: goodput_of(&world),
        engine: settings.engine,
    })
}

fn floor_flow(f: &Flow) -> FloorFlow {
    // Flows that a trigger starts compete with nobody known in advance.
    let group = f.start_ps.map_or(u32::MAX, |_| 0);
    FloorFlow { src: f.src, dst: f.dst, bytes: f.bytes, group }
}

fn framing_of(settings: &SrdSettings) -> Framing {
    let kind = match settings.verb {
        Verb::Write => PacketType::Write,
        Verb::WriteImm => PacketType::WriteImm,
        Verb::Send => PacketType::Send,
    };
    Framing::new(settings.engine.mtu.into(), kind)
}

/// Settings of the hosts, and the largest base RTT between ends of a flow.
fn settings_of(spec: &Spec, topo: &Topology, flows: &Flows) -> Result<(SrdSettings, Ps), String> {
    let e = &spec.engine;
    let mut verb = match e.verb {
        VerbSpec::Write => Verb::Write,
        VerbSpec::WriteImm => Verb::WriteImm,
        VerbSpec::Send => Verb::Send,
    };
    if flows.flows.iter().any(|f| f.on_received.is_some()) {
        verb = Verb::WriteImm;
    }
    let full = Framing::new(e.mtu.into(), PacketType::Write).full();
    let mut ways = Ways::new(topo);
    // The base RTTs of a regular network take few values; a sample of the flows meets them all.
    let sample = flows.flows.iter().step_by(flows.flows.len().div_ceil(256));
    let rtts = sample.map(|f| ways.base_rtt(f.src, f.dst, full));
    let base_rtt = rtts.max().unwrap_or(10 * US);
    let line = topo.port(ways.uplink(flows.flows[0].src)).bits_per_s;
    let rtt = e.rtt_initial_us.map_or(base_rtt, |us| (us * 1e6) as Ps);
    let mut engine = engine_config(e.mtu, line, rtt);
    engine_override(&mut engine, e);
    engine.validate().map_err(|e| format!("engine: {e}"))?;
    if e.message_bytes == 0 || e.message_bytes > 1 << 30 {
        return Err("engine.message_bytes must be from 1 to 1,073,741,824".into());
    }
    let settings = SrdSettings {
        engine,
        verb,
        message_bytes: e.message_bytes,
        qp_shared: e.qp_shared,
        bucket_ps: spec.measure.goodput_us * US,
    };
    Ok((settings, base_rtt))
}

fn engine_override(c: &mut EngineConfig, e: &EngineSpec) {
    let bytes_per_s = |gbps: f64| (gbps * 1e9 / 8.0) as u64;
    if let Some(paths) = e.paths {
        c.path.paths = paths;
        c.path.live_min = c.path.live_min.min(paths);
    }
    if let Some(p) = e.path_policy {
        c.path.policy = match p {
            PathPolicySpec::Srd => PathPolicy::Srd,
            PathPolicySpec::Oblivious => PathPolicy::Oblivious,
            PathPolicySpec::Ecmp => PathPolicy::Ecmp,
            PathPolicySpec::RttP2c => PathPolicy::RttP2c,
        };
    }
    if let Some(p) = e.rate_policy {
        c.rate.policy = match p {
            RatePolicySpec::Srd => RatePolicy::Srd,
            RatePolicySpec::Fixed => RatePolicy::Fixed,
        };
    }
    if let Some(g) = e.fixed_gbps {
        c.rate.rate_fixed_bytes_per_sec = bytes_per_s(g);
    }
    if let Some(b) = e.fixed_inflight_bytes {
        c.rate.inflight_fixed_bytes = b;
    }
    if let Some(on) = e.credits {
        c.rate.credits = on;
    }
    if let Some(n) = e.ack_every {
        c.ack.every = n;
    }
}

impl<'a> Running<'a> {
    fn new(
        spec: &'a Spec,
        flows: &'a Flows,
        topo: Topology,
        settings: &SrdSettings,
        seed: u64,
    ) -> Result<Self, String> {
        let board: SharedBoard = Rc::new(Board::default());
        let host = |h| {
            let host_seed = stream_seed(seed, 0x5bd, u64::from(h));
            SrdHost::new(HostId(h), settings.clone(), host_seed, board.clone())
        };
        let mut hosts = (0..topo.hosts()).map(host).collect::<Result<Vec<_>, _>>()?;
        let mut tokens = Vec::new();
        for (i, f) in flows.flows.iter().enumerate() {
            tokens.push(flow_attach(&mut hosts, i as u32, f.src, f.dst, f.bytes)?);
        }
        let warm = warm_attach(&mut hosts, spec, &flows.flows)?;
        let mut hosts = hosts.into_iter();
        let world = World::new(topo, WorldConfig::new(seed), |_| {
            hosts.next().expect("one was made for each")
        });
        let mut world = world.map_err(|e| e.to_string())?;
        let mut rng = Rng::stream(seed, 0x3a93, 0);
        for (host, token) in warm {
            world.call_at(rng.below(WARM_SPREAD), host, token);
        }
        let fired = vec![0; flows.triggers.len()];
        Ok(Self {
            spec,
            flows,
            tokens,
            world,
            board,
            round: 0,
            started: Vec::new(),
            fct: Vec::new(),
            left: 0,
            fired,
            seen_ends: 0,
            seen_arrivals: 0,
        })
    }

    /// Runs all rounds, or until the time is up.
    fn go(&mut self) {
        let limit = self.spec.time_ms_max * MS;
        // Triggers act on the very event; a barrier of some microseconds can wait a little.
        let events = if self.flows.triggers.is_empty() { LOOK_EVERY } else { 1 };
        let ahead = (self.spec.workload.barrier_us * US / 2).max(US);
        self.round_start(self.spec.workload.start_us * US);
        while let Some(next) = self.world.next_event_at() {
            if next > limit {
                return;
            }
            // No further than that: after the last flow of a round the next event may be far.
            self.world.events_run(next + ahead, events);
            self.look();
            if self.left == 0 {
                if self.round + 1 == self.spec.workload.rounds {
                    return;
                }
                self.round += 1;
                let end = self.board.ends_from(self.seen_ends - 1)[0].at;
                self.round_start(end + self.spec.workload.barrier_us * US);
            }
        }
    }

    fn round_start(&mut self, at: Ps) {
        let n = self.flows.flows.len();
        self.started = vec![None; n];
        self.fct.push(vec![None; n]);
        self.left = n;
        self.fired.fill(0);
        for (i, f) in self.flows.flows.iter().enumerate() {
            if let Some(late) = f.start_ps {
                self.flow_start(i, at + late);
            }
        }
    }

    fn flow_start(&mut self, i: usize, at: Ps) {
        let at = at.max(self.world.now());
        self.started[i] = Some(at);
        let token = self.tokens[i] | u64::from(self.round) << 32;
        self.world.call_at(at, self.flows.flows[i].src, token);
    }

    /// Takes note of what ended, and lets triggers act.
    fn look(&mut self) {
        if self.board.ended() > self.seen_ends {
            let ends = self.board.ends_from(self.seen_ends);
            self.seen_ends += ends.len();
            for end in ends.iter().filter(|e| e.flow & WARM == 0) {
                self.flow_ended(end);
            }
        }
        if self.flows.triggers.is_empty() {
            return;
        }
        let arrivals = self.board.arrivals_from(self.seen_arrivals);
        self.seen_arrivals += arrivals.len();
        for a in arrivals.iter().filter(|a| a.flow & WARM == 0) {
            if let Some(t) = self.flows.flows[a.flow as usize].on_received {
                self.trigger_fire(t, a.at);
            }
        }
    }

    fn flow_ended(&mut self, end: &FlowEnd) {
        let i = end.flow as usize;
        let Some(start) = self.started[i] else { return };
        let fct = &mut self.fct[end.round as usize][i];
        if fct.is_none() {
            self.left -= 1;
        }
        // A flow that a trigger starts again counts with its last run.
        *fct = Some(end.at - start);
        if let Some(t) = self.flows.flows[i].on_sent {
            self.trigger_fire(t, end.at);
        }
    }

    fn trigger_fire(&mut self, id: u32, at: Ps) {
        let Some(n) = self.flows.triggers.iter().position(|t| t.id == id) else { return };
        let trigger = &self.flows.triggers[n];
        self.fired[n] += 1;
        let due = if trigger.once {
            self.fired[n] == trigger.needs
        } else {
            self.fired[n].is_multiple_of(trigger.needs)
        };
        if due {
            for i in trigger.starts.clone() {
                self.flow_start(i as usize, at);
            }
        }
    }
}

/// Adds a flow to its hosts; returns its token.
fn flow_attach(
    hosts: &mut [SrdHost],
    flow: u32,
    src: HostId,
    dst: HostId,
    bytes: u64,
) -> Result<u64, String> {
    let remote = hosts[dst.0 as usize].receive_from(src)?;
    hosts[src.0 as usize].flow_add(flow, dst, bytes, remote)
}

/// Adds a warming flow for each pair of hosts; returns where and with which token to start it.
fn warm_attach(
    hosts: &mut [SrdHost],
    spec: &Spec,
    flows: &[Flow],
) -> Result<Vec<(HostId, u64)>, String> {
    let bytes = spec.workload.warm_bytes;
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let mut pairs: Vec<(HostId, HostId)> = flows.iter().map(|f| (f.src, f.dst)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let mut out = Vec::new();
    for (k, (src, dst)) in pairs.into_iter().enumerate() {
        out.push((src, flow_attach(hosts, WARM | k as u32, src, dst, bytes)?));
    }
    Ok(out)
}

/// Sum of the engines' counters.
fn counters_of(world: &SrdWorld) -> Counters {
    let mut sum = Counters::default();
    for host in world.hosts() {
        let c = host.engine().counters();
        sum.tx_pkts += c.tx_pkts;
        sum.rx_pkts += c.rx_pkts;
        sum.rx_drops += c.rx_drops;
        sum.retrans_pkts += c.retrans_pkts;
        sum.retrans_bytes += c.retrans_bytes;
        sum.retrans_spurious_pkts += c.retrans_spurious_pkts;
        sum.retrans_timeout_events += c.retrans_timeout_events;
        sum.tlp_pkts += c.tlp_pkts;
        sum.ack_pkts += c.ack_pkts;
        sum.dup_pkts += c.dup_pkts;
        sum.ce_pkts += c.ce_pkts;
        sum.probe_pkts += c.probe_pkts;
        sum.paths_retired += c.paths_retired;
        sum.paths_returned += c.paths_returned;
        sum.stalls += c.stalls;
        sum.opens_sent += c.opens_sent;
    }
    sum
}

fn goodput_of(world: &SrdWorld) -> Vec<u64> {
    let mut sum = Vec::new();
    for host in world.hosts() {
        let placed = host.placed();
        if sum.len() < placed.len() {
            sum.resize(placed.len(), 0);
        }
        for (s, p) in sum.iter_mut().zip(placed) {
            *s += p;
        }
    }
    sum
}

/// CPU time of this thread in ns.
fn cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Largest resident memory of this process so far (0 where the kernel does not say).
fn memory_bytes_max() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kb = line.and_then(|l| l.split_whitespace().next()).and_then(|v| v.parse::<u64>().ok());
    kb.unwrap_or(0) * 1024
}
