//! Whether a peer still has its end of an open context: asked of the peer itself.
//!
//! A Reset only says that somebody knows a tag, and many refused transmission numbers in a row only
//! that one side has them wrong, so neither changes anything by itself. Each is a reason to doubt,
//! and a doubt is a Challenge with a fresh secret number, sent within the context until it is
//! answered. Who has the context answers with an Open-Ack, who has not with a Reset; either is
//! believed only with that number.

use crate::api::{Endpoint, Rx};
use crate::counters::DropReason;
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::{Ctx, OwnTag, PeerTag};
use crate::limits::GOODBYE_CHALLENGES;
use crate::peer::ContextState;
use crate::peer::doubt::{Doubt, Outcome};
use crate::psn::TxNum;
use crate::random::Random;
use crate::time::Time;
use srd_wire::{Body, CloseCode, Header, OpenParams};

impl<O: Observer> Engine<O> {
    pub(crate) fn reset_received(
        &mut self,
        now: Time,
        from: Endpoint,
        h: &Header,
        echo_tag: PeerTag,
        code: CloseCode,
        nonce: u64,
    ) -> Result<Rx, DropReason> {
        let Some(ci) = self.contexts.by_endpoint(&from) else { return Err(DropReason::UnknownTag) };
        let c = self.contexts.get(ci);
        // An answer to our Open knows our tag only; every other reset must show the peer's.
        let refusal = matches!(code, CloseCode::NoRoom | CloseCode::BadParams);
        if refusal && c.state() == ContextState::Opening && !c.handshake.knows_peer() {
            // Not believed at once: anybody could say it. The Open goes on until its time is over.
            return Ok(Rx::Done);
        }
        if planted!(ResetUnproven) {
            self.peer_lost(now, ci);
            return Ok(Rx::Done);
        }
        if echo_tag == PeerTag::NONE || echo_tag != c.handshake.peer_tag() {
            return Err(DropReason::BadHandshake);
        }
        self.shared.counters.resets_received += 1;
        match c.state() {
            ContextState::Opening => {
                // The peer has forgotten its part. Nothing of ours has left yet: the Open goes on.
                self.contexts.get_mut(ci).disown();
                self.context_retag(ci);
            }
            // Nothing of either side rests on it, and it goes by itself. Until then each other Open
            // of that address is asked for a proof against it: were it to go now, the next forged
            // Open could take its place before the peer's own has brought its proof.
            ContextState::HalfOpen => {}
            _ if self.doubt_nonce(ci) == Some(nonce) => self.peer_lost(now, ci),
            _ => {
                let own = OwnTag(h.dst_tag) == c.handshake.local_tag();
                let goodbye = code == CloseCode::GoingAway && own;
                self.doubt_begin(now, ci, goodbye)?;
            }
        }
        Ok(Rx::Done)
    }

    /// The number that only the peer of `ci` can know, while it is doubted.
    fn doubt_nonce(&self, ci: Ctx) -> Option<u64> {
        self.contexts.get(ci).win()?.doubt().map(Doubt::nonce)
    }

    /// Asks the peer whether it still has the context, if it was not asked a moment ago. A peer
    /// that has taken leave is given less time to contradict.
    pub(crate) fn doubt_begin(
        &mut self,
        now: Time,
        ci: Ctx,
        goodbye: bool,
    ) -> Result<(), DropReason> {
        self.context_activate(ci);
        let retry = self.shared.cfg.loss.open_retry;
        let last_word = now + retry.scale((1 << GOODBYE_CHALLENGES) - 1, 1);
        let silent = now + self.shared.cfg.loss.unresponsive_after;
        let a = self.contexts.get_mut(ci).act();
        if let Some(d) = a.doubt_mut() {
            if goodbye && d.hear_goodbye(last_word) {
                self.shared.out.rearm_push(ci);
            }
            return Ok(());
        }
        if !a.may_doubt(now) {
            return Err(DropReason::BadHandshake);
        }
        let nonce = self.secrets.or(&mut self.shared.rng).next_u64().max(1);
        let a = self.contexts.get_mut(ci).act();
        debug_assert!(nonce != 0, "0 answers an Open");
        let ends = if goodbye { silent.min(last_word) } else { silent };
        a.doubt_begin(now, nonce, ends, goodbye);
        self.shared.counters.doubts += 1;
        debug_assert_eq!(self.doubt_nonce(ci), Some(nonce), "its number is the one that counts");
        self.doubt_ask(now, ci);
        Ok(())
    }

