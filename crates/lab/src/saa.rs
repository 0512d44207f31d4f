//! Runs on a lossless network with packets in order, with or without computed rates.
//!
//! A flow ends when its last packet has arrived. There are no retransmissions: a flow that loses a
//! packet to a fault stays incomplete.

use crate::board::{Board, FlowEnd, SharedBoard};
use crate::floor::{Framing, Ways};
use crate::observe::Counted;
use crate::observe::Resent;
use crate::result::{Detail, RunResult, Tally};
use crate::rounds::{Calls, Running};
use crate::run::{Outcome, Plan};
use crate::spec::{InjectionSpec, RatesSpec, SaaSpec};
use crate::state::HostState;
use srd_fabric::{Delivered, Host, HostId, HostIo, LinkId, Ps, Rng, SwitchId, World};
use srd_saa::{
    ANNOUNCE, ASK, ControlCounters, Injection, Phase, PhaseFlow, Rates, SaaConfig, SaaHost,
    SaaPacket,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Stream kind of the phases of injection.
const STREAM_PHASES: u64 = 0x5aa;
/// Default capacity of a bucket in packets.
const BUCKET_PACKETS: u32 = 4;
/// Default timeout of control packets in base RTTs, longer than the queueing delay in buffers of
/// some packets.
const TIMEOUT_RTTS: u64 = 20;
/// Base RTTs after the last flow's end within which weights and entries are released.
const TAIL_RTTS: u64 = 100;

/// The transport's part of the results of a run.
#[derive(Clone, Debug, Default)]
pub struct SaaOutcome {
    /// Names and values of all parameters.
    pub parameters: Vec<(String, String)>,
    /// Payload of a full packet in bytes.
    pub payload_bytes: u32,
    /// W in units of the largest flow's payload at line rate; `None` without rates, and where flows
    /// start one after the other.
    pub largest: Option<f64>,
    /// Packets that arrived before an earlier one of their flow.
    pub early: u64,
    /// Control packets of all flows.
    pub control: ControlCounters,
    /// Answers to control packets.
    pub answers: u64,
    /// Time from each flow's start to its first rate.
    pub first_rate_us: Vec<f64>,
    /// Time from each flow's start to the last change of its rate.
    pub last_rate_us: Vec<f64>,
    /// Weight left on links at the end.
    pub weight_left: u64,
    /// Entries in use at the end.
    pub entries_left: u64,
    /// Circuits torn down by faults, and circuits set up again.
    pub torn: (u64, u64),
}

/// A host, with the board to which it reports arrivals.
struct SaaLabHost {
    host: SaaHost,
    phase: Rc<Phase>,
    board: SharedBoard,
    /// Number of arrivals reported by all hosts.
    told: Rc<Cell<usize>>,
    /// Whether the progress of flows is recorded.
    observed: bool,
    header_bytes: u32,
}

impl Counted for SaaLabHost {
    fn resent(&self) -> Resent {
        Resent::default()
    }
}

impl SaaLabHost {
    fn arrivals_tell(&self) {
        if self.phase.arrived_count() == self.told.get() {
            return;
        }
        for a in self.phase.arrivals_from(self.told.get()) {
            let end = FlowEnd { flow: a.flow, round: a.round, at: a.at };
            self.board.flow_end(end);
            self.board.flow_arrived(end);
        }
        self.told.set(self.phase.arrived_count());
    }
}

impl Host<SaaPacket> for SaaLabHost {
    fn on_packet(&mut self, now: Ps, packet: Delivered<SaaPacket>, io: &mut HostIo<'_, SaaPacket>) {
        if self.observed
            && let Some(flow) = packet.payload.data_of()
        {
            self.board.progress_add(flow, packet.bytes.saturating_sub(self.header_bytes));
        }
        self.host.on_packet(now, packet, io);
        self.arrivals_tell();
    }

    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, SaaPacket>) {
        self.host.on_timer(now, io);
    }

    fn on_room(&mut self, now: Ps, io: &mut HostIo<'_, SaaPacket>) {
        self.host.on_room(now, io);
    }

    fn on_call(&mut self, now: Ps, token: u64, io: &mut HostIo<'_, SaaPacket>) {
        self.host.on_call(now, token, io);
    }
}

/// Executes a plan with these hosts.
///
/// # Errors
/// If a setting is invalid (the text names the field), or the network is deadlocked.
pub fn run(plan: &Plan<'_>) -> Result<RunResult, String> {
    let saa = plan.spec.saa.clone().unwrap_or_default();
    let framing = Framing::tcp(saa.packet_bytes - saa.header_bytes, saa.header_bytes);
    let base_rtt = plan.base_rtt(&framing);
    let config = Rc::new(config_of(plan, &saa, base_rtt));
    let flow = |f: &crate::Flow| PhaseFlow { src: f.src, dst: f.dst, bytes: framing.wire(f.bytes) };
    let phase = Rc::new(Phase::new(plan.flows.flows.iter().map(flow).collect()));
    let board: SharedBoard = Rc::new(Board::default());
    let (world, calls) = world_of(plan, &saa, &config, &phase, &board)?;
    let mut running = Running::new(plan.spec, &plan.flows, world, board, calls, plan.seed);
    running.tail_ps = TAIL_RTTS * base_rtt;
    plan.prepare(&mut running.world)?;
    let deadlock = RefCell::new(None);
    let result = plan.execute(running, &framing, base_rtt, |world| {
        deadlock.replace(world.deadlock().map(|d| d.describe(&plan.topo)));
        outcome(world, plan, &saa, &config, &phase)
    });
    match deadlock.into_inner() {
        Some(text) => Err(format!("seed {}: {text}", plan.seed)),
        None => Ok(result),
    }
}

