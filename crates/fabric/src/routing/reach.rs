//! Which switches still lead where, after links of a tree have failed.

use super::table::TreeTable;
use crate::topo::{HostId, LinkId, Node, SwitchId};

/// What routing knows of failed links. There is none while all links work.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    usable: Vec<bool>,
    /// For each switch and leaf: whether a way leads there (down, or up and then down).
    good: Vec<bool>,
    leaves: u32,
    hosts_per_leaf: u32,
}

impl Reach {
    /// What the links for which `usable` holds lead to; `None` if it holds for all.
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
            // A way down at one member serves those before it in the ring. Against its direction,
            // two turns carry that to all.
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

    /// A switch reaches what the next one of its ring reaches below it.
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

    /// Whether a link works and leads on to `dst`, for a packet that has taken `ring_hops` cables
    /// of the ring at hand so far.
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

    /// Whether a packet that comes to `at` after so many cables of a ring gets down to `dst` there
    /// or farther along. Nobody takes a whole turn: a member with a way down may be too far.
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
