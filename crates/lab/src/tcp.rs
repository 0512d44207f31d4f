//! Runs with TCP hosts: each flow is a connection of its own that stays open over the rounds.
//!
//! A flow ends when its last byte has arrived in order: half a round trip earlier than SRD's flows,
//! which end at the last acknowledgment.

use crate::away;
use crate::board::{Board, FlowEnd, SharedBoard};
use crate::floor::Framing;
use crate::observe::{Counted, Resent};
use crate::result::{Detail, Tally};
use crate::rounds::{Calls, Running, WARM};
use crate::run::{Outcome, Plan};
use crate::spec::Spec;
use crate::state::{HostState, States};
use crate::trace::Trace;
use rustc_hash::{FxHashMap, FxHashSet};
use srd_fabric::{Delivered, Host, HostId, HostIo, Ps, Rng, US, World, WorldConfig};
use srd_rivals::{Conn, TcpConfig, TcpHost, TcpSegment};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Port of servers, and the range of clients' ephemeral ports.
const PORT_SERVER: u16 = 5001;
const PORT_FIRST: u64 = 32_768;
const PORTS: u64 = 28_232;
/// Stream kind of ports.
const STREAM_PORTS: u64 = 0x7c9;
/// Token value, in place of a round, that opens the connection and warms it up.
const WARM_ROUND: u32 = u32::MAX;

/// Flows of connections, shared by the hosts of a run.
#[derive(Debug, Default)]
struct Registry {
    /// Flow of each connection, by sending host and connection index.
    flow_of: FxHashMap<Conn, u32>,
    /// Rounds of each flow's messages, in the order of writing.
    written: Vec<Vec<u32>>,
    /// Number of each flow's messages that have arrived.
    arrived: Vec<usize>,
}

/// A flow in the state of its sender.
#[derive(Clone, Debug)]
struct Sending {
    flow: u32,
    dst: HostId,
    bytes: u64,
    sport: u16,
    conn: Option<Conn>,
}

/// A host that speaks TCP and reports the ends of flows to the board.
pub struct TcpLabHost {
    tcp: TcpHost,
    received: Arc<AtomicU64>,
    registry: Rc<RefCell<Registry>>,
    board: SharedBoard,
    sending: Vec<Sending>,
    warm_bytes: u64,
    /// Whether the progress of flows is recorded.
    observed: bool,
}

impl Counted for TcpLabHost {
    fn resent(&self) -> Resent {
        let c = self.tcp.counters();
        Resent { packets: c.retransmits, timeouts: c.timeouts }
    }
}

impl TcpLabHost {
    fn write(&mut self, i: usize, round: u32, io: &mut HostIo<'_, TcpSegment>) {
        let s = &mut self.sending[i];
        let conn = *s.conn.get_or_insert_with(|| {
            let conn = self.tcp.connect(s.dst, (s.sport, PORT_SERVER), io);
            self.registry.borrow_mut().flow_of.insert(conn, s.flow);
            conn
        });
        let bytes = if round == WARM_ROUND { self.warm_bytes } else { s.bytes };
        self.registry.borrow_mut().written[s.flow as usize].push(round);
        self.tcp.write(conn, bytes, io);
    }

    /// Reports messages that have arrived on a connection.
    fn arrivals_tell(&self, conn: Conn, now: Ps) {
        let mut registry = self.registry.borrow_mut();
        let Some(flow) = registry.flow_of.get(&conn).copied() else { return };
        let all = self.tcp.arrivals(conn).len();
        let seen = std::mem::replace(&mut registry.arrived[flow as usize], all);
        if self.observed {
            let warm = if registry.written[flow as usize].first() == Some(&WARM_ROUND) {
                self.warm_bytes
            } else {
                0
            };
            let bytes = self.tcp.received_bytes(conn);
            self.board.progress_set(flow, bytes.saturating_sub(warm));
        }
        for k in seen..all {
            let round = registry.written[flow as usize][k];
            if round != WARM_ROUND {
                self.board.flow_end(FlowEnd { flow, round, at: now });
                self.board.flow_arrived(FlowEnd { flow, round, at: now });
            } else {
                self.board.flow_end(FlowEnd { flow: flow | WARM, round: 0, at: now });
            }
        }
    }
}

