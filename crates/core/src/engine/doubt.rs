//! The question whether a peer still has its end of an open context.
//!
//! A Reset only shows that its sender knows a tag, and many refused transmission numbers in a row
//! only that one side has a wrong count, so neither changes any state by itself. Each is a reason
//! to doubt that the peer has the context, and the peer is asked: a Challenge with a new secret
//! number is sent in the context until it is answered. A peer that has the context answers with an
//! Open-Ack, one that does not with a Reset; either is believed only with that number.

use crate::api::{AsyncEvent, Endpoint, Rx};
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
use srd_wire::{Body, CloseCode, Flags, Header, OpenParams};

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
        // A Reset that answers our Open knows only our tag; every other Reset must carry the peer's
        // tag.
        let refusal = !matches!(code, CloseCode::UnknownTag | CloseCode::GoingAway);
        if refusal && c.state() == ContextState::Opening && !c.handshake().knows_peer() {
            // A refusal is not believed, because anybody could send it. The Open is repeated until
            // its time is over.
            if OwnTag(h.dst_tag) == c.handshake().local_tag() {
                self.refusal_tell(ci, code);
            }
            return Ok(Rx::Done);
        }
        // In a sealed context only a sealed Reset proves anything; any other asks at most.
        let proves = h.flags.has(Flags::SEALED) || !c.limits().sealed;
        if planted!(ResetUnproven) {
            self.peer_lost(now, ci);
            return Ok(Rx::Done);
        }
        if echo_tag == PeerTag::NONE || echo_tag != c.handshake().peer_tag() {
            return Err(DropReason::BadHandshake);
        }
        self.shared.counters.resets_received += 1;
        match c.state() {
            ContextState::Opening if !proves => {}
            ContextState::Opening => {
                // The peer has forgotten its part. No data was sent yet, so the Open is repeated.
                self.contexts.get_mut(ci).disown();
                self.context_retag(ci);
            }
            // A half-open context has no work and ends by itself. Until then any other Open of that
            // address must be proven against it. If it ended now, the next forged Open could take
            // its place before the peer has proven its own.
            ContextState::HalfOpen => {}
            _ if proves && self.doubt_nonce(ci) == Some(nonce) => self.peer_lost(now, ci),
            _ => {
                let own = OwnTag(h.dst_tag) == c.handshake().local_tag();
                let goodbye = proves && code == CloseCode::GoingAway && own;
                self.doubt_begin(now, ci, goodbye)?;
            }
        }
        Ok(Rx::Done)
    }

    /// Tells the user once per context that the peer demands a seal, or cannot have one with us:
    /// without a change to a configuration, requests to it will end with status 15.
    fn refusal_tell(&mut self, ci: Ctx, code: CloseCode) {
        let seal = matches!(
            code,
            CloseCode::SealRequired | CloseCode::SealUnknown | CloseCode::KeyUnknown
        );
        let c = self.contexts.get_mut(ci);
        if seal && c.handshake_mut().refusal_tell() {
            let peer = c.endpoint();
            self.shared.event_push(AsyncEvent::SealRefused(peer, code));
        }
    }

    /// The secret number of the open question to the peer of `ci`, if there is one.
    fn doubt_nonce(&self, ci: Ctx) -> Option<u64> {
        self.contexts.get(ci).win()?.doubt().map(Doubt::nonce)
    }

    /// Asks the peer whether it still has the context, unless it was asked recently. A peer that
    /// has announced its shutdown (`goodbye`) has less time to contradict.
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

    /// Sends the Challenge of the open question (again).
    fn doubt_ask(&mut self, now: Time, ci: Ctx) {
        let retry = self.shared.cfg.loss.open_retry;
        let most = self.shared.cfg.loss.rto_max.max(retry);
        let c = self.contexts.get_mut(ci);
        let echo_tag = c.handshake().peer_tag().0;
        debug_assert!(c.handshake().knows_peer(), "who is doubted is known");
        let Some(d) = c.act().doubt_mut() else { return };
        let cookie = d.ask(now, retry, most);
        self.shared.counters.challenges_sent += 1;
        self.control_push_of(ci, Body::Challenge { echo_tag, cookie }, 0);
        self.shared.out.rearm_push(ci);
    }

    /// Handles the timer of the open question.
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
            // The timeout for a silent peer ends its work.
            Outcome::Alive | Outcome::Silent => self.doubt_end(now, ci),
        }
    }

    fn doubt_end(&mut self, now: Time, ci: Ctx) {
        let c = self.contexts.get_mut(ci);
        c.act().doubt_end(now);
        if c.handshake_mut().proven() {
            self.shared.out.ready_push(ci);
        }
        self.shared.out.rearm_push(ci);
    }

    /// Handles an Open-Ack that answers our Challenge in a context: the peer has the context, and
    /// its transmission number is taken as the correct one.
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
        debug_assert!(
            c.handshake().is_with(PeerTag(p.tag), p.incarnation),
            "the peer has answered"
        );
        c.heard(now);
        c.act().replay.correct(TxNum(p.tx_num_start).prev(), asked);
        self.doubt_end(now, ci);
        Ok(Rx::Done)
    }

    /// Answers a Challenge in a context, whose sender asks whether we still have the context.
    pub(crate) fn doubted(
        &mut self,
        ci: Ctx,
        echo_tag: OwnTag,
        nonce: u64,
    ) -> Result<Rx, DropReason> {
        let c = self.contexts.get(ci);
        if echo_tag != c.handshake().local_tag() || !c.handshake().knows_peer() || nonce == 0 {
            return Err(DropReason::BadHandshake);
        }
        let near = self.paths.get(self.contexts.get(ci).way()).paths.heard();
        self.open_ack_send(ci, nonce, 0, near);
        Ok(Rx::Done)
    }

    /// Ends a context that the peer has provably lost.
    fn peer_lost(&mut self, now: Time, ci: Ctx) {
        if self.contexts.get(ci).state() == ContextState::Closing {
            self.closed(now, ci);
        } else {
            self.context_lost(now, ci);
        }
    }

    /// Ends an open context that the peer has lost. Work of which nothing was sent, because the
    /// context waits for something, is sent in the next one; other work ends with status 8.
    pub(crate) fn context_lost(&mut self, now: Time, ci: Ctx) {
        let held = self.contexts.get(ci).handshake().is_held();
        if !held || !self.nothing_begun(ci) {
            return self.context_abort(now, ci);
        }
        if let Some(from) = self.contexts.get_mut(ci).handshake_mut().close_begin(now) {
            self.context_event(now, ci, from);
        }
        self.closed(now, ci);
    }

    /// Asks the peer whether it has the context that it has just accepted, and lets no request
    /// begin before it has answered.
    ///
    /// A peer whose driver has another key drops a sealed context that it has accepted and that
    /// nobody has used for `open_retry` of [`LossConfig`](crate::config::LossConfig), and opens
    /// another. An answer as old as that comes to somebody who has repeated his Open. Without this
    /// question requests would end as if the peer had restarted.
    pub(crate) fn accepted_late(&mut self, now: Time, ci: Ctx) {
        if self.doubt_begin(now, ci, false).is_ok() {
            self.contexts.get_mut(ci).handshake_mut().unproven();
        }
    }
}
