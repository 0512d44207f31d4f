//! Timers of contexts and paths, leases of window state, credits to grant, going away.

use crate::api::{AsyncEvent, TxSink};
use crate::engine::Engine;
use crate::events::{Event, Observer};
use crate::limits::REARMS_MAX;
use crate::outbox::ProbeOut;
use crate::path::PathContext;
use crate::peer::{Active, ContextState};
use crate::time::{Span, Time};
use crate::timer::TimerOf;
use crate::tx::Out;
use crate::tx::control::Alone;
use core::net::IpAddr;
use srd_wire::{Body, CloseCode, Features};

/// Window states kept for the next peer that becomes active; more are freed.
const POOL_MAX: usize = 32;
/// Probes that an idle peer leaves unanswered before its silence counts.
const IDLE_PROBES_MIN: u8 = 3;

impl<O: Observer> Engine<O> {
    /// The next thing context `ci` has to do by itself.
    fn context_deadline(&self, ci: u32, now: Time) -> Time {
        let c = self.contexts.get(ci);
        let mut loss_at = self.loss_deadline(ci);
        if self.shared.rx.unread > Span::ZERO && loss_at <= now {
            // It waits for packets that are not read yet: it looks again soon, not at each call.
            loss_at = now + self.shared.rx.unread.scale(1, 4);
        }
        let mut at = c.handshake_at.min(c.pace_at).min(c.idle_at).min(loss_at);
        if let Some(a) = c.active.as_ref() {
            at = at.min(a.doubt_at());
            if a.deaf {
                at = now;
            }
            if !self.shared.out.ack_waits(ci) {
                at = at.min(a.ack.due());
            }
        }
        at
    }

    /// Sets the timers of the contexts that changed. Those beyond the bound wait for the next call,
    /// for which [`Self::next_timeout`] asks.
    pub(crate) fn rearm_some(&mut self, now: Time) {
        for _ in 0..REARMS_MAX {
            let Some(ci) = self.shared.out.rearm_pop() else { return };
            let Some(c) = self.contexts.find_mut(ci) else { continue };
            if let Some(a) = c.active.as_mut() {
                if c.outstanding > 0 {
                    a.loss.watch(c.outstanding_since);
                }
                let idle = c.outstanding == 0 && a.is_idle();
                if !idle {
                    c.idle_at = Time::NEVER;
                } else if c.idle_at == Time::NEVER {
                    c.idle_at = now + self.shared.cfg.idle_after;
                }
            }
            let at = self.context_deadline(ci, now);
            self.shared.timers.arm(TimerOf::Context(ci).number(), at);
        }
    }

    pub(crate) fn context_timer_fire(&mut self, now: Time, ci: u32) {
        if self.contexts.find(ci).is_none() {
            return;
        }
        if self.contexts.get(ci).active.as_ref().is_some_and(|a| a.deaf) {
            return self.peer_deaf(now, ci);
        }
        if self.contexts.get(ci).active.is_some() {
            self.ack_schedule(now, ci);
            self.loss_fire(now, ci);
        }
        // A peer that is silent for too long is forgotten.
        let Some(c) = self.contexts.find_mut(ci) else { return };
        if c.pace_at <= now {
            c.pace_at = Time::NEVER;
            self.shared.out.ready_push(ci);
        }
        if self.contexts.get(ci).idle_at <= now {
            self.idle_fire(now, ci);
        }
        if self.contexts.find(ci).is_some() {
            self.handshake_fire(now, ci);
        }
        if self.contexts.find(ci).is_some() {
            self.doubt_fire(now, ci);
        }
        if self.contexts.find(ci).is_some() {
            let at = self.context_deadline(ci, now).max(now + Span(1));
            if at != Time::NEVER && !planted!(TimerOnce) {
                self.shared.timers.arm(TimerOf::Context(ci).number(), at);
            }
        }
    }

