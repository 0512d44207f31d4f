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
