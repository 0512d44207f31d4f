//! One run: builds the world and the flows of a spec and a seed, and collects the results.

use crate::away::{Away, AwayModel, AwayOutcome};
use crate::faults::faults_of;
use crate::floor::{FloorFlow, Framing, Ways, floors};
use crate::noise::HostModel;
use crate::observe::{Counted, Observation, interval_for};
use crate::result::{Detail, OrderCost, RunResult, Tally};
use crate::rounds::Running;
use crate::spec::{Pattern, Spec, Transport};
use crate::state::HostState;
use crate::stats::Summary;
use crate::timeline::Recorder;
use crate::trace::TraceOutcome;
use crate::workload::{Flow, Flows};
use crate::{
    app, congestion, copa, fluid, limits, mixed, pauses, poisson, rings, rival, saa, srd, tcp,
};
use srd_fabric::{Fault, Host, HostId, MS, Ps, RingConfig, Topology, US, World};
use std::path::Path;
use std::time::Instant;

/// Seed with which a case is made before any run.
const SEED_FIRST: u64 = 1;

/// A recording samples windows and rates so many times in one interval of an observation.
const SAMPLES_PER_INTERVAL: Ps = 10;

/// The transport-independent part of a run.
pub struct Plan<'a> {
    /// The case.
    pub spec: &'a Spec,
    /// Its seed.
    pub seed: u64,
    /// The network.
    pub topo: Topology,
    /// Flows.
    pub flows: Flows,
    /// Faults with their times.
    pub faults: Vec<(Ps, Fault)>,
    /// Rings of hosts.
    pub rings: Vec<(HostId, RingConfig)>,
    /// Model of kernel and processors of hosts.
    pub model: Option<HostModel>,
    /// Absences of the processors of hosts.
    pub away: Option<AwayModel>,
    /// The recording of the run, if the spec asks for one.
    pub recorder: Recorder,
}

/// Shortest times of a plan's flows.
pub struct Floors {
    /// With the transport's headers and a base round trip.
    pub floor_ps: Vec<Ps>,
    /// Payload alone.
    pub ideal_ps: Vec<Ps>,
}

/// A world after its run, and what was measured of all its flows.
pub struct Ran<P, H> {
    /// The world.
    pub world: World<P, H>,
    /// Completion times: `[round][flow]`.
    pub fct: Vec<Vec<Option<Ps>>>,
    /// Completion times until the arrival of the last byte, where phases are measured.
    pub arrived: Vec<Vec<Option<Ps>>>,
    failures: u64,
    cpu_ns: u64,
    wall_ns: u64,
    memory_grown_bytes: u64,
    observation: Option<Box<Observation>>,
    phase_ps: Option<Ps>,
    seen: Times,
    round_ps: Vec<Ps>,
    rounds_at: Vec<Ps>,
    app: Option<crate::app::AppOutcome>,
    away: Option<AwayOutcome>,
}

/// Times of all rounds: `[round][flow]`, `None`: did not end.
pub type Times = Vec<Vec<Option<Ps>>>;

/// What was measured of the flows of a plan. `times`: completion, and arrival of the last byte.
pub struct Measured<'a> {
    /// Packets of the transport.
    pub framing: &'a Framing,
    /// Largest base RTT between the ends of a flow.
    pub base_rtt_ps: Ps,
    /// Floors of the flows.
    pub floors: Floors,
    /// Completion times `[round][flow]`, and those until the arrival of the last byte.
    pub times: (Times, Times),
    /// The transport's results.
    pub out: Outcome,
}

/// A transport's results of a run.
pub struct Outcome {
    /// Configuration and counters of the transport.
    pub detail: Detail,
    /// Counters that all transports have.
    pub tally: Tally,
    /// Arrived payload per interval.
    pub goodput: Vec<u64>,
    /// Arrived payload of each flow per interval.
    pub flow_goodput: Vec<Vec<u64>>,
    /// Cost of in-order delivery.
    pub order: Option<OrderCost>,
    /// What the network saw of packets.
    pub trace: Option<TraceOutcome>,
    /// State for peers, the most of any host.
    pub state: HostState,
}

