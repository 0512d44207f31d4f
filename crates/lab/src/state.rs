//! State that hosts keep for their peers, counted in the run.

use crate::run::Plan;
use rustc_hash::{FxHashMap, FxHashSet};

/// State of one host at the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostState {
    /// Queue pairs that its programs have: a reliable connection and TCP need one for each remote
    /// process and process of their own (connections of TCP count as such), SRD and a reliable
    /// datagram one for each process of their own.
    pub queue_pairs: u64,
    /// What the transport itself keeps of peers: contexts of SRD, ends of connections otherwise.
    pub contexts: u64,
    /// Hosts that its flows address.
    pub peers: u64,
    /// Bytes of these contexts or ends in this implementation, with what they hold.
    pub bytes: u64,
}

impl HostState {
    /// The state of two processes of a host together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            queue_pairs: self.queue_pairs + other.queue_pairs,
            contexts: self.contexts + other.contexts,
            peers: self.peers.max(other.peers),
            bytes: self.bytes + other.bytes,
        }
    }

    /// The larger of each number.
    pub fn most(self, other: Self) -> Self {
        Self {
            queue_pairs: self.queue_pairs.max(other.queue_pairs),
            contexts: self.contexts.max(other.contexts),
            peers: self.peers.max(other.peers),
            bytes: self.bytes.max(other.bytes),
        }
    }
}

/// Connections of a host's processes: to and from a process of another host, by own process, host
/// and other process.
type Ends = FxHashMap<(u32, u32, u32), [u32; 2]>;

/// Connections between processes that hosts have made, one for both directions.
pub struct States<'a> {
    plan: &'a Plan<'a>,
    /// Those of each host.
    ends: Vec<Ends>,
}

impl<'a> States<'a> {
    /// No connections.
    pub fn new(plan: &'a Plan<'a>) -> Self {
        Self { plan, ends: vec![FxHashMap::default(); plan.topo.hosts() as usize] }
    }

    /// Counts the connection of a flow at both of its hosts.
    pub fn connected(&mut self, flow: u32) {
        let f = &self.plan.flows.flows[flow as usize];
        let (from, to) = self.plan.flows.processes_of(flow);
        let ends = &mut self.ends;
        ends[f.src.0 as usize].entry((from, f.dst.0, to)).or_default()[0] += 1;
        ends[f.dst.0 as usize].entry((to, f.src.0, from)).or_default()[1] += 1;
    }

    /// The most of any host, if a queue pair of each process serves all of its peers, and a context
    /// for each pair of hosts all of their processes; `bytes` of a host by its number.
    pub fn datagram(&self, bytes: impl Fn(usize) -> u64) -> HostState {
        let of = |(host, ends): (usize, &Ends)| {
            let own = distinct(ends.keys().map(|(own, ..)| *own));
            let peers = distinct(ends.keys().map(|(_, peer, _)| *peer));
            HostState { queue_pairs: own, contexts: peers, peers, bytes: bytes(host) }
        };
        self.ends.iter().enumerate().map(of).fold(HostState::default(), HostState::most)
    }

    /// The most of any host; `bytes` of a host by its number.
    pub fn most(&self, bytes: impl Fn(usize) -> u64) -> HostState {
        let of = |(host, ends): (usize, &Ends)| {
            let sent_to = ends.iter().filter(|(_, n)| n[0] > 0);
            let peers = distinct(sent_to.map(|((_, peer, _), _)| *peer));
            let all = ends.values().map(|[out, back]| u64::from(*out.max(back))).sum();
            HostState { queue_pairs: all, contexts: all, peers, bytes: bytes(host) }
        };
        self.ends.iter().enumerate().map(of).fold(HostState::default(), HostState::most)
    }
}

/// Number of different values.
fn distinct(values: impl Iterator<Item = u32>) -> u64 {
    values.collect::<FxHashSet<_>>().len() as u64
}
