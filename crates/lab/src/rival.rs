//! Runs with hosts of the crate of rivals that send messages over connections: each flow has a
//! connection of its own, which stays over the rounds.
//!
//! A flow ends when its sender has the last acknowledgment, as with SRD.

use crate::away;
use crate::board::{Board, FlowEnd, SharedBoard};
use crate::floor::{Framing, Ways};
use crate::observe::{Counted, Resent};
use crate::result::{Detail, RunResult, Tally};
use crate::rounds::{Calls, Running};
use crate::run::{Outcome, Plan};
use crate::spec::Transport;
use crate::state::{HostState, States};
use crate::trace::{Trace, Traced};
use crate::workload::Flow;
use rustc_hash::FxHashMap;
use srd_fabric::rng::stream_seed;
use srd_fabric::{Delivered, Host, HostId, HostIo, Ps, US, World};
use srd_rivals::rc::RcHost;
use srd_rivals::ue::UeHost;
use srd_rivals::{FlowHost, Repeats};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Stream kind of a host's draws.
const STREAM_HOST: u64 = 0x21a1;

/// The transport's part of the results of a run.
#[derive(Clone, Debug, Default)]
pub struct RivalOutcome {
    /// Names and values of all parameters.
    pub parameters: Vec<(String, String)>,
    /// Payload of a full packet in bytes.
    pub payload_bytes: u32,
    /// Sums of the counters of all hosts.
    pub counts: Vec<(&'static str, u64)>,
}

/// Flow of each connection, and arrived payload over time; shared by the hosts of a run.
#[derive(Debug, Default)]
pub struct Registry {
    flow_of: FxHashMap<(HostId, u32), u32>,
    /// Reliable datagram: flows whose messages a connection carries, in order, with the bytes of
    /// each that have not arrived.
    queued: FxHashMap<(HostId, u32), VecDeque<(u32, u64)>>,
    /// Length of an interval; 0: nothing is recorded.
    interval_ps: Ps,
    /// Payload of each flow per interval.
    goodput: Vec<Vec<u64>>,
    /// Whether the progress of flows is recorded.
    observed: bool,
    /// Messages of each flow that have not arrived; empty unless flows carry those of a program.
    awaited: Vec<Awaited>,
}

impl Registry {
    /// The flow of the next `bytes` that arrive on a connection.
    fn flow_of(&mut self, conn: (HostId, u32), bytes: u32) -> Option<u32> {
        let Some(queue) = self.queued.get_mut(&conn) else {
            return self.flow_of.get(&conn).copied();
        };
        let (flow, left) = queue.front_mut()?;
        let flow = *flow;
        *left = left.saturating_sub(bytes.into());
        if *left == 0 {
            queue.pop_front();
        }
        Some(flow)
    }
}

/// Messages of one flow under way to its receiver, which the connection carries in order.
#[derive(Debug)]
struct Awaited {
    bytes: u64,
    /// Bytes of the first message that have not arrived.
    left: u64,
    numbers: VecDeque<u32>,
}

/// A flow in the state of its sender.
#[derive(Clone, Debug)]
struct Sending {
    flow: u32,
    dst: HostId,
    bytes: u64,
    conn: Option<u32>,
}

/// A host, with the board to which it reports the ends of flows.
pub struct RivalHost<H> {
    host: H,
    registry: Rc<RefCell<Registry>>,
    board: SharedBoard,
    sending: Vec<Sending>,
    /// Reliable datagram: the connection to each host, which all processes use.
    contexts: Option<FxHashMap<HostId, u32>>,
}

impl<H> RivalHost<H> {
    fn report<P>(&mut self, now: Ps)
    where
        H: FlowHost<P>,
    {
        let reports = self.host.reports();
        for done in reports.done.drain(..) {
            let (flow, round) = ((done.tag & 0xFFFF_FFFF) as u32, (done.tag >> 32) as u32);
            self.board.flow_end(FlowEnd { flow, round, at: done.at });
            if self.registry.borrow().awaited.is_empty() {
                self.board.flow_arrived(FlowEnd { flow, round, at: done.at });
            }
        }
        if reports.got.is_empty() {
            return;
        }
        let registry = &mut *self.registry.borrow_mut();
        for got in reports.got.drain(..) {
            let Some(flow) = registry.flow_of((got.src, got.conn), got.bytes) else { continue };
            if registry.observed {
                self.board.progress_add(flow, got.bytes);
            }
            if let Some(awaited) = registry.awaited.get_mut(flow as usize) {
                awaited.take(flow, got.bytes, now, &self.board);
            }
            let Some(at) = now.checked_div(registry.interval_ps) else { continue };
            let series = &mut registry.goodput[flow as usize];
            if series.len() <= at as usize {
                series.resize(at as usize + 1, 0);
            }
            series[at as usize] += u64::from(got.bytes);
        }
    }
}

impl<P, H: FlowHost<P>> Host<P> for RivalHost<H> {
    fn on_packet(&mut self, now: Ps, packet: Delivered<P>, io: &mut HostIo<'_, P>) {
        self.host.on_packet(now, packet, io);
        self.report(now);
    }

    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, P>) {
        self.host.on_timer(now, io);
        self.report(now);
    }

