//! Topology files: fat trees and leaf-spine networks.

use super::{ReadError, fail, lines, number};
use crate::topo::{Ecn, HostId, NS, Node, Port, Ps, Topology};

/// One tier of switches, from the hosts up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopoTier {
    /// Rate of downward links, bits per second.
    pub down_bits_per_s: u64,
    /// Number of downward ports.
    pub radix_down: u32,
    /// Number of upward ports (0 in the top tier).
    pub radix_up: u32,
    /// Delay of downward links.
    pub link_ps: Ps,
    /// Delay of the switch.
    pub switch_ps: Ps,
    /// Downward rate over upward rate; default 1.
    pub oversubscribed: u32,
    /// Parallel cables to each switch below; default 1.
    pub bundle: u32,
}

/// A topology file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopoFile {
    /// Hosts.
    pub nodes: u32,
    /// Hosts in each pod.
    pub podsize: u32,
    /// Two or three tiers.
    pub tiers: Vec<TopoTier>,
}

/// Numbers of switches, derived from the file.
#[derive(Clone, Copy, Debug)]
struct Counts {
    pods: u32,
    leaves_per_pod: u32,
    uppers_per_pod: u32,
    cores: u32,
}

impl TopoFile {
    /// Parses the text of a topology.
    ///
    /// # Errors
    /// The first line that is wrong or not supported, or the inconsistency found.
    pub fn parse(text: &str) -> Result<Self, ReadError> {
        let (mut nodes, mut tier_count, mut podsize) = (None, None, None);
        let mut tiers: Vec<TopoTier> = Vec::new();
        let mut given: Vec<String> = Vec::new();
        for (line, words) in lines(text) {
            let key = words[0].to_ascii_lowercase();
            let value = words.get(1);
            if let Some(more) = words.get(2) {
                return fail(line, format!("`{more}` follows the number"));
            }
            if key == "tier" {
                let n: usize = number(line, value, "Tier")?;
                if n != tiers.len() {
                    let text = format!("Tier {n}, where Tier {} was expected", tiers.len());
                    return fail(line, text);
                }
                tiers.push(TopoTier { oversubscribed: 1, bundle: 1, ..TopoTier::default() });
                given.clear();
                continue;
            }
            if given.contains(&key) {
                return fail(line, format!("`{}` is given twice", words[0]));
            }
            match (key.as_str(), tiers.last_mut()) {
                ("nodes", None) => nodes = Some(number(line, value, "Nodes")?),
                ("tiers", None) => tier_count = Some(number::<usize>(line, value, "Tiers")?),
                ("podsize", None) => podsize = Some(number(line, value, "Podsize")?),
                (_, None) => return fail(line, format!("`{}` before the first Tier", words[0])),
                (_, Some(tier)) => tier.set(line, &key, value)?,
            }
            given.push(key);
        }
        let missing = |what| move || ReadError { line: 0, message: format!("{what} is missing") };
        let nodes = nodes.ok_or_else(missing("Nodes"))?;
        let podsize = podsize.ok_or_else(missing("Podsize"))?;
        let tier_count = tier_count.ok_or_else(missing("Tiers"))?;
        if tier_count != tiers.len() || !(2..=3).contains(&tier_count) {
            let text = format!("Tiers {tier_count}, but {} described (use 2 or 3)", tiers.len());
            return fail(0, text);
        }
        let file = Self { nodes, podsize, tiers };
        file.counts()?;
        Ok(file)
    }

    fn counts(&self) -> Result<Counts, ReadError> {
        let t = &self.tiers;
        let top = t.len() - 1;
        for (i, tier) in t.iter().enumerate() {
            if tier.down_bits_per_s == 0 || tier.radix_down == 0 || tier.bundle == 0 {
                let text = "Downlink_speed_Gbps, Radix_Down and Bundle must be given and above 0";
                return fail(0, format!("tier {i}: {text}"));
            }
            if (i == top) != (tier.radix_up == 0) {
                return fail(0, format!("tier {i}: Radix_Up is for all tiers but the top one"));
            }
        }
        if t[0].bundle != 1 {
            return fail(0, "tier 0: a host has one cable, so that Bundle must be 1");
        }
        let divide = |a: u32, b: u32, what: &str| match a.checked_rem(b) {
            Some(0) => Ok(a / b),
            _ => fail(0, format!("{what}: {a} cannot be divided by {b}")),
        };
        let pods = divide(self.nodes, self.podsize, "Nodes over Podsize")?;
        let leaves_per_pod = divide(self.podsize, t[0].radix_down, "Podsize over Radix_Down 0")?;
        let uppers_per_pod = divide(t[0].radix_up, t[1].bundle, "Radix_Up 0 over Bundle 1")?;
        let mut counts = Counts { pods, leaves_per_pod, uppers_per_pod, cores: 0 };
        if t.len() == 2 && pods != 1 {
            return fail(0, "two tiers have one pod: Podsize must be Nodes");
        }
        let below = leaves_per_pod * t[1].bundle;
        if t[1].radix_down != below {
            let text = format!("tier 1: Radix_Down {}, {below} cables come", t[1].radix_down);
            return fail(0, text);
        }
        if t.len() == 3 {
            let per_upper = divide(t[1].radix_up, t[2].bundle, "Radix_Up 1 over Bundle 2")?;
            counts.cores = per_upper * uppers_per_pod;
            let below = pods * t[2].bundle;
            if t[2].radix_down != below {
                let text = format!("tier 2: Radix_Down {}, {below} cables come", t[2].radix_down);
                return fail(0, text);
            }
        }
        for i in 0..top {
            let down = u128::from(t[i].radix_down) * u128::from(t[i].down_bits_per_s);
            let up = u128::from(t[i].radix_up) * u128::from(t[i + 1].down_bits_per_s);
            if down != up * u128::from(t[i].oversubscribed) {
                let text = format!("tier {i}: {down} b/s down, {up} b/s up");
                return fail(0, format!("{text}: not Oversubscribed {}", t[i].oversubscribed));
            }
        }
        Ok(counts)
    }

