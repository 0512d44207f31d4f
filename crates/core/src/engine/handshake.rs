//! How contexts are opened: Open, Open-Ack, Challenge.
//!
//! No data is sent before the peer has shown that it holds our tag. Both a restart of the peer and
//! overload are handled by a stateless Challenge: the opener must echo a cookie from the address
//! that it claims.

use crate::api::{Endpoint, Rx};
use crate::config::{HostPolicy, Integrity};
use crate::counters::DropReason;
use crate::engine::Engine;
use crate::engine::cookie::Claim;
use crate::events::{Event, Observer};
use crate::ids::{Ctx, OwnTag, PeerTag};
use crate::limits::{MTU_MIN, REFUSED_AFTER, WINDOW_MAX, WINDOW_MIN};
use crate::outbox::Control;
use crate::peer::handshake::{Challenged, Handshake};
use crate::peer::{Context, ContextState, FirstNumbers, Negotiated, Peer, Window};
use crate::psn::{Psn, TxNum};
use crate::random::Random;
use crate::time::{Span, Time};
use srd_wire::{Body, CloseCode, Features, Flags, Header, OpenParams};

impl<O: Observer> Engine<O> {
    /// The context for `peer`, which is created and opened if there is none; `None` if the table is
    /// full.
    pub(crate) fn context_for(&mut self, now: Time, peer: Endpoint) -> Option<Ctx> {
        if let Some(ci) = self.contexts.by_endpoint(&peer) {
            self.context_activate(ci);
            return Some(ci);
        }
        let ci = self.context_create(now, peer, ContextState::Opening)?;
        self.context_activate(ci);
        self.open_send(now, ci);
        Some(ci)
    }

    fn context_create(&mut self, now: Time, peer: Endpoint, state: ContextState) -> Option<Ctx> {
        self.contexts_evict(now, peer.ip);
        if self.contexts.is_full() {
            return None;
        }
        let tag = self.contexts.tag_draw(&mut self.secrets.or(&mut self.shared.rng));
        let way = self.path_context_for(now, peer.ip);
        let mut secret = self.secrets.or(&mut self.shared.rng);
        let psn = self.shared.cfg.psn_start.unwrap_or_else(|| secret.next_u32());
        let random = u64::from(secret.next_u32() >> 1);
        let tx_num = self.shared.cfg.tx_num_start.unwrap_or(random);
        let numbers = FirstNumbers { psn: Psn(psn), tx_num: TxNum(tx_num) };
        let mut c = Peer::new(peer, way, Handshake::new(state, tag), numbers, now);
        if self.objects.guessers.suspects(now, peer.ip) {
            c.key_guess_note();
        }
        if state == ContextState::HalfOpen {
            self.contexts.origins.inbound(peer.ip, true);
            self.contexts.origins.half_open(peer.ip, true);
        }
        let ci = self.contexts.insert(Context::new(c));
        self.shared.out.context_begin(ci);
        let entry = self.paths.get_mut(way);
        entry.contexts += 1;
        self.shared.rx.flows.context_begin(ci, way, entry.network);
        debug_assert_eq!(self.contexts.by_endpoint(&peer), Some(ci), "found by its endpoint");
        debug_assert_eq!(self.contexts.by_tag(tag), Some(ci), "found by its tag");
        let event = Event::Context { ctx: ci, peer, from: "", to: state.name() };
        self.shared.observer.event(now, event);
        Some(ci)
    }

    /// Leases window state to context `ci`, if it has none.
    pub(crate) fn context_activate(&mut self, ci: Ctx) {
        let c = self.contexts.get_mut(ci);
        if c.is_active() {
            return;
        }
        debug_assert_eq!(c.outstanding(), 0, "who rests has no work");
        let a = self.pool.pop().unwrap_or_else(|| Box::new(Window::new(&self.shared.cfg)));
        c.lease(a);
        let way = self.paths.get_mut(c.way());
        way.active += 1;
        debug_assert!(way.active <= way.contexts || cfg!(planted_bugs), "active ones are some");
        // The timer returns the window state after a while if it is not used.
        self.shared.out.rearm_push(ci);
    }

