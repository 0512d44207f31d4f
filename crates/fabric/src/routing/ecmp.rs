//! ECMP routing: shortest paths to the switch of each host, with all equal next hops in a group.
//! Tables are computed when the network is built and when routing converges after a fault.

use super::{Passing, Routing};
use crate::rng::{mix64, stream_seed};
use crate::topo::{LinkId, Node, Topology};
use std::collections::BTreeMap;

/// Stream kind of the hash seeds of switches.
const STREAM: u64 = 1;
/// Marks the absence of a link or leaf.
const NONE: u32 = u32::MAX;
/// Leaves per page.
const PAGE: usize = 16;
/// No group.
const NO_GROUP: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
struct HostRoute {
    /// Index of its switch among the switches with hosts.
    leaf: u32,
    /// The link from its switch to the host.
    link: u32,
}

#[derive(Clone, Copy, Debug)]
struct SwitchRoute {
    hash_seed: u64,
    /// Index of the switch's first group.
    groups: u32,
    /// The switch's own index among the leaves.
    leaf: u32,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    first: u32,
    len: u32,
}

/// The routing tables of all switches.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    seed: u64,
    hosts: Vec<HostRoute>,
    switches: Vec<SwitchRoute>,
    reboots: Vec<u64>,
    /// Switch of each leaf index.
    leaves: Vec<u32>,
    /// Page for each switch and span of leaves.
    table: Vec<u32>,
    /// Group indices of a span of leaves, relative to a switch's first group. Most switches use the
    /// same groups for most spans, so a few shared pages suffice and stay in cache.
    pages: Vec<[u16; PAGE]>,
    groups: Vec<Group>,
    members: Vec<u32>,
    /// Outgoing links of each switch to other switches: `(link, switch)`.
    out: Vec<Vec<(u32, u32)>>,
}

impl Routes {
    /// Tables for a network without failures.
    pub fn new(topo: &Topology, seed: u64) -> Self {
        let none = HostRoute { leaf: NONE, link: NONE };
        let mut r = Self {
            seed,
            hosts: vec![none; topo.hosts() as usize],
            switches: (0..topo.switches())
                .map(|s| SwitchRoute { hash_seed: switch_seed(seed, s, 0), groups: 0, leaf: NONE })
                .collect(),
            reboots: vec![0; topo.switches() as usize],
            leaves: Vec::new(),
            table: Vec::new(),
            pages: Vec::new(),
            groups: Vec::new(),
            members: Vec::new(),
            out: vec![Vec::new(); topo.switches() as usize],
        };
        for i in 0..topo.links() {
            match (topo.from(LinkId(i)), topo.to(LinkId(i))) {
                (Node::Switch(a), Node::Switch(b)) => r.out[a.0 as usize].push((i, b.0)),
                (Node::Switch(s), Node::Host(h)) => {
                    let leaf = r.leaf_of(s.0);
                    r.hosts[h.0 as usize] = HostRoute { leaf, link: i };
                }
                _ => {}
            }
        }
        r.rebuild(|_| true);
        r
    }

    fn leaf_of(&mut self, switch: u32) -> u32 {
        let s = &mut self.switches[switch as usize];
        if s.leaf == NONE {
            s.leaf = self.leaves.len() as u32;
            self.leaves.push(switch);
        }
        s.leaf
    }

    /// The link that a packet takes from `switch`, or `None` if there is no route to `dst`.
    #[inline]
    pub fn next(&self, switch: u32, dst: u32, hash: u32) -> Option<u32> {
        let host = self.hosts[dst as usize];
        let s = self.switches[switch as usize];
        if host.leaf == s.leaf {
            return (host.link != NONE).then_some(host.link);
        }
        if host.leaf == NONE {
            return None;
        }
        let span = self.leaves.len().div_ceil(PAGE);
        let page = self.table[switch as usize * span + host.leaf as usize / PAGE];
        let group = self.pages[page as usize][host.leaf as usize % PAGE];
        if group == NO_GROUP {
            return None;
        }
        let group = self.groups[s.groups as usize + group as usize];
        if group.len == 1 {
            return Some(self.members[group.first as usize]);
        }
        let bits = mix64(s.hash_seed ^ u64::from(hash)) >> 32;
        let at = (bits * u64::from(group.len)) >> 32;
        Some(self.members[group.first as usize + at as usize])
    }

