//! Deadlines of a host's connections, in front of its only timer.

use srd_fabric::{HostIo, Ps};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Position of a deadline's kind above the connection's number.
const KIND_SHIFT: u32 = 29;
/// Largest number of a connection.
pub(crate) const INDEX_MAX: u32 = (1 << KIND_SHIFT) - 1;

/// Deadlines by kind and connection. Of each only the one in `queued` is valid; others are stale.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<(Ps, u32)>>,
    queued: Vec<Vec<Ps>>,
}

impl Deadlines {
    /// Makes sure that a deadline at or before `at` is queued; [`Ps::MAX`] = none is needed.
    pub fn arm<P>(&mut self, kind: u32, index: u32, at: Ps, io: &mut HostIo<'_, P>) {
        if at == Ps::MAX {
            return;
        }
        let (kind_at, at_index) = (kind as usize, index as usize);
        if self.queued.len() <= kind_at {
            self.queued.resize(kind_at + 1, Vec::new());
        }
        let queued = &mut self.queued[kind_at];
        if queued.len() <= at_index {
            queued.resize(at_index + 1, Ps::MAX);
        }
        if at < queued[at_index] {
            queued[at_index] = at;
            self.heap.push(Reverse((at, kind << KIND_SHIFT | index)));
            io.timer_set_earlier(at);
        }
    }

    /// The next deadline that is due: its kind and connection. If none is, sets the timer for the
    /// next one.
    pub fn due<P>(&mut self, now: Ps, io: &mut HostIo<'_, P>) -> Option<(u32, u32)> {
        while let Some(Reverse((at, what))) = self.heap.peek().copied() {
            if at > now {
                io.timer_set(at);
                return None;
            }
            self.heap.pop();
            let (kind, index) = (what >> KIND_SHIFT, what & INDEX_MAX);
            let queued = &mut self.queued[kind as usize][index as usize];
            if *queued == at {
                *queued = Ps::MAX;
                return Some((kind, index));
            }
        }
        None
    }
}