    pub(crate) fn open_params(&self, ci: Ctx) -> OpenParams {
        let c = self.contexts.get(ci);
        let cfg = &self.shared.cfg;
        let mut features = Features::ECN;
        features |= if cfg.rdma_read { Features::RDMA_READ } else { 0 };
        features |= if cfg.rdma_write { Features::RDMA_WRITE } else { 0 };
        features |= if cfg.rate.grants() { Features::CREDITS } else { 0 };
        features |= if cfg.integrity == Integrity::On { Features::INTEGRITY } else { 0 };
        let signals = cfg.rate.host_policy != HostPolicy::Off;
        features |= if signals { Features::HOST_SIGNAL } else { 0 };
        OpenParams {
            tag: c.handshake().local_tag().0,
            incarnation: self.incarnation,
            echo_tag: 0,
            psn_start: c.psn_next().0,
            tx_num_start: c.tx_num_next().0,
            window: cfg.window,
            mtu: cfg.mtu,
            reads_max: if cfg.rdma_read { cfg.reads_per_context_max } else { 0 },
            write_imms_max: cfg.write_imms_per_context_max,
            rx_budget: cfg.rx_budget_bytes,
            features: Features(features),
            cookie: c.handshake().cookie(),
        }
    }

    /// Sends an Open and arms its retry timer.
    pub(crate) fn open_send(&mut self, now: Time, ci: Ctx) {
        let params = self.open_params(ci);
        let retry = self.shared.cfg.loss.open_retry;
        let max = self.shared.cfg.loss.rto_max.max(retry);
        let lens = self.open_lens(ci);
        let near = Some(self.open_rail(ci));
        let c = self.contexts.get_mut(ci);
        debug_assert_eq!(c.state(), ContextState::Opening, "who opens says so");
        c.handshake_mut().open_sent(now, retry, max);
        let peer = c.endpoint();
        for padded_len in lens {
            self.shared.counters.opens_sent += 1;
            let body = Body::Open(params);
            let mut open =
                Control { padded_len, near, ..Control::of_none(peer, PeerTag::NONE, body) };
            if self.shared.cfg.seals {
                open.tx_num = self.contexts.get_mut(ci).tx_num_take();
            }
            self.shared.control_push(open);
        }
    }

    /// Opens a context from our side too: the peer opened it and has not confirmed it when work is
    /// posted.
    pub(crate) fn context_open_too(&mut self, now: Time, ci: Ctx) {
        if let Some(from) = self.contexts.get_mut(ci).handshake_mut().open_too() {
            self.context_event(now, ci, from);
            self.open_send(now, ci);
        }
    }

    /// The rail of the next Open. The first one takes the first rail that is in use, and each
    /// repetition the next one: a peer that has only the first network needs one Open, and a rail
    /// that is dead costs one.
    fn open_rail(&self, ci: Ctx) -> u8 {
        let c = self.contexts.get(ci);
        let rails = self.shared.cfg.path.rails;
        debug_assert!(rails > 0, "a device has a network");
        let paths = &self.paths.get(c.way()).paths;
        let first = (0..rails).find(|&rail| !paths.rail_is_out(rail)).unwrap_or(0);
        (first + c.handshake().round() % rails) % rails
    }