    /// Replaces a switch's hash seed by the given one, or by the next of its own stream.
    pub fn rehash(&mut self, switch: u32, hash_seed: Option<u64>) {
        self.reboots[switch as usize] += 1;
        let next = switch_seed(self.seed, switch, self.reboots[switch as usize]);
        self.switches[switch as usize].hash_seed = hash_seed.unwrap_or(next);
    }

    /// Recomputes all tables over the links for which `usable` holds.
    pub fn rebuild(&mut self, usable: impl Fn(u32) -> bool) {
        let (n, leaves) = (self.switches.len(), self.leaves.len());
        let mut groups: Vec<Vec<Group>> = vec![Vec::new(); n];
        let mut table = vec![NO_GROUP; n * leaves];
        self.members.clear();
        let mut distance = vec![NONE; n];
        let mut queue = Vec::with_capacity(n);
        for leaf in 0..leaves {
            self.distances(self.leaves[leaf], &usable, &mut distance, &mut queue);
            for switch in &queue[1..] {
                let switch = *switch as usize;
                let first = self.members.len();
                let nearer = distance[switch] - 1;
                for (link, to) in &self.out[switch] {
                    if distance[*to as usize] == nearer && usable(*link) {
                        self.members.push(*link);
                    }
                }
                let group = group_find(&groups[switch], &mut self.members, first);
                let number = group.unwrap_or_else(|new: Group| {
                    groups[switch].push(new);
                    groups[switch].len() - 1
                });
                assert!(number < usize::from(NO_GROUP), "more than 65,534 ECMP groups in a switch");
                table[switch * leaves + leaf] = number as u16;
            }
        }
        self.pages_make(&table);
        self.groups.clear();
        for (switch, mut own) in groups.into_iter().enumerate() {
            self.switches[switch].groups = self.groups.len() as u32;
            self.groups.append(&mut own);
        }
    }

    /// Splits the groups of `(switch, leaf)` into pages and stores equal pages once.
    fn pages_make(&mut self, table: &[u16]) {
        self.table.clear();
        self.pages.clear();
        let mut known = BTreeMap::new();
        for span in table.chunks(self.leaves.len().max(1)).flat_map(|row| row.chunks(PAGE)) {
            let mut page = [NO_GROUP; PAGE];
            page[..span.len()].copy_from_slice(span);
            let number = *known.entry(page).or_insert_with(|| {
                self.pages.push(page);
                self.pages.len() - 1
            });
            self.table.push(number as u32);
        }
    }

    /// Hops from every switch to `to`, and the switches with a route, nearest first.
    fn distances(
        &self,
        to: u32,
        usable: &impl Fn(u32) -> bool,
        distance: &mut [u32],
        queue: &mut Vec<u32>,
    ) {
        distance.fill(NONE);
        queue.clear();
        distance[to as usize] = 0;
        queue.push(to);
        let mut next = 0;
        while next < queue.len() {
            let at = queue[next] as usize;
            next += 1;
            let farther = distance[at] + 1;
            for (link, neighbour) in &self.out[at] {
                // The link towards `to` is the other direction of the cable.
                if distance[*neighbour as usize] == NONE && usable(link ^ 1) {
                    distance[*neighbour as usize] = farther;
                    queue.push(*neighbour);
                }
            }
        }
    }
}

impl Routing for Routes {
    fn next(&mut self, packet: &Passing, _: &dyn Fn(LinkId) -> u64) -> Option<LinkId> {
        Self::next(self, packet.switch, packet.dst, packet.hash).map(LinkId)
    }

    fn converge(&mut self, usable: &dyn Fn(u32) -> bool) {
        self.rebuild(usable);
    }
}

/// Index of the group equal to `members[first..]`, which is then removed from `members`; otherwise
/// the new group.
fn group_find(groups: &[Group], members: &mut Vec<u32>, first: usize) -> Result<usize, Group> {
    let (old, new) = members.split_at(first);
    let same = |g: &Group| &old[g.first as usize..(g.first + g.len) as usize] == new;
    let new = Group { first: first as u32, len: new.len() as u32 };
    let found = groups.iter().position(same);
    if found.is_some() {
        members.truncate(first);
    }
    found.ok_or(new)
}

/// Hash seed of a switch after its `reboots`-th restart.
const fn switch_seed(seed: u64, switch: u32, reboots: u64) -> u64 {
    stream_seed(seed, STREAM, (switch as u64) << 32 | reboots)
}