fn config_of(plan: &Plan<'_>, saa: &SaaSpec, base_rtt: Ps) -> SaaConfig {
    let line = Ways::new(&plan.topo).uplink(plan.flows.flows[0].src);
    let rates = match saa.rates {
        RatesSpec::None => Rates::None,
        RatesSpec::Optimal => Rates::Optimal,
        RatesSpec::Distributed => Rates::Distributed,
    };
    let injection = match saa.injection {
        _ if rates == Rates::None => Injection::None,
        Some(InjectionSpec::None) => Injection::None,
        Some(InjectionSpec::Bucket) => {
            Injection::Bucket { packets: saa.bucket_packets.unwrap_or(BUCKET_PACKETS) }
        }
        Some(InjectionSpec::Exact) | None => Injection::Exact,
    };
    SaaConfig {
        rates,
        injection,
        packet_bytes: saa.packet_bytes,
        packet_ps: plan.topo.port(line).serialise_ps(saa.packet_bytes.into()).max(1),
        probe_packets: saa.probe_packets,
        timeout_ps: saa.timeout_us.map_or(TIMEOUT_RTTS * base_rtt, |us| (us * 1e6) as Ps),
    }
}

fn world_of(
    plan: &Plan<'_>,
    saa: &SaaSpec,
    config: &Rc<SaaConfig>,
    phase: &Rc<Phase>,
    board: &SharedBoard,
) -> Result<(World<SaaPacket, SaaLabHost>, Calls), String> {
    let told = Rc::new(Cell::new(0));
    let host = |h| SaaLabHost {
        host: SaaHost::new(HostId(h), Rc::clone(config), Rc::clone(phase)),
        phase: Rc::clone(phase),
        board: Rc::clone(board),
        told: Rc::clone(&told),
        observed: plan.spec.measure.observe,
        header_bytes: saa.header_bytes,
    };
    let mut hosts: Vec<SaaLabHost> = (0..plan.topo.hosts()).map(host).collect();
    let mut rng = Rng::stream(plan.seed, STREAM_PHASES, 0);
    let mut calls = Calls { tokens: Vec::new(), warm: Vec::new(), background: Vec::new() };
    for (i, f) in plan.flows.flows.iter().enumerate() {
        let host = &mut hosts[f.src.0 as usize].host;
        let token = host.flow_add(i as u32, rng.next_u64() as u32);
        calls.tokens.push(token);
        if config.rates == Rates::Optimal {
            // Announcements precede the first round, so that all flows are known at its start.
            calls.warm.push((f.src, token | u64::from(ANNOUNCE) << 32));
            calls.background.push((f.src, token | u64::from(ASK) << 32));
        }
    }
    let mut hosts = hosts.into_iter();
    let config = plan.spec.network.world_config(plan.seed, saa.packet_bytes);
    let world =
        World::new(plan.topo.clone(), config, |_| hosts.next().expect("one was made for each"));
    Ok((world.map_err(|e| format!("network.{e}"))?, calls))
}

fn outcome(
    world: &World<SaaPacket, SaaLabHost>,
    plan: &Plan<'_>,
    saa: &SaaSpec,
    config: &SaaConfig,
    phase: &Phase,
) -> Outcome {
    let unit = plan.flows.flows.iter().map(|f| f.bytes).max().unwrap_or(1) as f64;
    let registers = || (0..plan.topo.links()).map(|l| world.register(LinkId(l)));
    let us = |times: &dyn Fn(&srd_saa::RateTimes) -> Option<Ps>| {
        phase.times().iter().filter_map(times).map(|ps| ps as f64 / 1e6).collect()
    };
    // W as payload: the largest W_f that any flow received.
    let largest = (config.rates != Rates::None && plan.flows.triggers.is_empty())
        .then(|| phase.most() as f64 / unit);
    let entries = |c: &srd_fabric::routing::Circuits| {
        (0..plan.topo.switches()).map(|s| u64::from(c.entries_used(SwitchId(s)))).sum()
    };
    let stats = world.circuit_stats();
    let detail = SaaOutcome {
        parameters: vec![
            ("rates".into(), format!("{:?}", config.rates)),
            ("injection".into(), format!("{:?}", config.injection)),
            ("packet_bytes".into(), config.packet_bytes.to_string()),
            ("header_bytes".into(), saa.header_bytes.to_string()),
            ("packet_ps".into(), config.packet_ps.to_string()),
            ("probe_packets".into(), config.probe_packets.to_string()),
            ("timeout_ps".into(), config.timeout_ps.to_string()),
        ],
        payload_bytes: saa.packet_bytes - saa.header_bytes,
        largest,
        early: phase.early(),
        control: phase.control(),
        answers: phase.answers(),
        first_rate_us: us(&|t| t.first_ps),
        last_rate_us: us(&|t| t.last_ps),
        weight_left: if config.rates == Rates::Distributed {
            registers().map(i64::unsigned_abs).sum()
        } else {
            0
        },
        entries_left: if config.rates == Rates::Optimal {
            0
        } else {
            world.circuits().map_or(0, entries)
        },
        torn: (stats.torn, stats.set_up_again),
    };
    Outcome {
        detail: Detail::Saa(Box::new(detail)),
        tally: Tally::default(),
        goodput: Vec::new(),
        flow_goodput: Vec::new(),
        order: None,
        trace: None,
        state: HostState::default(),
    }
}