    /// Opens a context again when work is posted to a peer that accepted our Open and has not used
    /// the context since. If our confirmation was lost, the peer has dropped the context after a
    /// while, and work sent in it would end as if the peer had restarted. A peer that still has the
    /// context answers the new Open with it.
    pub(crate) fn context_reopen(&mut self, now: Time, ci: Ctx) {
        let c = self.contexts.get_mut(ci);
        let unused = c.outstanding() == 1 && c.win().is_some_and(|a| a.board.is_empty());
        // A sealed handshake has keys of its own, so its repetition is another context with another
        // tag. That is worth it only if the peer has dropped an unconfirmed one by now.
        let sealed = c.limits().sealed;
        let kept = sealed && now.since(c.last_heard()) < self.shared.cfg.loss.unreachable_after;
        if c.is_proven() || !unused || kept {
            return self.shared.out.ready_push(ci);
        }
        if let Some(from) = c.handshake_mut().reopen() {
            // A question about the context before has no answer any more.
            if let Some(win) = c.win_mut() {
                win.doubt_forget();
            }
            if sealed {
                self.context_retag(ci);
            }
            self.context_event(now, ci, from);
            self.open_send(now, ci);
        }
    }

    pub(crate) fn open_received(
        &mut self,
        now: Time,
        from: Endpoint,
        h: &Header,
        p: &OpenParams,
        size: Option<u16>,
    ) -> Result<Rx, DropReason> {
        self.shared.counters.opens_received += 1;
        if h.dst_tag != 0 || p.tag == 0 {
            return Err(DropReason::BadHandshake);
        }
        if !can_serve(p) {
            self.open_refuse(now, from, PeerTag(p.tag), CloseCode::BadParams, Some(h.path));
            return Err(DropReason::BadHandshake);
        }
        let sealed = h.flags.has(Flags::SEALED);
        if let Some(ci) = self.contexts.by_endpoint(&from) {
            if self.contexts.get(ci).limits().sealed && !sealed {
                return Err(DropReason::Unsealed);
            }
            return self.open_again(now, ci, from, h, p, size);
        }
        let claim =
            Claim { who: from, tag: PeerTag(p.tag), incarnation: p.incarnation, against: 0 };
        let asks = self.contexts.is_nearly_full()
            || self.contexts.origins.asks_proof(from.ip, &self.shared.cfg);
        if asks && !planted!(CookieNever) && !self.cookies.check(now, &claim, p.cookie) {
            self.challenge(now, &claim, h.path);
            return Ok(Rx::Done);
        }
        self.open_accept(now, from, h, p, size)
    }

    /// Handles an Open from a peer with which a context exists.
    fn open_again(
        &mut self,
        now: Time,
        ci: Ctx,
        from: Endpoint,
        h: &Header,
        p: &OpenParams,
        size: Option<u16>,
    ) -> Result<Rx, DropReason> {
        let sealed = h.flags.has(Flags::SEALED);
        let c = self.contexts.get(ci);
        let same = c.handshake().is_with(PeerTag(p.tag), p.incarnation);
        if planted!(RestartContinues) && c.state() == ContextState::Open {
            self.contexts.get_mut(ci).handshake_mut().peer_is(PeerTag(p.tag), p.incarnation);
            self.open_answer(ci, size, h.path);
            return Ok(Rx::Done);
        }
        // Both sides opened at the same time, and this is the first Open of the peer. It is
        // believed without proof only once: otherwise forged Opens could make us start over without
        // end.
        let first = c.handshake().takes_first_open();
        if same || first {
            if !same {
                self.peer_params_set(ci, p, sealed);
            }
            // The first answer may have died on a rail that works in the other direction only.
            let elsewhere = same && self.shared.cfg.path.rails > 1;
            let step = if elsewhere { self.shared.rng.below(2) as u8 } else { 0 };
            self.open_answer(ci, size, h.path.wrapping_add(step));
            return Ok(Rx::Done);
        }
        let against = c.handshake().tags_both();
        let claim = Claim { who: from, tag: PeerTag(p.tag), incarnation: p.incarnation, against };
        if !self.cookies.check(now, &claim, p.cookie) && !planted!(RestartUnproven) {
            self.challenge(now, &claim, h.path);
            return Ok(Rx::Done);
        }
        // Proven: the peer has lost the old context, or has closed it as we asked.
        let c = self.contexts.get(ci);
        match c.state() {
            ContextState::Closing => self.closed(now, ci),
            // No answer has told anybody the present tag. A new tag would invalidate the peer's
            // answer to our own Open, and two peers that open at the same time could do so without
            // end.
            ContextState::Opening if !c.handshake().knows_peer() => {}
            // Packets that the peer sent before its restart, with the old tag, may be in flight.
            ContextState::Opening => self.context_retag(ci),
            // The context was never used, so no work is lost with it.
            ContextState::HalfOpen => self.context_end(now, ci),
            _ => self.context_lost(now, ci),
        }
        debug_assert!(
            self.contexts.by_endpoint(&from).is_none_or(|again| again == ci),
            "the same context, or none"
        );
        match self.contexts.by_endpoint(&from) {
            // Work of which nothing was sent is sent in the new context.
            Some(ci) => {
                self.peer_params_set(ci, p, sealed);
                self.open_answer(ci, size, h.path);
                Ok(Rx::Done)
            }
            None => self.open_accept(now, from, h, p, size),
        }
    }

