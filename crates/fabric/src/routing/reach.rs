//! Reachability: which switches still have a route to which leaves after link failures in a tree.

use super::table::TreeTable;
use crate::topo::{HostId, LinkId, Node, SwitchId};

/// Routing's knowledge of failed links; none exists while all links work.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    usable: Vec<bool>,
    /// For each switch and leaf: whether a route exists (down, or up and then down).
    good: Vec<bool>,
    leaves: u32,
    hosts_per_leaf: u32,
}

impl Reach {
    /// Reachability over the links for which `usable` holds; `None` if it holds for all.
    pub fn of(table: &TreeTable, usable: &dyn Fn(u32) -> bool) -> Option<Self> {
        let tree = *table.tree();
        let usable: Vec<bool> = (0..tree.links()).map(usable).collect();
        if usable.iter().all(|u| *u) {
            return None;
        }
        let leaves = tree.switches_per_level();
        let good = vec![false; (tree.switches() * leaves) as usize];
        let mut new = Self { usable, good, leaves, hosts_per_leaf: tree.k() };
        let level = |l: u32| (l * leaves..(l + 1) * leaves).map(SwitchId);
        for switch in level(0) {
            new.set(switch, switch.0);
        }
        for l in 1..tree.levels() {
            for (switch, leaf) in level(l).flat_map(|s| (0..leaves).map(move |leaf| (s, leaf))) {
                let dst = HostId(leaf * tree.k());
                if tree.covers(switch, dst) && new.allows(table, tree.down(switch, dst).0, dst, 0) {
                    new.set(switch, leaf);
                }
            }
            // A route down at one member serves the members before it in the ring. Two passes
            // against the ring's direction reach all of them.
            if tree.horizontal() > 0 {
                level(l).rev().for_each(|s| new.ring_set(table, s));
                level(l).rev().for_each(|s| new.ring_set(table, s));
            }
        }
        for l in (0..tree.levels() - 1).rev() {
            for (switch, leaf) in level(l).flat_map(|s| (0..leaves).map(move |leaf| (s, leaf))) {
                let dst = HostId(leaf * tree.k());
                let leads =
                    |port| tree.up(switch, port).is_some_and(|u| new.allows(table, u.0, dst, 0));
                if !tree.covers(switch, dst) && (0..tree.k()).any(leads) {
                    new.set(switch, leaf);
                }
            }
        }
        Some(new)
    }

    fn set(&mut self, switch: SwitchId, leaf: u32) {
        self.good[(switch.0 * self.leaves + leaf) as usize] = true;
    }

    /// Adds to a switch's reachability what the next switch of its ring reaches downwards.
    fn ring_set(&mut self, table: &TreeTable, switch: SwitchId) {
        let tree = table.tree();
        if !tree.ring_links(switch).any(|l| self.usable[l.0 as usize]) {
            return;
        }
        let Some(next) = tree.ring_next(switch) else { return };
        for leaf in 0..self.leaves {
            if tree.covers(switch, HostId(leaf * tree.k()))
                && self.good[(next.0 * self.leaves + leaf) as usize]
            {
                self.set(switch, leaf);
            }
        }
    }

    /// Whether a link works and has a route to `dst`, for a packet that has taken `ring_hops` links
    /// of the current ring.
    pub fn allows(&self, table: &TreeTable, link: LinkId, dst: HostId, ring_hops: u32) -> bool {
        self.usable[link.0 as usize]
            && match table.to(link) {
                Node::Host(_) => true,
                Node::Switch(s) if table.tree().is_ring(link) => {
                    self.ring_leads(table, s, dst, ring_hops + 1)
                }
                Node::Switch(s) => {
                    self.good[(s.0 * self.leaves + dst.0 / self.hosts_per_leaf) as usize]
                }
            }
    }

    /// Whether a packet that reaches `at` after `ring_hops` links of the ring finds a route down to
    /// `dst` there or farther along. No packet takes a whole turn, so a member with a route down
    /// may be too far.
    fn ring_leads(&self, table: &TreeTable, at: SwitchId, dst: HostId, ring_hops: u32) -> bool {
        let tree = table.tree();
        let (mut at, most) = (at, tree.ring_hops_max(tree.level(at)));
        for hops in ring_hops.. {
            if self.allows(table, tree.down(at, dst).0, dst, 0) {
                return true;
            }
            let goes_on = tree.ring_links(at).any(|l| self.usable[l.0 as usize]);
            match tree.ring_next(at) {
                Some(next) if goes_on && hops < most => at = next,
                _ => break,
            }
        }
        false
    }
}
