//! Observation of links.

use super::LINKS_MAX;
use super::data::{
    FlowSeries, LinkSeries, LinkUse, Observation, Share, Tier, TierInterval, used_share,
};
use srd_fabric::{Host, HostId, LinkId, LinkSample, Node, Ps, SwitchId, Topology, World};
use std::cmp::Reverse;

/// Most links in the list of the busiest, and most points in the line of all links.
const BUSIEST_MAX: usize = 64;
/// Most top-tier switches in reports.
const SPINES_MAX: usize = 256;

/// Tiers of links, and their counters at the last sample.
#[derive(Debug)]
pub(super) struct Links {
    /// Tier of each link.
    class: Vec<u8>,
    classes: Vec<Class>,
    /// Links with a series, in ascending order.
    chosen: Vec<LinkId>,
    rate: Vec<u64>,
    before: Vec<LinkSample>,
    at_start: Vec<LinkSample>,
}

/// All links between two tiers.
#[derive(Debug)]
struct Class {
    name: String,
    links: u32,
    queues: Vec<u64>,
}

/// Position of a node's tier, with hosts below all switches.
fn height(topo: &Topology, node: Node) -> u8 {
    match node {
        Node::Host(_) => 0,
        Node::Switch(s) => topo.tier(s) + 1,
    }
}

/// Name of a tier.
fn tier_name(topo: &Topology, height: u8) -> String {
    let first = match height.checked_sub(1) {
        None => Some(Node::Host(HostId(0))),
        Some(tier) => topo.tier_switches(tier).next().map(Node::Switch),
    };
    let name = first.map_or(String::new(), |n| topo.node_name(n));
    name.trim_end_matches(|c: char| c.is_ascii_digit()).to_string()
}

impl Links {
    pub fn new(topo: &Topology, flows: &[FlowSeries]) -> Self {
        let ends = |l: LinkId| (height(topo, topo.from(l)), height(topo, topo.to(l)));
        let mut kinds: Vec<(u8, u8)> = (0..topo.links()).map(|l| ends(LinkId(l))).collect();
        let all = kinds.clone();
        // Upwards by tier, then downwards.
        kinds.sort_unstable_by_key(|(a, b)| if a < b { (0, *a, *b) } else { (1, !a, !b) });
        kinds.dedup();
        let place = |k: &(u8, u8)| kinds.iter().position(|x| x == k).unwrap_or(0) as u8;
        let class: Vec<u8> = all.iter().map(place).collect();
        let classes = kinds.iter().enumerate().map(|(i, (a, b))| Class {
            name: format!("{}->{}", tier_name(topo, *a), tier_name(topo, *b)),
            links: class.iter().filter(|c| usize::from(**c) == i).count() as u32,
            queues: Vec::new(),
        });
        let n = topo.links() as usize;
        let mut links = Self {
            classes: classes.collect(),
            class,
            chosen: Vec::new(),
            rate: (0..topo.links()).map(|l| topo.port(LinkId(l)).bits_per_s).collect(),
            before: vec![LinkSample::default(); n],
            at_start: Vec::new(),
        };
        links.chosen = if n <= LINKS_MAX {
            (0..topo.links()).map(LinkId).collect()
        } else {
            links.last_hops(topo, flows)
        };
        links
    }

    /// The last links to the receivers of these flows.
    fn last_hops(&self, topo: &Topology, flows: &[FlowSeries]) -> Vec<LinkId> {
        let mut wanted: Vec<u32> = flows.iter().map(|f| f.dst).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let to_wanted = |l: &LinkId| match topo.to(*l) {
            Node::Host(h) => wanted.binary_search(&h.0).is_ok(),
            Node::Switch(_) => false,
        };
        (0..topo.links()).map(LinkId).filter(to_wanted).take(LINKS_MAX).collect()
    }

    /// Tiers without samples.
    pub fn tiers(&self) -> Vec<Tier> {
        let tier = |c: &Class| Tier { name: c.name.clone(), links: c.links, ..Tier::default() };
        self.classes.iter().map(tier).collect()
    }

    /// Series without samples.
    pub fn series(&self, topo: &Topology) -> Vec<LinkSeries> {
        let series = |l: &LinkId| LinkSeries {
            name: topo.link_name(*l),
            link: l.0,
            bits_per_s: self.rate[l.0 as usize],
            bytes: Vec::new(),
            queue_max: Vec::new(),
        };
        self.chosen.iter().map(series).collect()
    }

