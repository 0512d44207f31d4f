//! Runs with SRD hosts: settings, flows, counters.

use crate::away;
use crate::board::{Board, SharedBoard};
use crate::floor::{Framing, Ways};
use crate::host::{KernelCounts, SrdHost, SrdSettings, Verb, engine_config, socket_config};
use crate::packet::LabPacket;
use crate::policy::own_policies;
use crate::result::{Detail, Tally};
use crate::rounds::{Calls, Running, WARM};
use crate::run::{Outcome, Plan};
use crate::server::SrdServer;
use crate::spec::{DefaultsSpec, EngineSpec, HostPolicySpec, OrderSpec, Spec, VerbSpec};
use crate::state::HostState;
use crate::trace::Trace;
use crate::watch::{Watch, WatchSpec};
use crate::workload::{Flow, Flows};
use rustc_hash::{FxHashMap, FxHashSet};
use srd_core::config::{EngineConfig, HostPolicy, PathPolicy, RatePolicy};
use srd_core::counters::Counters;
use srd_core::guards::Guard;
use srd_core::policy::OwnPolicies;
use srd_core::wire::PacketType;
use srd_fabric::rng::stream_seed;
use srd_fabric::{HostId, Ps, Topology, US, World, WorldConfig};
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

/// Shortest barrier between rounds in us, longer than the windows of the simulator.
const BARRIER_US_MIN: u64 = 2;

type SrdWorld = World<LabPacket, SrdServer>;
/// Most processes of a host, which is the number of engine slots of an address.
pub const PROCESSES_MAX: u32 = 64;
/// Stream kind of the draws of a process' kernel model.
const STREAM_KERNEL: u64 = 0x6e015e;
/// First index of background flows.
const BACKGROUND: u32 = WARM | 1 << 30;

/// Executes a plan with SRD hosts.
///
/// # Errors
/// If the engine refuses its settings, or has no room for the flows.
pub fn run(plan: &Plan<'_>) -> Result<crate::RunResult, String> {
    let (settings, base_rtt) = settings_of(plan.spec, &plan.topo, &plan.flows)?;
    let framing = framing_of(&settings);
    let board: SharedBoard = Rc::new(Board::default());
    if settings.watch.arrivals {
        board.arrivals_await(plan.flows.flows.iter().map(|f| f.bytes));
    }
    let (hosts, calls) = hosts_of(plan, &settings, &board)?;
    let mut running =
        Running::new(plan.spec, &plan.flows, world_of(plan, hosts)?, board, calls, plan.seed);
    plan.prepare(&mut running.world)?;
    let trace = Trace::start(plan, &mut running.world);
    Ok(plan.execute(running, &framing, base_rtt, |world| {
        let out = outcome(&world.hosts().iter().collect::<Vec<_>>(), plan, settings.engine);
        Outcome { trace: trace.map(|t| t.finish(plan, world)), ..out }
    }))
}