    /// Sends a Challenge (again).
    fn doubt_ask(&mut self, now: Time, ci: Ctx) {
        let retry = self.shared.cfg.loss.open_retry;
        let most = self.shared.cfg.loss.rto_max.max(retry);
        let c = self.contexts.get_mut(ci);
        let echo_tag = c.handshake.peer_tag().0;
        debug_assert!(c.handshake.knows_peer(), "who is doubted is known");
        let Some(d) = c.act().doubt_mut() else { return };
        let cookie = d.ask(now, retry, most);
        self.shared.counters.challenges_sent += 1;
        self.control_push_of(ci, Body::Challenge { echo_tag, cookie }, 0);
        self.shared.out.rearm_push(ci);
    }

    /// The timer of the doubt fired.
    pub(crate) fn doubt_fire(&mut self, now: Time, ci: Ctx) {
        let seen = self.shared.seen(now);
        let unresponsive_after = self.shared.cfg.loss.unresponsive_after;
        let c = self.contexts.get_mut(ci);
        let (heard, works) = (c.last_heard(), c.outstanding() > 0);
        let Some(d) = c.win_mut().and_then(|a| a.doubt_mut()) else { return };
        match d.judge(now, seen, heard, unresponsive_after) {
            Outcome::Open | Outcome::TooEarly => {}
            Outcome::AskAgain => self.doubt_ask(now, ci),
            Outcome::Left => self.peer_lost(now, ci),
            Outcome::Silent if !works => self.peer_forget(now, ci),
            // The silence ends the work by itself.
            Outcome::Alive | Outcome::Silent => self.doubt_end(now, ci),
        }
    }

    fn doubt_end(&mut self, now: Time, ci: Ctx) {
        self.contexts.get_mut(ci).act().doubt_end(now);
        self.shared.out.rearm_push(ci);
    }

    /// An answer to a Challenge within a context: the peer has it. What it counts is right.
    pub(crate) fn doubt_refuted(
        &mut self,
        now: Time,
        ci: Ctx,
        p: &OpenParams,
    ) -> Result<Rx, DropReason> {
        let doubt = self.contexts.get(ci).win().and_then(|a| a.doubt());
        let asked = doubt.filter(|d| d.nonce() == p.cookie).map(Doubt::newest);
        let Some(asked) = asked else {
            return Err(DropReason::BadHandshake);
        };
        self.shared.counters.doubts_refuted += 1;
        let c = self.contexts.get_mut(ci);
        debug_assert!(c.handshake.is_with(PeerTag(p.tag), p.incarnation), "the peer has answered");
        c.heard(now);
        c.act().replay.correct(TxNum(p.tx_num_start).prev(), asked);
        self.doubt_end(now, ci);
        Ok(Rx::Done)
    }

    /// A Challenge within a context: its sender doubts that we have it.
    pub(crate) fn doubted(
        &mut self,
        ci: Ctx,
        echo_tag: OwnTag,
        nonce: u64,
    ) -> Result<Rx, DropReason> {
        let c = self.contexts.get(ci);
        if echo_tag != c.handshake.local_tag() || !c.handshake.knows_peer() || nonce == 0 {
            return Err(DropReason::BadHandshake);
        }
        self.open_ack_send(ci, nonce, 0);
        Ok(Rx::Done)
    }

    /// The peer has lost the context, and has proved it.
    fn peer_lost(&mut self, now: Time, ci: Ctx) {
        if self.contexts.get(ci).state() == ContextState::Closing {
            self.closed(now, ci);
        } else {
            self.context_abort(now, ci);
        }
    }
}
