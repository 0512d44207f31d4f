//! Timers of contexts and paths, return of window state, grants of credit, shutdown.

use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::{Ctx, Way};
use crate::limits::REARMS_MAX;
use crate::outbox::ProbeOut;
use crate::path::PathContext;
use crate::peer::{Context, ContextState, Window};
use crate::time::{Span, Time};
use crate::timer::TimerOf;
use crate::tuning::UNREAD_LOOK;
use crate::tx::Silence;
use core::net::IpAddr;
use srd_wire::{Body, CloseCode};

/// Unused window states kept in the pool for peers that become active; more are freed.
const POOL_MAX: usize = 32;
/// Unanswered probes in a row after which the silence of an idle peer counts.
const IDLE_PROBES_MIN: u8 = 3;

impl<O: Observer> Engine<O> {
    /// Earliest deadline of context `ci`.
    fn context_deadline(&mut self, now: Time, ci: Ctx) -> Time {
        let c = self.contexts.get(ci);
        let at = c.deadline();
        self.lane_find(now, ci).map_or(at, |lane| at.min(lane.deadline()))
    }

    /// Sets the timers of contexts that changed, a bounded number per call; for the rest
    /// [`Self::next_timeout`] asks for another call.
    pub(crate) fn rearm_some(&mut self, now: Time) {
        for _ in 0..REARMS_MAX {
            let Some(ci) = self.shared.out.rearm_pop() else { return };
            let Some(c) = self.contexts.find_mut(ci) else { continue };
            if let Some(a) = c.win_mut() {
                if !a.outstanding.is_empty() {
                    a.loss.watch(a.outstanding.since());
                }
                a.idle_note(now, self.shared.cfg.idle_after);
            }
            let at = self.context_deadline(now, ci);
            let timer = TimerOf::Context(ci).number();
            if self.shared.rx.unread > Span::ZERO {
                // Each recalculation puts a loss off again while packets are not read: the timer
                // stays where it is, so that somebody looks whether they are read now.
                self.shared.timers.arm(timer, at);
            } else {
                self.shared.timers.set(timer, at);
            }
            debug_assert!(
                self.shared.timers.next() <= at || cfg!(planted_bugs),
                "somebody looks at it in time"
            );
        }
    }

    pub(crate) fn context_timer_fire(&mut self, now: Time, ci: Ctx) {
        if self.contexts.find(ci).is_none() {
            return;
        }
        // The deadline may have moved later and not be recalculated yet. A loss timer that is due
        // and waits for unread packets has a deadline of up to `look`.
        let at = self.context_deadline(now, ci);
        let look = UNREAD_LOOK.of_span(self.shared.rx.unread);
        if at > now + look {
            if !planted!(TimerOnce) {
                self.shared.timers.arm(TimerOf::Context(ci).number(), at);
            }
            return;
        }
        if self.contexts.get(ci).win().is_some_and(|a| a.loss.is_deaf()) {
            return self.peer_deaf(now, ci);
        }
        if let Some(mut lane) = self.lane_find(now, ci) {
            lane.ack_schedule();
            match lane.loss_fire() {
                Silence::Bearable => {}
                Silence::WorkEnds => self.peer_unresponsive(now, ci),
                Silence::PeerGone => self.peer_forget(now, ci),
            }
        }
        // The context may have ended above, because its peer was silent for too long.
        let Some(c) = self.contexts.find_mut(ci) else { return };
        let (opened, idle) =
            c.win_mut().map_or((false, false), |a| (a.credit_end(now), a.idle_at() <= now));
        if opened {
            self.shared.out.ready_push(ci);
        }
        if idle {
            self.idle_fire(now, ci);
        }
        if self.contexts.find(ci).is_some() {
            self.handshake_fire(now, ci);
        }
        if self.contexts.find(ci).is_some() {
            self.doubt_fire(now, ci);
        }
        if self.contexts.find(ci).is_some() {
            let at = self.context_deadline(now, ci).max(now + Span(1));
            if at != Time::NEVER && !planted!(TimerOnce) {
                self.shared.timers.arm(TimerOf::Context(ci).number(), at);
            }
        }
    }

