//! The fluid optimum of a workload: flows are liquids that every switch splits over all shortest
//! paths in proportion to their links' rates, and at every moment rates are max-min fair over all
//! links (progressive filling: all rates rise together until one of their links is full).
//!
//! Unlike the floor, the optimum includes the links between switches, so it is the reference for an
//! oversubscribed core. Faults are not included: links have their built rates.

use crate::floor::{FlowEndAt, Framing, Ways};
use crate::workload::{Flow, Flows};
use rustc_hash::FxHashMap;
use srd_fabric::{LinkId, Node, Ps, SEC, Topology};
use std::collections::VecDeque;

/// Most flows, because computing time grows with their square.
const FLOWS_MAX: usize = 16_384;
/// Smaller shares of a link's rate are rounding errors.
const NOTHING: f64 = 1e-9;

/// Share of a flow on each link of its paths.
type Shares = Vec<(usize, f64)>;

/// Refuses workloads without a fluid optimum.
///
/// # Errors
/// The text says what to change.
pub fn check(flows: &Flows) -> Result<(), String> {
    if flows.flows.iter().any(|f| f.start_ps.is_none()) {
        return Err(
            "measure.fluid: flows started by triggers have no fluid optimum; leave it out".into()
        );
    }
    if flows.flows.len() > FLOWS_MAX {
        return Err(format!("measure.fluid is for up to {FLOWS_MAX} flows; leave it out"));
    }
    Ok(())
}

/// Completion time of each flow from its start, ps.
pub fn completions(topo: &Topology, framing: &Framing, flows: &[Flow]) -> Vec<Ps> {
    let shares = Splitter::new(topo).all(flows);
    let caps: Vec<f64> =
        (0..topo.links()).map(|l| topo.port(LinkId(l)).bits_per_s as f64 / 8.0).collect();
    let start: Vec<f64> = flows.iter().map(|f| seconds(f.start_ps.unwrap_or(0))).collect();
    let bytes: Vec<f64> = flows.iter().map(|f| framing.wire(f.bytes) as f64).collect();
    let ends = drain(&caps, &shares, &start, &bytes);
    let mut ways = Ways::new(topo);
    let late = |(f, (end, start)): (&Flow, (&f64, &f64))| {
        let packet = framing.full().min(framing.wire(f.bytes));
        let after = match framing.end {
            FlowEndAt::Sender => ways.base_rtt(f.src, f.dst, packet),
            FlowEndAt::Receiver => ways.base_delay(f.src, f.dst, packet),
            FlowEndAt::Link => 0,
        };
        ((end - start) * SEC as f64).round() as Ps + after
    };
    flows.iter().zip(ends.iter().zip(&start)).map(late).collect()
}

fn seconds(ps: Ps) -> f64 {
    ps as f64 / SEC as f64
}

/// Time at which each flow is drained, in seconds: `bytes` from `start` on.
fn drain(caps: &[f64], shares: &[Shares], start: &[f64], bytes: &[f64]) -> Vec<f64> {
    let mut left = bytes.to_vec();
    let mut end = vec![0.0; bytes.len()];
    let mut waiting: Vec<usize> = (0..bytes.len()).collect();
    waiting.sort_by(|a, b| start[*b].total_cmp(&start[*a]).then(b.cmp(a)));
    let mut active: Vec<usize> = Vec::new();
    let mut now = 0.0;
    loop {
        if active.is_empty() {
            let Some(next) = waiting.last() else { return end };
            now = start[*next];
        }
        while let Some(next) = waiting.pop_if(|i| start[*i] <= now) {
            active.push(next);
        }
        let rates = fill(caps, shares, &active);
        let ends = active.iter().zip(&rates).map(|(i, rate)| left[*i] / rate);
        let first = ends.fold(f64::INFINITY, f64::min);
        let step = waiting.last().map_or(first, |next| first.min(start[*next] - now));
        now += step;
        let mut still = Vec::new();
        for (i, rate) in active.iter().zip(&rates) {
            left[*i] -= rate * step;
            if left[*i] <= bytes[*i] * NOTHING {
                end[*i] = now;
            } else {
                still.push(*i);
            }
        }
        active = still;
    }
}