    fn on_room(&mut self, now: Ps, io: &mut HostIo<'_, P>) {
        self.host.on_room(now, io);
    }

    /// Starts a flow, or its next round.
    fn on_call(&mut self, _: Ps, token: u64, io: &mut HostIo<'_, P>) {
        let sending = &mut self.sending[(token & 0xFFFF_FFFF) as usize];
        let (host, registry) = (&mut self.host, &self.registry);
        let context = &mut self.contexts;
        let conn = *sending.conn.get_or_insert_with(|| {
            let mut connect = || host.connect(sending.dst);
            let conn = match context {
                Some(of) => *of.entry(sending.dst).or_insert_with(connect),
                None => connect(),
            };
            registry.borrow_mut().flow_of.insert((io.host(), conn), sending.flow);
            conn
        });
        if context.is_some() {
            let queued = &mut registry.borrow_mut().queued;
            let queue = queued.entry((io.host(), conn)).or_default();
            queue.push_back((sending.flow, sending.bytes));
        }
        if let Some(awaited) = registry.borrow_mut().awaited.get_mut(sending.flow as usize) {
            awaited.numbers.push_back((token >> 32) as u32);
        }
        let tag = u64::from(sending.flow) | token >> 32 << 32;
        host.post(conn, tag, sending.bytes, io);
    }
}

impl Awaited {
    /// Takes arrived payload, and reports messages that are complete.
    fn take(&mut self, flow: u32, bytes: u32, at: Ps, board: &Board) {
        let mut rest = u64::from(bytes);
        while rest >= self.left {
            let Some(round) = self.numbers.pop_front() else { return };
            rest -= std::mem::replace(&mut self.left, self.bytes);
            board.flow_arrived(FlowEnd { flow, round, at });
        }
        self.left -= rest;
    }
}

/// No message under way.
fn awaited(flows: &[Flow]) -> Vec<Awaited> {
    let one = |f: &Flow| Awaited { bytes: f.bytes, left: f.bytes, numbers: VecDeque::new() };
    flows.iter().map(one).collect()
}

/// A rival's retransmissions, whatever its packets are.
pub trait Repeating {
    /// Repetitions since the start.
    fn repeated(&self) -> Repeats;
}
impl Repeating for RcHost {
    fn repeated(&self) -> Repeats {
        self.repeats()
    }
}

impl Repeating for UeHost {
    fn repeated(&self) -> Repeats {
        self.repeats()
    }
}

impl<H: Repeating> Counted for RivalHost<H> {
    fn resent(&self) -> Resent {
        let Repeats { packets, timeouts, .. } = self.host.repeated();
        Resent { packets, timeouts }
    }
}

/// Executes a plan with RoCEv2's reliable connections.
///
/// # Errors
/// If a setting is invalid; the text names the field.
pub fn run_rc(plan: &Plan<'_>) -> Result<RunResult, String> {
    let (start, make) = start_rc(plan)?;
    run(plan, &start, make)
}

/// Settings of reliable connections, and what makes a host.
///
/// # Errors
/// If a setting is invalid; the text names the field.
pub fn start_rc(plan: &Plan<'_>) -> Result<(Start, impl Fn(HostId, u64) -> RcHost), String> {
    let (line_bps, bdp_bytes) = rates(plan, 4_178);
    let config = Arc::new(plan.spec.rc.config(line_bps, bdp_bytes)?);
    let framing = Framing::tcp(config.mtu, config.header_bytes).ends_at_sender();
    let start = Start {
        framing,
        packet_bytes: config.mtu + config.header_bytes,
        parameters: config.parameters(),
    };
    Ok((start, move |id, seed| RcHost::new(id, Arc::clone(&config), seed)))
}

