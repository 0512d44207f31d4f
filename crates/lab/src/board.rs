//! What the hosts of one run tell the one who watches: which flows ended, and when.

use srd_fabric::Ps;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The end of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// Which flow of the workload.
    pub flow: u32,
    /// Which round.
    pub round: u32,
    /// When its sender saw the last completion.
    pub at: Ps,
}

/// Shared by all hosts of one run (which is single-threaded).
#[derive(Debug, Default)]
pub struct Board {
    ends: RefCell<Vec<FlowEnd>>,
    arrivals: RefCell<Vec<FlowEnd>>,
    failures: Cell<u64>,
    /// Payload of each flow that has arrived; empty if nobody asks.
    progress: RefCell<Vec<u64>>,
    /// Flows whose arrival is known from their payload alone; empty if nobody asks.
    awaited: RefCell<Vec<Awaited>>,
}

/// A flow that comes once in each round.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    bytes: u64,
    left: u64,
    round: u32,
}

/// Handle on the board of a run.
pub type SharedBoard = Rc<Board>;

impl Board {
    /// A flow has ended.
    pub fn flow_end(&self, end: FlowEnd) {
        self.ends.borrow_mut().push(end);
    }
    /// A flow is complete at its receiver.
    pub fn flow_arrived(&self, end: FlowEnd) {
        self.arrivals.borrow_mut().push(end);
    }
    /// From now on flows of so many bytes arrive with the last byte of
    /// [`Board::payload_arrived`].
    pub fn arrivals_await(&self, bytes: impl Iterator<Item = u64>) {
        let awaited = bytes.map(|bytes| Awaited { bytes, left: bytes, round: 0 });
        self.awaited.borrow_mut().extend(awaited);
    }
    /// More payload of a flow has arrived, each byte once.
    pub fn payload_arrived(&self, flow: u32, bytes: u32, at: Ps) {
        let mut awaited = self.awaited.borrow_mut();
        let Some(a) = awaited.get_mut(flow as usize) else { return };
        a.left = a.left.saturating_sub(bytes.into());
        if a.left == 0 {
            self.flow_arrived(FlowEnd { flow, round: a.round, at });
            (a.left, a.round) = (a.bytes, a.round + 1);
        }
    }
    /// From now on the progress of so many flows is kept.
    pub fn progress_begin(&self, flows: usize) {
        self.progress.borrow_mut().resize(flows, 0);
    }
    /// More payload of a flow has arrived.
    pub fn progress_add(&self, flow: u32, bytes: u32) {
        if let Some(sum) = self.progress.borrow_mut().get_mut(flow as usize) {
            *sum += u64::from(bytes);
        }
    }
    /// So much payload of a flow has arrived by now.
    pub fn progress_set(&self, flow: u32, bytes: u64) {
        if let Some(sum) = self.progress.borrow_mut().get_mut(flow as usize) {
            *sum = bytes.max(*sum);
        }
    }
    /// Payload of a flow that has arrived, all rounds together.
    pub fn progress(&self, flow: usize) -> u64 {
        self.progress.borrow().get(flow).copied().unwrap_or(0)
    }
    /// A request ended in error.
    pub fn failure(&self) {
        self.failures.set(self.failures.get() + 1);
    }
    /// Number of flows ended so far.
    pub fn ended(&self) -> usize {
        self.ends.borrow().len()
    }
    /// Flows ended, in order, from the `from`th on.
    pub fn ends_from(&self, from: usize) -> Vec<FlowEnd> {
        self.ends.borrow()[from..].to_vec()
    }
    /// Flows complete at their receivers, in order, from the `from`th on.
    pub fn arrivals_from(&self, from: usize) -> Vec<FlowEnd> {
        self.arrivals.borrow()[from..].to_vec()
    }
    /// Requests that ended in error.
    pub fn failures(&self) -> u64 {
        self.failures.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_arrives_with_its_last_byte_in_each_round() {
        let board = Board::default();
        board.payload_arrived(0, 5, 1);
        assert!(board.arrivals_from(0).is_empty(), "nobody asked");
        board.arrivals_await([10, 3].into_iter());
        for (flow, bytes, at) in [(0, 6, 1), (1, 3, 2), (0, 4, 3), (1, 3, 4), (7, 1, 5)] {
            board.payload_arrived(flow, bytes, at);
        }
        let seen: Vec<_> = board.arrivals_from(0).iter().map(|a| (a.flow, a.round, a.at)).collect();
        assert_eq!(seen, [(1, 0, 2), (0, 0, 3), (1, 1, 4)]);
    }
}
