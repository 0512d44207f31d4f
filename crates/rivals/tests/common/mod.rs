//! The network that a kernel's TCP was measured on, rebuilt: leaves and spines out of network
//! namespaces, token buckets at every port, 9000-byte MTU, no offloads.

use srd_fabric::{Fault, HostId, LeafSpine, MS, Ps, SEC, SwitchId, US, WorldConfig};
use srd_rivals::{Conn, Counters, TcpConfig, TcpNet};

/// One hop between namespaces, software forwarding included; a ping over four takes 20 to 30 µs.
pub const HOP: Ps = 3 * US;
/// Switch queues of the measured network: 200,000 bytes wait, 18,200 pass at once from the bucket.
pub const QUEUE: u64 = 218_200;
/// Ethernet header: what the token buckets counted beyond IP.
pub const LINK_BYTES: u32 = 14;

/// `hosts` under each of two leaves, `spines` above, queues as measured, host cards deep.
pub fn fabric(spines: u32, hosts: u32, host_rate: u64, up_rate: u64) -> srd_fabric::Topology {
    let port = |rate| srd_fabric::Port::new(rate, HOP);
    LeafSpine {
        leaves: 2,
        spines,
        hosts_per_leaf: hosts,
        cables_per_spine: 1,
        nic: port(host_rate).buffer(8_000_000),
        edge: port(host_rate).buffer(QUEUE),
        uplink: port(up_rate).buffer(QUEUE),
    }
    .build()
}

/// The kernel's TCP as measured: HZ = 250, one segment at a time.
pub fn kernel(rto_min_ps: Ps) -> TcpConfig {
    TcpConfig { link_bytes: LINK_BYTES, ..TcpConfig::linux() }.rto_min_ps(rto_min_ps)
}

/// Completion times of a scenario, all rounds and seeds together.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Ascending.
    pub fct_ps: Vec<Ps>,
    /// Longest of each round.
    pub round_max_ps: Vec<Ps>,
    /// Time at full rate.
    pub ideal_ps: Ps,
    /// What the connections did.
    pub counters: Counters,
}

impl Outcome {
    /// A quantile in ms.
    pub fn ms(&self, q: f64) -> f64 {
        let at = (self.fct_ps.len() as f64 * q) as usize;
        self.fct_ps[at.min(self.fct_ps.len() - 1)] as f64 / MS as f64
    }
    /// Largest over ideal.
    pub fn ratio(&self) -> f64 {
        self.ms(1.0) / (self.ideal_ps as f64 / MS as f64)
    }
    /// Mean of the rounds' longest, over ideal.
    pub fn ratio_mean(&self) -> f64 {
        let sum: f64 = self.round_max_ps.iter().map(|ps| *ps as f64).sum();
        sum / self.round_max_ps.len() as f64 / self.ideal_ps as f64
    }
}

/// Barrier rounds on warm connections between `pairs`, 50 ms apart.
pub fn rounds(
    topology: &srd_fabric::Topology,
    pairs: &[(u32, u32)],
    bytes: u64,
    rounds: u32,
    seeds: std::ops::Range<u64>,
    tcp: &TcpConfig,
) -> Outcome {
    let mut out = Outcome::default();
    for seed in seeds {
        let mut net = TcpNet::new(topology.clone(), WorldConfig::new(seed), tcp.clone())
            .expect("a sound network");
        let conns: Vec<Conn> =
            pairs.iter().map(|(a, b)| net.connect(HostId(*a), HostId(*b))).collect();
        net.run_until(500 * MS);
        for round in net.rounds(&conns, bytes, rounds, 50 * MS, 1000 * SEC) {
            out.round_max_ps.push(round.max_ps().expect("all arrive"));
            out.fct_ps.extend(round.fct_ps.iter().flatten());
        }
        out.counters.add(&net.counters());
        assert!(net.world.totals().conserved());
    }
    out.fct_ps.sort_unstable();
    out
}

/// 4 servers with 12 flows each to one server under the other leaf, at 1 Gb/s.
pub fn incast(bytes: u64, n: u32, seeds: std::ops::Range<u64>, tcp: &TcpConfig) -> Outcome {
    let topology = fabric(4, 4, 1_000_000_000, 1_000_000_000);
    let pairs: Vec<_> = (0..4).flat_map(|s| [(s, 4); 12]).collect();
    let mut out = rounds(&topology, &pairs, bytes, n, seeds, tcp);
    out.ideal_ps = 48 * bytes * 8_000 * 9014 / 8948;
    out
}

/// 8 servers to 8 under the other leaf, 16 flows per pair, 200 Mb/s each; uplinks half used.
pub fn imbalance(
    spines: u32,
    up_rate: u64,
    n: u32,
    seeds: std::ops::Range<u64>,
    tcp: &TcpConfig,
) -> Outcome {
    let topology = fabric(spines, 8, 200_000_000, up_rate);
    let pairs: Vec<_> = (0..8).flat_map(|s| [(s, 8 + s); 16]).collect();
    let mut out = rounds(&topology, &pairs, 250_000, n, seeds, tcp);
    out.ideal_ps = 16 * 250_000 * 40_000 * 9014 / 8948;
    out
}

/// 16 flows of 1 MB between two servers at 200 Mb/s; 20 ms into the second round one of four
/// spines swallows everything for `hole_ps`. Longest completion times of that round by seed.
pub fn black_hole(hole_ps: Ps, seeds: std::ops::Range<u64>, tcp: &TcpConfig) -> Vec<Ps> {
    let topology = fabric(4, 2, 200_000_000, 200_000_000);
    let spine: SwitchId = topology.tier_switches(1).next().expect("a spine");
    let mut out = Vec::new();
    for seed in seeds {
        let mut net = TcpNet::new(topology.clone(), WorldConfig::new(seed), tcp.clone())
            .expect("a sound network");
        let conns: Vec<Conn> = (0..16).map(|_| net.connect(HostId(0), HostId(2))).collect();
        net.run_until(500 * MS);
        net.rounds(&conns, 1_000_000, 1, 0, 1000 * SEC);
        let start = net.world.now() + 3 * SEC;
        net.run_until(start);
        let hole = Fault::SwitchHole { switch: spine, routing: None };
        net.world.fault_at(start + 20 * MS, hole).expect("a spine that exists");
        let end = Fault::SwitchHoleEnd { switch: spine, routing: None };
        net.world.fault_at(start + 20 * MS + hole_ps, end).expect("a spine that exists");
        let round = net.rounds(&conns, 1_000_000, 1, 0, start + 1000 * SEC);
        out.push(round[0].max_ps().expect("all arrive"));
    }
    out
}
