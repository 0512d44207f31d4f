//! Flows from a spec's workload.

use crate::app::Program;
use crate::spec::{CmUnit, Pattern, Workload};
use crate::{pattern, poisson};
use srd_fabric::htsim::{CmFile, StartUnit, TriggerKind};
use srd_fabric::{HostId, NS, Node, Ps, Rng, Topology};
use std::collections::BTreeSet;
use std::path::Path;

/// One flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sender.
    pub src: HostId,
    /// Receiver.
    pub dst: HostId,
    /// Payload in bytes.
    pub bytes: u64,
    /// Start time after the beginning of the round; `None`: a trigger starts the flow.
    pub start_ps: Option<Ps>,
    /// Trigger fired when the sender is done.
    pub on_sent: Option<u32>,
    /// Trigger fired when the receiver is done.
    pub on_received: Option<u32>,
}

/// Starts flows when others have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Id by which flows refer to the trigger.
    pub id: u32,
    /// Number of firings that start its flows.
    pub needs: u32,
    /// Whether it starts its flows only once.
    pub once: bool,
    /// Indices of the flows that it starts.
    pub starts: Vec<u32>,
}

/// All flows, triggers and background pairs.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// The flows; references use their index.
    pub flows: Vec<Flow>,
    /// The triggers.
    pub triggers: Vec<Trigger>,
    /// Sender and receiver of each background flow.
    pub background: Vec<(HostId, HostId)>,
    /// The program whose messages the flows carry, if it is one.
    pub program: Option<Box<Program>>,
    /// Groups of flows, in order, if there are several.
    pub groups: Vec<FlowGroup>,
    /// Processes of each host, if flows are between processes: those of a pair of hosts follow each
    /// other, from each process of the first to each of the second. 0: hosts have one.
    pub processes: u32,
}

/// Consecutive flows with a transport and a workload of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowGroup {
    /// Number of flows.
    pub flows: usize,
    /// Whether the flows start once and are not waited for.
    pub endless: bool,
    /// Start of the first round after that of the earliest group.
    pub wait_ps: Ps,
}

impl Flows {
    /// The processes at the two ends of a flow.
    pub const fn processes_of(&self, flow: u32) -> (u32, u32) {
        match self.processes {
            0 => (0, 0),
            n => (flow / n % n, flow % n),
        }
    }

    /// Appends the flows of another group.
    pub fn append(&mut self, more: &Self) {
        let first = self.flows.len() as u32;
        let ids = self.triggers.iter().map(|t| t.id + 1).max().unwrap_or(0);
        self.flows.extend(more.flows.iter().map(|f| Flow {
            on_sent: f.on_sent.map(|id| id + ids),
            on_received: f.on_received.map(|id| id + ids),
            ..f.clone()
        }));
        self.triggers.extend(more.triggers.iter().map(|t| Trigger {
            id: t.id + ids,
            starts: t.starts.iter().map(|flow| flow + first).collect(),
            ..t.clone()
        }));
    }
}