/// The hosts with their flows, and the calls that start these.
///
/// # Errors
/// If the engine refuses its settings, or has no room for the flows.
pub fn hosts_of(
    plan: &Plan<'_>,
    settings: &SrdSettings,
    board: &SharedBoard,
) -> Result<(Vec<SrdServer>, Calls), String> {
    let e = &plan.spec.engine;
    let processes = e.senders_per_host.max(e.receivers_per_host).max(plan.flows.processes);
    let shares = settings.engine.host_shared;
    let pairs = &plan.flows.background;
    let background_hosts: FxHashSet<HostId> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
    let model = plan.model.clone().map(Arc::new);
    let host = |h| {
        let table = Rc::new(OnceCell::new());
        let process = |k| {
            let seed = stream_seed(plan.seed, 0x5bd, u64::from(h) | u64::from(k) << 32);
            let mut settings = settings.clone();
            settings.engine.slot = k as u8;
            if background_hosts.contains(&HostId(h)) {
                // Background flows use one path only.
                settings.engine.own = OwnPolicies::default();
                settings.engine.path.policy = PathPolicy::Ecmp;
                let window = plan.spec.workload.background_window_bytes;
                settings.engine.rate.policy =
                    if window > 0 { RatePolicy::Fixed } else { RatePolicy::Srd };
                settings.engine.rate.inflight_fixed_bytes = window;
            }
            let mut process =
                SrdHost::new(HostId(h), settings, seed, board.clone(), plan.recorder.clone())?;
            if let Some(model) = &model {
                let id = u64::from(h) | u64::from(k) << 32;
                process.kernel_set(Arc::clone(model), stream_seed(plan.seed, STREAM_KERNEL, id));
            }
            if shares {
                process.share_set(Rc::clone(&table), k);
            }
            Ok(process)
        };
        Ok(SrdServer::new((0..processes).map(process).collect::<Result<_, String>>()?))
    };
    let mut hosts = (0..plan.topo.hosts()).map(host).collect::<Result<Vec<_>, String>>()?;
    let flows = &plan.flows.flows;
    let ends = ends_of(&plan.flows, e);
    let mut tokens = Vec::new();
    for (i, (f, ends)) in flows.iter().zip(&ends).enumerate() {
        tokens.push(flow_attach(&mut hosts, i as u32, ends, f.bytes)?);
    }
    let mut background = Vec::new();
    for (k, (src, dst)) in plan.flows.background.iter().enumerate() {
        let ends = Ends { src: (*src, 0), dst: (*dst, 0) };
        let flow = BACKGROUND | k as u32;
        let bytes = plan.spec.workload.background_bytes;
        background.push((*src, flow_attach(&mut hosts, flow, &ends, bytes)?));
    }
    let warm = warm_attach(&mut hosts, plan.spec.workload.warm_bytes, ends)?;
    Ok((hosts, Calls { tokens, warm, background }))
}

fn world_of(plan: &Plan<'_>, hosts: Vec<SrdServer>) -> Result<SrdWorld, String> {
    let mut hosts = hosts.into_iter();
    let mut config = away::world_config(plan.spec, WorldConfig::new(plan.seed));
    // Within windows, hosts share only the board, which records times. Triggers and records of
    // packets need events in order.
    config.windows = plan.flows.program.is_none()
        && !plan.spec.measure.trace
        && !plan.recorder.is_on()
        && plan.flows.triggers.is_empty()
        && plan.spec.workload.barrier_us >= BARRIER_US_MIN;
    let world =
        World::new(plan.topo.clone(), config, |_| hosts.next().expect("one was made for each"));
    world.map_err(|e| e.to_string())
}

/// The transport's part of the results.
pub fn outcome(hosts: &[&SrdServer], plan: &Plan<'_>, engine: EngineConfig) -> Outcome {
    let counters = counters_of(hosts);
    let kernels = processes(hosts).filter_map(SrdHost::kernel_counts);
    let kernels = kernels.reduce(KernelCounts::plus);
    let tally = Tally {
        socket_drops: kernels.map_or(0, |k| k.socket_drops),
        retransmitted: counters.retrans_pkts,
        spurious: counters.retrans_spurious_pkts,
        timeouts: counters.retrans_timeout_events,
        tail_probes: counters.tlp_pkts,
        acks: counters.ack_pkts,
        duplicates: counters.dup_pkts,
    };
    let mut flow_goodput = Vec::new();
    if plan.spec.measure.flows {
        flow_goodput = vec![Vec::new(); plan.flows.flows.len()];
        for (flow, series) in processes(hosts).flat_map(|h| h.watch().flows()) {
            flow_goodput[*flow as usize].clone_from(series);
        }
    }
    Outcome {
        detail: Detail::Srd { engine: Box::new(engine), counters: Box::new(counters), kernels },
        tally,
        goodput: goodput_of(hosts),
        flow_goodput,
        order: Watch::order_cost(processes(hosts).map(SrdHost::watch)),
        trace: None,
        state: state_of(hosts),
    }
}

/// Packets of the transport.
pub fn framing_of(settings: &SrdSettings) -> Framing {
    let kind = match settings.verb {
        Verb::Write => PacketType::Write,
        Verb::WriteImm => PacketType::WriteImm,
        Verb::Send => PacketType::Send,
    };
    Framing::new(settings.engine.mtu.into(), kind)
}

