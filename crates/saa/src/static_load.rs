//! Flows placed on a network without packets: how many meet on links when each chooses its way
//! once, one after the other. Congestion and W of a thousand networks take as long as one run with
//! packets.
//!
//! The choice is the network's own ([`Placement`]): here ways are kept, and what they meet is
//! counted.

use crate::weight::Paths;
use srd_fabric::routing::Placement;
use srd_fabric::{HostId, LinkId};

/// What the flows of one run met.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Congestion {
    /// Most flows on any link: W for flows of weight 1.
    pub max: u32,
    /// Mean over flows of the most flows on any link of their way.
    pub mean: f64,
    /// Mean over flows of the links of their way.
    pub links: f64,
}

/// Flows under way on one tree. Reuse it from run to run: it allocates only once.
#[derive(Clone, Debug)]
pub struct StaticLoad {
    placement: Placement,
    /// Links of all flows so far, and where each flow's end.
    ways: Vec<LinkId>,
    ends: Vec<u32>,
    way: Vec<LinkId>,
}

impl StaticLoad {
    /// Nothing placed yet.
    pub const fn new(placement: Placement) -> Self {
        Self { placement, ways: Vec::new(), ends: Vec::new(), way: Vec::new() }
    }

    /// The network's side.
    pub const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Takes all flows away; what is drawn from now on follows from `seed`.
    pub fn clear(&mut self, seed: u64) {
        self.placement.clear(seed);
        self.ways.clear();
        self.ends.clear();
    }

    /// Adds a flow. It keeps the way that it takes now.
    pub fn place(&mut self, src: HostId, dst: HostId) {
        self.placement.place(src, dst, &mut self.way);
        self.ways.extend_from_slice(&self.way);
        self.ends.push(self.ways.len() as u32);
    }

    fn ways(&self) -> impl Iterator<Item = &[LinkId]> {
        let from = std::iter::once(0).chain(self.ends.iter().copied());
        from.zip(&self.ends).map(|(from, to)| &self.ways[from as usize..*to as usize])
    }

    /// What the flows placed so far meet.
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

    /// The ways of all flows placed so far; `weight` of each by its number.
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