impl Workload {
    /// The flows on this network; equal seeds give equal flows.
    ///
    /// # Errors
    /// The text names the field that is missing or does not suit the network.
    pub fn flows(&self, topo: &Topology, folder: &Path, seed: u64) -> Result<Flows, String> {
        if self.rounds == 0 || self.flows_per_pair == 0 || self.bytes == 0 {
            return Err("workload.rounds, flows_per_pair and bytes must be at least 1".into());
        }
        if self.skip_hosts > 0 && self.pattern != Pattern::LeafPairs {
            return Err("workload.skip_hosts: only pattern = \"leaf-pairs\" has it".into());
        }
        let mut rng = Rng::stream(seed, 0x1ab, 0);
        let pairs = match self.pattern {
            Pattern::Incast => self.incast(topo)?,
            Pattern::Permutation => permutation(topo.hosts(), &mut rng)?,
            Pattern::LeafPairs => self.leaf_pairs(topo)?,
            Pattern::Ring => self.ring(topo)?,
            Pattern::Shift => self.shifted(topo)?,
            Pattern::Pairs => {
                let n = self.need_pairs()?;
                if topo.hosts() < 2 * n {
                    return Err(format!("workload.pairs = {n}, but {} hosts", topo.hosts()));
                }
                (0..n).map(|i| (2 * i, 2 * i + 1)).collect()
            }
            Pattern::Permutations
            | Pattern::AllToAll
            | Pattern::Halo
            | Pattern::Allreduce
            | Pattern::SharedInput => {
                return self.application(topo, &mut rng);
            }
            Pattern::Cm => return self.matrix(topo, folder),
            Pattern::App | Pattern::Goal => {
                return Err("patterns \"app\" and \"goal\" are not for this transport".into());
            }
            Pattern::Poisson => {
                let spec = self.poisson.as_ref();
                let spec = spec.ok_or("workload.poisson is missing: give its sizes and load")?;
                return poisson::flows(spec, topo, folder, seed);
            }
        };
        let victims = self.victim_pairs(topo, &pairs)?;
        let mut flows = Vec::new();
        let back = |(a, b)| if self.both_ways { vec![(a, b), (b, a)] } else { vec![(a, b)] };
        for (src, dst) in pairs.into_iter().chain(victims).flat_map(back) {
            for _ in 0..self.flows_per_pair * self.processes_per_host.pow(2) {
                let late = if self.jitter_ns == 0 { 0 } else { rng.below(self.jitter_ns * NS) };
                flows.push(Flow {
                    src: HostId(src),
                    dst: HostId(dst),
                    bytes: self.bytes,
                    start_ps: Some(late),
                    on_sent: None,
                    on_received: None,
                });
            }
        }
        let background = self.background(topo, &flows, &mut rng)?;
        Ok(Flows { flows, background, processes: self.processes_per_host, ..Flows::default() })
    }

    /// Application patterns: step by step, with a barrier after each step.
    fn application(&self, topo: &Topology, rng: &mut Rng) -> Result<Flows, String> {
        let hosts = topo.hosts();
        if hosts < 2 {
            return Err(format!("workload.pattern = {:?} needs two hosts", self.pattern));
        }
        let mut steps = match self.pattern {
            Pattern::AllToAll => pattern::all_to_all(hosts),
            Pattern::Halo => pattern::halo(hosts),
            Pattern::Allreduce => pattern::allreduce(hosts)?,
            Pattern::SharedInput => pattern::shared_input(hosts)?,
            _ => {
                let n = self.permutations.ok_or("workload.permutations is missing")?;
                if !(1..=1_024).contains(&n) {
                    return Err(format!("workload.permutations = {n} must be from 1 to 1,024"));
                }
                pattern::permutations(hosts, n, rng)?
            }
        };
        if !(1..=1_024).contains(&self.bytes_spread) {
            return Err("workload.bytes_spread must be from 1 to 1,024".into());
        }
        pattern::place(&mut steps, hosts, self.placing, rng);
        let mut out = Flows::default();
        let last = steps.len() - 1;
        for (i, step) in steps.iter().enumerate() {
            let first = out.flows.len() as u32;
            for (src, dst) in step {
                let late = if self.jitter_ns == 0 { 0 } else { rng.below(self.jitter_ns * NS) };
                let times =
                    if self.bytes_spread == 1 { 1 } else { rng.range(1, self.bytes_spread.into()) };
                out.flows.push(Flow {
                    src: HostId(*src),
                    dst: HostId(*dst),
                    bytes: self.bytes * times,
                    start_ps: (i == 0).then_some(late),
                    on_sent: None,
                    on_received: (i < last).then_some(i as u32),
                });
            }
            if i > 0 {
                out.triggers.push(Trigger {
                    id: i as u32 - 1,
                    needs: steps[i - 1].len() as u32,
                    once: false,
                    starts: (first..out.flows.len() as u32).collect(),
                });
            }
        }
        Ok(out)
    }

    fn shifted(&self, topo: &Topology) -> Result<Vec<(u32, u32)>, String> {
        let hosts = topo.hosts();
        let shift = self.shift.ok_or("workload.shift is missing: pattern = \"shift\" needs it")?;
        if shift == 0 || shift >= hosts {
            return Err(format!("workload.shift = {shift} must be from 1 to {}", hosts - 1));
        }
        Ok((0..hosts).map(|h| (h, (h + shift) % hosts)).collect())
    }

