//! Parallel programs: schedules of messages and computations with their dependences, made by
//! patterns ([`patterns`], [`collectives`]) or read from GOAL text ([`goal`]), and executed over
//! any transport ([`Play`]).

mod collectives;
pub mod goal;
mod outcome;
mod patterns;
mod play;
pub mod schedule;

pub use outcome::{AppOutcome, amdahl};
pub use play::Play;
pub use schedule::{OpId, Schedule};

use crate::spec::{AppSpec, Pattern, Placing, Spec, Workload, flow_bytes};
use crate::srd;
use crate::workload::{Flow, Flows};
use rustc_hash::FxHashMap;
use srd_fabric::{HostId, Rng};
use std::path::Path;

/// Most processes of a host.
const PROCESSES_MAX: u32 = 1_024;
/// Stream kind of the imbalance of computations.
const STREAM_IMBALANCE: u64 = 0xa99;

/// A schedule on hosts: each message belongs to a flow, which carries all messages of one size
/// between two hosts.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The schedule.
    pub schedule: Schedule,
    /// Flow of each operation; `None`: it sends nothing, or to a rank of the same host.
    pub flow_of: Vec<Option<u32>>,
    /// Number of messages of each flow.
    pub messages: Vec<u32>,
}

/// Whether a workload is a schedule.
pub const fn is_program(pattern: Pattern) -> bool {
    matches!(pattern, Pattern::App | Pattern::Goal)
}

/// Checks the settings of a program that do not depend on the network.
///
/// # Errors
/// The text names the field and what to give instead.
pub fn check(spec: &Spec) -> Result<(), String> {
    let w = &spec.workload;
    if spec.app.is_some() && w.pattern != Pattern::App {
        return Err("app: only workload.pattern = \"app\" has it; leave the table out".into());
    }
    if !is_program(w.pattern) {
        return flows_between_processes(spec);
    }
    if !(1..=PROCESSES_MAX).contains(&w.processes_per_host) {
        return Err(format!(
            "workload.processes_per_host = {} must be from 1 to {PROCESSES_MAX}",
            w.processes_per_host
        ));
    }
    let other = [
        ("workload.rounds", w.rounds != 1),
        ("workload.flows_per_pair", w.flows_per_pair != 1),
        ("workload.jitter_ns", w.jitter_ns != 0),
        ("workload.both_ways", w.both_ways),
        ("workload.endless", w.endless),
        ("workload.background_pairs", w.background_pairs != 0),
        ("workload.bytes_spread", w.bytes_spread != 1),
        ("workload.bytes", w.bytes != flow_bytes()),
        ("workload.senders", w.senders.is_some()),
        ("workload.pairs", w.pairs.is_some()),
        ("workload.peers", w.peers.is_some()),
        ("workload.shift", w.shift.is_some()),
        ("workload.permutations", w.permutations.is_some()),
        ("workload.victims", w.victims != 0),
        ("workload.skip_hosts", w.skip_hosts != 0),
        ("workload.unit", w.unit.is_some()),
        ("workload.file", w.file.is_some() && w.pattern == Pattern::App),
        ("measure.order", spec.measure.order),
        ("measure.phase", spec.measure.phase),
        ("measure.fluid", spec.measure.fluid),
        ("engine.order", spec.engine.order != crate::spec::OrderSpec::Any),
    ];
    if let Some((name, _)) = other.iter().find(|(_, given)| *given) {
        return Err(format!(
            "{name}: patterns \"app\" and \"goal\" define their messages themselves; leave it out"
        ));
    }
    match (&spec.app, w.pattern) {
        (Some(app), _) => app.check(),
        (None, Pattern::App) => {
            Err("app is missing: workload.pattern = \"app\" needs its pattern and bytes".into())
        }
        (None, _) => Ok(()),
    }
}

/// Checks flows between the processes of hosts, which are no program's.
fn flows_between_processes(spec: &Spec) -> Result<(), String> {
    let (w, e) = (&spec.workload, &spec.engine);
    if w.processes_per_host == 1 {
        return Ok(());
    }
    let pairs = matches!(
        w.pattern,
        Pattern::Incast
            | Pattern::Permutation
            | Pattern::LeafPairs
            | Pattern::Pairs
            | Pattern::Ring
            | Pattern::Shift
    );
    if !pairs {
        return Err("workload.processes_per_host: only programs (\"app\", \"goal\") and the \
                    patterns \"incast\", \"permutation\", \"leaf-pairs\", \"pairs\", \"ring\" and \
                    \"shift\" have processes; leave it out"
            .into());
    }
    if !(1..=srd::PROCESSES_MAX).contains(&w.processes_per_host) {
        return Err(format!(
            "workload.processes_per_host = {} must be from 1 to {} with this pattern",
            w.processes_per_host,
            srd::PROCESSES_MAX
        ));
    }
    if e.senders_per_host > 1 || e.receivers_per_host > 1 || w.victims > 0 {
        return Err("workload.processes_per_host: engine.senders_per_host, \
                    engine.receivers_per_host and workload.victims assign processes, too; leave \
                    them out"
            .into());
    }
    Ok(())
}