    /// Idle for long enough. Verdicts that the peer may not have read keep the window state: a
    /// probe asks for its lower edge, ever more rarely. If no answer comes, it is forgotten.
    fn idle_fire(&mut self, now: Time, ci: u32) {
        let idle_after = self.shared.cfg.idle_after;
        let c = self.contexts.get_mut(ci);
        let heard = c.last_heard;
        if c.act().loss.idle_unanswered(heard) >= IDLE_PROBES_MIN
            && self.is_silent(self.shared.seen(now), ci)
        {
            return self.peer_forget(now, ci);
        }
        let c = self.contexts.get_mut(ci);
        let a = c.act();
        if a.verdicts.is_empty() {
            return self.context_rest(now, ci);
        }
        let round = a.loss.idle_round_take(now);
        c.idle_at = now + idle_after.scale(1 << round, 1);
        self.probe_push(now, ci);
    }

    /// Gives the window state of an idle context back; its numbers stay.
    fn context_rest(&mut self, now: Time, ci: u32) {
        let c = self.contexts.get_mut(ci);
        c.idle_at = Time::NEVER;
        let Some(mut a) = c.active.take() else { return };
        c.psn_idle = a.board.next();
        c.rx_cum_idle = a.window.cum();
        self.shared.out.unpark(ci);
        a.clear();
        let path_ctx = c.path_ctx;
        self.pool_return(a);
        let entry = self.paths.get_mut(path_ctx);
        entry.active -= 1;
        if entry.active == 0 && entry.ctx.is_idle() {
            entry.ctx.acquit_beyond_summary();
            self.path_changes(now, path_ctx);
            let entry = self.paths.get_mut(path_ctx);
            entry.ctx.shrink();
            entry.waiters = Vec::new();
            self.shared.timers.disarm(TimerOf::Path(path_ctx).number());
        }
    }

    pub(crate) fn pool_return(&mut self, a: Box<Active>) {
        if self.pool.len() < POOL_MAX && a.board.ring_len() <= 256 {
            self.pool.push(a);
        }
    }

    // ---- paths ---------------------------------------------------------------------------------

    pub(crate) fn path_context_for(&mut self, ip: IpAddr) -> u32 {
        if let Some(i) = self.paths.by_ip(&ip) {
            return i;
        }
        let pc = PathContext::with_params(
            self.path_params.clone(),
            &mut self.secrets.or(&mut self.shared.rng),
        );
        self.paths.insert(ip, pc)
    }

    pub(crate) fn path_context_release(&mut self, path_ctx: u32) {
        let entry = self.paths.get_mut(path_ctx);
        entry.contexts -= 1;
        if entry.contexts == 0 {
            self.shared.timers.disarm(TimerOf::Path(path_ctx).number());
            if let Some(gone) = self.paths.remove(path_ctx) {
                self.shared.sizes.forget(&gone);
            }
        }
    }

    /// Paths that were retired or returned, and the timer of their probes.
    pub(crate) fn path_changes(&mut self, now: Time, path_ctx: u32) {
        let entry = self.paths.get_mut(path_ctx);
        let ip = entry.ip;
        while let Some(change) = self.paths.get_mut(path_ctx).ctx.change_take() {
            let (from, to) = if change.live { ("retired", "live") } else { ("live", "retired") };
            if change.live {
                self.shared.counters.paths_returned += 1;
            } else {
                self.shared.counters.paths_retired += 1;
            }
            self.shared.observer.event(now, Event::Path { ip, path: change.path, from, to });
            self.shared.event_push(AsyncEvent::PathChanged(ip, change.path, !change.live));
        }
        let at = self.path_deadline(path_ctx);
        self.shared.timers.arm(TimerOf::Path(path_ctx).number(), at);
    }

    /// The next thing that is to be done for the paths to an address.
    fn path_deadline(&self, path_ctx: u32) -> Time {
        let entry = self.paths.get(path_ctx);
        entry.ctx.probe_next().min(entry.mtu.next())
    }

    pub(crate) fn path_timer_fire(&mut self, now: Time, pi: u32) {
        let Some(entry) = self.paths.find_mut(pi) else { return };
        if entry.active == 0 {
            return;
        }
        let carrier = entry.carrier;
        while let Some(path) = self.paths.get_mut(pi).ctx.probe_poll(now) {
            let carries = self
                .contexts
                .find(carrier)
                .is_some_and(|c| c.path_ctx == pi && c.state == ContextState::Open);
            if carries {
                // It returns only if it carries what is sent.
                let size = if self.shared.cfg.mtu_search { self.mtu_of(carrier) } else { 0 };
                self.shared.out.probe_push(ProbeOut { ci: carrier, path, size, asks: false });
            }
        }
        self.mtu_fire(now, pi);
        self.path_changes(now, pi);
        let at = self.path_deadline(pi);
        if at != Time::NEVER {
            self.shared.timers.arm(TimerOf::Path(pi).number(), at.max(now + Span(1)));
        }
    }