/// Executes `spec` with `seed`. `folder`: folder of the files that the spec names.
///
/// # Errors
/// If the spec is inconsistent; the text names the field.
pub fn run(spec: &Spec, folder: &Path, seed: u64) -> Result<RunResult, String> {
    if spec.transport == Transport::Static {
        return congestion::run(spec, &spec.network.build(folder)?, folder, seed);
    }
    let plan = plan_of(spec, folder, seed)?;
    if !spec.also.is_empty() {
        return mixed::run(&plan, folder);
    }
    match spec.transport {
        Transport::Srd => srd::run(&plan),
        Transport::Tcp => tcp::run(&plan),
        Transport::Rc => rival::run_rc(&plan),
        Transport::Ue => rival::run_ue(&plan),
        Transport::Saa => saa::run(&plan),
        Transport::Copa => copa::run(&plan),
        Transport::Static => congestion::run(spec, &plan.topo, folder, seed),
    }
}

/// Makes network, flows, faults and settings of a case, and runs nothing: what depends on the
/// network or on files is told before anything runs.
///
/// # Errors
/// If the spec is inconsistent; the text names the field.
pub fn ready(spec: &Spec, folder: &Path) -> Result<(), String> {
    if spec.transport == Transport::Static {
        return spec.network.build(folder).map(drop);
    }
    let plan = plan_of(spec, folder, SEED_FIRST)?;
    for plan in mixed::plans_of(&plan, folder)? {
        match plan.spec.transport {
            Transport::Srd => srd::settings_of(plan.spec, &plan.topo, &plan.flows).map(drop)?,
            Transport::Tcp => tcp::config_of(plan.spec).map(drop)?,
            Transport::Rc | Transport::Ue => rival::check(&plan)?,
            Transport::Saa | Transport::Copa | Transport::Static => {}
        }
    }
    Ok(())
}

/// The plan of a run of packets.
fn plan_of<'a>(spec: &'a Spec, folder: &Path, seed: u64) -> Result<Plan<'a>, String> {
    let topo = spec.network.build(folder)?;
    let flows = if app::is_program(spec.workload.pattern) {
        app::flows(spec, topo.hosts(), folder, seed)?
    } else {
        spec.workload.flows(&topo, folder, seed)?
    };
    if flows.flows.is_empty() {
        return Err("the workload has no flows".into());
    }
    if (spec.measure.flows || spec.measure.order) && spec.workload.bytes > 1 << 38 {
        return Err("workload.bytes: single flows are measured up to 2^38 bytes".into());
    }
    let faults = faults_of(&spec.fault, &topo, seed)?;
    let rings = rings::rings_of(spec, topo.hosts(), &flows)?;
    let model = spec.host_model.as_deref().map(|name| HostModel::load(name, folder));
    let model = model.transpose()?.flatten();
    if spec.measure.fluid {
        fluid::check(&flows)?;
    }
    let away = AwayModel::of(spec, folder, topo.hosts(), &flows)?;
    let title = format!("{} {}, seed {seed}", spec.name, spec.case);
    let recorder = Recorder::of(spec.measure.timeline, &title, &topo, &flows.flows);
    Ok(Plan { spec, seed, topo, flows, faults, rings, model, away, recorder })
}

/// `index`: set for a flow whose floor is its time alone.
fn floor_flow(f: &Flow, index: Option<u32>) -> FloorFlow {
    // Competitors of triggered flows are not known in advance.
    let group = index.unwrap_or_else(|| f.start_ps.map_or(u32::MAX, |_| 0));
    FloorFlow { src: f.src, dst: f.dst, bytes: f.bytes, group }
}