    fn open_accept(
        &mut self,
        now: Time,
        from: Endpoint,
        h: &Header,
        p: &OpenParams,
        size: Option<u16>,
    ) -> Result<Rx, DropReason> {
        let crowded = self.contexts.origins.is_full(from.ip, &self.shared.cfg);
        let made = if crowded {
            self.contexts_evict(now, from.ip);
            None
        } else {
            self.context_create(now, from, ContextState::HalfOpen)
        };
        let Some(ci) = made else {
            self.open_refuse(now, from, PeerTag(p.tag), CloseCode::NoRoom, Some(h.path));
            return Err(DropReason::NoRoom);
        };
        self.peer_params_set(ci, p, h.flags.has(Flags::SEALED));
        self.open_answer(ci, size, h.path);
        self.half_open_arm(now, ci);
        Ok(Rx::Done)
    }

    /// Arms the timer that ends a context which is never confirmed.
    fn half_open_arm(&mut self, now: Time, ci: Ctx) {
        debug_assert!(self.contexts.get(ci).handshake().knows_peer(), "its answer can leave");
        let at = now + self.shared.cfg.loss.unreachable_after;
        self.contexts.get_mut(ci).handshake_mut().wait_until(at);
        self.shared.out.rearm_push(ci);
    }

    pub(crate) fn open_refuse(
        &mut self,
        now: Time,
        to: Endpoint,
        tag: PeerTag,
        code: CloseCode,
        near: Option<u8>,
    ) {
        self.stranger_refuse(now, to, tag, Body::Reset { echo_tag: 0, code, nonce: 0 }, near);
    }

    /// Answers an Open. `size`: the packet size that the Open proves if it was not a full one; the
    /// answer is then as long as the Open.
    fn open_answer(&mut self, ci: Ctx, size: Option<u16>, near: u8) {
        self.narrow_heard(ci, size);
        if self.contexts.get(ci).handshake().anew_waits() {
            return;
        }
        let len = size.map_or(0, |s| s.saturating_add(srd_wire::OVERHEAD_BYTES as u16));
        self.open_ack_send(ci, 0, len, near);
    }

    fn peer_params_set(&mut self, ci: Ctx, p: &OpenParams, sealed: bool) {
        let (own_mtu, own_window) = (self.shared.cfg.mtu, self.shared.cfg.window);
        let checking = self.shared.cfg.integrity == Integrity::On && !sealed;
        let checked = checking && p.features.has(Features::INTEGRITY);
        let c = self.contexts.get_mut(ci);
        let limits = Negotiated {
            mtu: own_mtu.min(p.mtu),
            // Our own window, and not the peer's claim, bounds the memory for packets in flight.
            window: if planted!(PeerWindowTaken) { p.window } else { p.window.min(own_window) },
            reads_max: p.reads_max,
            imms_max: p.write_imms_max,
            features: p.features.without(if p.reads_max == 0 { Features::RDMA_READ } else { 0 }),
            checked,
            sealed,
        };
        debug_assert!(limits.mtu <= own_mtu, "no packet is larger than ours");
        c.params_set(p, limits);
        let way = c.way();
        if c.grants(&self.shared.cfg) {
            let entry = self.paths.get_mut(way);
            entry.paths.credits_begin();
            self.shared.inflight_freed(entry);
        }
    }