/// Max-min fair rates of the active flows in bytes per second.
fn fill(caps: &[f64], shares: &[Shares], active: &[usize]) -> Vec<f64> {
    let mut room = caps.to_vec();
    let mut weight = vec![0.0; caps.len()];
    for (link, share) in active.iter().flat_map(|i| &shares[*i]) {
        weight[*link] += share;
    }
    let used: Vec<usize> = (0..caps.len()).filter(|l| weight[*l] > 0.0).collect();
    let mut rates = vec![0.0; active.len()];
    let mut rising: Vec<usize> = (0..active.len()).collect();
    let mut level = 0.0;
    while !rising.is_empty() {
        let loaded = used.iter().filter(|l| weight[**l] > NOTHING);
        let step = loaded.map(|l| room[*l] / weight[*l]).fold(f64::INFINITY, f64::min);
        // Every flow has a link; rounding may leave weights of zero.
        let step = if step.is_finite() { step.max(0.0) } else { 0.0 };
        level += step;
        used.iter().for_each(|l| room[*l] -= step * weight[*l]);
        let full = |l: usize| room[l] <= caps[l] * NOTHING;
        let (done, more): (Vec<usize>, Vec<usize>) =
            rising.iter().partition(|k| shares[active[**k]].iter().any(|(l, _)| full(*l)));
        for k in &done {
            rates[*k] = level;
            shares[active[*k]].iter().for_each(|(l, share)| weight[*l] -= share);
        }
        if done.is_empty() {
            more.iter().for_each(|k| rates[*k] = level);
            break;
        }
        rising = more;
    }
    rates
}

/// Splits flows over the shortest paths.
struct Splitter<'a> {
    topo: &'a Topology,
    ways: Ways<'a>,
    /// Links from each switch to other switches.
    out: Vec<Vec<LinkId>>,
    /// Links to each switch from other switches.
    back: Vec<Vec<LinkId>>,
    /// Known shares between two switches.
    known: FxHashMap<(u32, u32), Shares>,
}

impl<'a> Splitter<'a> {
    fn new(topo: &'a Topology) -> Self {
        let mut out = vec![Vec::new(); topo.switches() as usize];
        let mut back = out.clone();
        for link in (0..topo.links()).map(LinkId) {
            if let (Node::Switch(from), Node::Switch(to)) = (topo.from(link), topo.to(link)) {
                out[from.0 as usize].push(link);
                back[to.0 as usize].push(link);
            }
        }
        Self { topo, ways: Ways::new(topo), out, back, known: FxHashMap::default() }
    }

    fn all(mut self, flows: &[Flow]) -> Vec<Shares> {
        flows.iter().map(|f| self.of(f)).collect()
    }

    fn of(&mut self, f: &Flow) -> Shares {
        let (first, last) = (self.ways.uplink(f.src), self.ways.uplink(f.dst).reverse());
        let mut shares = vec![(first.0 as usize, 1.0)];
        if let (Node::Switch(from), Node::Switch(to)) = (self.topo.to(first), self.topo.from(last))
        {
            if !self.known.contains_key(&(from.0, to.0)) {
                let between = self.between(from.0, to.0);
                self.known.insert((from.0, to.0), between);
            }
            shares.extend(&self.known[&(from.0, to.0)]);
            shares.push((last.0 as usize, 1.0));
        }
        shares
    }

    /// Shares of the traffic from one switch to another on every link between switches.
    fn between(&self, from: u32, to: u32) -> Shares {
        let distance = self.distances(to);
        let mut arriving = vec![0.0; distance.len()];
        arriving[from as usize] = 1.0;
        // Switches by descending distance, so that all traffic into a switch is known before it is
        // split.
        let mut order: Vec<usize> =
            (0..distance.len()).filter(|s| distance[*s] != u32::MAX).collect();
        order.sort_by_key(|s| std::cmp::Reverse(distance[*s]));
        let mut shares = Shares::new();
        for s in order.into_iter().filter(|s| *s != to as usize) {
            let here = arriving[s];
            if here == 0.0 {
                continue;
            }
            let nearer = |l: &&LinkId| match self.topo.to(**l) {
                Node::Switch(next) => distance[next.0 as usize] < distance[s],
                Node::Host(_) => false,
            };
            let rate = |l: &LinkId| self.topo.port(*l).bits_per_s as f64;
            let all: f64 = self.out[s].iter().filter(nearer).map(rate).sum();
            for link in self.out[s].iter().filter(nearer) {
                let share = here * rate(link) / all;
                shares.push((link.0 as usize, share));
                if let Node::Switch(next) = self.topo.to(*link) {
                    arriving[next.0 as usize] += share;
                }
            }
        }
        shares
    }

