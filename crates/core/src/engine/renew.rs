//! How a context that never rests is closed and opened anew, without an end of any request.
//!
//! No request begins until all that have begun have ended; then the context is closed as one that
//! has no work, and what was posted meanwhile is sent in the next one. The Close tells the peer,
//! which does the same. Both give up after a while, because what has begun may wait for a request
//! that has not: of a receive, for example, that the peer posts when it has another message.

use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::{Ctx, OwnTag};
use crate::peer::ContextState;
use crate::time::{Span, Time};

/// Looks for the end of all that has begun in each `open_retry`.
const LOOKS: u64 = 4;
/// For how many times `open_retry` no request begins because the peer wants another context: as
/// long as its five Closes take, each of which waits twice as long as the one before.
const ASKED_RETRIES: u64 = 32;

impl<O: Observer> Engine<O> {
    /// Closes the context with this tag, if it is open, and opens it anew if there is work: the
    /// driver wants another, for example with another key. Requests that have begun end before, and
    /// none begins for `patience` at most; if they have not ended by then, the context goes on, and
    /// the driver may try again. No request ends because of this.
    pub fn context_renew(&mut self, now: Time, tag: u32, patience: Span) {
        let Some(ci) = self.contexts.by_tag(OwnTag(tag)) else { return };
        let c = self.contexts.get(ci);
        if c.state() == ContextState::Open && !c.handshake().is_draining() {
            self.drain_begin(now, ci, now + patience);
        }
    }

    /// The peer asks for another context. Returns whether that is heeded now: once between two ends
    /// of our requests. Otherwise a peer that asks again and again would keep them waiting for
    /// ever, and each of its Closes would cost a look at all of them.
    pub(crate) fn drain_heeds(&mut self, ci: Ctx) -> bool {
        let c = self.contexts.get_mut(ci);
        match c.state() {
            ContextState::Open if c.handshake().is_draining() => false,
            ContextState::Open => c.win_mut().is_none_or(|win| win.outstanding.asked()),
            _ => true,
        }
    }

    /// The peer has asked for another context, and something that has begun is outstanding.
    pub(crate) fn drain_asked(&mut self, now: Time, ci: Ctx) {
        let patience = self.shared.cfg.loss.open_retry.scale(ASKED_RETRIES, 1);
        self.drain_begin(now, ci, now + patience);
    }

    fn drain_begin(&mut self, now: Time, ci: Ctx, until: Time) {
        self.contexts.get_mut(ci).handshake_mut().drain_begin(until);
        self.drain_step(now, ci);
    }

    /// Closes a context of which nothing that has begun is outstanding; otherwise looks again
    /// later, or gives up.
    pub(crate) fn drain_step(&mut self, now: Time, ci: Ctx) {
        if self.nothing_begun(ci) {
            return self.close_begin(now, ci);
        }
        let next = now + self.shared.cfg.loss.open_retry.scale(1, LOOKS);
        let handshake = self.contexts.get_mut(ci).handshake_mut();
        if handshake.drain_wait(now, next) {
            handshake.drain_end();
            handshake.timer_off();
            self.shared.out.ready_push(ci);
        }
        self.shared.out.rearm_push(ci);
    }

    /// Whether no request of either side that has begun is outstanding, as far as we know, and the
    /// peer lacks nothing that belongs to one.
    pub(crate) fn nothing_begun(&self, ci: Ctx) -> bool {
        let Some(win) = self.contexts.get(ci).win() else { return true };
        if planted!(DrainForgets) {
            return true;
        }
        win.board.is_empty()
            && win.jobs.is_empty()
            && win.queues.sent_is_empty()
            && win.live.iter(&self.objects.wrs).all(|(_, w)| !w.started)
    }
}