    pub(crate) fn open_acked(
        &mut self,
        now: Time,
        ci: Ctx,
        h: &Header,
        p: &OpenParams,
        size: Option<u16>,
    ) -> Result<Rx, DropReason> {
        let c = self.contexts.get(ci);
        if OwnTag(p.echo_tag) != c.handshake().local_tag() || p.tag == 0 || !can_serve(p) {
            return Err(DropReason::BadHandshake);
        }
        let same = c.handshake().is_with(PeerTag(p.tag), p.incarnation);
        match c.state() {
            ContextState::Open | ContextState::Closing if same && p.cookie != 0 => {
                self.doubt_refuted(now, ci, p)
            }
            ContextState::Opening => {
                if !self.narrow_answered(now, ci, size) {
                    return Ok(Rx::Done);
                }
                if !same {
                    self.peer_params_set(ci, p, h.flags.has(Flags::SEALED));
                }
                self.handshake_rtt(now, ci);
                let c = self.contexts.get(ci);
                // After a stop of this process the answer is found before the Open is repeated.
                let h = c.handshake();
                let late = (h.round() > 1 || h.at() <= now) && c.limits().sealed;
                self.context_confirm(now, ci);
                // The peer sends no data until it has received a packet with its tag.
                self.context_activate(ci);
                if late {
                    self.accepted_late(now, ci);
                }
                let mut lane = self.lane(now, ci);
                lane.win.ack.hasten(now, Span::ZERO);
                lane.ack_schedule();
                Ok(Rx::Done)
            }
            _ if c.handshake().peer_tag() == PeerTag(p.tag) => Ok(Rx::Done),
            _ => Err(DropReason::BadHandshake),
        }
    }

    /// Takes the first RTT sample from an Open that was answered at the first try; the base RTT and
    /// the first congestion window follow from it.
    fn handshake_rtt(&mut self, now: Time, ci: Ctx) {
        let retry = self.shared.cfg.loss.open_retry;
        let c = self.contexts.get(ci);
        let Some(opened_at) = c.handshake().opened_at(retry) else { return };
        debug_assert!(opened_at <= now, "an answer comes after the question");
        let way = c.way();
        let pc = &mut self.paths.get_mut(way).paths;
        pc.awake(now).on_echo(0, now.since(opened_at), false);
        pc.credits_first();
        // The answer may have returned a retired path to use, and a window that follows from a
        // longer round trip has more room for the other contexts of the address.
        let entry = self.paths.get_mut(way);
        self.shared.path_changes(now, entry);
        self.shared.inflight_freed(entry);
    }

    pub(crate) fn challenged(
        &mut self,
        now: Time,
        ci: Ctx,
        echo_tag: OwnTag,
        cookie: u64,
    ) -> Result<Rx, DropReason> {
        let c = self.contexts.get_mut(ci);
        if c.state() != ContextState::Opening {
            return self.doubted(ci, echo_tag, cookie);
        }
        if echo_tag != c.handshake().local_tag() {
            return Err(DropReason::BadHandshake);
        }
        // One Open answers all Challenges that arrive until it is sent.
        match c.handshake_mut().challenge(cookie, now + self.shared.cfg.loss.open_retry) {
            Challenged::Known => return Ok(Rx::Done),
            Challenged::Now => self.open_send(now, ci),
            Challenged::Soon => {}
        }
        self.shared.out.rearm_push(ci);
        Ok(Rx::Done)
    }

    /// Opens the context for data, because the peer holds our tag.
    pub(crate) fn context_confirm(&mut self, now: Time, ci: Ctx) {
        let c = self.contexts.get_mut(ci);
        let Some(from) = c.handshake_mut().confirm() else { return };
        debug_assert!(c.handshake().knows_peer(), "who confirms is known");
        c.heard(now);
        self.narrow_take(now, ci, from);
        self.shared.counters.contexts_opened += 1;
        self.context_event(now, ci, from);
        self.shared.out.ready_push(ci);
        self.shared.out.rearm_push(ci);
    }