    /// Builds the network. Switch ports get queues of `buffer_bytes` with the marking `ecn`.
    pub fn build(&self, buffer_bytes: u64, ecn: Ecn) -> Topology {
        let c = self.counts().expect("checked when it was read");
        let t = &self.tiers;
        let mut topo = Topology::new(self.nodes);
        let mut switches = |n, tier| -> Vec<Node> {
            (0..n).map(|_| Node::Switch(topo.switch_add(tier))).collect()
        };
        let leaves = switches(c.pods * c.leaves_per_pod, 0);
        let uppers = switches(c.pods * c.uppers_per_pod, 1);
        let cores = switches(c.cores, 2);
        // A link's delay includes the switch at its end.
        let plain = |tier: usize, switch_ps| {
            Port::new(t[tier].down_bits_per_s, t[tier].link_ps + switch_ps)
        };
        let port = |tier, switch_ps| plain(tier, switch_ps).buffer(buffer_bytes).ecn(ecn);
        for h in 0..self.nodes {
            let leaf = leaves[(h / t[0].radix_down) as usize];
            topo.cable_add(Node::Host(HostId(h)), leaf, plain(0, t[0].switch_ps), port(0, 0));
        }
        for (i, leaf) in leaves.iter().enumerate() {
            let pod = i as u32 / c.leaves_per_pod;
            for u in 0..c.uppers_per_pod {
                let upper = uppers[(pod * c.uppers_per_pod + u) as usize];
                for _ in 0..t[1].bundle {
                    let (up, down) = (port(1, t[1].switch_ps), port(1, t[0].switch_ps));
                    topo.cable_add(*leaf, upper, up, down);
                }
            }
        }
        let per_upper = c.cores.checked_div(c.uppers_per_pod).unwrap_or(0);
        for (i, upper) in uppers.iter().enumerate() {
            let group = i as u32 % c.uppers_per_pod;
            for k in 0..per_upper {
                let core = cores[(k * c.uppers_per_pod + group) as usize];
                for _ in 0..t[2].bundle {
                    let (up, down) = (port(2, t[2].switch_ps), port(2, t[1].switch_ps));
                    topo.cable_add(*upper, core, up, down);
                }
            }
        }
        topo
    }
}

impl TopoTier {
    fn set(&mut self, line: usize, key: &str, value: Option<&&str>) -> Result<(), ReadError> {
        match key {
            "downlink_speed_gbps" => {
                let gbps: u64 = number(line, value, "Downlink_speed_Gbps")?;
                let bits = gbps.checked_mul(1_000_000_000);
                self.down_bits_per_s = match bits {
                    Some(bits) => bits,
                    None => return fail(line, "Downlink_speed_Gbps is too large"),
                };
            }
            "radix_down" => self.radix_down = number(line, value, "Radix_Down")?,
            "radix_up" => self.radix_up = number(line, value, "Radix_Up")?,
            "downlink_latency_ns" => self.link_ps = ns(line, value, "Downlink_Latency_ns")?,
            "switch_latency_ns" => self.switch_ps = ns(line, value, "Switch_Latency_ns")?,
            "oversubscribed" => self.oversubscribed = number(line, value, "Oversubscribed")?,
            "bundle" => self.bundle = number(line, value, "Bundle")?,
            "queue_up" | "queue_down" => {
                let text = "queues are set in the spec, in bytes: remove this line";
                return fail(line, text);
            }
            _ => return fail(line, format!("`{key}` is unknown here")),
        }
        Ok(())
    }
}

fn ns(line: usize, value: Option<&&str>, what: &str) -> Result<Ps, ReadError> {
    let ns: u64 = number(line, value, what)?;
    match ns.checked_mul(NS) {
        Some(ps) if ns <= 1_000_000_000 => Ok(ps),
        _ => fail(line, format!("{what}: more than a second")),
    }
}
