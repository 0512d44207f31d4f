//! What lets a sender send.

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

/// The policy of one stream at its sender.
pub(crate) trait Policy: std::fmt::Debug {
    /// Whether a packet may leave, with so many unacknowledged and not lost.
    fn allows(&self, now: Ps, in_flight: u64) -> bool;
    /// A packet leaves.
    fn sent(&mut self, _now: Ps) {}
    /// A packet is answered for the first time: it has arrived.
    fn answered(&mut self, _now: Ps) {}
    /// So many packets are newly acknowledged.
    fn acked(&mut self, _now: Ps, _packets: u64) {}
    /// An acknowledgment told of nothing new. True: that means that the oldest packet is lost.
    fn duplicate(&mut self, _now: Ps) -> bool {
        false
    }
    /// Packets were lost; `rtt_ps` = the latest round trip.
    fn lost(&mut self, _now: Ps, _rtt_ps: Ps) {}
    /// Nothing was heard for long.
    fn timed_out(&mut self) {}
    /// When it may allow what it does not now, by time alone.
    fn wakes_at(&self, _now: Ps) -> Option<Ps> {
        None
    }
    /// Packets sent after one that is not acknowledged which, acknowledged, mean that it is lost;
    /// `None`: receivers say what is lost.
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
