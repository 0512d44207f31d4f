//! Placement of flows without packets.

use super::circuits::{Choice, CircuitConfig, Circuits};
use crate::topo::{HostId, LinkId, Node};
use crate::tree::KaryNTree;

/// Places flows in a tree one after the other: each as its first packet would be routed if that
/// packet arrived before the next one leaves. See the [module](super).
#[derive(Clone, Debug)]
pub struct Placement {
    circuits: Circuits,
}

impl Placement {
    /// A tree without flows. The seed breaks ties.
    pub fn new(tree: KaryNTree, config: CircuitConfig, seed: u64) -> Self {
        Self { circuits: Circuits::new(tree, config, seed) }
    }

    /// Removes all flows and reseeds; keeps the allocated memory.
    pub fn clear(&mut self, seed: u64) {
        self.circuits.clear(seed);
    }

    /// The present state of the switches: flows on links, entries in use.
    pub const fn circuits(&self) -> &Circuits {
        &self.circuits
    }

    /// Places a flow and overwrites `path` with its links in order: the link from the host's card,
    /// the links between switches, the link to the destination.
    pub fn place(&mut self, src: HostId, dst: HostId, path: &mut Vec<LinkId>) {
        path.clear();
        path.push(self.circuits.tree().host_link(src));
        self.circuits.host_link_count(src, 1);
        let (mut at, mut ring_hops) = (self.circuits.tree().leaf(src), 0);
        loop {
            let choice = self.circuits.choose(at, dst, ring_hops, |_| 0, |_, _| true);
            let link = choice.expect("every link is usable").link;
            path.push(link);
            match self.circuits.table().to(link) {
                Node::Host(_) => return,
                Node::Switch(next) => {
                    ring_hops = if self.circuits.tree().is_ring(link) { ring_hops + 1 } else { 0 };
                    at = next;
                }
            }
        }
    }

    /// Removes a flow; `path` is what [`Placement::place`] wrote for `dst`.
    ///
    /// # Panics
    /// If no such flow is placed.
    pub fn remove(&mut self, dst: HostId, path: &[LinkId]) {
        let tree = *self.circuits.tree();
        for link in &path[1..] {
            let at = tree.from(*link);
            let default = self.circuits.table().ways(at, dst, 0).default;
            self.circuits.release(at, Choice { link: *link, entry: *link != default });
        }
        if let Node::Switch(leaf) = tree.to(path[0]) {
            let host = HostId(path[0].0 / 2);
            debug_assert_eq!(tree.leaf(host), leaf);
            self.circuits.host_link_count(host, -1);
        }
    }

    /// Number of flows on a link.
    #[inline]
    pub fn flows(&self, link: LinkId) -> u32 {
        self.circuits.flows(link)
    }

    /// Congestion of a path: the most flows on any of its links.
    pub fn congestion(&self, path: &[LinkId]) -> u32 {
        path.iter().map(|l| self.flows(*l)).max().unwrap_or(0)
    }
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