    /// Samples all links at the end of an interval of `width_ps`; the first sample only begins one.
    pub fn take<P: Clone, H: Host<P>>(
        &mut self,
        world: &mut World<P, H>,
        at: Ps,
        width_ps: Ps,
        first: bool,
        out: &mut Observation,
    ) {
        let mut now = vec![TierInterval::default(); self.classes.len()];
        let mut series = out.links.iter_mut().peekable();
        let Self { class, classes, rate, before, .. } = self;
        world.links_sample(at, |link, sample| {
            let i = link.0 as usize;
            let old = std::mem::replace(&mut before[i], sample);
            let new = sample.sent_bytes.saturating_sub(old.sent_bytes);
            let used = used_share(new, width_ps, rate[i]);
            let c = usize::from(class[i]);
            now[c].used_mean += used;
            now[c].used_max = now[c].used_max.max(used);
            now[c].queue_max = now[c].queue_max.max(sample.queue_bytes_max);
            classes[c].queues.push(sample.queue_bytes);
            if let Some(s) = series.next_if(|s| s.link == link.0)
                && !first
            {
                s.bytes.push(new);
                s.queue_max.push(sample.queue_bytes_max);
            }
        });
        for ((class, tier), mut interval) in self.classes.iter_mut().zip(&mut out.tiers).zip(now) {
            interval.used_mean /= f64::from(class.links.max(1));
            interval.queue_median = rank(&mut class.queues, 0.5);
            interval.queue_p99 = rank(&mut class.queues, 0.99);
            class.queues.clear();
            if !first {
                tier.intervals.push(interval);
            }
        }
        if first {
            self.at_start = self.before.clone();
        }
    }

    /// Totals over the whole time.
    pub fn finish<P: Clone, H: Host<P>>(&mut self, world: &World<P, H>, out: &mut Observation) {
        let topo = world.topology();
        if self.at_start.is_empty() {
            self.at_start = self.before.clone();
        }
        let width = out.end_ps - out.start_ps;
        let sent = |i: usize| self.before[i].sent_bytes.saturating_sub(self.at_start[i].sent_bytes);
        let mut used = vec![Vec::new(); self.classes.len()];
        for i in 0..self.class.len() {
            used[usize::from(self.class[i])].push(used_share(sent(i), width, self.rate[i]));
        }
        for (tier, mut all) in out.tiers.iter_mut().zip(used) {
            all.sort_unstable_by(f64::total_cmp);
            let n = all.len().min(BUSIEST_MAX * 2);
            // The sample includes the least and the largest value.
            tier.used_sorted = (0..n).map(|k| all[k * (all.len() - 1) / (n - 1).max(1)]).collect();
        }
        let packets = |i: usize| self.before[i].packets - self.at_start[i].packets;
        let mut order: Vec<usize> = (0..self.class.len()).filter(|i| sent(*i) > 0).collect();
        order.sort_by_key(|i| (Reverse(sent(*i)), *i));
        let busiest = order.iter().take(BUSIEST_MAX).map(|i| {
            let stats = world.link_stats(LinkId(*i as u32));
            LinkUse {
                name: topo.link_name(LinkId(*i as u32)),
                packets: packets(*i),
                bytes: sent(*i),
                queue_max: stats.queue_bytes_max,
                drops: stats.drops.total(),
            }
        });
        out.busiest = busiest.collect();
        out.spines = spines(topo, &packets);
    }
}

/// Packets into each top-tier switch; empty if there is only one tier.
fn spines(topo: &Topology, packets: &dyn Fn(usize) -> u64) -> Vec<Share> {
    let top = (0..topo.switches()).map(|s| topo.tier(SwitchId(s))).max().unwrap_or(0);
    if top == 0 {
        return Vec::new();
    }
    let mut of = vec![0u64; topo.switches() as usize];
    for l in 0..topo.links() {
        if let Node::Switch(s) = topo.to(LinkId(l)) {
            of[s.0 as usize] += packets(l as usize);
        }
    }
    let share =
        |s: SwitchId| Share { name: topo.node_name(Node::Switch(s)), packets: of[s.0 as usize] };
    topo.tier_switches(top).take(SPINES_MAX).map(share).collect()
}

/// The value of nearest rank; 0 if there are no values.
fn rank(values: &mut [u64], q: f64) -> u64 {
    if values.is_empty() {
        return 0;
    }
    let at = ((values.len() as f64 * q).ceil() as usize).clamp(1, values.len()) - 1;
    *values.select_nth_unstable(at).1
}
