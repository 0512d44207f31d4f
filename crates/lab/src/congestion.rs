//! Runs without packets: flows are drawn and placed, and counted on their links.

use crate::result::{Detail, RunResult, Tally};
use crate::spec::Spec;
use crate::state::HostState;
use crate::stats::Summary;
use srd_fabric::rng::stream_seed;
use srd_fabric::{Drops, Rng, SwitchId, Topology};
use srd_saa::StaticLoad;
use std::path::Path;

/// Stream kind of the seeds of single placements.
const STREAM_RUNS: u64 = 0x57a7;
/// Stream kind of the order of flows.
const STREAM_ORDER: u64 = 0x57a8;

/// Congestion of flows over many placements.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Met {
    /// Number of placements.
    pub runs: u32,
    /// Flows in each placement.
    pub flows: usize,
    /// Largest number of flows on any link, mean over placements.
    pub max: f64,
    /// Standard error of `max`.
    pub max_error: f64,
    /// Range over placements of the largest number of flows on any link.
    pub max_range: (u32, u32),
    /// Largest number of flows on a link of a flow's path, mean over placements and flows.
    pub mean: f64,
    /// Number of links of a path, mean over placements and flows.
    pub links: f64,
    /// Entries in use at the switch that uses most, mean over placements.
    pub entries: f64,
}

/// Draws and places the spec's workload `static.runs` times.
///
/// # Errors
/// The text names the missing or invalid field.
pub fn run(spec: &Spec, topo: &Topology, folder: &Path, seed: u64) -> Result<RunResult, String> {
    let placement = spec.network.placement(topo, seed)?;
    let (cpu, wall) = (crate::run::cpu_ns(), std::time::Instant::now());
    let (met, hash) = place_all(spec, topo, folder, seed, placement)?;
    let cpu_ns = crate::run::cpu_ns() - cpu;
    Ok(RunResult {
        spec: spec.clone(),
        seed,
        hosts: topo.hosts(),
        fct_ps: Vec::new(),
        round_at_ps: Vec::new(),
        arrived_ps: Vec::new(),
        floor_ps: Vec::new(),
        ideal_ps: Vec::new(),
        flows: Vec::new(),
        base_rtt_ps: 0,
        summary: Summary::default(),
        failures: 0,
        data_packets: 0,
        tally: Tally::default(),
        detail: Detail::Static(Box::new(met)),
        drops: Drops::default(),
        rings: Vec::new(),
        pauses: None,
        limits: None,
        deadlock: None,
        marked: 0,
        packets_sent: 0,
        events: 0,
        end_ps: 0,
        cpu_ns,
        wall_ns: wall.elapsed().as_nanos() as u64,
        memory_bytes: 0,
        memory_grown_bytes: 0,
        hash,
        goodput: Vec::new(),
        flow_goodput: Vec::new(),
        last_hop_bytes_max: 0,
        observation: None,
        order: None,
        trace: None,
        timeline: None,
        state: HostState::default(),
        phase_ps: None,
        app: None,
        open_loop: None,
        fluid_ps: None,
        ports_per_host: topo.tree().map(srd_fabric::KaryNTree::ports_per_host),
        also: Vec::new(),
        seen_ps: Vec::new(),
        round_ps: Vec::new(),
        away: None,
    })
}

fn place_all(
    spec: &Spec,
    topo: &Topology,
    folder: &Path,
    seed: u64,
    placement: srd_fabric::routing::Placement,
) -> Result<(Met, u64), String> {
    let runs = spec.placed.clone().unwrap_or_default().runs;
    let mut load = StaticLoad::new(placement);
    let mut met = Met { runs, max_range: (u32::MAX, 0), ..Met::default() };
    let (mut squares, mut hash, n) = (0.0, seed, f64::from(runs));
    for run in 0..u64::from(runs) {
        let own = stream_seed(seed, STREAM_RUNS, run);
        let mut flows = spec.workload.flows(topo, folder, own)?.flows;
        // Flows start simultaneously, so the order of their first packets is drawn.
        Rng::stream(own, STREAM_ORDER, 0).shuffle(&mut flows);
        load.clear(own);
        flows.iter().for_each(|f| load.place(f.src, f.dst));
        let of = load.congestion();
        met.flows = flows.len();
        met.max_range = (met.max_range.0.min(of.max), met.max_range.1.max(of.max));
        met.max += f64::from(of.max) / n;
        squares += f64::from(of.max).powi(2) / n;
        met.mean += of.mean / n;
        met.links += of.links / n;
        let circuits = load.placement().circuits();
        let used = (0..topo.switches()).map(|s| circuits.entries_used(SwitchId(s))).max();
        met.entries += f64::from(used.unwrap_or(0)) / n;
        hash = stream_seed(hash, of.max.into(), of.mean.to_bits());
    }
    let variance = (squares - met.max.powi(2)).max(0.0);
    met.max_error = (variance / (n - 1.0).max(1.0)).sqrt();
    Ok((met, hash))
}
