//! The k-ary n-tree with horizontal links: numbering and adjacency, no packets.
//!
//! A k-ary n-tree represents an ideal fat tree of `n` levels in which every node has `k` children
//! and links get wider towards the root. It consists of equal switches: `n` levels of `k^(n-1)`
//! switches, and `k^n` hosts. Level 0 is next to the hosts. At level `l`, the `k^l` switches with
//! the same hosts below them represent one *ideal node*; the index of a switch among them is its
//! *member* number. `k` cables lead down from every switch, and `k` lead up from every switch below
//! the top level. A packet may take any path up to a level that has its destination below it; from
//! there the path down is determined.
//!
//! With `horizontal = w`, the members of every ideal node above level 0 form a ring: `w` cables
//! from each member to the next, used in this direction and on the way down only. At a switch that
//! has the destination below it, a packet may either go down, or go to the next member, whose path
//! down uses other cables.
//!
//! The *seam* of a ring is the step from the last member to member 0. A packet that crosses it uses
//! lane 1 from that link on until it leaves the ring, and lane 0 everywhere else. A packet never
//! takes a whole turn, so with two lanes no cyclic dependency among full buffers is possible.
//!
//! [`KaryNTree::ring_hops_limit`] limits the steps of packets along a ring. [`KaryNTree::line`]
//! omits the seam's cables, so that the last member has no successor and buffers form no cycle: one
//! lane suffices.
//!
//! Numbering: switches level by level, in each level ideal node by ideal node, members in order.
//! Cables: those of the hosts, those from each switch upwards (switch by switch), the rings (switch
//! by switch). For `n = 3` and `w = 0` all numbers equal those of [`crate::FatTree`] with `pods =
//! k` and `k` of everything else.
//!
//! ```
//! use srd_fabric::{HostId, KaryNTree, SwitchId};
//!
//! let tree = KaryNTree::new(4, 3, 2)?;
//! assert_eq!((tree.hosts(), tree.switches()), (64, 48));
//! let leaf = tree.leaf(HostId(5));
//! assert_eq!(leaf, SwitchId(1));
//! // Up through any of 4 ports.
//! let (link, agg) = tree.up(leaf, 3).expect("leaves are not at the top");
//! assert_eq!((tree.level(agg), tree.from(link)), (1, leaf));
//! // Hosts 0..16 are below it, and it has a neighbour in a ring of 4.
//! assert!(tree.covers(agg, HostId(15)) && !tree.covers(agg, HostId(16)));
//! assert_eq!(tree.members(1), 4);
//! let next = tree.ring_next(agg).expect("a ring");
//! assert!(tree.covers(next, HostId(15)));
//! # Ok::<(), srd_fabric::TopologyError>(())
//! ```

use crate::topo::{CableId, HostId, LinkId, Node, Port, SwitchId, Topology, TopologyError};

/// Most hosts; up to this number every product computed in this module fits 32 bits.
pub const TREE_HOSTS_MAX: u32 = 65_536;
/// Most parallel cables between neighbours of a ring, more than the port count of any tree worth
/// comparing.
pub const TREE_HORIZONTAL_MAX: u32 = 64;
/// Most levels: a binary tree of [`TREE_HOSTS_MAX`] hosts.
const LEVELS_MAX: usize = 16;

/// A k-ary n-tree with `horizontal` links; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KaryNTree {
    k: u32,
    levels: u32,
    horizontal: u32,
    /// Most links of one ring that a packet may take.
    ring_hops_max: u32,
    /// Whether the seam has no cables.
    line: bool,
    /// Number of switches in a level.
    width: u32,
    /// `k^l`.
    powers: [u32; LEVELS_MAX + 1],
    /// Members above level 0 without a successor, summed over the levels below the index.
    ends_below: [u32; LEVELS_MAX + 1],
}

/// Links that a packet may take at a switch: the default and alternates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// The link taken unless an alternate is better.
    pub default: LinkId,
    /// The first alternate.
    first: u32,
    /// Number of alternates.
    count: u32,
    /// Whether the alternates lead along a ring; otherwise upwards.
    pub ring: bool,
}

impl Ways {
    /// `default`, and `count` alternates from the link `first` on.
    pub(crate) const fn new(default: LinkId, first: u32, count: u32, ring: bool) -> Self {
        Self { default, first, count, ring }
    }

