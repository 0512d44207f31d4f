//! How contexts end: by mutual close, by Reset, or because the peer is silent; and how their
//! outstanding work ends.

use crate::api::{AsyncEvent, Endpoint, Rx, Status};
use crate::counters::DropReason;
use crate::engine::Engine;
use crate::events::{Event, Observer};
use crate::ids::{Ctx, OwnTag, PeerTag};
use crate::limits::FORGET_STEPS;
use crate::networks::Prefix;
use crate::peer::ContextState;
use crate::psn::Psn;
use crate::random::Random;
use crate::time::{Span, Time};
use crate::timer::TimerOf;
use core::net::IpAddr;
use srd_wire::Body;

/// Closes sent without an agreement before the context stays open, or ends if the peer is silent.
const CLOSE_ROUNDS: u8 = 5;
/// Silence after which no packet of the peer is likely to be under way: many round trips of the
/// networks that this is made for, and as short as the pauses of programs that compute in between.
const CLOSE_QUIET: Span = Span::from_ms(20);
/// Contexts examined for eviction whenever a context is created.
const EVICT_SCAN: u32 = 8;

impl<O: Observer> Engine<O> {
    /// Asks idle contexts to close, a few at a time, once three quarters of the table are in use,
    /// or three quarters of the contexts that the network of `ip` may have (then only contexts of
    /// that network).
    pub(crate) fn contexts_evict(&mut self, now: Time, ip: IpAddr) {
        let crowded = self.contexts.is_nearly_full();
        if !crowded && !self.contexts.origins.is_nearly_full(ip, &self.shared.cfg) {
            return;
        }
        for _ in 0..EVICT_SCAN.min(self.contexts.slots()) {
            self.evict_hand = (self.evict_hand + 1) % self.contexts.slots();
            let ci = Ctx(self.evict_hand);
            let Some(c) = self.contexts.find(ci) else { continue };
            if c.state() != ContextState::Open || c.outstanding() > 0 {
                continue;
            }
            if !crowded && Prefix::of(c.endpoint().ip) != Prefix::of(ip) {
                continue;
            }
            match c.win() {
                None => self.close_begin(now, ci),
                // A silent peer does not answer a Close. If it returns, a Reset ends its work.
                Some(a) if a.loss.is_stalled() => self.context_end(now, ci),
                Some(_) => {}
            }
        }
    }

    /// Closes the context with this tag if it is open, has no work, and rests
    /// ([`EngineConfig::idle_after`](crate::EngineConfig::idle_after)) or has heard nothing for
    /// 20 ms: the driver wants it opened anew, for example with another key. While packets of the
    /// peer may be under way, it is left alone: a datagram among them would withdraw the Close
    /// after the peer has agreed to it, and the next request would end as if the peer had lost
    /// the context.
    pub fn context_close(&mut self, now: Time, tag: u32) {
        let Some(ci) = self.contexts.by_tag(OwnTag(tag)) else { return };
        let c = self.contexts.get(ci);
        debug_assert_eq!(c.handshake().local_tag(), OwnTag(tag), "found by its tag");
        let served = c.win().is_none_or(|a| a.board.is_empty() && a.jobs.is_empty());
        let done = c.outstanding() == 0 && served;
        let quiet = !c.is_active() || now.since(c.last_heard()) >= CLOSE_QUIET;
        if c.state() == ContextState::Open && done && quiet {
            self.close_begin(now, ci);
        }
    }

    /// Opens the context with this tag anew, with another tag, if its peer has not accepted our
    /// Open yet: the driver wants its handshake made anew, for example with another key. A refusal
    /// of the old one is forgotten. Returns whether it did at once.
    ///
    /// If the peer has sent an Open, too, our answer may be under way, and the peer may be about to
    /// use the old tag. Then the context is opened anew after `open_retry` of
    /// [`LossConfig`](crate::config::LossConfig), unless the peer uses it before; no other answer
    /// leaves until then.
    pub fn context_open_anew(&mut self, now: Time, tag: u32) -> bool {
        let Some(ci) = self.contexts.by_tag(OwnTag(tag)) else { return false };
        let retry = self.shared.cfg.loss.open_retry;
        let c = self.contexts.get_mut(ci);
        if c.state() != ContextState::Opening {
            return false;
        }
        if c.handshake().knows_peer() {
            c.handshake_mut().open_again_at(now + retry);
            self.shared.out.rearm_push(ci);
            return false;
        }
        self.context_begin_anew(now, ci);
        debug_assert!(!self.has_context(tag), "it has another tag");
        true
    }

    /// Ends the context with this tag at once: outstanding work ends with status 8, and whether the
    /// peer has received it is not known. The driver no longer has what the context needs, for
    /// example its key. Returns the peer; `None` if there is no such context.
    pub fn context_cut(&mut self, now: Time, tag: u32) -> Option<Endpoint> {
        let ci = self.contexts.by_tag(OwnTag(tag))?;
        let peer = self.contexts.get(ci).endpoint();
        self.work_end(now, ci, Status::RemoteAbort);
        self.context_end(now, ci);
        debug_assert!(!self.has_context(tag), "it has ended");
        Some(peer)
    }