/// Executes a plan with Ultra Ethernet's congestion control.
///
/// # Errors
/// If a setting is invalid; the text names the field.
pub fn run_ue(plan: &Plan<'_>) -> Result<RunResult, String> {
    let (start, make) = start_ue(plan)?;
    run(plan, &start, make)
}

/// Settings of Ultra Ethernet's congestion control, and what makes a host.
///
/// # Errors
/// If a setting is invalid; the text names the field.
pub fn start_ue(plan: &Plan<'_>) -> Result<(Start, impl Fn(HostId, u64) -> UeHost), String> {
    let spec = &plan.spec.ue;
    let (line_bps, _) = rates(plan, 4_160);
    let base_rtt = plan.base_rtt(&Framing::tcp(4_160, 0));
    let buffer = plan.spec.network.shared_buffer_bytes.unwrap_or(plan.spec.network.buffer_bytes);
    let drain_ps = (buffer as f64 * 8e12 / line_bps) as Ps;
    let config = Arc::new(spec.config(base_rtt, line_bps, drain_ps)?);
    let framing = Framing::tcp(config.mtu, config.header_bytes).ends_at_sender();
    let (packet_bytes, parameters) = (config.wire_bytes(), config.parameters());
    let start = Start { framing, packet_bytes, parameters };
    Ok((start, move |id, seed| UeHost::new(id, Arc::clone(&config), seed)))
}

/// Rate of hosts' links, and bandwidth-delay product in bytes with packets of `packet_bytes`.
fn rates(plan: &Plan<'_>, packet_bytes: u32) -> (f64, u64) {
    let framing = Framing::tcp(packet_bytes, 0);
    let uplink = Ways::new(&plan.topo).uplink(plan.flows.flows[0].src);
    let line = plan.topo.port(uplink).bits_per_s as f64;
    (line, (plan.base_rtt(&framing) as f64 * line / 8e12) as u64)
}

/// What a run needs of a rival's configuration.
pub struct Start {
    /// Packets of the transport.
    pub framing: Framing,
    /// Bytes of a full packet on the wire.
    pub packet_bytes: u32,
    parameters: Vec<(String, String)>,
}

fn run<P: Clone + Traced + 'static, H: FlowHost<P> + Repeating>(
    plan: &Plan<'_>,
    start: &Start,
    make: impl Fn(HostId, u64) -> H,
) -> Result<RunResult, String> {
    let board: SharedBoard = Rc::new(Board::default());
    let (hosts, calls, registry) = hosts_of(plan, make, &board)?;
    let mut hosts = hosts.into_iter();
    let config = plan.spec.network.world_config(plan.seed, start.packet_bytes);
    let config = away::world_config(plan.spec, config);
    let world = World::new(plan.topo.clone(), config, |_| hosts.next().expect("one for each"));
    let world = world.map_err(|e| format!("network: {e}"))?;
    let mut running = Running::new(plan.spec, &plan.flows, world, board, calls, plan.seed);
    plan.prepare(&mut running.world)?;
    let trace = Trace::start(plan, &mut running.world);
    let base_rtt = plan.base_rtt(&start.framing);
    Ok(plan.execute(running, &start.framing, base_rtt, |world| {
        let hosts: Vec<_> = world.hosts().iter().collect();
        let out = outcome(&hosts, plan, start, &registry.borrow());
        Outcome { trace: trace.map(|t| t.finish(plan, world)), ..out }
    }))
}

/// Whether the transport is a reliable datagram, whose connections are between hosts and serve all
/// of their processes. The messages of a program have connections of their own.
fn is_datagram(plan: &Plan<'_>) -> bool {
    plan.spec.transport == Transport::Rc
        && plan.spec.rc.outstanding == Some(1)
        && plan.flows.program.is_none()
}