/// Settings of the hosts, and the largest base RTT between the ends of a flow.
///
/// # Errors
/// If a setting is invalid; the text names the field.
pub fn settings_of(
    spec: &Spec,
    topo: &Topology,
    flows: &Flows,
) -> Result<(SrdSettings, Ps), String> {
    let e = &spec.engine;
    let mut verb = match e.verb {
        VerbSpec::Write => Verb::Write,
        VerbSpec::WriteImm => Verb::WriteImm,
        VerbSpec::Send => Verb::Send,
    };
    if flows.program.is_some() || flows.flows.iter().any(|f| f.on_received.is_some()) {
        verb = Verb::WriteImm;
    }
    let full = Framing::new(e.mtu.into(), PacketType::Write).full();
    let mut ways = Ways::new(topo);
    // Base RTTs of a regular network take few values, which a sample of the flows covers.
    let sample = flows.flows.iter().step_by(flows.flows.len().div_ceil(256));
    let rtts = sample.map(|f| ways.base_rtt(f.src, f.dst, full));
    let base_rtt = rtts.max().unwrap_or(10 * US);
    let line = topo.port(ways.uplink(flows.flows[0].src)).bits_per_s;
    let told = e.rtt_initial_us.map(|us| (us * 1e6) as Ps);
    let mut engine = match e.defaults {
        DefaultsSpec::Datacenter => engine_config(e.mtu, line, told.unwrap_or(base_rtt)),
        DefaultsSpec::Sockets => socket_config(e.mtu, line, told),
    };
    if e.line_learnt {
        let known = EngineConfig::sockets(engine.ip, 0, e.mtu);
        engine.rate.target_min = engine.rate.target_min.min(known.rate.target_min);
        engine.line_unknown();
    }
    let engines = e.senders_per_host.max(e.receivers_per_host).max(flows.processes);
    engine_override(&mut engine, e, engines)?;
    engine.validate().map_err(|e| format!("engine: {e}"))?;
    if e.message_bytes == 0 || e.message_bytes > 1 << 30 {
        return Err("engine.message_bytes must be from 1 to 1,073,741,824".into());
    }
    for (field, n) in [("senders", e.senders_per_host), ("receivers", e.receivers_per_host)] {
        if !(1..=PROCESSES_MAX).contains(&n) {
            return Err(format!("engine.{field}_per_host = {n} must be from 1 to {PROCESSES_MAX}"));
        }
    }
    let settings = SrdSettings {
        engine,
        verb,
        message_bytes: e.message_bytes,
        qp_shared: e.qp_shared,
        messages: flows.program.is_some(),
        watch: WatchSpec {
            bucket_ps: spec.measure.goodput_us * US,
            flows: spec.measure.flows,
            order: spec.measure.order,
            drop_early: e.order == OrderSpec::Drop,
            progress: spec.measure.observe,
            // Other verbs have no addresses, from which arrivals are computed.
            arrivals: spec.measure.phase && matches!(verb, Verb::Write),
        },
    };
    Ok((settings, base_rtt))
}