    pub(crate) fn close_begin(&mut self, now: Time, ci: Ctx) {
        let c = self.contexts.get_mut(ci);
        let drains = c.handshake().is_draining();
        debug_assert!(c.outstanding() == 0 || drains, "who has work does not close");
        if let Some(from) = c.handshake_mut().close_begin(now) {
            self.context_event(now, ci, from);
            self.close_retry(now, ci);
        }
    }

    /// Sends a Close (again), or gives up after too many.
    pub(crate) fn close_retry(&mut self, now: Time, ci: Ctx) {
        let retry = self.shared.cfg.loss.open_retry;
        let c = self.contexts.get_mut(ci);
        debug_assert_eq!(c.state(), ContextState::Closing, "who closes says so");
        if c.handshake().round() >= CLOSE_ROUNDS {
            // A peer heard since the first Close has work for us. A silent one is gone, or a Reset
            // will tell it.
            if c.last_heard() > c.handshake().close_began() {
                let has_window = c.is_active();
                return self.shared.close_withdraw(now, ci, c, has_window);
            }
            if self.leaving {
                self.leave_tell(ci);
            }
            return self.closed(now, ci);
        }
        c.handshake_mut().close_sent(now, retry);
        self.shared.out.close_push(ci);
        self.shared.out.rearm_push(ci);
    }

    /// Handles a Close. `asks`: the peer wants another context in place of this one, and waits for
    /// what has begun in it.
    pub(crate) fn close_received(
        &mut self,
        now: Time,
        ci: Ctx,
        asks: bool,
    ) -> Result<Rx, DropReason> {
        let c = self.contexts.get(ci);
        let served = c.win().is_none_or(|a| a.board.is_empty() && a.jobs.is_empty());
        let done = c.outstanding() == 0 && served;
        let asks = !done && asks && self.drain_heeds(ci);
        if done || asks && self.nothing_begun(ci) {
            self.close_agree(now, ci);
            return Ok(Rx::Done);
        }
        // We have work left; any packet of ours says so, and an acknowledgment is due at once.
        self.context_activate(ci);
        self.contexts.get_mut(ci).act().ack.hasten(now, Span::ZERO);
        if asks && self.contexts.get(ci).state() == ContextState::Open {
            self.drain_asked(now, ci);
        }
        Ok(Rx::Done)
    }

    /// Agrees to a Close. Work of which nothing was sent is sent in the next context.
    fn close_agree(&mut self, now: Time, ci: Ctx) {
        let c = self.contexts.get(ci);
        let (peer, tag) = (c.endpoint(), c.handshake().peer_tag());
        debug_assert!(tag != PeerTag::NONE, "who closes is known");
        match c.limits().sealed {
            true => self.control_push_of(ci, Body::CloseAck, 0),
            false => self.control_push(peer, tag, Body::CloseAck),
        }
        let c = self.contexts.get_mut(ci);
        if c.outstanding() == 0 {
            return self.context_end(now, ci);
        }
        if let Some(from) = c.handshake_mut().close_begin(now) {
            self.context_event(now, ci, from);
        }
        self.closed(now, ci);
    }

    pub(crate) fn close_acked(&mut self, now: Time, ci: Ctx) -> Result<Rx, DropReason> {
        if self.contexts.get(ci).state() != ContextState::Closing {
            return Err(DropReason::BadState);
        }
        self.closed(now, ci);
        Ok(Rx::Done)
    }

    /// Ends a context that both sides have dropped. If work was posted meanwhile, it opens anew.
    pub(crate) fn closed(&mut self, now: Time, ci: Ctx) {
        if self.contexts.get(ci).outstanding() == 0 {
            return self.context_end(now, ci);
        }
        if let Some(mut lane) = self.lane_find(now, ci) {
            lane.window_forget();
        }
        let c = self.contexts.get_mut(ci);
        // A peer that opens anew each time before it has shown that it has the context must not
        // hold requests for ever: they keep the time at which they began to wait.
        let proven = !c.handshake().is_unproven();
        if let Some(win) = c.win_mut().filter(|_| proven) {
            win.outstanding.begin_again(now);
        }
        // The credits that the peer asked for in the context before are not owed in the next one.
        self.shared.rx.granter.forget(ci);
        self.context_retag(ci);
        let mut secret = self.secrets.or(&mut self.shared.rng);
        let psn = Psn(self.shared.cfg.psn_start.unwrap_or_else(|| secret.next_u32()));
        let from = self.contexts.get_mut(ci).begin_again(psn);
        debug_assert_eq!(from, ContextState::Closing, "both sides agreed, or one gave up");
        self.context_event(now, ci, from);
        self.open_send(now, ci);
        self.shared.out.rearm_push(ci);
    }

