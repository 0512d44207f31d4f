//! Results of one run.

use crate::app::AppOutcome;
use crate::away::AwayOutcome;
use crate::congestion::Met;
use crate::copa::CopaOutcome;
use crate::host::KernelCounts;
use crate::observe::Observation;
use crate::pauses::PauseOutcome;
use crate::poisson::OpenLoop;
use crate::rings::RingOutcome;
use crate::rival::RivalOutcome;
use crate::saa::SaaOutcome;
use crate::spec::{Spec, Transport};
use crate::state::HostState;
use crate::stats::Summary;
use crate::trace::TraceOutcome;
use crate::workload::Flow;
use srd_core::config::EngineConfig;
use srd_core::counters::Counters;
use srd_fabric::{Drops, FlowLimitStats, Ps};
use srd_rivals::TcpConfig;
use srd_timeline::Timeline;

/// Results of one run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The executed case.
    pub spec: Spec,
    /// The seed.
    pub seed: u64,
    /// Number of hosts of the network.
    pub hosts: u32,
    /// Completion times: `[round][flow]`, `None`: did not end in time.
    pub fct_ps: Vec<Vec<Option<Ps>>>,
    /// Start of each round.
    pub round_at_ps: Vec<Ps>,
    /// Completion times until the arrival of the last byte, where phases are measured.
    pub arrived_ps: Vec<Vec<Option<Ps>>>,
    /// Floor of each flow, with the transport's own headers.
    pub floor_ps: Vec<Ps>,
    /// Ideal time of each flow: payload alone at its slower end, no headers, no round trip.
    pub ideal_ps: Vec<Ps>,
    /// The flows.
    pub flows: Vec<Flow>,
    /// Largest base RTT between a flow's ends.
    pub base_rtt_ps: Ps,
    /// Summary of completion times and floors.
    pub summary: Summary,
    /// Requests that ended in error.
    pub failures: u64,
    /// Number of data packets of all flows, without retransmissions.
    pub data_packets: u64,
    /// Counters that all transports have.
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
    /// Growth of the process's resident memory between the first and the last event, in bytes;
    /// memory reused from an earlier run of the process is not counted.
    pub memory_grown_bytes: u64,
    /// Hash of every delivery.
    pub hash: u64,
    /// Payload bytes that arrived in each interval of `spec.measure.goodput_us`.
    pub goodput: Vec<u64>,
    /// Payload bytes of each flow per interval, if `spec.measure.flows` is set.
    pub flow_goodput: Vec<Vec<u64>>,
    /// Largest backlog in bytes of the last link to any receiver.
    pub last_hop_bytes_max: u64,
    /// Recorded series, if `spec.measure.observe` is set.
    pub observation: Option<Box<Observation>>,
    /// Cost of in-order delivery, if `spec.measure.order` is set.
    pub order: Option<OrderCost>,
    /// What the network saw of packets, if `spec.measure.trace` is set.
    pub trace: Option<TraceOutcome>,
    /// The recording for Perfetto, if `spec.measure.timeline` is set.
    pub timeline: Option<Box<Timeline>>,
    /// State that a host keeps for its peers: the most of any host, counted at the end.
    pub state: HostState,
    /// Rings of hosts, if the spec has any.
    pub rings: Vec<RingOutcome>,
    /// Pauses of links, with priority flow control.
    pub pauses: Option<PauseOutcome>,
    /// Limits of flows at cards, with `network.flow_gbps`: sums over hosts, the longest wait of
    /// all, and the most flows of a host.
    pub limits: Option<FlowLimitStats>,
    /// The deadlock that ended the run, with its cycle.
    pub deadlock: Option<String>,
    /// Time from the start of the last round to its last flow's end; `None`: a flow did not end.
    pub phase_ps: Option<Ps>,
    /// Times of the program, if the workload is one.
    pub app: Option<AppOutcome>,
    /// Completion times in the fluid optimum, if `spec.measure.fluid` is set.
    pub fluid_ps: Option<Vec<Ps>>,
    /// Slowdowns of the measured flows of open-loop arrivals.
    pub open_loop: Option<OpenLoop>,
    /// Ports of all switches per host, for a k-ary n-tree.
    pub ports_per_host: Option<f64>,
    /// Results of the other groups of flows of a mixed world, one each. Counters of the network are
    /// those of the whole world in each of them.
    pub also: Vec<RunResult>,
    /// Times until the application saw the end of a flow, with `host.noise`: `[round][flow]`.
    pub seen_ps: Vec<Vec<Option<Ps>>>,
    /// Time of each complete round, until the application saw the last end.
    pub round_ps: Vec<Ps>,
    /// Absences of processors, with `host.noise`.
    pub away: Option<AwayOutcome>,
}

