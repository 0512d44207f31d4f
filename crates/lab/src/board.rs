//! The board on which the hosts of a run report the ends of flows.

use srd_fabric::Ps;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The end of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// Index of the flow in the workload.
    pub flow: u32,
    /// Round of the flow.
    pub round: u32,
    /// Time at which its sender polled the last completion.
    pub at: Ps,
}

/// Reports of all hosts of one run, which is single-threaded.
#[derive(Debug, Default)]
pub struct Board {
    /// Number of this part's first flow in the whole workload.
    first: u32,
    reports: Rc<Reports>,
    /// Flows whose arrival is derived from their payload; empty if arrivals are not recorded.
    awaited: RefCell<Vec<Awaited>>,
}

/// Reports to all parts of a board.
#[derive(Debug, Default)]
struct Reports {
    ends: RefCell<Vec<FlowEnd>>,
    arrivals: RefCell<Vec<FlowEnd>>,
    failures: Cell<u64>,
    /// Arrived payload of each flow; empty if progress is not recorded.
    progress: RefCell<Vec<u64>>,
}

/// A flow that runs once in each round.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    bytes: u64,
    left: u64,
    round: u32,
}

/// Shared handle of a run's board.
pub type SharedBoard = Rc<Board>;

impl Board {
    /// A part of this board for hosts that number their flows from 0, of which the first is number
    /// `first` of the whole workload.
    pub fn part(&self, first: u32) -> Self {
        Self { first, reports: Rc::clone(&self.reports), awaited: RefCell::default() }
    }
    /// A report with the flow's number in the whole workload. Flows that are not measured keep
    /// their mark, which is a higher bit.
    const fn whole(&self, end: FlowEnd) -> FlowEnd {
        FlowEnd { flow: end.flow.wrapping_add(self.first), ..end }
    }
    /// Reports the end of a flow.
    pub fn flow_end(&self, end: FlowEnd) {
        self.reports.ends.borrow_mut().push(self.whole(end));
    }
    /// Reports that a receiver has all of a flow.
    pub fn flow_arrived(&self, end: FlowEnd) {
        self.reports.arrivals.borrow_mut().push(self.whole(end));
    }
    /// Derives arrivals of flows of these sizes from the calls of [`Board::payload_arrived`].
    pub fn arrivals_await(&self, bytes: impl Iterator<Item = u64>) {
        let awaited = bytes.map(|bytes| Awaited { bytes, left: bytes, round: 0 });
        self.awaited.borrow_mut().extend(awaited);
    }
    /// Adds arrived payload of a flow, each byte once.
    pub fn payload_arrived(&self, flow: u32, bytes: u32, at: Ps) {
        let mut awaited = self.awaited.borrow_mut();
        let Some(a) = awaited.get_mut(flow as usize) else { return };
        a.left = a.left.saturating_sub(bytes.into());
        if a.left == 0 {
            self.flow_arrived(FlowEnd { flow, round: a.round, at });
            (a.left, a.round) = (a.bytes, a.round + 1);
        }
    }
    /// Starts to record the progress of `flows` flows.
    pub fn progress_begin(&self, flows: usize) {
        self.reports.progress.borrow_mut().resize(flows, 0);
    }
    /// Adds to the progress of a flow.
    pub fn progress_add(&self, flow: u32, bytes: u32) {
        if let Some(sum) = self.reports.progress.borrow_mut().get_mut((flow + self.first) as usize)
        {
            *sum += u64::from(bytes);
        }
    }
    /// Sets the progress of a flow.
    pub fn progress_set(&self, flow: u32, bytes: u64) {
        if let Some(sum) = self.reports.progress.borrow_mut().get_mut((flow + self.first) as usize)
        {
            *sum = bytes.max(*sum);
        }
    }
    /// Arrived payload of a flow in all rounds.
    pub fn progress(&self, flow: usize) -> u64 {
        self.reports.progress.borrow().get(flow).copied().unwrap_or(0)
    }
    /// Reports a request that ended in error.
    pub fn failure(&self) {
        self.reports.failures.set(self.reports.failures.get() + 1);
    }
    /// Number of ended flows.
    pub fn ended(&self) -> usize {
        self.reports.ends.borrow().len()
    }
    /// Ended flows, in order, from the `from`th on.
    pub fn ends_from(&self, from: usize) -> Vec<FlowEnd> {
        self.reports.ends.borrow()[from..].to_vec()
    }
    /// Flows complete at their receivers, in order, from the `from`th on.
    pub fn arrivals_from(&self, from: usize) -> Vec<FlowEnd> {
        self.reports.arrivals.borrow()[from..].to_vec()
    }
    /// Number of requests that ended in error.
    pub fn failures(&self) -> u64 {
        self.reports.failures.get()
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
