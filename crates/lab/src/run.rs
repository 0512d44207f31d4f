//! One run: builds the world and the flows of a spec and a seed, and collects the results.

use crate::faults::faults_of;
use crate::floor::{FloorFlow, Framing, Ways, floors};
use crate::noise::HostModel;
use crate::observe::{Counted, interval_for};
use crate::result::{Detail, OrderCost, RunResult, Tally};
use crate::rounds::Running;
use crate::spec::{Pattern, Spec, Transport};
use crate::stats::Summary;
use crate::workload::{Flow, Flows};
use crate::{congestion, copa, fluid, limits, pauses, poisson, rings, rival, saa, srd, tcp};
use srd_fabric::{Fault, Host, HostId, MS, Ps, RingConfig, Topology, US, World};
use std::path::Path;
use std::time::Instant;

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
}

/// Executes `spec` with `seed`. `folder`: folder of the files that the spec names.
///
/// # Errors
/// If the spec is inconsistent; the text names the field.
pub fn run(spec: &Spec, folder: &Path, seed: u64) -> Result<RunResult, String> {
    let topo = spec.network.build(folder)?;
    if spec.transport == Transport::Static {
        return congestion::run(spec, &topo, folder, seed);
    }
    let flows = spec.workload.flows(&topo, folder, seed)?;
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
    let plan = Plan { spec, seed, topo, flows, faults, rings, model };
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
    pub fn execute<P: Clone, H: Host<P> + Counted>(
        &self,
        mut running: Running<'_, P, H>,
        framing: &Framing,
        base_rtt_ps: Ps,
        outcome: impl FnOnce(&World<P, H>) -> Outcome,
    ) -> RunResult {
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
        if self.spec.measure.observe {
            running.observe(self.interval_ps(&floor_ps));
        }
        let memory = memory_bytes("VmRSS:");
        let (cpu, wall) = (cpu_ns(), Instant::now());
        running.go();
        let (cpu_ns, wall_ns) = (cpu_ns() - cpu, wall.elapsed().as_nanos() as u64);
        let observation = running.observed().map(Box::new);
        let phase_ps = running.phase_ps();
        let Running { world, fct, arrived, rounds_at, board, .. } = running;
        let totals = world.totals();
        debug_assert!(totals.conserved());
        let out = outcome(&world);
        let fluid_ps = self
            .spec
            .measure
            .fluid
            .then(|| fluid::completions(&self.topo, framing, &self.flows.flows));
        let open_loop = self.spec.workload.poisson.as_ref();
        let open_loop =
            open_loop.map(|p| poisson::outcome(p, &self.topo, &self.flows.flows, &fct[0]));
        let per_round: u64 = self.flows.flows.iter().map(|f| framing.packets(f.bytes)).sum();
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
            round_at_ps: rounds_at,
            arrived_ps: arrived,
            floor_ps,
            ideal_ps,
            flows: self.flows.flows.clone(),
            base_rtt_ps,
            failures: board.failures(),
            tally: out.tally,
            detail: out.detail,
            drops: totals.drops,
            marked: totals.marked,
            packets_sent: totals.sent,
            events: totals.events,
            end_ps: world.now(),
            cpu_ns,
            wall_ns,
            memory_bytes: memory_bytes("VmHWM:"),
            memory_grown_bytes: memory_bytes("VmRSS:").saturating_sub(memory),
            hash: world.run_hash(),
            goodput: out.goodput,
            flow_goodput: out.flow_goodput,
            last_hop_bytes_max: self.last_hop_bytes_max(&world),
            observation,
            order: out.order,
            rings: rings::outcomes(&world, &self.rings),
            pauses: pauses::outcome(&world),
            limits: limits::outcome(&world),
            deadlock: world.deadlock().map(|d| d.describe(&self.topo)),
            phase_ps,
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
