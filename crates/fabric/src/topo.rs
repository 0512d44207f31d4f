//! Topologies: hosts, switches and cables, with the standard shapes.

use crate::tree::KaryNTree;
use std::fmt;

/// Picoseconds: simulated time since the start, or a duration. 2^64 ps = 213 days.
pub type Ps = u64;
/// One nanosecond.
pub const NS: Ps = 1_000;
/// One microsecond.
pub const US: Ps = 1_000 * NS;
/// One millisecond.
pub const MS: Ps = 1_000 * US;
/// One second.
pub const SEC: Ps = 1_000 * MS;

/// A host, `0..hosts`. Its number is also its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub u32);

/// A switch, `0..switches`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SwitchId(pub u32);

/// A cable: two links, one in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CableId(pub u32);

impl CableId {
    /// The link from the lower end (the first one given at construction) to the upper.
    pub const fn up(self) -> LinkId {
        LinkId(self.0 * 2)
    }
    /// The link from the upper end to the lower.
    pub const fn down(self) -> LinkId {
        LinkId(self.0 * 2 + 1)
    }
}

/// One direction of a cable, with the output queue that feeds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

impl LinkId {
    /// The other direction of the same cable.
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }
    /// The cable of the link.
    pub const fn cable(self) -> CableId {
        CableId(self.0 / 2)
    }
}

/// An end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Node {
    /// A host's network card.
    Host(HostId),
    /// A switch.
    Switch(SwitchId),
}

/// ECN marking of a queue (only packets sent as ECN-capable are marked).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ecn {
    /// Backlog in bytes from which packets may be marked.
    pub min_bytes: u64,
    /// Backlog in bytes from which every packet is marked.
    pub max_bytes: u64,
    /// Probability of a mark just below `max_bytes`; it grows linearly from 0 at `min_bytes`.
    pub prob_max: f64,
}

impl Ecn {
    /// Never marks.
    pub const OFF: Self = Self { min_bytes: u64::MAX, max_bytes: u64::MAX, prob_max: 0.0 };
    /// Marks every packet that arrives at a backlog of at least `bytes`.
    pub const fn step(bytes: u64) -> Self {
        Self { min_bytes: bytes, max_bytes: bytes, prob_max: 1.0 }
    }
}

/// An output port and its wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Port {
    /// Rate in bits per second, at least 1,000,000.
    pub bits_per_s: u64,
    /// Time from the last bit sent until the packet is ready at the far end: propagation and
    /// switching.
    pub delay_ps: Ps,
    /// Queue limit in bytes, the packet on the wire included.
    pub buffer_bytes: u64,
    /// Marking.
    pub ecn: Ecn,
}

impl Port {
    /// A port with an unlimited queue and without marking.
    pub const fn new(bits_per_s: u64, delay_ps: Ps) -> Self {
        Self { bits_per_s, delay_ps, buffer_bytes: u64::MAX, ecn: Ecn::OFF }
    }
    /// A copy with a queue of `bytes`.
    pub const fn buffer(mut self, bytes: u64) -> Self {
        self.buffer_bytes = bytes;
        self
    }
    /// A copy with the marking `ecn`.
    pub const fn ecn(mut self, ecn: Ecn) -> Self {
        self.ecn = ecn;
        self
    }
    /// Serialisation time of `bytes`, rounded down to a picosecond.
    pub const fn serialise_ps(&self, bytes: u64) -> Ps {
        (bytes as u128 * 8_000_000_000_000 / self.bits_per_s as u128) as u64
    }
}

/// Packet memory that all ports of a switch share with dynamic thresholds: a queue may grow to
/// `alpha` times the free memory, so that a few busy ports get much and many busy ports get equal
/// parts. Each of `n` queues that are always full holds `alpha / (1 + n * alpha)` of the memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedBuffer {
    /// Size in bytes. The part of a packet on the wire that has left is free.
    pub bytes: u64,
    /// Share of the free memory that one queue may hold. Commodity switches: 1/16 to 8.
    pub alpha: f64,
}

/// A cable and the ports at its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cable {
    /// The lower end.
    pub a: Node,
    /// The upper end.
    pub b: Node,
    /// Port of `a` towards `b`.
    pub up: Port,
    /// Port of `b` towards `a`.
    pub down: Port,
}

/// Why a topology cannot be simulated. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyError(String);

