//! What came of one run.

use crate::congestion::Met;
use crate::copa::CopaOutcome;
use crate::host::KernelCounts;
use crate::observe::Observation;
use crate::poisson::OpenLoop;
use crate::rings::RingOutcome;
use crate::saa::SaaOutcome;
use crate::spec::{Spec, Transport};
use crate::stats::Summary;
use crate::workload::Flow;
use srd_core::config::EngineConfig;
use srd_core::counters::Counters;
use srd_fabric::{Drops, Ps};
use srd_rivals::TcpConfig;

/// What came of one run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The case as run.
    pub spec: Spec,
    /// Its seed.
    pub seed: u64,
    /// Hosts of the network.
    pub hosts: u32,
    /// Completion times: `[round][flow]`, `None` = did not end in time.
    pub fct_ps: Vec<Vec<Option<Ps>>>,
    /// The same until the last byte had arrived, where phases are measured.
    pub arrived_ps: Vec<Vec<Option<Ps>>>,
    /// Floor of each flow, with the transport's own headers.
    pub floor_ps: Vec<Ps>,
    /// Ideal time of each flow: payload alone at its slower end, no headers, no round trip.
    pub ideal_ps: Vec<Ps>,
    /// The flows.
    pub flows: Vec<Flow>,
    /// Largest base RTT between a flow's ends.
    pub base_rtt_ps: Ps,
    /// Summary of the above.
    pub summary: Summary,
    /// Requests that ended in error.
    pub failures: u64,
    /// Different data packets that the flows consist of.
    pub data_packets: u64,
    /// What the protocol counted, whichever it was.
    pub tally: Tally,
    /// The protocol's own configuration and counters.
    pub detail: Detail,
    /// Packets lost by the network.
    pub drops: Drops,
    /// Packets marked by queues.
    pub marked: u64,
    /// Packets sent by hosts, of any kind.
    pub packets_sent: u64,
    /// Events of the network.
    pub events: u64,
    /// Simulated time at the end.
    pub end_ps: Ps,
    /// CPU time of the event loop.
    pub cpu_ns: u64,
    /// Wall time of the event loop.
    pub wall_ns: u64,
    /// Largest resident memory of the process so far, in bytes.
    pub memory_bytes: u64,
    /// By how much the process's resident memory grew between the first event and the last, in
    /// bytes; memory that an earlier run of the process left is not seen.
    pub memory_grown_bytes: u64,
    /// Hash of every delivery.
    pub hash: u64,
    /// Payload bytes that arrived per interval of `spec.measure.goodput_us`.
    pub goodput: Vec<u64>,
    /// The same of each flow, if `spec.measure.flows` is set.
    pub flow_goodput: Vec<Vec<u64>>,
    /// Largest backlog in bytes of the last link to any receiver.
    pub last_hop_bytes_max: u64,
    /// What was seen on the way, if `spec.measure.observe` is set.
    pub observation: Option<Box<Observation>>,
    /// What order would have cost, if `spec.measure.order` is set.
    pub order: Option<OrderCost>,
    /// Receive paths of hosts, if the spec gives them any.
    pub rings: Vec<RingOutcome>,
    /// From the start of the last round to its last flow's end; `None` = not all ended.
    pub phase_ps: Option<Ps>,
    /// Completion times in the fluid optimum, if `spec.measure.fluid` is set.
    pub fluid_ps: Option<Vec<Ps>>,
    /// Slowdowns of the measured flows, where flows arrive at random times.
    pub open_loop: Option<OpenLoop>,
    /// Ports of all switches per host, where the network is a k-ary n-tree.
    pub ports_per_host: Option<f64>,
}

/// Counts that every transport has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Data packets sent again.
    pub retransmitted: u64,
    /// Of these, copies of what was not lost.
    pub spurious: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// Pure acknowledgments sent.
    pub acks: u64,
    /// Data packets that held nothing new for the receiver.
    pub duplicates: u64,
    /// Packets that found no room in a receiver's socket.
    pub socket_drops: u64,
}

/// What one SRD host holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrdObjects {
    /// Queue pairs.
    pub queue_pairs: u64,
    /// Other hosts that its flows go to.
    pub peers: u64,
}

/// Configuration and counters of the protocol that ran.
#[derive(Clone, Debug)]
pub enum Detail {
    /// SRD.
    Srd {
        /// The engines' configuration.
        engine: Box<EngineConfig>,
        /// Engine counters, all hosts together.
        counters: Box<Counters>,
        /// Objects of the host that has most of each.
        objects: SrdObjects,
        /// What the kernels between engines and cards counted, where hosts are models of real ones.
        kernels: Option<KernelCounts>,
    },
    /// TCP.
    Tcp {
        /// The hosts' configuration.
        config: Box<TcpConfig>,
        /// Counters of all connections together.
        counters: Box<srd_rivals::Counters>,
    },
    /// Packets in order over a lossless network.
    Saa(Box<SaaOutcome>),
    /// COPA's.
    Copa(Box<CopaOutcome>),
    /// No packets.
    Static(Box<Met>),
}

