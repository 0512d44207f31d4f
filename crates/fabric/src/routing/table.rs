//! The tree's numbers in tables, which avoids divisions per hop.

use crate::topo::{HostId, LinkId, Node, SwitchId};
use crate::tree::{KaryNTree, Ways};

/// Numbers of one switch for [`KaryNTree::ways`].
#[derive(Clone, Copy, Debug)]
struct Spot {
    /// First host below the switch.
    hosts_from: u32,
    /// One past the last host below the switch.
    hosts_to: u32,
    level: u32,
    /// The first link upwards; undefined at the top.
    up: u32,
    /// The first link downwards, and the distance between these links.
    down: u32,
    down_step: u32,
    /// The first link of the ring, and their number.
    ring: u32,
    ring_count: u32,
    /// Most links of the ring that a packet takes.
    ring_hops_max: u32,
}

/// A [`KaryNTree`] with its numbers in tables.
#[derive(Clone, Debug)]
pub struct TreeTable {
    tree: KaryNTree,
    spots: Vec<Spot>,
    /// Digits of each host's number in base k, the last digit first.
    digits: Vec<u8>,
    /// Node at the end of each link: a host below the number of hosts, otherwise a switch.
    ends: Vec<u32>,
}

impl TreeTable {
    /// Tables of a tree.
    pub fn new(tree: KaryNTree) -> Self {
        let levels = tree.levels() as usize;
        let mut digits = Vec::with_capacity(tree.hosts() as usize * levels);
        for host in (0..tree.hosts()).map(HostId) {
            // k is at most 256: two levels of 257 children would exceed the number of hosts.
            digits.extend((0..tree.levels()).map(|l| tree.port_oblivious(l, host) as u8));
        }
        let hosts = tree.hosts();
        let ends = (0..tree.links()).map(|l| match tree.to(LinkId(l)) {
            Node::Host(h) => h.0,
            Node::Switch(s) => hosts + s.0,
        });
        let spots = (0..tree.switches()).map(|s| Spot::new(&tree, SwitchId(s))).collect();
        Self { tree, spots, digits, ends: ends.collect() }
    }

    /// The tree.
    pub const fn tree(&self) -> &KaryNTree {
        &self.tree
    }

    /// Like [`KaryNTree::ways`].
    #[inline]
    pub fn ways(&self, switch: SwitchId, dst: HostId, ring_hops: u32) -> Ways {
        let spot = &self.spots[switch.0 as usize];
        let digit = self.digits[(dst.0 * self.tree.levels() + spot.level) as usize];
        if dst.0 >= spot.hosts_from && dst.0 < spot.hosts_to {
            let default = LinkId(spot.down + spot.down_step * u32::from(digit));
            let ring = ring_hops < spot.ring_hops_max;
            return Ways::new(default, spot.ring, if ring { spot.ring_count } else { 0 }, true);
        }
        let default = LinkId(spot.up + 2 * u32::from(digit));
        Ways::new(default, spot.up, self.tree.k(), false)
    }

    /// Like [`KaryNTree::to`].
    #[inline]
    pub fn to(&self, link: LinkId) -> Node {
        let end = self.ends[link.0 as usize];
        match end.checked_sub(self.tree.hosts()) {
            None => Node::Host(HostId(end)),
            Some(switch) => Node::Switch(SwitchId(switch)),
        }
    }
}

impl Spot {
    fn new(tree: &KaryNTree, switch: SwitchId) -> Self {
        let level = tree.level(switch);
        let below = tree.k() * tree.members(level);
        let hosts_from = tree.node(switch) * below;
        let down = |child: u32| tree.down(switch, HostId(hosts_from + child * (below / tree.k())));
        let (first, second) = (down(0).0.0, down(1).0.0);
        let ring = tree.ring_links(switch).next().map_or(0, |l| l.0);
        Self {
            hosts_from,
            hosts_to: hosts_from + below,
            level,
            up: tree.up(switch, 0).map_or(0, |(link, _)| link.0),
            down: first,
            down_step: second - first,
            ring,
            ring_count: tree.ring_links(switch).count() as u32,
            ring_hops_max: tree.ring_hops_max(level),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_say_what_the_tree_says() {
        for (k, n, w) in [(2, 2, 1), (2, 4, 3), (4, 3, 2), (3, 3, 0), (16, 2, 1), (256, 2, 0)] {
            let ring = KaryNTree::new(k, n, w).expect("sound");
            for tree in [ring, ring.line(), ring.ring_hops_limit(1), ring.line().ring_hops_limit(2)]
            {
                agree(tree);
            }
        }
    }

    fn agree(tree: KaryNTree) {
        let table = TreeTable::new(tree);
        for link in (0..tree.links()).map(LinkId) {
            assert_eq!(table.to(link), tree.to(link));
        }
        let hosts = (0..tree.hosts()).step_by(tree.hosts() as usize / 16 + 1).map(HostId);
        for (switch, dst) in hosts.flat_map(|h| (0..tree.switches()).map(move |s| (SwitchId(s), h)))
        {
            for ring_hops in [0, 1, 2, tree.members(tree.level(switch)) - 1] {
                let (got, want) =
                    (table.ways(switch, dst, ring_hops), tree.ways(switch, dst, ring_hops));
                assert_eq!((got.default, got.ring), (want.default, want.ring));
                assert!(got.alternates().eq(want.alternates()), "{got:?} {want:?}");
            }
        }
    }
}
