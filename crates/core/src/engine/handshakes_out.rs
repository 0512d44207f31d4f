//! Queues outgoing handshake packets.

use crate::api::Endpoint;
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::{Ctx, PeerTag};
use crate::outbox::Control;
use crate::tuning::ANSWER_ELSEWHERE;
use srd_wire::Body;

impl<O: Observer> Engine<O> {
    pub(crate) fn control_push(&mut self, dst: Endpoint, dst_tag: PeerTag, body: Body) {
        self.shared.control_push(Control::of_none(dst, dst_tag, body));
    }

    /// Queues a handshake packet of context `ci`, with a transmission number like any other packet
    /// of it.
    pub(crate) fn control_push_of(&mut self, ci: Ctx, body: Body, padded_len: u16) {
        let c = self.contexts.get(ci);
        let elsewhere = c.tx_num_next().0.is_multiple_of(ANSWER_ELSEWHERE);
        let heard = self.paths.get(c.way()).paths.heard();
        let mut control = self.control_of(ci, body, padded_len, heard);
        control.near = control.near.filter(|_| !elsewhere);
        self.shared.control_push(control);
    }

    /// A handshake packet of context `ci`, in answer to what came by the path `near`: that rail
    /// works at least in the other direction.
    pub(crate) fn control_of(&mut self, ci: Ctx, body: Body, padded_len: u16, near: u8) -> Control {
        let c = self.contexts.get_mut(ci);
        let tx_num = c.tx_num_take();
        let (dst, dst_tag, psn) = (c.endpoint(), c.handshake().peer_tag(), c.psn_next());
        debug_assert!(dst_tag != PeerTag::NONE, "a packet of a context carries the peer's tag");
        Control { dst, dst_tag, body, padded_len, tx_num, psn, near: Some(near) }
    }

    /// Queues an Open-Ack that answers an Open, or the Challenge whose number is `cookie`. However
    /// often a peer asks before the answer is sent, it gets one.
    pub(crate) fn open_ack_send(&mut self, ci: Ctx, cookie: u64, padded_len: u16, near: u8) {
        let full = self.shared.out.answers_are_full();
        let handshake = self.contexts.get_mut(ci).handshake_mut();
        if !handshake.answer_waits() {
            if full {
                self.shared.counters.control_dropped += 1;
                return;
            }
            self.shared.out.answer_push(ci);
        }
        handshake.answer(cookie, padded_len, near);
        debug_assert!(handshake.answer_waits(), "its context stands in the queue of answers");
    }
}