    /// The default if it is `usable`, otherwise the next usable alternate.
    #[inline]
    pub fn default_usable(&self, usable: impl Fn(LinkId) -> bool) -> Option<LinkId> {
        if usable(self.default) {
            return Some(self.default);
        }
        let after = self.alternates().position(|l| l == self.default).map_or(0, |i| i + 1);
        let all = self.alternates();
        all.clone().skip(after).chain(all.take(after)).find(|l| usable(*l))
    }

    /// Links that may be taken instead. On the way up, the default is one of them.
    pub fn alternates(&self) -> impl ExactSizeIterator<Item = LinkId> + Clone + use<> {
        let first = self.first;
        (0..self.count).map(move |i| LinkId(first + 2 * i))
    }
}

impl KaryNTree {
    /// A tree of `levels` levels.
    ///
    /// # Errors
    /// If there are fewer than 2 children or levels, more than [`TREE_HOSTS_MAX`] hosts, or more
    /// than [`TREE_HORIZONTAL_MAX`] parallel cables in a ring. The text names `k`, `n` or
    /// `horizontal`.
    pub fn new(k: u32, levels: u32, horizontal: u32) -> Result<Self, TopologyError> {
        let fail = |text: String| Err(TopologyError::new(text));
        if k < 2 {
            return fail(format!("k = {k}: every switch needs at least 2 ports down"));
        }
        if levels < 2 {
            return fail(format!("n = {levels}: the tree needs at least 2 levels of switches"));
        }
        if horizontal > TREE_HORIZONTAL_MAX {
            return fail(format!("horizontal = {horizontal}: give at most {TREE_HORIZONTAL_MAX}"));
        }
        let hosts = k.checked_pow(levels).filter(|h| *h <= TREE_HOSTS_MAX);
        let Some(hosts) = hosts else {
            return fail(format!(
                "k = {k}, n = {levels}: more than {TREE_HOSTS_MAX} hosts (k to the power of n)"
            ));
        };
        let mut powers = [0; LEVELS_MAX + 1];
        for (l, power) in powers.iter_mut().enumerate().take(levels as usize + 1) {
            *power = k.pow(l as u32);
        }
        let (width, ends_below) = (hosts / k, [0; LEVELS_MAX + 1]);
        let ring_hops_max = u32::MAX;
        Ok(Self { k, levels, horizontal, ring_hops_max, line: false, width, powers, ends_below })
    }

    /// The same tree with packets that take at most `hops` links of any ring, at least 1.
    #[must_use]
    pub const fn ring_hops_limit(mut self, hops: u32) -> Self {
        self.ring_hops_max = if hops == 0 { 1 } else { hops };
        self
    }

    /// The same tree with a line of switches in place of each ring: from member 0 to the last,
    /// without a link back.
    #[must_use]
    pub fn line(mut self) -> Self {
        self.line = true;
        let mut ends = 0;
        for level in 1..self.levels as usize {
            self.ends_below[level] = ends;
            ends += self.width / self.powers[level];
        }
        self.ends_below[self.levels as usize] = ends;
        self
    }

    /// Whether the tree has rings, so that packets could return to a switch along horizontal links.
    pub const fn has_rings(&self) -> bool {
        self.horizontal > 0 && !self.line
    }

    /// Children of each switch.
    pub const fn k(&self) -> u32 {
        self.k
    }
    /// Levels of switches.
    pub const fn levels(&self) -> u32 {
        self.levels
    }
    /// Cables from each member of a ring to the next; 0 = no rings.
    pub const fn horizontal(&self) -> u32 {
        self.horizontal
    }
    /// Number of hosts.
    pub const fn hosts(&self) -> u32 {
        self.width * self.k
    }
    /// Number of switches.
    pub const fn switches(&self) -> u32 {
        self.width * self.levels
    }
    /// Switches in each level.
    pub const fn switches_per_level(&self) -> u32 {
        self.width
    }
    /// Number of links: twice the cables.
    pub const fn links(&self) -> u32 {
        let ends = self.ends_below[self.levels as usize] * self.horizontal;
        2 * (self.hosts() + (self.levels - 1) * self.width * (self.k + self.horizontal) - ends)
    }
    /// Ports of all switches per host, as a measure of the network's cost.
    pub fn ports_per_host(&self) -> f64 {
        // A cable has two ports; one port of a host's cable is the host's card.
        f64::from(self.links() - self.hosts()) / f64::from(self.hosts())
    }