    /// Handles the handshake timer.
    pub(crate) fn handshake_fire(&mut self, now: Time, ci: Ctx) {
        let c = self.contexts.get(ci);
        if c.handshake().at() > now {
            return;
        }
        match c.state() {
            ContextState::Opening => {
                let since = c.outstanding_since();
                if since == Time::NEVER {
                    self.context_unwanted(now, ci);
                } else if now.since(since) >= self.open_patience(ci) {
                    self.peer_unreachable(now, ci);
                } else if c.handshake().anew_waits() {
                    self.context_begin_anew(now, ci);
                } else if planted!(OpenOnce) {
                    self.contexts.get_mut(ci).handshake_mut().timer_off();
                } else {
                    self.open_send(now, ci);
                }
            }
            ContextState::HalfOpen => self.context_end(now, ci),
            ContextState::Closing => self.close_retry(now, ci),
            ContextState::Open if c.handshake().is_draining() => self.drain_step(now, ci),
            ContextState::Open | ContextState::Closed => {
                self.contexts.get_mut(ci).handshake_mut().timer_off();
            }
        }
    }

    /// Opens again, with another tag, a context that the peer has not accepted.
    pub(crate) fn context_begin_anew(&mut self, now: Time, ci: Ctx) {
        let c = self.contexts.get_mut(ci);
        c.handshake_mut().open_again();
        if let Some(win) = c.win_mut() {
            win.doubt_forget();
        }
        self.context_retag(ci);
        self.open_send(now, ci);
        self.shared.out.rearm_push(ci);
    }

    /// How long requests wait for an answer to the Open: less if somebody at the peer's address has
    /// said that it does not suit the peer. Only who sees our Open can say so, and a true answer
    /// comes within a round trip all the same.
    fn open_patience(&self, ci: Ctx) -> Span {
        let most = self.shared.cfg.loss.unreachable_after;
        let refused = self.contexts.get(ci).handshake().is_refused();
        if refused { most.min(REFUSED_AFTER) } else { most }
    }

    /// Handles an opening context whose work was withdrawn. A peer that has our answer to its Open
    /// considers the context open, so it is dropped only if the peer does not use it.
    fn context_unwanted(&mut self, now: Time, ci: Ctx) {
        let c = self.contexts.get_mut(ci);
        if !c.handshake().knows_peer() {
            return self.context_end(now, ci);
        }
        if let Some(from) = c.handshake_mut().unwant() {
            self.context_event(now, ci, from);
            self.half_open_arm(now, ci);
        }
    }

    /// Gives the context a new tag: packets with the old one no longer belong to it.
    pub(crate) fn context_retag(&mut self, ci: Ctx) {
        let tag = self.contexts.tag_draw(&mut self.secrets.or(&mut self.shared.rng));
        self.contexts.retag(ci, tag);
        debug_assert_eq!(self.contexts.by_tag(tag), Some(ci), "found by its tag");
    }

    /// Reports a state transition to the observer, and counts half-open contexts.
    pub(crate) fn context_event(&mut self, now: Time, ci: Ctx, from: ContextState) {
        let c = self.contexts.get(ci);
        let (peer, to) = (c.endpoint(), c.state().name());
        for (state, begins) in [(from, false), (c.state(), true)] {
            if state == ContextState::HalfOpen {
                self.contexts.origins.half_open(peer.ip, begins);
            }
        }
        self.shared.observer.event(now, Event::Context { ctx: ci, peer, from: from.name(), to });
    }
}

/// Whether the parameters of the peer are in the supported range.
fn can_serve(p: &OpenParams) -> bool {
    (WINDOW_MIN..=WINDOW_MAX).contains(&p.window) && p.mtu >= MTU_MIN
}
