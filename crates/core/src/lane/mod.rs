//! One peer, borrowed once.
//!
//! For a packet in, or for the turn of a peer that sends, the engine borrows the peer, its window
//! state and the paths to its address, and what all peers share. That is a [`Lane`]. Whatever is
//! done about this one peer is a method of it: in `tx/` what sends, in `rx/` what receives, and
//! here what both need. A method of a lane cannot reach another peer; what concerns several is in
//! `engine/`.

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

/// How a packet came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// How long it waited in our socket.
    pub waited: Span,
    /// How much longer than the quickest of the last seconds it was on its way.
    pub back: Span,
    /// Its transmission number.
    pub tx_num: TxNum,
}

/// See the module.
pub(crate) struct Lane<'a, O: Observer> {
    pub now: Time,
    /// Number of the context.
    pub ci: Ctx,
    pub peer: &'a mut Peer,
    /// Its window state.
    pub win: &'a mut Window,
    /// The paths to its address, which it may share with other contexts.
    pub way: &'a mut PathEntry,
    pub objects: &'a mut Objects,
    pub shared: &'a mut Shared<O>,
}

impl<O: Observer> Lane<'_, O> {
    /// It has something to send: it gets a turn.
    #[inline]
    pub fn ready_push(&mut self) {
        self.shared.out.ready_push(self.ci);
    }

    /// Its timer is set anew before anybody asks for it.
    #[inline]
    pub fn rearm_push(&mut self) {
        self.shared.out.rearm_push(self.ci);
    }

    /// The time up to which everything that arrived has been handled.
    pub fn seen(&self) -> Time {
        self.shared.seen(self.now)
    }

    /// Whether both ends tell and understand that a host falls behind.
    pub fn signalling(&self) -> bool {
        self.shared.cfg.rate.host_policy != HostPolicy::Off
            && self.peer.limits().features.has(Features::HOST_SIGNAL)
    }

    /// Whether both ends grant and obey credits.
    pub fn granting(&self) -> bool {
        self.peer.grants(&self.shared.cfg)
    }
}