    /// Level of a switch: 0 = next to the hosts.
    pub const fn level(&self, switch: SwitchId) -> u32 {
        switch.0 / self.width
    }
    /// Index, in its level, of the ideal node that a switch belongs to.
    pub const fn node(&self, switch: SwitchId) -> u32 {
        switch.0 % self.width / self.powers[self.level(switch) as usize]
    }
    /// Index of a switch in its ideal node.
    pub const fn member(&self, switch: SwitchId) -> u32 {
        switch.0 % self.width % self.powers[self.level(switch) as usize]
    }
    /// Number of switches in each ideal node of a level, which is the length of its rings.
    pub const fn members(&self, level: u32) -> u32 {
        self.powers[level as usize]
    }
    /// The switch to which a host is attached.
    pub const fn leaf(&self, host: HostId) -> SwitchId {
        SwitchId(host.0 / self.k)
    }
    /// Whether a switch has a host below it.
    #[inline]
    pub const fn covers(&self, switch: SwitchId, host: HostId) -> bool {
        host.0 / self.powers[self.level(switch) as usize + 1] == self.node(switch)
    }
    /// Level at which a packet from `a` to `b` turns: the lowest one that has both below one ideal
    /// node.
    pub fn level_common(&self, a: HostId, b: HostId) -> u32 {
        let same =
            |l: &u32| a.0 / self.powers[*l as usize + 1] == b.0 / self.powers[*l as usize + 1];
        (0..self.levels).find(same).unwrap_or(self.levels - 1)
    }

    /// The link from a host to its switch; the other direction is its reverse.
    pub const fn host_link(&self, host: HostId) -> LinkId {
        CableId(host.0).up()
    }
    const fn up_cable(&self, switch: u32, port: u32) -> CableId {
        CableId(self.hosts() + switch * self.k + port)
    }
    const fn ring_cable(&self, switch: u32, i: u32) -> CableId {
        let vertical = self.hosts() + (self.levels - 1) * self.width * self.k;
        let mut at = switch - self.width;
        if self.line {
            let s = SwitchId(switch);
            at -= self.ends_below[self.level(s) as usize] + self.node(s);
        }
        CableId(vertical + at * self.horizontal + i)
    }
    /// Link and switch above port `0..k`; `None` at the top or beyond `k`.
    pub fn up(&self, switch: SwitchId, port: u32) -> Option<(LinkId, SwitchId)> {
        let level = self.level(switch);
        if level + 1 >= self.levels || port >= self.k {
            return None;
        }
        let node = self.node(switch) / self.k;
        let member = self.member(switch) * self.k + port;
        let place = node * self.powers[level as usize + 1] + member;
        Some((self.up_cable(switch.0, port).up(), SwitchId((level + 1) * self.width + place)))
    }
    /// The link down towards a host below a switch, and its end.
    #[inline]
    pub const fn down(&self, switch: SwitchId, host: HostId) -> (LinkId, Node) {
        let level = self.level(switch);
        if level == 0 {
            return (self.host_link(host).reverse(), Node::Host(host));
        }
        let member = self.member(switch);
        let below = host.0 / self.powers[level as usize];
        let place = below * self.powers[level as usize - 1] + member / self.k;
        let child = (level - 1) * self.width + place;
        (self.up_cable(child, member % self.k).down(), Node::Switch(SwitchId(child)))
    }
    /// The next switch of a ring; `None` if there is none.
    pub const fn ring_next(&self, switch: SwitchId) -> Option<SwitchId> {
        if self.horizontal == 0 || switch.0 < self.width {
            return None;
        }
        if self.seam(switch) {
            if self.line {
                return None;
            }
            return Some(SwitchId(switch.0 + 1 - self.members(self.level(switch))));
        }
        Some(SwitchId(switch.0 + 1))
    }
    /// The links to the next switch of the ring: `horizontal` of them, or none.
    pub fn ring_links(&self, switch: SwitchId) -> impl Iterator<Item = LinkId> + use<> {
        let tree = *self;
        let count = if self.ring_next(switch).is_none() { 0 } else { self.horizontal };
        (0..count).map(move |i| tree.ring_cable(switch.0, i).up())
    }
    /// Whether the ring's links from a switch cross the seam, which means that it is the last
    /// member.
    pub const fn seam(&self, switch: SwitchId) -> bool {
        self.member(switch) + 1 == self.members(self.level(switch))
    }
    /// Whether a link is part of a ring.
    pub const fn is_ring(&self, link: LinkId) -> bool {
        link.0 / 2 >= self.hosts() + (self.levels - 1) * self.width * self.k
    }
    /// The switch at which a link of the tree starts; for a host's link the host's switch.
    pub fn from(&self, link: LinkId) -> SwitchId {
        match self.ends(link.cable()) {
            (Node::Switch(a), Node::Switch(b)) => {
                if link.0 & 1 == 0 {
                    a
                } else {
                    b
                }
            }
            // A host's cable has one switch.
            (_, Node::Switch(s)) | (Node::Switch(s), _) => s,
            _ => unreachable!("no cable joins two hosts"),
        }
    }
    /// The node at which a link of the tree ends.
    pub fn to(&self, link: LinkId) -> Node {
        let (a, b) = self.ends(link.cable());
        if link.0 & 1 == 0 { b } else { a }
    }
    /// Both ends of a cable, the lower first.
    fn ends(&self, cable: CableId) -> (Node, Node) {
        let vertical = (self.levels - 1) * self.width * self.k;
        let Some(at) = cable.0.checked_sub(self.hosts()) else {
            return (Node::Host(HostId(cable.0)), Node::Switch(SwitchId(cable.0 / self.k)));
        };
        if at < vertical {
            let a = SwitchId(at / self.k);
            let (_, b) = self.up(a, at % self.k).expect("a cable upwards");
            return (Node::Switch(a), Node::Switch(b));
        }
        let a = self.ring_from((at - vertical) / self.horizontal);
        let b = self.ring_next(a).expect("a ring");
        (Node::Switch(a), Node::Switch(b))
    }