    /// Handles a context that was idle for long enough: its window state is returned, unless the
    /// peer may not have read all verdicts. In that case a probe asks for the peer's lower edge, at
    /// growing distances, but often enough that a dead peer is forgotten soon after its silence has
    /// lasted for `unresponsive_after`.
    fn idle_fire(&mut self, now: Time, ci: Ctx) {
        let idle_after = self.shared.cfg.idle_after;
        let silence = self.shared.cfg.loss.unresponsive_after;
        let rarest = silence.scale(1, 1 + u64::from(IDLE_PROBES_MIN)).max(idle_after);
        let mut lane = self.lane(now, ci);
        // The context may have new work whose timer is not set yet, because one call sets a bounded
        // number of timers.
        if !lane.win.is_idle() {
            return lane.win.idle_set(Time::NEVER);
        }
        let heard = lane.peer.last_heard();
        if lane.win.loss.idle_unanswered(heard) >= IDLE_PROBES_MIN && lane.is_silent() {
            return self.peer_forget(now, ci);
        }
        if lane.win.verdicts.is_empty() {
            return self.context_rest(ci);
        }
        let round = lane.win.loss.idle_round_take(now);
        lane.win.idle_set(now + idle_after.scale(1 << round, 1).min(rarest));
        lane.probe_push();
    }

    /// Returns the window state of an idle context to the pool; its sequence numbers are kept.
    fn context_rest(&mut self, ci: Ctx) {
        let c = self.contexts.get_mut(ci);
        let Some(mut a) = c.lease_end() else { return };
        debug_assert!(a.is_idle() && !a.has_to_send(), "what rests has nothing to do");
        debug_assert!(a.outstanding.imms() == 0 || cfg!(planted_bugs), "the peer tracks nothing");
        self.shared.out.unpark(ci);
        a.clear();
        let way = c.way();
        self.pool_return(a);
        let entry = self.paths.get_mut(way);
        self.shared.pace_leave(entry, ci);
        entry.active -= u32::from(!planted!(ActiveLeaks));
        debug_assert!(entry.active < entry.contexts || cfg!(planted_bugs), "one of them is idle");
        if entry.active == 0 && entry.paths.is_idle() {
            entry.paths.shrink();
            entry.waits.rest();
            self.shared.timers.disarm(TimerOf::Path(way).number());
        }
    }

    pub(crate) fn pool_return(&mut self, a: Box<Window>) {
        debug_assert!(a.live.front().is_none() && !a.has_to_send(), "nothing of its context");
        if self.pool.len() < POOL_MAX && a.board.ring_len() <= 256 {
            self.pool.push(a);
        }
    }

    // ---- paths ---------------------------------------------------------------------------------

    pub(crate) fn path_context_for(&mut self, now: Time, ip: IpAddr) -> Way {
        if let Some(i) = self.paths.by_ip(&ip) {
            return i;
        }
        let pc = PathContext::with_params(
            self.path_params.clone(),
            &mut self.secrets.or(&mut self.shared.rng),
        );
        let network = self.shared.networks.join(ip);
        let way = self.paths.insert(ip, network, pc);
        debug_assert_eq!(self.paths.by_ip(&ip), Some(way), "found by its address");
        let denied = self.paths.denials.get(&ip);
        if !denied.is_empty() {
            self.paths_apply(now, way, &denied);
        }
        way
    }

    pub(crate) fn path_context_release(&mut self, way: Way) {
        let entry = self.paths.get_mut(way);
        debug_assert!(entry.contexts > 0, "each leaves it once");
        entry.contexts -= 1;
        debug_assert!(entry.active <= entry.contexts || cfg!(planted_bugs), "active ones are some");
        if entry.contexts == 0 {
            let empty = entry.paths.inflight() == 0 && entry.jobs == 0;
            debug_assert!(empty || cfg!(planted_bugs), "an address is left with nothing of it");
            self.shared.timers.disarm(TimerOf::Path(way).number());
            if let Some(gone) = self.paths.remove(way) {
                self.shared.sizes.forget(&gone);
                self.shared.networks.leave(gone.network);
            }
        }
    }

