//! Handshake packets on their way out.

use crate::api::Endpoint;
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::Ctx;
use crate::outbox::Control;
use crate::peer::Answer;
use srd_wire::Body;

impl<O: Observer> Engine<O> {
    pub(crate) fn control_push(&mut self, dst: Endpoint, dst_tag: u32, body: Body) {
        self.shared.control_push(Control { dst, dst_tag, body, padded_len: 0, tx_num: 0, psn: 0 });
    }

    /// A handshake packet of context `ci`: it takes a transmission number like any other.
    pub(crate) fn control_push_of(&mut self, ci: Ctx, body: Body, padded_len: u16) {
        let control = self.control_of(ci, body, padded_len);
        self.shared.control_push(control);
    }

    pub(crate) fn control_of(&mut self, ci: Ctx, body: Body, padded_len: u16) -> Control {
        let c = self.contexts.get_mut(ci);
        let tx_num = c.tx_num_take();
        let (dst, dst_tag, psn) = (c.endpoint, c.peer_tag, c.psn_next());
        Control { dst, dst_tag, body, padded_len, tx_num, psn }
    }

    /// Answers an Open, or the Challenge whose number is `cookie`. However often a peer asks before
    /// the answer can leave, it is one.
    pub(crate) fn open_ack_send(&mut self, ci: Ctx, cookie: u64, padded_len: u16) {
        let full = self.shared.out.answers_are_full();
        let answer = &mut self.contexts.get_mut(ci).answer;
        if full && !answer.waits {
            self.shared.counters.control_dropped += 1;
            return;
        }
        if !answer.waits {
            self.shared.out.answer_push(ci);
        }
        // Of a full Open and a smaller one beside it, the full one is answered: without padding.
        let full = answer.waits && padded_len.min(answer.padded_len) == 0;
        let padded_len = if full { 0 } else { padded_len.max(answer.padded_len) };
        *answer = Answer { waits: true, padded_len, cookie };
    }
}
