//! A lane: the mutable borrow of everything that concerns one peer.
//!
//! To handle a packet of a peer, or to let a peer send, the engine borrows the peer, its window
//! state, the paths to its address, and the state that all peers share. That borrow is a [`Lane`],
//! and all work for the one peer is a method of it: sending in `tx/`, receiving in `rx/`, and what
//! both need here. A method of a lane cannot reach another peer; work that concerns several peers
//! is in `engine/`.

mod ack;
mod cancel;
mod flows;
mod host;
mod jobs;
mod requests;
mod shared;
mod way;

pub(crate) use cancel::Ending;
pub(crate) use jobs::place_leave;
pub(crate) use shared::Shared;

use crate::config::HostPolicy;
use crate::events::Observer;
use crate::ids::Ctx;
use crate::objects::Objects;
use crate::path::table::PathEntry;
use crate::peer::{Peer, Window};
use crate::psn::TxNum;
use crate::time::{Span, Time};
use srd_wire::Features;

/// How a packet arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Time for which the packet waited in our socket.
    pub waited: Span,
    /// One-way delay of the packet above the minimum of the last seconds
    /// ([`Inbound`](crate::peer::inbound::Inbound)).
    pub back: Span,
    /// Transmission number of the packet.
    pub tx_num: TxNum,
}

/// One peer with all state that its packets and its turns to send need.
pub(crate) struct Lane<'a, O: Observer> {
    pub now: Time,
    /// Number of the context.
    pub ci: Ctx,
    pub peer: &'a mut Peer,
    /// Window state of the context.
    pub win: &'a mut Window,
    /// The paths to the peer's address, which other contexts may share.
    pub way: &'a mut PathEntry,
    pub objects: &'a mut Objects,
    pub shared: &'a mut Shared<O>,
}

impl<O: Observer> Lane<'_, O> {
    /// Queues the context for a turn to send.
    #[inline]
    pub fn ready_push(&mut self) {
        self.shared.out.ready_push(self.ci);
    }

    /// Queues the context for a turn after an acknowledgment, unless the turn would change nothing:
    /// there is nothing to send, no wait for the pacer to leave, and none for credits to end.
    #[inline]
    pub fn ready_push_useful(&mut self) {
        let waits = self.win.credit_waits() || self.way.waits.paced_first() == Some(self.ci);
        if waits || self.win.has_to_send() {
            self.ready_push();
        }
    }

    /// Queues the context for an update of its timer, which happens before the next look at the
    /// timers.
    #[inline]
    pub fn rearm_push(&mut self) {
        self.shared.out.rearm_push(self.ci);
    }

    /// The time up to which everything that arrived has been handled.
    pub fn seen(&self) -> Time {
        self.shared.seen(self.now)
    }

    /// Whether both ends use the signal that a host falls behind.
    pub fn signalling(&self) -> bool {
        self.shared.cfg.rate.host_policy != HostPolicy::Off
            && self.peer.limits().features.has(Features::HOST_SIGNAL)
    }

    /// Whether both ends use credits.
    pub fn granting(&self) -> bool {
        self.peer.grants(&self.shared.cfg)
    }
}
