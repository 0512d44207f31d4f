//! Flows placed on a network without packets: the load of links when each flow chooses its path
//! once, one after the other. Congestion and W of a thousand networks take as long as one run with
//! packets.
//!
//! The network makes the choice ([`Placement`]); this module stores the paths and counts their
//! load.

use crate::weight::Paths;
use srd_fabric::routing::Placement;
use srd_fabric::{HostId, LinkId};

/// The load of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Congestion {
    /// Most flows on any link: W for flows of weight 1.
    pub max: u32,
    /// Mean over flows of the most flows on any link of their path.
    pub mean: f64,
    /// Mean over flows of the number of links of their path.
    pub links: f64,
}

/// Flows on one network. Reuse it from run to run: it allocates only once.
#[derive(Clone, Debug)]
pub struct StaticLoad {
    placement: Placement,
    /// Links of all flows, concatenated; then the end of each flow's links.
    ways: Vec<LinkId>,
    ends: Vec<u32>,
    way: Vec<LinkId>,
}

impl StaticLoad {
    /// An empty network.
    pub const fn new(placement: Placement) -> Self {
        Self { placement, ways: Vec::new(), ends: Vec::new(), way: Vec::new() }
    }

    /// The network's view.
    pub const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Removes all flows; later random choices follow from `seed`.
    pub fn clear(&mut self, seed: u64) {
        self.placement.clear(seed);
        self.ways.clear();
        self.ends.clear();
    }

    /// Adds a flow, which keeps the path that it takes now.
    pub fn place(&mut self, src: HostId, dst: HostId) {
        self.placement.place(src, dst, &mut self.way);
        self.ways.extend_from_slice(&self.way);
        self.ends.push(self.ways.len() as u32);
    }

    fn ways(&self) -> impl Iterator<Item = &[LinkId]> {
        let from = std::iter::once(0).chain(self.ends.iter().copied());
        from.zip(&self.ends).map(|(from, to)| &self.ways[from as usize..*to as usize])
    }

    /// The load of the flows placed so far.
    pub fn congestion(&self) -> Congestion {
        let (mut max, mut sum) = (0, 0u64);
        for way in self.ways() {
            let met = self.placement.congestion(way);
            max = max.max(met);
            sum += u64::from(met);
        }
        let n = self.ends.len().max(1) as f64;
        Congestion { max, mean: sum as f64 / n, links: self.ways.len() as f64 / n }
    }

    /// The paths of all flows placed so far; `weight` gives the weight of each by its number.
    pub fn paths(&self, weight: impl Fn(usize) -> u64) -> Paths {
        let mut paths = Paths::new();
        let mut links = Vec::new();
        for (f, way) in self.ways().enumerate() {
            links.clear();
            links.extend(way.iter().map(|l| l.0));
            paths.push(weight(f), &links);
        }
        paths
    }
}

#[cfg(test)]
#[path = "static_load_tests.rs"]
mod tests;