/// Counters that all transports have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Retransmitted data packets.
    pub retransmitted: u64,
    /// Retransmissions of packets that were not lost.
    pub spurious: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// Pure acknowledgments sent.
    pub acks: u64,
    /// Data packets that the receiver already had.
    pub duplicates: u64,
    /// Packets that did not fit into a receiver's socket.
    pub socket_drops: u64,
}

/// Configuration and counters of the protocol that ran.
#[derive(Clone, Debug)]
pub enum Detail {
    /// SRD.
    Srd {
        /// The engines' configuration.
        engine: Box<EngineConfig>,
        /// Sum of the counters of all engines.
        counters: Box<Counters>,
        /// Counters of kernel models, if hosts have one.
        kernels: Option<KernelCounts>,
    },
    /// TCP.
    Tcp {
        /// The hosts' configuration.
        config: Box<TcpConfig>,
        /// Sum of the counters of all connections.
        counters: Box<srd_rivals::Counters>,
    },
    /// Another transport of the crate of rivals.
    Rival(Box<RivalOutcome>),
    /// Packets in order over a lossless network.
    Saa(Box<SaaOutcome>),
    /// COPA's transport.
    Copa(Box<CopaOutcome>),
    /// Placement without packets.
    Static(Box<Met>),
}

/// Cost of in-order delivery to the flows of a run: the wait of each packet for earlier ones of its
/// flow, and the memory that holds waiting packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OrderCost {
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that arrived before an earlier one of their flow.
    pub early: u64,
    /// Mean wait of all packets in us.
    pub wait_us_mean: f64,
    /// 99th percentile of waits in us.
    pub wait_us_p99: f64,
    /// Longest wait in us.
    pub wait_us_max: f64,
    /// Largest number of bytes that one host holds back.
    pub held_bytes_max: u64,
    /// Packets that receivers dropped because they arrived early (`engine.order = "drop"`).
    pub dropped: u64,
}

impl RunResult {
    /// Packets lost by the network and in sockets.
    pub fn lost(&self) -> u64 {
        self.drops.total() + self.tally.socket_drops
    }
    /// Counters of kernel models; `None` for ideal hosts.
    pub fn kernels(&self) -> Option<KernelCounts> {
        match &self.detail {
            Detail::Srd { kernels, .. } => *kernels,
            _ => None,
        }
    }
    /// Number of flows (in all rounds) that did not end, except endless ones.
    pub fn unfinished(&self) -> usize {
        if self.spec.workload.endless {
            return 0;
        }
        self.fct_ps.iter().flatten().filter(|f| f.is_none()).count()
    }
    /// Retransmitted data packets in percent.
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
            Detail::Rival(outcome) => outcome.payload_bytes,
            Detail::Saa(outcome) => outcome.payload_bytes,
            Detail::Copa(outcome) => outcome.config.payload_bytes,
            Detail::Static(_) => 0,
        }
    }
    /// A rival's results; `None` for SRD, TCP and the other transports.
    pub fn rival(&self) -> Option<&RivalOutcome> {
        match &self.detail {
            Detail::Rival(outcome) => Some(outcome),
            _ => None,
        }
    }
    /// SRD's counters; `None` for another transport.
    pub fn srd_counters(&self) -> Option<&Counters> {
        match &self.detail {
            Detail::Srd { counters, .. } => Some(counters),
            _ => None,
        }
    }
    /// COPA's results; `None` for another transport.
    pub fn copa(&self) -> Option<&CopaOutcome> {
        match &self.detail {
            Detail::Copa(outcome) => Some(outcome),
            _ => None,
        }
    }
    /// The transport of the run.
    pub const fn transport(&self) -> Transport {
        self.spec.transport
    }
    /// Names and values of all parameters of the protocol.
    pub fn parameters(&self) -> Vec<(String, String)> {
        match &self.detail {
            Detail::Srd { engine, .. } => flattened(&format!("{engine:#?}")),
            Detail::Tcp { config, .. } => {
                config.parameters().into_iter().map(|(k, v)| (k.to_string(), v)).collect()
            }
            Detail::Rival(outcome) => outcome.parameters.clone(),
            Detail::Saa(outcome) => outcome.parameters.clone(),
            Detail::Copa(outcome) => outcome.parameters(),
            Detail::Static(_) => Vec::new(),
        }
    }
}

/// Fields of a structure's pretty-printed text, as `outer.inner` and value.
fn flattened(text: &str) -> Vec<(String, String)> {
    let mut outer: Vec<&str> = Vec::new();
    let mut out = Vec::new();
    for line in text.lines().skip(1) {
        let line = line.trim().trim_end_matches(',');
        match line.split_once(": ") {
            Some((name, value)) if value.ends_with(['{', '(']) => {
                outer.push(name);
                // The value of a wrapper is on the next line.
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