    /// Ends the context, which the peer has lost: outstanding work ends with status 8.
    pub(crate) fn context_abort(&mut self, now: Time, ci: Ctx) {
        let peer = self.contexts.get(ci).endpoint();
        let lost = if planted!(AbortSucceeds) { Status::Ok } else { Status::RemoteAbort };
        self.work_end(now, ci, lost);
        self.shared.event_push(AsyncEvent::PeerReset(peer));
        self.context_end(now, ci);
    }

    /// Ends the context of a peer that has never answered, with its work.
    pub(crate) fn peer_unreachable(&mut self, now: Time, ci: Ctx) {
        let peer = self.contexts.get(ci).endpoint();
        self.work_end(now, ci, Status::LocalUnreachRemote);
        self.shared.counters.unresponsive_remote_events += 1;
        self.shared.event_push(AsyncEvent::PeerUnreachable(peer));
        self.context_end(now, ci);
    }

    /// Ends the work for a peer that has answered once and is silent. The context stays, and with
    /// it the record of what was delivered.
    pub(crate) fn peer_unresponsive(&mut self, now: Time, ci: Ctx) {
        let c = self.contexts.get_mut(ci);
        let peer = c.endpoint();
        // The state still kept for the peer is dropped after as long a silence again.
        debug_assert!(c.is_active(), "who has work has window state");
        c.act().loss.watch(now);
        self.work_end(now, ci, Status::LocalUnrespRemote);
        self.shared.counters.unresponsive_remote_events += 1;
        self.shared.event_push(AsyncEvent::PeerUnresponsive(peer));
        self.shared.out.rearm_push(ci);
    }

    /// Ends the context of a peer that sends, but accepts no packet of ours, however short and
    /// however often sent: neither requests nor the message that they are cancelled. A Reset tells
    /// the peer when it uses the context again.
    pub(crate) fn peer_deaf(&mut self, now: Time, ci: Ctx) {
        let peer = self.contexts.get(ci).endpoint();
        self.work_end(now, ci, Status::LocalUnrespRemote);
        self.shared.counters.unresponsive_remote_events += 1;
        self.shared.event_push(AsyncEvent::PeerUnresponsive(peer));
        self.context_end(now, ci);
    }

    /// Ends the context of a silent peer for which we have no outstanding work, with all state kept
    /// for it (reads being served, writes begun, packets received out of order, tombstones). If the
    /// peer returns, a Reset tells it to start over.
    pub(crate) fn peer_forget(&mut self, now: Time, ci: Ctx) {
        let peer = self.contexts.get(ci).endpoint();
        self.shared.counters.contexts_forgotten += 1;
        self.shared.counters.timer_steps += FORGET_STEPS;
        self.shared.observer.event(now, Event::Forgotten { ctx: ci, peer });
        self.context_end(now, ci);
    }

    /// Ends every request of the context with `status`.
    fn work_end(&mut self, now: Time, ci: Ctx, status: Status) {
        if let Some(mut lane) = self.lane_find(now, ci) {
            lane.work_end(status);
        }
        debug_assert_eq!(self.contexts.get(ci).outstanding(), 0, "all of it has ended");
    }

    /// Removes the context, which must have no outstanding work.
    pub(crate) fn context_end(&mut self, now: Time, ci: Ctx) {
        let c = self.contexts.get_mut(ci);
        debug_assert_eq!(c.outstanding(), 0, "its work ends before it");
        let way = c.way();
        if let Some(from) = c.handshake_mut().end() {
            self.context_event(now, ci, from);
        }
        self.shared.timers.disarm(TimerOf::Context(ci).number());
        self.shared.rx.granter.forget(ci);
        if let Some(mut lane) = self.lane_find(now, ci) {
            lane.jobs_forget();
        }
        let mut c = self.contexts.remove(ci);
        self.shared.pace_leave(self.paths.get_mut(way), ci);
        self.shared.out.context_end(ci);
        self.shared.rx.flows.context_end(now, ci);
        self.shared.counters.contexts_closed += 1;
        if c.is_inbound() {
            self.contexts.origins.inbound(c.endpoint().ip, false);
        }
        if let Some(mut a) = c.lease_end() {
            let flying: u32 = a.board.drain();
            let entry = self.paths.get_mut(way);
            entry.paths.on_forgotten(if planted!(EndLeaks) { 0 } else { flying });
            entry.active -= 1;
            let flies = entry.active == 0 && entry.paths.inflight() > 0;
            debug_assert!(!flies || cfg!(planted_bugs), "nobody sends, and something is in flight");
            a.clear();
            debug_assert!(!a.has_to_send(), "what goes to the pool is empty");
            self.pool_return(a);
        }
        debug_assert!(self.contexts.find(ci).is_none(), "it is found no more");
        self.shared.inflight_freed(self.paths.get_mut(way));
        self.path_context_release(way);
    }
}
