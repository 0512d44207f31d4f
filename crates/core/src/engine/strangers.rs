//! Answers to strangers, the senders of packets that belong to no context. They are sent after all
//! other packets, and their number is limited.

use crate::api::Endpoint;
use crate::engine::Engine;
use crate::engine::cookie::Claim;
use crate::events::Observer;
use crate::fair_bucket::FairBucket;
use crate::hash::Keyed;
use crate::ids::{OwnTag, PeerTag};
use crate::limits::{
    STRANGER_RESET_EVERY, STRANGER_RESETS_MAX, STRANGERS_MIXED_EVERY, STRANGERS_QUEUE_MAX,
};
use crate::networks::Prefix;
use crate::outbox::Control;
use crate::time::Time;
use core::net::{IpAddr, Ipv4Addr};
use srd_wire::{Body, CloseCode, Header, PacketType};
use std::collections::VecDeque;

/// Whom the Resets are shared among: an IPv4 address, or an IPv6 /64, which often belongs to one
/// host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Claimant {
    V4(Ipv4Addr),
    V6(Prefix),
}

impl Claimant {
    fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip),
            ip @ IpAddr::V6(_) => Self::V6(Prefix::of(ip)),
        }
    }
}

/// Answers to strangers that wait to be sent.
#[derive(Debug)]
pub(crate) struct Strangers {
    pub queue: VecDeque<Control>,
    /// Shared fairly among addresses.
    resets: FairBucket,
}

impl Strangers {
    pub fn new(now: Time, keyed: Keyed) -> Self {
        let (most, every) = (STRANGER_RESETS_MAX, STRANGER_RESET_EVERY);
        let resets = FairBucket::new(now, most, every, STRANGERS_MIXED_EVERY, keyed);
        Self { queue: VecDeque::new(), resets }
    }

    /// Whether no answer waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl<O: Observer> Engine<O> {
    /// Answers a packet for an unknown context with a Reset, because its sender talks to an engine
    /// that has lost the context. A packet that itself ends a context is not answered.
    pub(crate) fn stranger(&mut self, now: Time, from: Endpoint, h: &Header, body: &Body) {
        if h.kind == PacketType::CloseAck || h.dst_tag == 0 {
            return;
        }
        debug_assert!(
            self.gone || self.contexts.by_tag(OwnTag(h.dst_tag)).is_none(),
            "who is known is no stranger"
        );
        let code = if self.gone { CloseCode::GoingAway } else { CloseCode::UnknownTag };
        // The Reset to a Challenge repeats its number, which only the receiver of the Challenge
        // knows.
        let nonce = if let Body::Challenge { cookie, .. } = *body { cookie } else { 0 };
        let reset = Body::Reset { echo_tag: h.dst_tag, code, nonce };
        self.stranger_refuse(now, from, PeerTag::NONE, reset, Some(h.path));
    }

    /// Sends a Reset to a stranger, unless the rate limit of Resets is reached. One address cannot
    /// use it up.
    pub(crate) fn stranger_refuse(
        &mut self,
        now: Time,
        to: Endpoint,
        dst_tag: PeerTag,
        reset: Body,
        near: Option<u8>,
    ) {
        debug_assert!(matches!(reset, Body::Reset { .. }), "a refusal: {reset:?}");
        let who = Claimant::of(to.ip);
        if !self.strangers.resets.has_for(now, who) {
            self.shared.counters.control_dropped += 1;
            return;
        }
        if self.stranger_tell(to, dst_tag, reset, near) {
            self.strangers.resets.take(now, who);
            self.shared.counters.resets_sent += 1;
        }
    }

    /// Answers a sealed packet for whose tag the driver has no key and the engine no context. Its
    /// sender is told so, because it may talk to an engine that has restarted.
    pub fn sealed_stranger(&mut self, now: Time, from: Endpoint, tag: u32) {
        if tag == 0 || self.has_context(tag) {
            return;
        }
        let code = if self.gone { CloseCode::GoingAway } else { CloseCode::UnknownTag };
        let reset = Body::Reset { echo_tag: tag, code, nonce: 0 };
        self.stranger_refuse(now, from, PeerTag::NONE, reset, None);
    }

    /// Answers the Open or SealedOpen of a peer, which asked for the tag `tag`, that its manner of
    /// sealing does not suit this device.
    pub fn seal_refuse(&mut self, now: Time, from: Endpoint, tag: u32, code: CloseCode) {
        self.open_refuse(now, from, PeerTag(tag), code, None);
    }

    /// Whether a context has this tag.
    pub fn has_context(&self, tag: u32) -> bool {
        self.contexts.by_tag(OwnTag(tag)).is_some()
    }

    /// Sends a Challenge to a stranger: it must prove that it receives at the address from which it
    /// opens.
    pub(crate) fn challenge(&mut self, now: Time, claim: &Claim, path: u8) {
        let cookie = self.cookies.make(now, claim);
        let body = Body::Challenge { echo_tag: claim.tag.0, cookie };
        if self.stranger_tell(claim.who, claim.tag, body, Some(path)) {
            self.shared.counters.challenges_sent += 1;
        }
    }

    /// Queues an answer to a packet that came by the path `near`, if that is known.
    fn stranger_tell(
        &mut self,
        dst: Endpoint,
        dst_tag: PeerTag,
        body: Body,
        near: Option<u8>,
    ) -> bool {
        let queue = &mut self.strangers.queue;
        if queue.len() >= STRANGERS_QUEUE_MAX {
            self.shared.counters.control_dropped += 1;
            return false;
        }
        queue.push_back(Control { near, ..Control::of_none(dst, dst_tag, body) });
        debug_assert!(queue.len() <= STRANGERS_QUEUE_MAX, "a bounded queue");
        true
    }
}