impl Host<TcpSegment> for TcpLabHost {
    fn on_packet(
        &mut self,
        now: Ps,
        packet: Delivered<TcpSegment>,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        let conn = match packet.payload {
            // Subflows of Multipath TCP are told by the first of their connection.
            TcpSegment::Data { conn, group, .. } => {
                let index = if group == u32::MAX { conn } else { group };
                Some(Conn { src: packet.src, index })
            }
            _ => None,
        };
        // A card with a ring drops packets that do not fit; TCP does not see them.
        if conn.is_some() && io.rx_ring_put().is_err() {
            return;
        }
        let before = self.received.load(Ordering::Relaxed);
        self.tcp.on_packet(now, packet, io);
        if let Some(conn) = conn
            && (self.observed || self.received.load(Ordering::Relaxed) > before)
        {
            self.arrivals_tell(conn, now);
        }
    }

    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, TcpSegment>) {
        self.tcp.on_timer(now, io);
    }

    /// Starts a flow, or its next round.
    fn on_call(&mut self, _: Ps, token: u64, io: &mut HostIo<'_, TcpSegment>) {
        self.write((token & 0xFFFF_FFFF) as usize, (token >> 32) as u32, io);
    }
}

/// Executes a plan with TCP hosts.
///
/// # Errors
/// If a setting of TCP is invalid; the text names the field.
pub fn run(plan: &Plan<'_>) -> Result<crate::RunResult, String> {
    let config = config_of(plan.spec)?;
    let framing = framing_of(&config);
    let board: SharedBoard = Rc::new(Board::default());
    let (hosts, calls) = hosts_of(plan, &config, &board)?;
    let mut hosts = hosts.into_iter();
    let config_of_world = away::world_config(plan.spec, WorldConfig::new(plan.seed));
    let world = World::new(plan.topo.clone(), config_of_world, |_| {
        hosts.next().expect("one was made for each")
    });
    let world = world.map_err(|e| e.to_string())?;
    let mut running = Running::new(plan.spec, &plan.flows, world, board, calls, plan.seed);
    plan.prepare(&mut running.world)?;
    let trace = Trace::start(plan, &mut running.world);
    let base_rtt = plan.base_rtt(&framing);
    Ok(plan.execute(running, &framing, base_rtt, |world| {
        let out = outcome(&world.hosts().iter().collect::<Vec<_>>(), plan, config);
        Outcome { trace: trace.map(|t| t.finish(plan, world)), ..out }
    }))
}

/// Packets of the transport.
pub fn framing_of(config: &TcpConfig) -> Framing {
    Framing::tcp(config.mss, config.overhead_bytes())
}

/// Configuration of the hosts.
///
/// # Errors
/// If a setting is invalid; the text names the field.
pub fn config_of(spec: &Spec) -> Result<TcpConfig, String> {
    if spec.measure.order {
        return Err("measure.order is SRD's: TCP is always in order".into());
    }
    if spec.workload.background_pairs > 0 {
        return Err("workload.background_pairs: only runs with SRD have them".into());
    }
    let mut config = spec.tcp.config()?;
    if spec.measure.goodput_us > 0 {
        config.sample_ps = Some(spec.measure.goodput_us * US);
    }
    Ok(config)
}