/// Whether there is a process for every rank.
fn fits(field: &str, ranks: u32, w: &Workload, hosts: u32) -> Result<(), String> {
    let processes = u64::from(hosts) * u64::from(w.processes_per_host);
    if u64::from(ranks) <= processes {
        return Ok(());
    }
    Err(format!(
        "{field} = {ranks}, but {hosts} hosts with {} processes each have {processes}; give fewer \
         ranks, more hosts or a larger workload.processes_per_host",
        w.processes_per_host
    ))
}

/// The number of ranks of a program.
fn ranks_of(app: &AppSpec, w: &Workload, hosts: u32) -> Result<u32, String> {
    let ranks = app.ranks.unwrap_or_else(|| hosts.saturating_mul(w.processes_per_host));
    fits("app.ranks", ranks, w, hosts)?;
    Ok(ranks)
}

/// The messages of a program on `hosts` hosts as flows.
///
/// # Errors
/// The text names the field, or the file with the line, and what is wrong.
pub fn flows(spec: &Spec, hosts: u32, folder: &Path, seed: u64) -> Result<Flows, String> {
    check(spec)?;
    let w = &spec.workload;
    let schedule = match &spec.app {
        Some(app) => {
            let mut rng = Rng::stream(seed, STREAM_IMBALANCE, 0);
            let ranks = ranks_of(app, w, hosts)?;
            patterns::suits(app, ranks)?;
            patterns::schedule_of(app, ranks, &mut rng)?
        }
        None => {
            let schedule = read(w, folder)?;
            fits("num_ranks", schedule.ranks, w, hosts)?;
            schedule
        }
    };
    if schedule.messages().next().is_none() {
        return Err("the program sends no message; give it a send and its receive".into());
    }
    placed(schedule, w, hosts, seed)
}

/// Reads the file of a GOAL workload.
fn read(w: &Workload, folder: &Path) -> Result<Schedule, String> {
    let name = w.file.as_deref();
    let name =
        name.ok_or("workload.file is missing: pattern = \"goal\" needs a file of GOAL text")?;
    let path = folder.join(name);
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|e| format!("workload.file: {}: {e}", path.display()))?;
    goal::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Puts the ranks on hosts, as many in a row on each as it has processes, and makes flows of their
/// messages.
fn placed(schedule: Schedule, w: &Workload, hosts: u32, seed: u64) -> Result<Flows, String> {
    let mut order: Vec<u32> = (0..hosts).collect();
    if w.placing == Placing::Drawn {
        Rng::stream(seed, 0x1ab, 0).shuffle(&mut order);
    }
    let host_of = |rank: u32| HostId(order[(rank / w.processes_per_host) as usize]);
    let mut index: FxHashMap<(HostId, HostId, u64), u32> = FxHashMap::default();
    let mut flows: Vec<Flow> = Vec::new();
    let mut program = Program { flow_of: vec![None; schedule.ops.len()], ..Program::default() };
    for (op, from, to, bytes) in schedule.messages() {
        let (src, dst) = (host_of(from), host_of(to));
        if src == dst {
            continue;
        }
        let flow = *index.entry((src, dst, bytes)).or_insert_with(|| {
            program.messages.push(0);
            let (start_ps, on_sent, on_received) = (None, None, None);
            flows.push(Flow { src, dst, bytes, start_ps, on_sent, on_received });
            flows.len() as u32 - 1
        });
        program.messages[flow as usize] += 1;
        program.flow_of[op as usize] = Some(flow);
    }
    if flows.is_empty() {
        return Err("each message is between ranks of one host, and the network has none to \
                    carry; let ranks of different hosts send, or give a smaller \
                    workload.processes_per_host"
            .into());
    }
    program.schedule = schedule;
    Ok(Flows { flows, program: Some(Box::new(program)), ..Flows::default() })
}
