//! Buffers that wait for each other in a circle.

use super::{Cell, Lossless, NONE, Place};
use crate::topo::{LinkId, Ps, Topology};

/// How often a network in which a packet is blocked is looked at: each time that an input buffer
/// takes to empty, this many times. The search is exact, so the period only says how soon a
/// deadlock ends the run; a search costs about as much as a hundred hops.
pub(super) const WATCH_DRAINS: u64 = 16;

/// A circle of full buffers none of which can ever empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// When it was found.
    pub at_ps: Ps,
    /// Links and lanes: each buffer waits for the next, the last for the first.
    pub cycle: Vec<(LinkId, u8)>,
    /// Buffers that cannot empty, those behind the circle included.
    pub buffers: usize,
}

impl Deadlock {
    /// What happened, and what to do, with the names of the links.
    pub fn describe(&self, topo: &Topology) -> String {
        let name = |(link, lane): &(LinkId, u8)| format!("{} lane {lane}", topo.link_name(*link));
        let names: Vec<String> = self.cycle.iter().map(name).collect();
        format!(
            "deadlock, found at {:.3} us: {} input buffers can never empty, because each of these \
             waits for the next, and the last for the first: {}. Rings need two lanes \
             (network.lanes = 2)",
            self.at_ps as f64 / 1e6,
            self.buffers,
            names.join(", ")
        )
    }
}

impl Lossless {
    /// Looks for a deadlock. `dead`: links that are down, for which nothing waits for long.
    ///
    /// A buffer is *live* if room in it will become free: some is on the way back, a packet is
    /// still arriving, or one of its packets can leave now or waits for a live buffer. What is not
    /// live never will be.
    pub(super) fn deadlock_find(&self, at_ps: Ps, dead: impl Fn(u32) -> bool) -> Option<Deadlock> {
        let waits = |c: &&Cell| c.place == Place::Waiting && c.link != NONE;
        let waiting: Vec<&Cell> = self.cells.iter().filter(waits).collect();
        let mut live: Vec<bool> =
            self.buffers.iter().map(|b| b.wire > 0 || b.returning > 0).collect();
        let own = |c: &Cell| self.buffer(c.link, c.lane);
        let ahead = |c: &Cell| self.buffer(c.out, c.out_lane);
        let mut blocked = Vec::new();
        for cell in waiting {
            if self.room(cell.out, cell.out_lane, cell.bytes) || dead(cell.out) {
                live[own(cell)] = true;
            } else {
                blocked.push(cell);
            }
        }
        loop {
            let before = blocked.len();
            blocked.retain(|cell| {
                live[own(cell)] |= live[ahead(cell)];
                !live[own(cell)]
            });
            if blocked.len() == before {
                break;
            }
        }
        let first = blocked.first()?;
        // From any of them on, each waits for the next; some buffer comes again.
        let (mut path, mut cell) = (Vec::new(), *first);
        let from = loop {
            let buffer = own(cell);
            if let Some(from) = path.iter().position(|c: &&Cell| own(c) == buffer) {
                break from;
            }
            path.push(cell);
            cell = blocked.iter().find(|c| own(c) == ahead(cell))?;
        };
        let cycle = path[from..].iter().map(|c| (LinkId(c.link), c.lane)).collect();
        let mut stuck: Vec<usize> = blocked.iter().map(|c| own(c)).collect();
        stuck.sort_unstable();
        stuck.dedup();
        Some(Deadlock { at_ps, cycle, buffers: stuck.len() })
    }
}