/// The hosts with their flows, and the calls that start these.
///
/// # Errors
/// If a host has no port left for a flow.
pub fn hosts_of(
    plan: &Plan<'_>,
    config: &TcpConfig,
    board: &SharedBoard,
) -> Result<(Vec<TcpLabHost>, Calls), String> {
    let flows = &plan.flows.flows;
    let shared = Arc::new(config.clone());
    let received = Arc::new(AtomicU64::new(0));
    let registry = Rc::new(RefCell::new(Registry {
        flow_of: FxHashMap::default(),
        written: vec![Vec::new(); flows.len()],
        arrived: vec![0; flows.len()],
    }));
    let mut hosts: Vec<TcpLabHost> = (0..plan.topo.hosts())
        .map(|h| TcpLabHost {
            tcp: TcpHost::new(HostId(h), Arc::clone(&shared), Arc::clone(&received)),
            received: Arc::clone(&received),
            registry: Rc::clone(&registry),
            board: Rc::clone(board),
            sending: Vec::new(),
            warm_bytes: plan.spec.workload.warm_bytes,
            observed: plan.spec.measure.observe,
        })
        .collect();
    let mut ports = Rng::stream(plan.seed, STREAM_PORTS, 0);
    let mut taken: FxHashSet<(HostId, u16)> = FxHashSet::default();
    let mut calls = Calls { tokens: Vec::new(), warm: Vec::new(), background: Vec::new() };
    for (i, f) in flows.iter().enumerate() {
        let mut port = || (PORT_FIRST + ports.below(PORTS)) as u16;
        let sport = (0..PORTS).map(|_| port()).find(|p| taken.insert((f.src, *p)));
        let sport = sport.ok_or_else(|| format!("host {} has no free port left", f.src.0))?;
        let host = &mut hosts[f.src.0 as usize];
        let token = host.sending.len() as u64;
        host.sending.push(Sending {
            flow: i as u32,
            dst: f.dst,
            bytes: f.bytes,
            sport,
            conn: None,
        });
        calls.tokens.push(token);
        if plan.spec.workload.warm_bytes > 0 {
            calls.warm.push((f.src, token | u64::from(WARM_ROUND) << 32));
        }
    }
    Ok((hosts, calls))
}

/// The transport's part of the results.
pub fn outcome(hosts: &[&TcpLabHost], plan: &Plan<'_>, config: TcpConfig) -> Outcome {
    let mut counters = srd_rivals::Counters::default();
    hosts.iter().for_each(|h| counters.add(&h.tcp.counters()));
    let (mut goodput, mut flow_goodput) = (Vec::new(), Vec::new());
    if config.sample_ps.is_some() {
        for f in per_flow(hosts, plan) {
            if goodput.len() < f.len() {
                goodput.resize(f.len(), 0);
            }
            goodput.iter_mut().zip(&f).for_each(|(sum, bytes)| *sum += bytes);
            if plan.spec.measure.flows {
                flow_goodput.push(f);
            }
        }
    }
    let tally = Tally {
        socket_drops: 0,
        retransmitted: counters.retransmits,
        spurious: counters.duplicates_received,
        timeouts: counters.timeouts,
        tail_probes: counters.probes,
        acks: counters.acks_sent,
        duplicates: counters.duplicates_received,
    };
    let detail = Detail::Tcp { config: Box::new(config), counters: Box::new(counters) };
    let state = state_of(hosts, plan);
    Outcome { detail, tally, goodput, flow_goodput, order: None, trace: None, state }
}

/// Connections of the host that has most, and the bytes of their ends.
fn state_of(hosts: &[&TcpLabHost], plan: &Plan<'_>) -> HostState {
    let mut states = States::new(plan);
    for s in hosts.iter().flat_map(|h| &h.sending).filter(|s| s.conn.is_some()) {
        states.connected(s.flow);
    }
    states.most(|h| hosts[h].tcp.state_bytes())
}

/// Bytes of each flow that arrived in order, per interval.
fn per_flow(hosts: &[&TcpLabHost], plan: &Plan<'_>) -> Vec<Vec<u64>> {
    let mut out = vec![Vec::new(); plan.flows.flows.len()];
    for s in hosts.iter().flat_map(|h| &h.sending) {
        let Some(conn) = s.conn else { continue };
        out[s.flow as usize] = hosts[s.dst.0 as usize].tcp.samples(conn).to_vec();
    }
    out
}