    /// Number of links from every switch to `to` on the shortest path.
    fn distances(&self, to: u32) -> Vec<u32> {
        let mut distance = vec![u32::MAX; self.out.len()];
        distance[to as usize] = 0;
        let mut queue = VecDeque::from([to]);
        while let Some(s) = queue.pop_front() {
            for link in &self.back[s as usize] {
                let Node::Switch(from) = self.topo.from(*link) else { continue };
                if distance[from.0 as usize] == u32::MAX {
                    distance[from.0 as usize] = distance[s as usize] + 1;
                    queue.push_back(from.0);
                }
            }
        }
        distance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_fabric::{HostId, LeafSpine, Port, US, dumbbell};

    const GBPS: u64 = 1_000_000_000;

    fn flow(src: u32, dst: u32, bytes: u64, start_ps: Ps) -> Flow {
        Flow {
            src: HostId(src),
            dst: HostId(dst),
            bytes,
            start_ps: Some(start_ps),
            on_sent: None,
            on_received: None,
        }
    }

    /// Payload alone, with a flow's end at the link: pure arithmetic.
    fn us(topo: &Topology, flows: &[Flow]) -> Vec<u64> {
        completions(topo, &Framing::ideal(), flows).iter().map(|ps| (ps + US / 2) / US).collect()
    }

    #[test]
    fn a_shared_link_is_halved_and_its_rest_is_anothers() {
        let port = |gbps| Port::new(gbps * GBPS, US);
        // Three hosts on each side; ports of 100 Gb/s, 150 Gb/s between the switches.
        let topo = dumbbell(3, 3, port(100), port(100), port(150));
        // 1.25 MB take 100 us at 100 Gb/s. Hosts 0 and 1 share the port of host 3 with 50 each;
        // host 2 sends 50 of the core's 150 to host 4.
        let flows = [flow(0, 3, 1_250_000, 0), flow(1, 3, 1_250_000, 0), flow(2, 4, 1_250_000, 0)];
        assert_eq!(us(&topo, &flows), [200, 200, 200]);
        // Without the second flow the core is the bottleneck: 75 each.
        assert_eq!(us(&topo, &[flows[0].clone(), flows[2].clone()]), [133, 133]);
        // A flow that starts when the other is half done: 50 us alone at 100 Gb/s, then half the
        // rate.
        let late = [flow(0, 3, 1_250_000, 0), flow(1, 3, 625_000, 50 * US)];
        assert_eq!(us(&topo, &late), [150, 100]);
    }

    #[test]
    fn an_oversubscribed_core_gives_each_flow_its_share() {
        // 12 hosts per leaf and 4 spines: an oversubscription of 3.
        let port = Port::new(100 * GBPS, US);
        let leaf_spine = LeafSpine {
            leaves: 2,
            spines: 4,
            hosts_per_leaf: 12,
            cables_per_spine: 1,
            nic: port,
            edge: port,
            uplink: port,
        };
        let topo = leaf_spine.build();
        // All hosts of one leaf send to the other leaf: each gets a third of its rate.
        let across: Vec<Flow> = (0..12).map(|i| flow(i, 12 + i, 1_250_000, 0)).collect();
        assert_eq!(us(&topo, &across), [300; 12]);
        // Half of them stay in their leaf and get their full rate.
        let mut mixed = across[..6].to_vec();
        mixed.extend((6..12).map(|i| flow(i, if i == 11 { 6 } else { i + 1 }, 1_250_000, 0)));
        let got = us(&topo, &mixed);
        assert_eq!((&got[..6], &got[6..]), (&[150; 6][..], &[100; 6][..]));
    }

    #[test]
    fn no_link_carries_more_than_its_rate_and_every_flow_has_a_full_link() {
        let port = Port::new(100 * GBPS, US);
        let topo = srd_fabric::FatTree::k_ary(4, port, port).build();
        for seed in 0..20 {
            let mut rng = srd_fabric::Rng::new(seed);
            let mut draw = || rng.below(16) as u32;
            let flows: Vec<Flow> = (0..40)
                .map(|_| (draw(), draw()))
                .filter(|(a, b)| a != b)
                .map(|(a, b)| flow(a, b, 1_000, 0))
                .collect();
            let shares = Splitter::new(&topo).all(&flows);
            let caps = vec![1.0; topo.links() as usize];
            let active: Vec<usize> = (0..flows.len()).collect();
            let rates = fill(&caps, &shares, &active);
            let mut load = vec![0.0; caps.len()];
            for (shares, rate) in shares.iter().zip(&rates) {
                shares.iter().for_each(|(l, share)| load[*l] += share * rate);
            }
            assert!(load.iter().all(|l| *l <= 1.0 + 1e-6), "seed {seed}");
            for (i, own) in shares.iter().enumerate() {
                // On some full link of the flow, no other flow is faster.
                let bottleneck = own.iter().any(|(l, _)| {
                    let on = |k: &usize| shares[*k].iter().any(|(m, _)| m == l);
                    let fastest = active.iter().filter(|k| on(k)).map(|k| rates[*k]);
                    load[*l] > 1.0 - 1e-6 && fastest.fold(0.0, f64::max) <= rates[i] + 1e-6
                });
                assert!(bottleneck, "seed {seed}, flow {i}");
            }
        }
    }
}