    pub(crate) fn path_timer_fire(&mut self, now: Time, pi: Way) {
        let Some(way) = self.paths.find_mut(pi) else { return };
        if way.active == 0 {
            return;
        }
        self.shared.pace_call(now, way);
        let ci = way.carrier;
        let open = |c: &&Context| c.way() == pi && c.state() == ContextState::Open;
        let carrier = self.contexts.find(ci).filter(open);
        let sized = carrier.filter(|_| self.shared.cfg.mtu_search);
        let full = sized.map_or(0, |c| way.payload_max(&self.shared.sizes, c.limits().mtu));
        while let Some(probe) = way.paths.probe_poll(now, full) {
            if carrier.is_some() {
                let (path, size) = (probe.path, probe.payload);
                self.shared.out.probe_push(ProbeOut { ci, path, size, asks: false });
            }
        }
        self.mtu_fire(now, pi);
        let way = self.paths.get_mut(pi);
        self.shared.path_changes(now, way);
        let at = way.deadline();
        if at != Time::NEVER {
            self.shared.timers.arm(TimerOf::Path(pi).number(), at.max(now + Span(1)));
        }
    }

    // ---- credits -------------------------------------------------------------------------------

    /// Grants the credits that are due; they are sent with acknowledgments that are due at once.
    pub(crate) fn grants_poll(&mut self, now: Time) {
        if !self.shared.cfg.rate.grants() {
            return;
        }
        let noise_ns = self.path_params.floors.noise_ns();
        self.shared.rx.granter.noise_set(noise_ns);
        while let Some(grant) = self.shared.rx.granter.poll(now) {
            let Some(mut lane) = self.lane_find(now, grant.ctx) else { continue };
            debug_assert!(grant.bytes > 0 && lane.granting(), "who asked is granted something");
            lane.peer.reports_mut().grant(grant.bytes);
            if grant.urgent {
                lane.win.ack.hasten(now, Span::ZERO);
                lane.ack_schedule();
            }
        }
    }

    // ---- shutdown ------------------------------------------------------------------------------

    /// Whether any request of this engine is outstanding.
    pub fn has_work(&self) -> bool {
        self.contexts
            .numbers()
            .any(|ci| self.contexts.find(ci).is_some_and(|c| c.outstanding() > 0))
    }

    /// Prepares an orderly shutdown: asks every peer with recent traffic to agree that nothing is
    /// outstanding, and returns the number of peers that have not agreed yet. A peer agrees once it
    /// knows the verdict on everything that it has sent; without this, a lost acknowledgment would
    /// leave it without the verdict. To be called between turns until it returns 0. A peer that
    /// does not answer five times is told to forget the context, and is no longer counted.
    pub fn peace_make(&mut self, now: Time) -> u32 {
        self.leaving = true;
        let mut open = 0;
        for ci in self.contexts.numbers() {
            let Some(c) = self.contexts.find(ci) else { continue };
            match c.state() {
                ContextState::Closing => open += 1,
                ContextState::Open if c.is_active() => {
                    open += 1;
                    if c.outstanding() == 0 {
                        self.close_begin(now, ci);
                    }
                }
                _ => {}
            }
        }
        open
    }

    /// Tells every peer that this engine shuts down, with packets that [`Self::poll_transmit`]
    /// returns. Each peer asks once more whether that is true; without an answer it ends its
    /// outstanding requests soon, and not only after the time for an unresponsive peer.
    pub fn shutdown(&mut self) {
        self.gone = true;
        for ci in self.contexts.numbers() {
            if self.contexts.find(ci).is_some() {
                self.leave_tell(ci);
            }
        }
    }

    /// Tells the peer of a context that this engine shuts down.
    pub(crate) fn leave_tell(&mut self, ci: Ctx) {
        let c = self.contexts.get(ci);
        if c.handshake().knows_peer() {
            debug_assert!(self.gone || self.leaving, "who stays says no such thing");
            self.shared.counters.resets_sent += 1;
            let (peer, tag) = (c.endpoint(), c.handshake().peer_tag());
            let code = CloseCode::GoingAway;
            let body = Body::Reset { echo_tag: c.handshake().local_tag().0, code, nonce: 0 };
            match c.limits().sealed {
                true => self.control_push_of(ci, body, 0),
                false => self.control_push(peer, tag, body),
            }
        }
    }
}