/// Checks the settings of a plan of reliable connections or of Ultra Ethernet.
///
/// # Errors
/// If a setting is invalid, or the spec asks for what only SRD has; the text names the field.
pub fn check(plan: &Plan<'_>) -> Result<(), String> {
    if plan.spec.measure.order || plan.spec.workload.background_pairs > 0 {
        return Err(
            "measure.order and workload.background_pairs: only runs with SRD have them".into()
        );
    }
    match plan.spec.transport {
        Transport::Ue => start_ue(plan).map(drop),
        _ => start_rc(plan).map(drop),
    }
}

/// Registry shared by the hosts of a run.
pub type SharedRegistry = Rc<RefCell<Registry>>;

/// The hosts with their flows, and the calls that start these.
///
/// # Errors
/// If the plan fails [`check`]; the text names the field.
pub fn hosts_of<H>(
    plan: &Plan<'_>,
    make: impl Fn(HostId, u64) -> H,
    board: &SharedBoard,
) -> Result<(Vec<RivalHost<H>>, Calls, SharedRegistry), String> {
    check(plan)?;
    let flows = &plan.flows.flows;
    let registry = Rc::new(RefCell::new(Registry {
        flow_of: FxHashMap::default(),
        queued: FxHashMap::default(),
        interval_ps: plan.spec.measure.goodput_us * US,
        goodput: vec![Vec::new(); flows.len()],
        observed: plan.spec.measure.observe,
        awaited: if plan.flows.program.is_some() { awaited(flows) } else { Vec::new() },
    }));
    let host = |h: u32| RivalHost {
        host: make(HostId(h), stream_seed(plan.seed, STREAM_HOST, h.into())),
        registry: Rc::clone(&registry),
        board: Rc::clone(board),
        sending: Vec::new(),
        contexts: is_datagram(plan).then(FxHashMap::default),
    };
    let mut hosts: Vec<RivalHost<H>> = (0..plan.topo.hosts()).map(host).collect();
    let mut calls = Calls { tokens: Vec::new(), warm: Vec::new(), background: Vec::new() };
    for (flow, f) in (0..).zip(flows) {
        let sending = &mut hosts[f.src.0 as usize].sending;
        calls.tokens.push(sending.len() as u64);
        sending.push(Sending { flow, dst: f.dst, bytes: f.bytes, conn: None });
    }
    Ok((hosts, calls, registry))
}

/// The transport's part of the results.
pub fn outcome<P, H: FlowHost<P> + Repeating>(
    hosts: &[&RivalHost<H>],
    plan: &Plan<'_>,
    start: &Start,
    registry: &Registry,
) -> Outcome {
    let mut counts: Vec<(&'static str, u64)> = Vec::new();
    let mut sum = Repeats::default();
    for host in hosts {
        let r = host.host.repeats();
        sum.packets += r.packets;
        sum.timeouts += r.timeouts;
        sum.duplicates += r.duplicates;
        sum.acks += r.acks;
        for (name, n) in host.host.counts() {
            match counts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => *all += n,
                None => counts.push((name, n)),
            }
        }
    }
    let mut goodput = Vec::new();
    for series in &registry.goodput {
        if goodput.len() < series.len() {
            goodput.resize(series.len(), 0);
        }
        goodput.iter_mut().zip(series).for_each(|(all, bytes)| *all += bytes);
    }
    let detail = RivalOutcome {
        parameters: start.parameters.clone(),
        payload_bytes: start.framing.mtu,
        counts,
    };
    let tally = Tally {
        retransmitted: sum.packets,
        spurious: sum.duplicates,
        timeouts: sum.timeouts,
        acks: sum.acks,
        duplicates: sum.duplicates,
        ..Tally::default()
    };
    let flow_goodput = if plan.spec.measure.flows { registry.goodput.clone() } else { Vec::new() };
    Outcome {
        detail: Detail::Rival(Box::new(detail)),
        tally,
        goodput,
        flow_goodput,
        order: None,
        trace: None,
        state: state_of(hosts, plan),
    }
}

/// Queue pairs of the host that has most, and the bytes of their ends.
fn state_of<P, H: FlowHost<P>>(hosts: &[&RivalHost<H>], plan: &Plan<'_>) -> HostState {
    let mut states = States::new(plan);
    for s in hosts.iter().flat_map(|h| &h.sending).filter(|s| s.conn.is_some()) {
        states.connected(s.flow);
    }
    let bytes = |h: usize| hosts[h].host.state_bytes();
    if is_datagram(plan) { states.datagram(bytes) } else { states.most(bytes) }
}