    fn ring(&self, topo: &Topology) -> Result<Vec<(u32, u32)>, String> {
        let peers = self.peers.ok_or("workload.peers is missing: a ring needs it")?;
        let hosts = topo.hosts();
        if peers == 0 || peers >= hosts {
            return Err(format!("workload.peers = {peers} must be from 1 to {}", hosts - 1));
        }
        Ok((0..hosts).flat_map(|i| (1..=peers).map(move |k| (i, (i + k) % hosts))).collect())
    }

    /// Pairs among the hosts without flows.
    fn background(
        &self,
        topo: &Topology,
        flows: &[Flow],
        rng: &mut Rng,
    ) -> Result<Vec<(HostId, HostId)>, String> {
        if self.background_pairs == 0 {
            return Ok(Vec::new());
        }
        if self.background_bytes == 0 {
            return Err("workload.background_bytes must be at least 1".into());
        }
        let busy: BTreeSet<u32> = flows.iter().flat_map(|f| [f.src.0, f.dst.0]).collect();
        let mut free: Vec<u32> = (0..topo.hosts()).filter(|h| !busy.contains(h)).collect();
        let n = self.background_pairs as usize;
        if free.len() < 2 * n {
            return Err(format!(
                "workload.background_pairs = {n}, but only {} hosts are free",
                free.len()
            ));
        }
        rng.shuffle(&mut free);
        Ok(free[..2 * n].chunks(2).map(|p| (HostId(p[0]), HostId(p[1]))).collect())
    }

    fn need_pairs(&self) -> Result<u32, String> {
        self.pairs.ok_or_else(|| format!("workload.pairs is missing: {:?} needs it", self.pattern))
    }

    /// Senders under switches as far apart as possible, to host 0.
    fn incast(&self, topo: &Topology) -> Result<Vec<(u32, u32)>, String> {
        let n = self.senders.ok_or("workload.senders is missing: an incast needs it")?;
        let hosts = topo.hosts();
        if n == 0 || n >= hosts {
            return Err(format!("workload.senders = {n} must be from 1 to {}", hosts - 1));
        }
        // One sender in each of the last n of n + 1 equal parts of the hosts; the receiver is in
        // the first part.
        let part = (hosts / (n + 1)).max(1);
        let leaf = hosts_per_leaf(topo).max(1);
        let step = if part >= leaf { part / leaf * leaf } else { part };
        let pairs: Vec<(u32, u32)> = (1..=n).map(|i| (i * step, 0)).collect();
        Ok(pairs)
    }

    /// Pairs that share leaves, but no host, with the flows of an incast: each from a free host
    /// under the leaf of one of its senders, in turn, to a free host under its receiver's leaf.
    fn victim_pairs(
        &self,
        topo: &Topology,
        incast: &[(u32, u32)],
    ) -> Result<Vec<(u32, u32)>, String> {
        if self.victims == 0 {
            return Ok(Vec::new());
        }
        if self.pattern != Pattern::Incast {
            return Err("workload.victims: only pattern = \"incast\" has them".into());
        }
        let leaf = hosts_per_leaf(topo).max(1);
        let mut busy: BTreeSet<u32> = incast.iter().flat_map(|(a, b)| [*a, *b]).collect();
        let mut free_under = |host: u32| {
            let first = host / leaf * leaf;
            (first..(first + leaf).min(topo.hosts())).find(|h| busy.insert(*h))
        };
        let mut out = Vec::new();
        for i in 0..self.victims as usize {
            let (sender, receiver) = incast[i % incast.len()];
            let pair = (free_under(sender), free_under(receiver));
            let (Some(a), Some(b)) = pair else {
                return Err(format!(
                    "workload.victims = {}: only {i} pairs of hosts are free beside the incast's",
                    self.victims
                ));
            };
            out.push((a, b));
        }
        Ok(out)
    }