fn engine_override(c: &mut EngineConfig, e: &EngineSpec, engines: u32) -> Result<(), String> {
    let bytes_per_s = |gbps: f64| (gbps * 1e9 / 8.0) as u64;
    if let Some(paths) = e.paths {
        c.path.paths = paths;
        c.path.live_min = c.path.live_min.min(paths);
    }
    // Names of added policies leave the engine's in place, which are not asked then.
    c.own = own_policies(e)?;
    c.path.policy = match e.path_policy.as_deref() {
        Some("oblivious") => PathPolicy::Oblivious,
        Some("ecmp") => PathPolicy::Ecmp,
        Some("rtt-p2c") => PathPolicy::RttP2c,
        _ => PathPolicy::Srd,
    };
    c.rate.policy = match e.rate_policy.as_deref() {
        Some("fixed") => RatePolicy::Fixed,
        _ => RatePolicy::Srd,
    };
    if let Some(p) = e.host_policy {
        c.rate.host_policy = match p {
            HostPolicySpec::Off => HostPolicy::Off,
            HostPolicySpec::StopGo => HostPolicy::StopGo,
            HostPolicySpec::Budget => HostPolicy::Budget,
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
    if let Some(n) = e.burst_packets {
        if !(1..=64).contains(&n) {
            return Err("engine.burst_packets: from 1 to 64".into());
        }
        c.burst_packets = n;
    }
    let own_rate = c.own.rate.is_some();
    c.host_shared = e.host_shared && engines > 1 && c.rate.policy == RatePolicy::Srd && !own_rate;
    for name in &e.guards_off {
        let guard = Guard::ALL.iter().find(|g| g.name() == name).ok_or_else(|| {
            let names: Vec<_> = Guard::ALL.iter().map(|g| g.name()).collect();
            format!(
                "engine.guards_off: there is no guard `{name}`; the guards are {}",
                names.join(", ")
            )
        })?;
        c.guards = c.guards.without(*guard);
    }
    Ok(())
}

/// Hosts and processes at both ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ends {
    src: (HostId, usize),
    dst: (HostId, usize),
}

/// Assigns the flows of a host to its processes in turn.
fn ends_of(flows: &Flows, e: &EngineSpec) -> Vec<Ends> {
    let mut sent: FxHashMap<HostId, usize> = FxHashMap::default();
    let between = |(i, f): (u32, &Flow)| {
        let (from, to) = flows.processes_of(i);
        Ends { src: (f.src, from as usize), dst: (f.dst, to as usize) }
    };
    if flows.processes > 1 {
        return (0..).zip(&flows.flows).map(between).collect();
    }
    let ends = |f: &Flow| {
        let n = sent.entry(f.src).or_default();
        let k = std::mem::replace(n, *n + 1);
        Ends {
            src: (f.src, k % e.senders_per_host as usize),
            dst: (f.dst, k % e.receivers_per_host as usize),
        }
    };
    flows.flows.iter().map(ends).collect()
}

/// Adds a flow to its hosts; returns its token.
fn flow_attach(hosts: &mut [SrdServer], flow: u32, ends: &Ends, bytes: u64) -> Result<u64, String> {
    let (src, dst) = (ends.src.0, ends.dst.0);
    let remote = hosts[dst.0 as usize].receive_from(ends.dst.1, src)?;
    hosts[src.0 as usize].flow_add(ends.src.1, flow, dst, bytes, remote)
}

/// Adds a warm-up flow for each pair of processes; returns the host and token that start it.
fn warm_attach(
    hosts: &mut [SrdServer],
    bytes: u64,
    mut ends: Vec<Ends>,
) -> Result<Vec<(HostId, u64)>, String> {
    if bytes == 0 {
        return Ok(Vec::new());
    }
    ends.sort_unstable();
    ends.dedup();
    let mut out = Vec::new();
    for (k, ends) in ends.iter().enumerate() {
        out.push((ends.src.0, flow_attach(hosts, WARM | k as u32, ends, bytes)?));
    }
    Ok(out)
}

fn processes<'a>(hosts: &'a [&'a SrdServer]) -> impl Iterator<Item = &'a SrdHost> {
    hosts.iter().flat_map(|h| h.processes())
}

/// The most of each kind of state on any host.
fn state_of(hosts: &[&SrdServer]) -> HostState {
    hosts
        .iter()
        .map(|h| h.processes().map(SrdHost::state))
        .fold(HostState::default(), |most, own| {
            most.most(own.reduce(HostState::plus).unwrap_or_default())
        })
}

/// Sum of the engines' counters.
fn counters_of(hosts: &[&SrdServer]) -> Counters {
    let mut sum = Counters::default();
    for host in processes(hosts) {
        let c = host.engine().counters();
        sum.tx_pkts += c.tx_pkts;
        sum.rx_pkts += c.rx_pkts;
        sum.rx_drops += c.rx_drops;
        sum.retrans_pkts += c.retrans_pkts;
        sum.retrans_bytes += c.retrans_bytes;
        sum.retrans_spurious_pkts += c.retrans_spurious_pkts;
        sum.echoes_refused += c.echoes_refused;
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
        sum.contexts_opened += c.contexts_opened;
        sum.contexts_closed += c.contexts_closed;
    }
    sum
}

fn goodput_of(hosts: &[&SrdServer]) -> Vec<u64> {
    let mut sum = Vec::new();
    for host in processes(hosts) {
        let placed = host.watch().series();
        if sum.len() < placed.len() {
            sum.resize(placed.len(), 0);
        }
        for (s, p) in sum.iter_mut().zip(placed) {
            *s += p;
        }
    }
    sum
}
