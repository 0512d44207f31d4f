//! Runs with COPA's transport.
//!
//! A put ends when its sender has all acknowledgments, a get when its reader has all data in
//! memory.

use crate::board::{Board, FlowEnd, SharedBoard};
use crate::floor::Framing;
use crate::observe::{Counted, Resent};
use crate::result::{Detail, RunResult, Tally};
use crate::rounds::{Calls, Running};
use crate::run::{Outcome, Plan};
use crate::state::HostState;
use srd_copa::{CopaConfig, CopaHost, CopaPacket, Counters, Verb};
use srd_fabric::{Delivered, Host, HostId, HostIo, Ps, US, World, WorldConfig};
use std::rc::Rc;

/// A transport's part of the results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct CopaOutcome {
    /// The hosts' configuration.
    pub config: CopaConfig,
    /// Sum of the counters of all hosts.
    pub counters: Counters,
}

impl CopaOutcome {
    /// Names and values of all parameters.
    pub fn parameters(&self) -> Vec<(String, String)> {
        let c = &self.config;
        [
            ("policy", format!("{:?}", c.policy)),
            ("recovery", format!("{:?}", c.recovery)),
            ("reaction", format!("{:?}", c.reaction)),
            ("verb", format!("{:?}", c.verb)),
            ("payload_bytes", c.payload_bytes.to_string()),
            ("overhead_bytes", c.overhead_bytes.to_string()),
            ("control_bytes", c.control_bytes.to_string()),
            ("rtt_ps", c.rtt_ps.to_string()),
            ("timeout_rtts", c.timeout_rtts.to_string()),
            ("outstanding_packets", c.outstanding_packets.to_string()),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .to_vec()
    }
}

/// A host, with the board to which it reports the ends of flows.
struct CopaLabHost {
    host: CopaHost,
    board: SharedBoard,
    /// Length of an interval of the payload series; 0: no series.
    bucket_ps: Ps,
    goodput: Vec<u64>,
}

impl Counted for CopaLabHost {
    fn resent(&self) -> Resent {
        let c = self.host.counters();
        Resent { packets: c.resent, timeouts: c.timeouts }
    }
}

impl CopaLabHost {
    fn tell(&mut self, now: Ps) {
        if let Some((flow, bytes)) = self.host.arrived_take() {
            self.board.progress_add(flow, bytes);
            if let Some(bucket) = now.checked_div(self.bucket_ps) {
                let bucket = bucket as usize;
                if self.goodput.len() <= bucket {
                    self.goodput.resize(bucket + 1, 0);
                }
                self.goodput[bucket] += u64::from(bytes);
            }
        }
        for end in self.host.ends_take() {
            let flow = FlowEnd { flow: end.flow, round: end.round, at: end.at };
            if end.done {
                self.board.flow_end(flow);
            }
            if end.arrived {
                self.board.flow_arrived(flow);
            }
        }
    }
}

impl Host<CopaPacket> for CopaLabHost {
    fn on_packet(
        &mut self,
        now: Ps,
        packet: Delivered<CopaPacket>,
        io: &mut HostIo<'_, CopaPacket>,
    ) {
        self.host.on_packet(now, packet, io);
        self.tell(now);
    }

    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, CopaPacket>) {
        self.host.on_timer(now, io);
    }

    fn on_ring(&mut self, now: Ps, io: &mut HostIo<'_, CopaPacket>) {
        self.host.on_ring(now, io);
    }

    fn on_call(&mut self, now: Ps, token: u64, io: &mut HostIo<'_, CopaPacket>) {
        self.host.on_call(now, token, io);
    }
}

/// Executes a plan with COPA hosts.
///
/// # Errors
/// If a setting is invalid; the text names the field.
pub fn run(plan: &Plan<'_>) -> Result<RunResult, String> {
    let spec = plan.spec.copa.clone().unwrap_or_default();
    let mut config = spec.config(US)?;
    let mut framing = Framing::tcp(config.payload_bytes, config.overhead_bytes).ends_at_sender();
    framing.reads = config.verb == Verb::Get;
    let base_rtt = plan.base_rtt(&framing);
    config.rtt_ps = base_rtt;
    let board: SharedBoard = Rc::new(Board::default());
    let (world, calls) = world_of(plan, config, &board)?;
    let mut running = Running::new(plan.spec, &plan.flows, world, board, calls, plan.seed);
    plan.prepare(&mut running.world)?;
    Ok(plan.execute(running, &framing, base_rtt, |world| outcome(world, config)))
}

fn world_of(
    plan: &Plan<'_>,
    config: CopaConfig,
    board: &SharedBoard,
) -> Result<(World<CopaPacket, CopaLabHost>, Calls), String> {
    let config = Rc::new(config);
    let host = |h| CopaLabHost {
        host: CopaHost::new(HostId(h), Rc::clone(&config)),
        board: Rc::clone(board),
        bucket_ps: plan.spec.measure.goodput_us * US,
        goodput: Vec::new(),
    };
    let mut hosts: Vec<CopaLabHost> = (0..plan.topo.hosts()).map(host).collect();
    // Streams have no handshake, so nothing is warmed up.
    let mut calls = Calls { tokens: Vec::new(), warm: Vec::new(), background: Vec::new() };
    for (i, f) in plan.flows.flows.iter().enumerate() {
        let host = &mut hosts[f.src.0 as usize].host;
        calls.tokens.push(host.flow_add(i as u32, f.dst, f.bytes));
    }
    let mut hosts = hosts.into_iter();
    let world = World::new(plan.topo.clone(), WorldConfig::new(plan.seed), |_| {
        hosts.next().expect("one was made for each")
    });
    Ok((world.map_err(|e| e.to_string())?, calls))
}

fn outcome(world: &World<CopaPacket, CopaLabHost>, config: CopaConfig) -> Outcome {
    let mut counters = Counters::default();
    let mut goodput: Vec<u64> = Vec::new();
    for host in world.hosts() {
        counters.add(host.host.counters());
        if goodput.len() < host.goodput.len() {
            goodput.resize(host.goodput.len(), 0);
        }
        goodput.iter_mut().zip(&host.goodput).for_each(|(sum, bytes)| *sum += bytes);
    }
    let tally = Tally {
        socket_drops: 0,
        retransmitted: counters.resent,
        spurious: counters.again,
        timeouts: counters.timeouts,
        tail_probes: 0,
        acks: counters.acks_sent + counters.duplicates_sent + counters.nacks_sent,
        duplicates: counters.again + counters.early,
    };
    let detail = Detail::Copa(Box::new(CopaOutcome { config, counters }));
    Outcome {
        detail,
        tally,
        goodput,
        flow_goodput: Vec::new(),
        order: None,
        trace: None,
        state: HostState::default(),
    }
}