impl TopologyError {
    /// An error with a text that says what to change.
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for TopologyError {}

/// A network: one of the standard shapes, or built cable by cable.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    hosts: u32,
    /// Tier of each switch: 0 = next to the hosts.
    tiers: Vec<u8>,
    cables: Vec<Cable>,
    /// Shared buffer of each switch; empty if no switch has one.
    shared: Vec<Option<SharedBuffer>>,
    /// The tree that the network was built as, if any.
    tree: Option<KaryNTree>,
}

impl Topology {
    /// A topology of `hosts` hosts without cables.
    pub const fn new(hosts: u32) -> Self {
        Self { hosts, tiers: Vec::new(), cables: Vec::new(), shared: Vec::new(), tree: None }
    }

    /// Adds a switch of the given tier (0 = next to the hosts).
    pub fn switch_add(&mut self, tier: u8) -> SwitchId {
        self.tiers.push(tier);
        SwitchId(self.tiers.len() as u32 - 1)
    }

    /// Adds a cable from `a` (lower) to `b` (upper); `up` is `a`'s port, `down` is `b`'s.
    pub fn cable_add(&mut self, a: Node, b: Node, up: Port, down: Port) -> CableId {
        self.cables.push(Cable { a, b, up, down });
        CableId(self.cables.len() as u32 - 1)
    }

    /// Gives a switch a buffer that its ports share. The limits of single ports remain in force.
    pub fn buffer_share(&mut self, switch: SwitchId, buffer: SharedBuffer) {
        self.shared.resize(self.shared.len().max(switch.0 as usize + 1), None);
        self.shared[switch.0 as usize] = Some(buffer);
    }

    /// Switches with a shared buffer.
    pub fn shared_buffers(&self) -> impl Iterator<Item = (SwitchId, SharedBuffer)> + '_ {
        let all = self.shared.iter().enumerate();
        all.filter_map(|(i, buffer)| Some((SwitchId(i as u32), (*buffer)?)))
    }

    /// Records that the network is a tree.
    pub(crate) const fn tree_set(&mut self, tree: KaryNTree) {
        self.tree = Some(tree);
    }

    /// The k-ary n-tree that the network was built as, if any.
    pub const fn tree(&self) -> Option<&KaryNTree> {
        self.tree.as_ref()
    }

    /// Number of hosts.
    pub const fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Number of switches.
    pub const fn switches(&self) -> u32 {
        self.tiers.len() as u32
    }

    /// Tier of a switch: 0 = next to the hosts.
    pub fn tier(&self, switch: SwitchId) -> u8 {
        self.tiers[switch.0 as usize]
    }

    /// Switches of one tier.
    pub fn tier_switches(&self, tier: u8) -> impl Iterator<Item = SwitchId> + '_ {
        let ids = self.tiers.iter().enumerate().filter(move |(_, t)| **t == tier);
        ids.map(|(i, _)| SwitchId(i as u32))
    }

    /// All cables; index = [`CableId`].
    pub fn cables(&self) -> &[Cable] {
        &self.cables
    }

    /// Number of links (twice the cables).
    pub const fn links(&self) -> u32 {
        self.cables.len() as u32 * 2
    }

    /// The node at which a link starts.
    pub fn from(&self, link: LinkId) -> Node {
        self.to(link.reverse())
    }

    /// The node at which a link ends.
    pub fn to(&self, link: LinkId) -> Node {
        let cable = &self.cables[link.cable().0 as usize];
        if link.0 & 1 == 0 { cable.b } else { cable.a }
    }

    /// The port that feeds a link, without the effects of faults.
    pub fn port(&self, link: LinkId) -> &Port {
        let cable = &self.cables[link.cable().0 as usize];
        if link.0 & 1 == 0 { &cable.up } else { &cable.down }
    }

    /// Cables with an end at `node`.
    pub fn cables_of(&self, node: Node) -> impl Iterator<Item = CableId> + '_ {
        let ends = self.cables.iter().enumerate();
        ends.filter(move |(_, c)| c.a == node || c.b == node).map(|(i, _)| CableId(i as u32))
    }

    /// Links from `from` to `to` (several in case of parallel cables).
    pub fn links_between(&self, from: Node, to: Node) -> impl Iterator<Item = LinkId> + '_ {
        self.cables_of(from)
            .flat_map(|c| [c.up(), c.down()])
            .filter(move |l| self.from(*l) == from && self.to(*l) == to)
    }

    /// Cables between switches.
    pub fn core_cables(&self) -> impl Iterator<Item = CableId> + '_ {
        let is_core = |c: &Cable| matches!((c.a, c.b), (Node::Switch(_), Node::Switch(_)));
        self.cables
            .iter()
            .enumerate()
            .filter(move |(_, c)| is_core(c))
            .map(|(i, _)| CableId(i as u32))
    }

    /// Readable name of a node: `host3`, `leaf0`, `agg2`, `core1`, `tier4_9`.
    pub fn node_name(&self, node: Node) -> String {
        match node {
            Node::Host(h) => format!("host{}", h.0),
            Node::Switch(s) => {
                let tier = self.tier(s);
                let before = self.tiers[..s.0 as usize].iter().filter(|t| **t == tier).count();
                let top = self.tiers.iter().max() == Some(&tier);
                match tier {
                    0 => format!("leaf{before}"),
                    1 if top => format!("spine{before}"),
                    1 => format!("agg{before}"),
                    2 => format!("core{before}"),
                    t => format!("tier{t}_{before}"),
                }
            }
        }
    }

    /// Readable name of a link, such as `leaf0->spine2`.
    pub fn link_name(&self, link: LinkId) -> String {
        format!("{}->{}", self.node_name(self.from(link)), self.node_name(self.to(link)))
    }

    /// Checks that the network can be simulated.
    ///
    /// # Errors
    /// The first violation: no hosts, a host without exactly one cable, an end that does not exist,
    /// a rate below 1 Mb/s, an inverted ECN range, a shared buffer of 0 bytes or of a switch that
    /// does not exist, too many links.
    pub fn validate(&self) -> Result<(), TopologyError> {
        let fail = |text: String| Err(TopologyError(text));
        if self.hosts == 0 {
            return fail("the topology has no hosts: give it at least one".into());
        }
        if self.cables.len() >= 1 << 27 || self.hosts >= 1 << 28 || self.tiers.len() >= 1 << 28 {
            return fail("more than 2^27 cables or 2^28 nodes: use a smaller topology".into());
        }
        let mut ports_of_host = vec![0u32; self.hosts as usize];
        for (i, c) in self.cables.iter().enumerate() {
            for (end, port) in [(c.a, &c.up), (c.b, &c.down)] {
                match end {
                    Node::Host(h) if h.0 < self.hosts => ports_of_host[h.0 as usize] += 1,
                    Node::Switch(s) if (s.0 as usize) < self.tiers.len() => {}
                    _ => return fail(format!("cable {i} ends at {end:?}, which does not exist")),
                }
                port_check(port).map_err(|e| TopologyError(format!("cable {i}: {e}")))?;
            }
            if c.a == c.b {
                return fail(format!("cable {i} joins {:?} to itself", c.a));
            }
        }
        for (switch, buffer) in self.shared_buffers() {
            let fits = buffer.alpha.is_finite() && buffer.alpha > 0.0 && buffer.bytes > 0;
            if switch.0 as usize >= self.tiers.len() || !fits {
                return fail(format!(
                    "{buffer:?} of switch {}: use a switch that exists, some bytes, alpha above 0",
                    switch.0
                ));
            }
        }
        match ports_of_host.iter().position(|n| *n != 1) {
            Some(h) => {
                fail(format!("host {h} has {} cables: give it exactly one", ports_of_host[h]))
            }
            None => Ok(()),
        }
    }
}