    // ---- credits -------------------------------------------------------------------------------

    /// Whether both ends of `ci` grant and obey credits.
    pub(crate) fn granting(&self, ci: u32) -> bool {
        self.shared.cfg.rate.credits && self.contexts.get(ci).limits.features.has(Features::CREDITS)
    }

    /// Credits that are due go out with the next acknowledgments.
    pub(crate) fn grants_poll(&mut self, now: Time) {
        if !self.shared.cfg.rate.credits {
            return;
        }
        while let Some((ci, bytes)) = self.shared.rx.granter.poll(now) {
            let Some(c) = self.contexts.find_mut(ci) else { continue };
            if c.active.is_none() {
                continue;
            }
            c.credit_granted = c.credit_granted.wrapping_add(bytes.div_ceil(64));
            c.act().ack.hasten(now, Span::ZERO);
            self.ack_schedule(now, ci);
        }
    }

    // ---- going away ----------------------------------------------------------------------------

    pub(crate) fn emit_closes(&mut self, now: Time, out: &mut Out<'_, impl TxSink>) {
        while out.left > 0 {
            let Some(ci) = self.shared.out.close_pop() else { return };
            let Some(c) = self.contexts.find(ci) else { continue };
            if c.state != ContextState::Closing {
                continue;
            }
            let path_ctx = c.path_ctx;
            let path =
                self.paths.get_mut(path_ctx).ctx.ack_path_choose(now, false, &mut self.shared.rng);
            let close = Alone { body: Body::Close, flags: 0, path, padded_len: 0 };
            self.emit_alone(now, ci, &close, out);
        }
    }

    /// Whether requests of this engine are under way to anybody.
    pub fn has_work(&self) -> bool {
        (0..self.contexts.slots())
            .any(|ci| self.contexts.find(ci).is_some_and(|c| c.outstanding > 0))
    }

    /// For an engine that is about to go away in peace: asks every peer with which something was
    /// exchanged lately to agree that nothing is open, and returns how many have not agreed yet.
    /// A peer agrees when it has read the fate of all it has sent, which an acknowledgment that
    /// was lost would have kept from it. Call it between turns until it returns 0; who does not
    /// answer five times is told to forget, and counts no more.
    pub fn peace_make(&mut self, now: Time) -> u32 {
        self.leaving = true;
        let mut open = 0;
        for ci in 0..self.contexts.slots() {
            let Some(c) = self.contexts.find(ci) else { continue };
            match c.state {
                ContextState::Closing => open += 1,
                ContextState::Open if c.active.is_some() => {
                    open += 1;
                    if c.outstanding == 0 {
                        self.close_begin(now, ci);
                    }
                }
                _ => {}
            }
        }
        open
    }

    /// Tells every peer that this engine goes away; the packets come out of
    /// [`Self::poll_transmit`]. Peers ask once more whether that is true; without an answer they
    /// end their outstanding requests soon, instead of after the silence of a peer that is gone.
    pub fn shutdown(&mut self, _now: Time) {
        self.gone = true;
        for ci in 0..self.contexts.slots() {
            if self.contexts.find(ci).is_some() {
                self.leave_tell(ci);
            }
        }
    }

    /// Tells the peer of a context that this engine goes away.
    pub(crate) fn leave_tell(&mut self, ci: u32) {
        let c = self.contexts.get(ci);
        if c.peer_tag != 0 {
            self.shared.counters.resets_sent += 1;
            let (peer, tag) = (c.peer, c.peer_tag);
            let code = CloseCode::GoingAway;
            let body = Body::Reset { echo_tag: c.local_tag, code, nonce: 0 };
            self.control_push(peer, tag, body);
        }
    }
}