    fn leaf_pairs(&self, topo: &Topology) -> Result<Vec<(u32, u32)>, String> {
        let (n, leaf) = (self.need_pairs()?, hosts_per_leaf(topo));
        let first = self.skip_hosts;
        if n > leaf || topo.hosts() < 2 * leaf {
            return Err(format!("workload.pairs = {n}, but {leaf} hosts under the first leaf"));
        }
        if first > leaf - n {
            return Err(format!(
                "workload.skip_hosts = {first}: beside {n} pairs, {} of {leaf} hosts are left",
                leaf - n
            ));
        }
        Ok((first..first + n).map(|i| (i, leaf + i)).collect())
    }

    fn matrix(&self, topo: &Topology, folder: &Path) -> Result<Flows, String> {
        let name = self.file.as_deref().ok_or("workload.file is missing: cm needs it")?;
        let unit = match self.unit {
            Some(CmUnit::Ps) => StartUnit::Picoseconds,
            Some(CmUnit::Us) => StartUnit::Microseconds,
            None => {
                return Err("workload.unit is missing: start times of a .cm file are \"ps\" \
                            (csg-htsim) or \"us\" (uet-htsim), and the file does not say"
                    .into());
            }
        };
        let path = folder.join(name);
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let cm = CmFile::parse(&text, unit).map_err(|e| format!("{}: {e}", path.display()))?;
        flows_of(&cm, topo).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// Flows of a connection matrix.
fn flows_of(cm: &CmFile, topo: &Topology) -> Result<Flows, String> {
    if cm.nodes > topo.hosts() {
        return Err(format!("{} nodes, but the network has {} hosts", cm.nodes, topo.hosts()));
    }
    if let Some(f) = cm.failures.first() {
        return Err(format!(
            "line {}: failures are not taken from the matrix: write a [[fault]] in the spec",
            f.line
        ));
    }
    let mut triggers: Vec<Trigger> = cm
        .triggers
        .iter()
        .map(|t| Trigger {
            id: t.id,
            needs: match t.kind {
                TriggerKind::Barrier { count } => count,
                TriggerKind::OneShot | TriggerKind::MultiShot => 1,
            },
            once: t.kind != TriggerKind::MultiShot,
            starts: Vec::new(),
        })
        .collect();
    let mut flows = Vec::new();
    for c in &cm.connections {
        if let Some(id) = c.trigger {
            let t = triggers.iter_mut().find(|t| t.id == id).expect("the reader checked it");
            t.starts.push(flows.len() as u32);
        }
        flows.push(Flow {
            src: HostId(c.src),
            dst: HostId(c.dst),
            bytes: c.bytes,
            start_ps: c.start_ps,
            on_sent: c.send_done_trigger,
            on_received: c.recv_done_trigger,
        });
    }
    Ok(Flows { flows, triggers, ..Flows::default() })
}

/// A random permutation without fixed points.
pub(crate) fn permutation(hosts: u32, rng: &mut Rng) -> Result<Vec<(u32, u32)>, String> {
    if hosts < 2 {
        return Err("a permutation needs at least two hosts".into());
    }
    let mut to: Vec<u32> = (0..hosts).collect();
    rng.shuffle(&mut to);
    // A fixed point is swapped with its neighbour, after which neither is a fixed point.
    for i in 0..hosts as usize {
        if to[i] == i as u32 {
            to.swap(i, (i + 1) % hosts as usize);
        }
    }
    if to.iter().enumerate().any(|(i, t)| i as u32 == *t) {
        return Err(format!("no permutation of {hosts} hosts found"));
    }
    Ok(to.into_iter().enumerate().map(|(i, t)| (i as u32, t)).collect())
}

/// Number of hosts under the switch of host 0.
fn hosts_per_leaf(topo: &Topology) -> u32 {
    let Some(first) = topo.cables_of(Node::Host(HostId(0))).next() else { return 0 };
    let leaf = topo.cables()[first.0 as usize].b;
    topo.cables().iter().filter(|c| c.b == leaf && matches!(c.a, Node::Host(_))).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_have_no_fixed_point_and_hit_everyone() {
        for seed in 0..200 {
            for hosts in [2, 3, 5, 64] {
                let p = permutation(hosts, &mut Rng::new(seed)).unwrap();
                assert!(p.iter().all(|(a, b)| a != b));
                let hit: BTreeSet<u32> = p.iter().map(|(_, b)| *b).collect();
                assert_eq!(hit.len(), hosts as usize);
            }
        }
    }
}
