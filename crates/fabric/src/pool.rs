//! Buffers that all ports of a switch share.

use crate::link::{Link, Profile};
use crate::topo::{Node, Ps, SharedBuffer, Topology};

/// A switch's shared buffer and the links that it feeds.
#[derive(Clone, Debug)]
struct Pool {
    buffer: SharedBuffer,
    links: Vec<u32>,
}

/// The shared buffers of a network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    pools: Vec<Pool>,
    /// Index of each link's pool; empty if there are no pools. A link without one has an index
    /// beyond all pools.
    of_link: Vec<u32>,
}

impl Pools {
    pub fn new(topo: &Topology) -> Self {
        let mut all = Self::default();
        for (switch, buffer) in topo.shared_buffers() {
            if all.of_link.is_empty() {
                all.of_link.resize(topo.links() as usize, u32::MAX);
            }
            let number = all.pools.len() as u32;
            all.pools.push(Pool { buffer, links: Vec::new() });
            for cable in topo.cables_of(Node::Switch(switch)) {
                let ways = [cable.up(), cable.down()];
                for link in ways.into_iter().filter(|l| topo.from(*l) == Node::Switch(switch)) {
                    all.of_link[link.0 as usize] = number;
                    all.pools[number as usize].links.push(link.0);
                }
            }
        }
        all
    }

    /// Whether a link's queue is part of a shared buffer.
    pub fn has(&self, link: u32) -> bool {
        self.of_link.get(link as usize).is_some_and(|pool| *pool != u32::MAX)
    }

    /// Whether the shared buffer of link `at`, which must have one, has room for `bytes` more on
    /// that link.
    ///
    /// The threshold is dynamic (Choudhury and Hahne, "Dynamic queue length thresholds for
    /// shared-memory packet switches", 1998): each queue may hold `alpha` times the free memory.
    pub fn admits(
        &self,
        links: &[Link],
        profiles: &[Profile],
        at: u32,
        bytes: u32,
        now: Ps,
    ) -> bool {
        let pool = &self.pools[self.of_link[at as usize] as usize];
        let free = pool.buffer.bytes.saturating_sub(pool.used(links, profiles, now));
        let link = &links[at as usize];
        let backlog = link.busy_until.saturating_sub(now);
        let queue = profiles[link.profile as usize].ps_to_bytes(backlog);
        // A cast from a float saturates.
        let threshold = (pool.buffer.alpha * free as f64) as u64;
        u64::from(bytes) <= free && queue + u64::from(bytes) <= threshold
    }
}

impl Pool {
    /// Bytes queued at all ports.
    fn used(&self, links: &[Link], profiles: &[Profile], now: Ps) -> u64 {
        let (mut bytes, mut backlog, mut profile) = (0, 0, u32::MAX);
        for link in self.links.iter().map(|l| &links[*l as usize]) {
            let waits = link.busy_until.saturating_sub(now);
            if waits == 0 {
                continue;
            }
            // Backlogs of ports with the same rate are summed as times, for one division per rate.
            if link.profile != profile {
                if backlog > 0 {
                    bytes += profiles[profile as usize].ps_to_bytes(backlog);
                }
                (backlog, profile) = (0, link.profile);
            }
            backlog += waits;
        }
        if backlog > 0 {
            bytes += profiles[profile as usize].ps_to_bytes(backlog);
        }
        bytes
    }
}