/// Checks the values of a port.
fn port_check(port: &Port) -> Result<(), String> {
    if port.bits_per_s < 1_000_000 {
        return Err(format!("rate {} b/s is below 1 Mb/s", port.bits_per_s));
    }
    if port.delay_ps > 1_000 * SEC {
        return Err(format!("delay {} ps is above 1000 s", port.delay_ps));
    }
    let e = &port.ecn;
    if e.min_bytes > e.max_bytes || !(0.0..=1.0).contains(&e.prob_max) {
        return Err(format!("ECN needs min <= max and a probability in 0..=1, got {e:?}"));
    }
    Ok(())
}

/// A network of two tiers with cables between every leaf and every spine.
#[derive(Clone, Copy, Debug)]
pub struct LeafSpine {
    /// Number of leaves.
    pub leaves: u32,
    /// Number of spines.
    pub spines: u32,
    /// Hosts under each leaf.
    pub hosts_per_leaf: u32,
    /// Cables from each leaf to each spine.
    pub cables_per_spine: u32,
    /// A host's card.
    pub nic: Port,
    /// A leaf's port to a host.
    pub edge: Port,
    /// Ports between leaf and spine, both directions.
    pub uplink: Port,
}

impl LeafSpine {
    /// Builds the topology. Host `h` is under leaf `h / hosts_per_leaf`; switches are numbered
    /// leaves first, then spines.
    pub fn build(&self) -> Topology {
        let mut t = Topology::new(self.leaves * self.hosts_per_leaf);
        let leaves: Vec<_> = (0..self.leaves).map(|_| Node::Switch(t.switch_add(0))).collect();
        let spines: Vec<_> = (0..self.spines).map(|_| Node::Switch(t.switch_add(1))).collect();
        hosts_attach(&mut t, &leaves, self.hosts_per_leaf, self.nic, self.edge);
        for leaf in leaves {
            for spine in &spines {
                for _ in 0..self.cables_per_spine {
                    t.cable_add(leaf, *spine, self.uplink, self.uplink);
                }
            }
        }
        t
    }
}

