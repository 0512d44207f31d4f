//! Deadlocks: buffers that wait for each other in a cycle.

use super::pfc::standing;
use super::{Cell, Lossless, Place};
use crate::topo::{LinkId, Ps, Topology};

/// Period of the deadlock search, in drain times of an input buffer. It applies while a packet is
/// blocked in a network whose buffers form no cycle as built. The search is exact, so the period
/// only determines how soon a deadlock ends the run; a search costs about as much as a hundred
/// hops.
pub(super) const WATCH_DRAINS: u64 = 16;

/// A cycle of full buffers that can never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// When it was found, ps.
    pub at_ps: Ps,
    /// The cycle as links and lanes: each buffer waits for the next, the last for the first.
    pub cycle: Vec<(LinkId, u8)>,
    /// Number of buffers that cannot empty, those upstream of the cycle included.
    pub buffers: usize,
    /// Whether the links of the cycle are paused (priority flow control), not out of credits.
    pub paused: bool,
}

impl Deadlock {
    /// A text that says what happened and what to do, with the names of the links.
    pub fn describe(&self, topo: &Topology) -> String {
        let name = |(link, lane): &(LinkId, u8)| format!("{} lane {lane}", topo.link_name(*link));
        let names: Vec<String> = self.cycle.iter().map(name).collect();
        let advice = if self.paused {
            "All are paused for ever; give routes without cycles, or flow_control = \"drop\""
        } else {
            "Rings need two lanes (network.lanes = 2)"
        };
        format!(
            "deadlock, found at {:.3} us: {} input buffers can never empty, because each of these \
             waits for the next, and the last for the first: {}. {advice}",
            self.at_ps as f64 / 1e6,
            self.buffers,
            names.join(", ")
        )
    }
}

impl Lossless {
    /// Searches for a deadlock. `dead`: whether a link is down; packets queued for it are lost
    /// soon.
    ///
    /// A buffer is *live* if room in it will become free: a credit is returning, a packet is
    /// arriving, its host is stalled, or one of its packets can leave now or waits for a live
    /// buffer. All other buffers are stuck for good.
    pub(super) fn deadlock_find(&self, at_ps: Ps, dead: impl Fn(u32) -> bool) -> Option<Deadlock> {
        if let Some(pfc) = &self.pfc {
            let stuck = standing(self, pfc, &dead);
            let stands = |c: &&Cell| {
                c.waits() && stuck[c.link as usize] && stuck[c.out as usize] && !dead(c.out)
            };
            return self.cycle_of(at_ps, &self.cells.iter().filter(stands).collect::<Vec<_>>());
        }
        let waiting: Vec<&Cell> = self.cells.iter().filter(|c| c.waits()).collect();
        let mut live: Vec<bool> =
            self.buffers.iter().map(|b| b.wire > 0 || b.returning > 0).collect();
        let own = |c: &Cell| self.buffer(c.link, c.lane);
        // Packets held for a stalled host will leave when the host continues.
        for cell in self.cells.iter().filter(|c| c.place == Place::Held) {
            live[own(cell)] = true;
        }
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
        self.cycle_of(at_ps, &blocked)
    }

    /// The cycle among packets each of which waits for room in a buffer that holds another of them.
    fn cycle_of(&self, at_ps: Ps, blocked: &[&Cell]) -> Option<Deadlock> {
        let own = |c: &Cell| self.buffer(c.link, c.lane);
        let ahead = |c: &Cell| self.buffer(c.out, c.out_lane);
        let first = blocked.first()?;
        // Each buffer waits for the next one, so the sequence returns to an earlier buffer.
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
        Some(Deadlock { at_ps, cycle, buffers: stuck.len(), paused: self.pfc.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CreditConfig, Service};
    use super::*;
    use crate::topo::Port;
    use crate::tree::KaryNTree;

    /// Two full buffers, of links 0 and 2, whose packets wait for each other's link.
    fn circle() -> (Lossless, Topology) {
        let port = Port::new(1_000_000_000, 1);
        let topo = KaryNTree::new(2, 2, 1).expect("sound").build(port, port, port);
        let config = CreditConfig { input_bytes: 100, lanes: 1, service: Service::Fcfs };
        let mut ll = Lossless::new(&topo, config).expect("sound");
        for (link, out) in [(0, 2), (2, 0)] {
            packet(&mut ll, link, out, Place::Waiting, 100);
        }
        (ll, topo)
    }

    fn packet(ll: &mut Lossless, link: u32, out: u32, place: Place, bytes: u32) {
        ll.cells.push(Cell { link, out, bytes, place, ..Cell::default() });
        let buffer = &mut ll.buffers[link as usize];
        buffer.held += u64::from(bytes);
        buffer.free = buffer.free.saturating_sub(u64::from(bytes));
    }

    #[test]
    fn a_circle_is_found_and_named() {
        let (mut ll, topo) = circle();
        // Another buffer waits for the cycle but is not part of it.
        packet(&mut ll, 4, 0, Place::Waiting, 100);
        let found = ll.deadlock_find(7_000_000, |_| false).expect("a circle");
        let mut links: Vec<u32> = found.cycle.iter().map(|(l, _)| l.0).collect();
        links.sort_unstable();
        assert_eq!((links, found.buffers), (vec![0, 2], 3));
        let text = found.describe(&topo);
        assert!(text.contains("7.000 us") && text.contains("host0->leaf0 lane 0"), "{text}");
    }

    #[test]
    fn what_can_still_move_is_no_deadlock() {
        let (ll, _) = circle();
        assert_eq!(ll.deadlock_find(0, |l| l == 2), None, "what waits for a dead link is lost");
        let (mut ll, _) = circle();
        ll.buffers[2].returning = 1;
        assert_eq!(ll.deadlock_find(0, |_| false), None, "room comes back");
        // One packet of the cycle's buffers waits for a stalled host, not for the cycle.
        let (mut ll, _) = circle();
        packet(&mut ll, 0, 1, Place::Waiting, 10);
        packet(&mut ll, 1, super::super::NONE, Place::Held, 100);
        assert_eq!(ll.deadlock_find(0, |_| false), None, "the host goes on");
    }
}
