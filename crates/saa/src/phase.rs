//! A communication phase: its flows and their sizes are known when it begins, and it lasts until
//! the last flow has arrived.

use crate::control::ControlCounters;
use srd_fabric::{HostId, Ps};
use std::cell::{Cell, RefCell};

/// One flow of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseFlow {
    /// Sending host.
    pub src: HostId,
    /// Receiving host.
    pub dst: HostId,
    /// Bytes on the wire, including packet headers: the flow's weight.
    pub bytes: u64,
}

/// A flow has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The flow.
    pub flow: u32,
    /// The round.
    pub round: u32,
    /// Arrival of its last byte.
    pub at: Ps,
}

/// Times of a flow's rate changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateTimes {
    /// From its start to its first rate.
    pub first_ps: Option<Ps>,
    /// From its start to the last answer that changed its rate.
    pub last_ps: Option<Ps>,
}

/// State shared by the hosts of a run: the flows, their barrier, and results. (A run is
/// single-threaded.)
#[derive(Debug, Default)]
pub struct Phase {
    flows: Vec<PhaseFlow>,
    arrivals: RefCell<Vec<Arrival>>,
    times: RefCell<Vec<RateTimes>>,
    early: Cell<u64>,
    answers: Cell<u64>,
    most: Cell<u64>,
    control: Cell<ControlCounters>,
}

impl Phase {
    /// A phase of these flows; a flow's number is its index.
    pub fn new(flows: Vec<PhaseFlow>) -> Self {
        let times = RefCell::new(vec![RateTimes::default(); flows.len()]);
        Self { flows, times, ..Self::default() }
    }

    /// The flows.
    pub fn flows(&self) -> &[PhaseFlow] {
        &self.flows
    }

    /// Arrivals in order, starting with the `from`th.
    pub fn arrivals_from(&self, from: usize) -> Vec<Arrival> {
        self.arrivals.borrow()[from..].to_vec()
    }

    /// Number of arrivals so far.
    pub fn arrived_count(&self) -> usize {
        self.arrivals.borrow().len()
    }

    /// The largest W_f told to any flow: W, once all flows have queried after all were announced.
    pub const fn most(&self) -> u64 {
        self.most.get()
    }

    /// Whether this many rounds of all flows have arrived: the barrier.
    pub fn complete(&self, rounds: usize) -> bool {
        self.arrivals.borrow().len() == rounds * self.flows.len()
    }

    /// Rate change times of every flow in its last round.
    pub fn times(&self) -> Vec<RateTimes> {
        self.times.borrow().clone()
    }

    /// Packets that arrived out of order within their flow.
    pub const fn early(&self) -> u64 {
        self.early.get()
    }

    /// Answers sent.
    pub const fn answers(&self) -> u64 {
        self.answers.get()
    }

    /// Counters of control packets of completed flows.
    pub const fn control(&self) -> ControlCounters {
        self.control.get()
    }

    pub(crate) fn arrived(&self, arrival: Arrival) {
        self.arrivals.borrow_mut().push(arrival);
    }

    pub(crate) fn early_add(&self) {
        self.early.set(self.early.get() + 1);
    }

    pub(crate) fn answer_add(&self) {
        self.answers.set(self.answers.get() + 1);
    }

    pub(crate) fn control_add(&self, counters: &ControlCounters) {
        let mut sum = self.control.get();
        sum.add(counters);
        self.control.set(sum);
    }

    pub(crate) fn most_noted(&self, most: u64) {
        self.most.set(self.most.get().max(most));
    }

    pub(crate) fn rate_noted(&self, flow: u32, since_start: Ps, changed: bool) {
        let times = &mut self.times.borrow_mut()[flow as usize];
        times.first_ps.get_or_insert(since_start);
        if changed {
            times.last_ps = Some(since_start);
        }
    }
}
