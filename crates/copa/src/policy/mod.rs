//! Policies that bound a sender's packets in flight.

mod aimd;
mod dup_ack;
mod stream;
mod window;

use crate::config::{CopaConfig, Policy as PolicyKind, Reaction};
use srd_fabric::Ps;

pub(crate) use aimd::Aimd;
pub(crate) use dup_ack::{Clocked, StopGo};
pub(crate) use stream::Streaming;
pub(crate) use window::Window;

/// The policy of one stream's sender.
pub(crate) trait Policy: std::fmt::Debug {
    /// Whether a packet may leave; `in_flight` = packets unacknowledged and not lost.
    fn allows(&self, now: Ps, in_flight: u64) -> bool;
    /// A packet is transmitted.
    fn sent(&mut self, _now: Ps) {}
    /// A packet is answered for the first time, so it has arrived.
    fn answered(&mut self, _now: Ps) {}
    /// `packets` packets are newly acknowledged.
    fn acked(&mut self, _now: Ps, _packets: u64) {}
    /// A duplicate acknowledgment. Returns true if it means that the oldest packet is lost.
    fn duplicate(&mut self, _now: Ps) -> bool {
        false
    }
    /// Packets were lost; `rtt_ps` = the latest RTT sample.
    fn lost(&mut self, _now: Ps, _rtt_ps: Ps) {}
    /// The timeout expired.
    fn timed_out(&mut self) {}
    /// When time alone will permit a packet that is not permitted now.
    fn wakes_at(&self, _now: Ps) -> Option<Ps> {
        None
    }
    /// Reordering threshold: a packet is lost once this many later transmissions are acknowledged;
    /// `None`: receivers report losses with NACKs.
    fn reordering(&self) -> Option<u64> {
        None
    }
}

/// The policy of a new stream.
pub(crate) fn policy_of(config: &CopaConfig) -> Box<dyn Policy> {
    match (config.policy, config.reaction) {
        (PolicyKind::Stream, _) => Box::new(Streaming),
        (PolicyKind::Window(packets), _) => Box::new(Window::new(packets)),
        (PolicyKind::Aimd, _) => Box::new(Aimd::new()),
        (PolicyKind::DupAck(_), Reaction::StopGo) => Box::new(StopGo::new(config.rtt_ps, true)),
        (PolicyKind::DupAck(_), Reaction::StopGoAtOnce) => {
            Box::new(StopGo::new(config.rtt_ps, false))
        }
        (PolicyKind::DupAck(_), Reaction::Clocked) => Box::new(Clocked::new(config.rtt_ps)),
    }
}