/// A network of three tiers. Aggregation switch `i` of every pod connects to the cores of group
/// `i`.
#[derive(Clone, Copy, Debug)]
pub struct FatTree {
    /// Number of pods.
    pub pods: u32,
    /// Leaves in each pod.
    pub leaves_per_pod: u32,
    /// Aggregation switches in each pod.
    pub aggs_per_pod: u32,
    /// Hosts under each leaf; more than `aggs_per_pod` means oversubscription.
    pub hosts_per_leaf: u32,
    /// Cores that each aggregation switch connects to.
    pub cores_per_agg: u32,
    /// A host's card.
    pub nic: Port,
    /// A leaf's port to a host.
    pub edge: Port,
    /// Ports between leaf and aggregation switch.
    pub agg: Port,
    /// Ports between aggregation switch and core.
    pub core: Port,
}

impl FatTree {
    /// The full fat tree of switches with `k` ports (k even): `k^3 / 4` hosts, no oversubscription.
    pub const fn k_ary(k: u32, nic: Port, switch: Port) -> Self {
        let half = k / 2;
        Self {
            pods: k,
            leaves_per_pod: half,
            aggs_per_pod: half,
            hosts_per_leaf: half,
            cores_per_agg: half,
            nic,
            edge: switch,
            agg: switch,
            core: switch,
        }
    }

    /// Builds the topology. Host `h` is under leaf `h / hosts_per_leaf`; switches are numbered
    /// leaves first, then aggregation switches, both pod by pod, then cores.
    pub fn build(&self) -> Topology {
        let mut t = Topology::new(self.pods * self.leaves_per_pod * self.hosts_per_leaf);
        let mut switches =
            |n, tier| -> Vec<Node> { (0..n).map(|_| Node::Switch(t.switch_add(tier))).collect() };
        let leaves = switches(self.pods * self.leaves_per_pod, 0);
        let aggs = switches(self.pods * self.aggs_per_pod, 1);
        let cores = switches(self.aggs_per_pod * self.cores_per_agg, 2);
        hosts_attach(&mut t, &leaves, self.hosts_per_leaf, self.nic, self.edge);
        for pod in 0..self.pods {
            for leaf in 0..self.leaves_per_pod {
                for agg in 0..self.aggs_per_pod {
                    let a = leaves[(pod * self.leaves_per_pod + leaf) as usize];
                    let b = aggs[(pod * self.aggs_per_pod + agg) as usize];
                    t.cable_add(a, b, self.agg, self.agg);
                }
            }
        }
        for (i, agg) in aggs.iter().enumerate() {
            let group = i as u32 % self.aggs_per_pod;
            for c in 0..self.cores_per_agg {
                let core = cores[(group * self.cores_per_agg + c) as usize];
                t.cable_add(*agg, core, self.core, self.core);
            }
        }
        t
    }
}

/// Two switches joined by one cable, with `left` hosts on one and `right` on the other.
pub fn dumbbell(left: u32, right: u32, nic: Port, edge: Port, bottleneck: Port) -> Topology {
    let mut t = Topology::new(left + right);
    let ends = [Node::Switch(t.switch_add(0)), Node::Switch(t.switch_add(0))];
    for h in 0..left + right {
        let side = ends[usize::from(h >= left)];
        t.cable_add(Node::Host(HostId(h)), side, nic, edge);
    }
    t.cable_add(ends[0], ends[1], bottleneck, bottleneck);
    t
}

/// Two hosts joined by one cable.
pub fn back_to_back(nic: Port) -> Topology {
    let mut t = Topology::new(2);
    t.cable_add(Node::Host(HostId(0)), Node::Host(HostId(1)), nic, nic);
    t
}

/// Attaches `per_leaf` hosts to each leaf, in order.
fn hosts_attach(t: &mut Topology, leaves: &[Node], per_leaf: u32, nic: Port, edge: Port) {
    for h in 0..leaves.len() as u32 * per_leaf {
        t.cable_add(Node::Host(HostId(h)), leaves[(h / per_leaf) as usize], nic, edge);
    }
}