/// What delivery in order would have cost the flows of a run: every packet's wait for those sent
/// before it on its flow, and the memory in which it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OrderCost {
    /// Packets that arrived.
    pub packets: u64,
    /// Of these, packets that came before an earlier one of their flow.
    pub early: u64,
    /// Mean wait of all packets in us.
    pub wait_us_mean: f64,
    /// 99 in 100 packets wait at most this long, in us.
    pub wait_us_p99: f64,
    /// Longest wait in us.
    pub wait_us_max: f64,
    /// Most bytes that one host holds back at a time.
    pub held_bytes_max: u64,
    /// Packets dropped by receivers because they came early (`engine.order = "drop"`).
    pub dropped: u64,
}

impl RunResult {
    /// Packets lost by the network and in sockets.
    pub fn lost(&self) -> u64 {
        self.drops.total() + self.tally.socket_drops
    }
    /// What kernels between engines and cards counted; `None` where hosts are ideal.
    pub fn kernels(&self) -> Option<KernelCounts> {
        match &self.detail {
            Detail::Srd { kernels, .. } => *kernels,
            _ => None,
        }
    }
    /// Flows (of all rounds) that did not end; endless ones are not meant to.
    pub fn unfinished(&self) -> usize {
        if self.spec.workload.endless {
            return 0;
        }
        self.fct_ps.iter().flatten().filter(|f| f.is_none()).count()
    }
    /// Retransmissions per hundred data packets.
    pub fn retransmitted_percent(&self) -> f64 {
        100.0 * self.tally.retransmitted as f64 / self.data_packets.max(1) as f64
    }
    /// Data packets end to end per second of CPU time.
    pub fn packets_per_cpu_s(&self) -> f64 {
        self.data_packets as f64 * 1e9 / self.cpu_ns.max(1) as f64
    }
    /// Largest payload of a packet.
    pub fn mtu(&self) -> u32 {
        match &self.detail {
            Detail::Srd { engine, .. } => engine.mtu.into(),
            Detail::Tcp { config, .. } => config.mss,
            Detail::Saa(outcome) => outcome.payload_bytes,
            Detail::Copa(outcome) => outcome.config.payload_bytes,
            Detail::Static(_) => 0,
        }
    }
    /// SRD's counters; `None` if another transport ran.
    pub fn srd_counters(&self) -> Option<&Counters> {
        match &self.detail {
            Detail::Srd { counters, .. } => Some(counters),
            _ => None,
        }
    }
    /// Objects of the SRD host that has most of each; none if another transport ran.
    pub fn srd_objects(&self) -> SrdObjects {
        match &self.detail {
            Detail::Srd { objects, .. } => *objects,
            _ => SrdObjects::default(),
        }
    }
    /// What COPA's transport says of itself; `None` if another one ran.
    pub fn copa(&self) -> Option<&CopaOutcome> {
        match &self.detail {
            Detail::Copa(outcome) => Some(outcome),
            _ => None,
        }
    }
    /// Which transport ran.
    pub const fn transport(&self) -> Transport {
        self.spec.transport
    }
    /// Every parameter of the protocol with its value.
    pub fn parameters(&self) -> Vec<(String, String)> {
        match &self.detail {
            Detail::Srd { engine, .. } => flattened(&format!("{engine:#?}")),
            Detail::Tcp { config, .. } => {
                config.parameters().into_iter().map(|(k, v)| (k.to_string(), v)).collect()
            }
            Detail::Saa(outcome) => outcome.parameters.clone(),
            Detail::Copa(outcome) => outcome.parameters(),
            Detail::Static(_) => Vec::new(),
        }
    }
}

/// Fields of a structure printed over several lines, as `outer.inner` and value.
fn flattened(text: &str) -> Vec<(String, String)> {
    let mut outer: Vec<&str> = Vec::new();
    let mut out = Vec::new();
    for line in text.lines().skip(1) {
        let line = line.trim().trim_end_matches(',');
        match line.split_once(": ") {
            Some((name, value)) if value.ends_with(['{', '(']) => {
                outer.push(name);
                // A wrapper's value follows on a line of its own.
                if value.ends_with('(') {
                    out.push((outer.join("."), String::new()));
                }
            }
            Some((name, value)) => {
                let mut whole = outer.clone();
                whole.push(name);
                out.push((whole.join("."), value.to_string()));
            }
            None if line.starts_with(['}', ')']) => {
                outer.pop();
            }
            None => {
                if let Some((_, value)) = out.last_mut() {
                    value.push_str(line);
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_become_names_and_values() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "printed only")]
        struct Wrapped(u64);
        #[derive(Debug)]
        #[expect(dead_code, reason = "printed only")]
        struct Inner {
            a: u8,
            b: Wrapped,
        }
        #[derive(Debug)]
        #[expect(dead_code, reason = "printed only")]
        struct Outer {
            inner: Inner,
            c: Option<u8>,
        }
        let it = Outer { inner: Inner { a: 1, b: Wrapped(7) }, c: None };
        let got = flattened(&format!("{it:#?}"));
        let want = [("inner.a", "1"), ("inner.b", "7"), ("c", "None")];
        assert_eq!(got, want.map(|(k, v)| (k.to_string(), v.to_string())));
    }
}