    /// The `at`-th switch that has a successor.
    fn ring_from(&self, at: u32) -> SwitchId {
        if !self.line {
            return SwitchId(self.width + at);
        }
        let below = |level: u32| (level - 1) * self.width - self.ends_below[level as usize];
        let level = (1..self.levels).rev().find(|l| at >= below(*l)).unwrap_or(1);
        let (in_level, steps) = (at - below(level), self.members(level) - 1);
        let place = in_level / steps * self.members(level) + in_level % steps;
        SwitchId(level * self.width + place)
    }

    /// Most links of a ring of this level that a packet takes, always less than a whole turn.
    pub const fn ring_hops_max(&self, level: u32) -> u32 {
        let turn = self.members(level) - 1;
        if self.ring_hops_max < turn { self.ring_hops_max } else { turn }
    }

    /// Upward port that all packets to a host take at switches of a level: digit `level` of the
    /// host's number in base k ("d-mod-k"). So every downward link carries packets to one
    /// destination only.
    #[inline]
    pub const fn port_oblivious(&self, level: u32, dst: HostId) -> u32 {
        dst.0 / self.powers[level as usize] % self.k
    }

    /// The links from a switch towards `dst`. `ring_hops`: links of this ring that the packet has
    /// passed; after [`KaryNTree::ring_hops_max`] of them it can only go down.
    #[inline]
    pub fn ways(&self, switch: SwitchId, dst: HostId, ring_hops: u32) -> Ways {
        let level = self.level(switch);
        if self.covers(switch, dst) {
            let (default, _) = self.down(switch, dst);
            let next = self.ring_next(switch).is_some();
            if !next || ring_hops >= self.ring_hops_max(level) {
                return Ways { default, first: 0, count: 0, ring: true };
            }
            let first = self.ring_cable(switch.0, 0).up().0;
            return Ways { default, first, count: self.horizontal, ring: true };
        }
        let first = self.up_cable(switch.0, 0).up().0;
        let default = LinkId(first + 2 * self.port_oblivious(level, dst));
        Ways { default, first, count: self.k, ring: false }
    }

    /// Builds the topology. `nic`: a host's card; `edge`: a switch's port to a host; `core`: ports
    /// between switches.
    pub fn build(&self, nic: Port, edge: Port, core: Port) -> Topology {
        let mut t = Topology::new(self.hosts());
        for level in 0..self.levels {
            for _ in 0..self.width {
                t.switch_add(level as u8);
            }
        }
        for cable in (0..self.links() / 2).map(CableId) {
            let (a, b) = self.ends(cable);
            let (up, down) = if matches!(a, Node::Host(_)) { (nic, edge) } else { (core, core) };
            t.cable_add(a, b, up, down);
        }
        t.tree_set(*self);
        t
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