impl Plan<'_> {
    /// Largest base RTT between a flow's ends, with full packets.
    pub fn base_rtt(&self, framing: &Framing) -> Ps {
        let mut ways = Ways::new(&self.topo);
        let flows = &self.flows.flows;
        // Base RTTs of a regular network take few values, which a sample of the flows covers.
        let sample = flows.iter().step_by(flows.len().div_ceil(256));
        sample.map(|f| ways.base_rtt(f.src, f.dst, framing.full())).max().unwrap_or(10 * US)
    }

    /// Gives hosts their rings, limits flows at their cards and schedules the faults.
    ///
    /// # Errors
    /// If the network refuses a ring, a limit or a fault.
    pub fn prepare<P: Clone, H: Host<P>>(&self, world: &mut World<P, H>) -> Result<(), String> {
        for (host, ring) in &self.rings {
            world.ring_set(*host, *ring).map_err(|e| format!("host: {e}"))?;
        }
        if let Some(limit) = self.spec.network.flow_limit() {
            let set = world.flow_limit_set(limit);
            set.map_err(|e| format!("network.flow_gbps: {e}"))?;
        }
        for (at, fault) in &self.faults {
            world.fault_at(*at, *fault).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Executes the run and assembles its result. `framing`: the transport's, for the floors.
    pub fn execute<P: Clone + 'static, H: Host<P> + Counted>(
        &self,
        running: Running<'_, P, H>,
        framing: &Framing,
        base_rtt_ps: Ps,
        outcome: impl FnOnce(&World<P, H>) -> Outcome,
    ) -> RunResult {
        let floors = self.floors(framing);
        let mut ran = self.ran(running, &floors.floor_ps);
        let times = (std::mem::take(&mut ran.fct), std::mem::take(&mut ran.arrived));
        let out = outcome(&ran.world);
        self.result(&mut ran, Measured { framing, base_rtt_ps, floors, times, out })
    }

    /// Floors and ideal times of this plan's flows.
    pub fn floors(&self, framing: &Framing) -> Floors {
        // Competitors of flows at random times are not known in advance.
        let alone = self.spec.workload.pattern == Pattern::Poisson;
        let flows = self.flows.flows.iter().zip(0..);
        let floor_flows: Vec<FloorFlow> =
            flows.map(|(f, i)| floor_flow(f, alone.then_some(i))).collect();
        let drains = rings::drains_of(&self.rings);
        let floor_ps = floors(&self.topo, framing, &floor_flows, &drains);
        let ideal_ps = floors(
            &self.topo,
            &Framing { reads: framing.reads, ..Framing::ideal() },
            &floor_flows,
            &drains,
        );
        Floors { floor_ps, ideal_ps }
    }

    /// Executes the run.
    pub fn ran<P: Clone + 'static, H: Host<P> + Counted>(
        &self,
        mut running: Running<'_, P, H>,
        floor_ps: &[Ps],
    ) -> Ran<P, H> {
        if self.spec.measure.observe {
            running.observe(self.interval_ps(floor_ps));
        }
        if self.recorder.is_on() {
            self.recorder.sample_every(self.interval_ps(floor_ps) / SAMPLES_PER_INTERVAL);
            running.recorder = self.recorder.clone();
            let is_srd = self.spec.transport == Transport::Srd && self.spec.also.is_empty();
            let tap = running.world.tap_take();
            running.world.tap_set(self.recorder.tap(tap, is_srd));
        }
        running.away =
            self.away.clone().map(|model| Away::new(model, self.spec.transport, self.seed));
        let memory = memory_bytes("VmRSS:");
        let (cpu, wall) = (cpu_ns(), Instant::now());
        running.go();
        let (cpu_ns, wall_ns) = (cpu_ns() - cpu, wall.elapsed().as_nanos() as u64);
        let observation = running.observed().map(Box::new);
        let phase_ps = running.phase_ps();
        let app = running.app();
        let end_ps = running.world.now();
        let away = running.away.as_mut().map(|away| away.outcome(end_ps));
        let Running { world, fct, arrived, board, seen, round_ps, rounds_at, .. } = running;
        debug_assert!(world.totals().conserved());
        let memory_grown_bytes = memory_bytes("VmRSS:").saturating_sub(memory);
        let failures = board.failures();
        Ran {
            world,
            fct,
            arrived,
            failures,
            cpu_ns,
            wall_ns,
            memory_grown_bytes,
            observation,
            phase_ps,
            seen,
            round_ps,
            rounds_at,
            app,
            away,
        }
    }

    /// The result of this plan's flows.
    pub fn result<P: Clone, H: Host<P>>(
        &self,
        ran: &mut Ran<P, H>,
        measured: Measured<'_>,
    ) -> RunResult {
        let Measured { framing, base_rtt_ps, floors, times: (fct, arrived), out } = measured;
        let Floors { floor_ps, ideal_ps } = floors;
        let world = &ran.world;
        let totals = world.totals();
        let fluid_ps = self
            .spec
            .measure
            .fluid
            .then(|| fluid::completions(&self.topo, framing, &self.flows.flows));
        let open_loop = self.spec.workload.poisson.as_ref();
        let open_loop = open_loop.map(|p| {
            poisson::outcome(p, &self.topo, &self.flows.flows, &fct[0], fluid_ps.as_deref())
        });
        let program = self.flows.program.as_deref();
        let messages = |i: usize| program.map_or(1, |p| u64::from(p.messages[i]));
        let flows = self.flows.flows.iter().enumerate();
        let per_round: u64 = flows.map(|(i, f)| messages(i) * framing.packets(f.bytes)).sum();
        // Endless flows have no packet count; the count is computed from arrived bytes.
        let data_packets = if self.spec.workload.endless {
            out.goodput.iter().sum::<u64>() / u64::from(framing.mtu)
        } else {
            per_round * fct.len() as u64
        };
        RunResult {
            spec: self.spec.clone(),
            seed: self.seed,
            hosts: self.topo.hosts(),
            summary: Summary::of(&fct, &floor_ps),
            data_packets,
            fct_ps: fct,
            round_at_ps: std::mem::take(&mut ran.rounds_at),
            arrived_ps: arrived,
            floor_ps,
            ideal_ps,
            flows: self.flows.flows.clone(),
            base_rtt_ps,
            failures: ran.failures,
            tally: out.tally,
            detail: out.detail,
            drops: totals.drops,
            marked: totals.marked,
            packets_sent: totals.sent,
            events: totals.events,
            end_ps: world.now(),
            cpu_ns: ran.cpu_ns,
            wall_ns: ran.wall_ns,
            memory_bytes: memory_bytes("VmHWM:"),
            memory_grown_bytes: ran.memory_grown_bytes,
            hash: world.run_hash(),
            goodput: out.goodput,
            flow_goodput: out.flow_goodput,
            last_hop_bytes_max: self.last_hop_bytes_max(world),
            observation: ran.observation.take(),
            order: out.order,
            trace: out.trace,
            timeline: self.recorder.finish(world.now()),
            state: out.state,
            rings: rings::outcomes(world, &self.rings),
            pauses: pauses::outcome(world),
            limits: limits::outcome(world),
            deadlock: world.deadlock().map(|d| d.describe(&self.topo)),
            phase_ps: ran.phase_ps,
            app: ran.app.take(),
            also: Vec::new(),
            seen_ps: std::mem::take(&mut ran.seen),
            round_ps: ran.round_ps.clone(),
            away: ran.away,
            open_loop,
            fluid_ps,
            ports_per_host: self.topo.tree().map(srd_fabric::KaryNTree::ports_per_host),
        }
    }

    /// Length of an observer's intervals.
    fn interval_ps(&self, floor_ps: &[Ps]) -> Ps {
        let (measure, workload) = (&self.spec.measure, &self.spec.workload);
        if measure.interval_us > 0 {
            return measure.interval_us * US;
        }
        let round = floor_ps.iter().max().copied().unwrap_or(0) + workload.barrier_us * US;
        let expected = u64::from(workload.rounds).saturating_mul(round);
        let starts = self.flows.flows.iter().filter_map(|f| f.start_ps).max().unwrap_or(0);
        let expected = expected.saturating_add(starts);
        interval_for(if workload.endless { self.spec.time_ms_max * MS } else { expected })
    }

    /// Largest backlog of the last link to any receiver.
    fn last_hop_bytes_max<P: Clone, H: Host<P>>(&self, world: &World<P, H>) -> u64 {
        let ways = Ways::new(&self.topo);
        let last = |f: &Flow| world.link_stats(ways.uplink(f.dst).reverse()).queue_bytes_max;
        self.flows.flows.iter().map(last).max().unwrap_or(0)
    }
}

/// CPU time of this thread in ns.
pub fn cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// A line of this process's status, in bytes (0 if the kernel does not report it).
fn memory_bytes(line: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(line));
    let kb = line.and_then(|l| l.split_whitespace().next()).and_then(|v| v.parse::<u64>().ok());
    kb.unwrap_or(0) * 1024
}
