//! Loss detection: packets overtaken by later ones (as RACK), tail-loss probes, timeouts, and
//! silent peers, whose packets are not counted as lost.

use crate::events::{Event, LossRule, Observer};
use crate::guards::Guard;
use crate::lane::Lane;
use crate::peer::ContextState;
use crate::peer::given_up::{Blame, GivenUp};
use crate::peer::scoreboard::{Entry, SentState};
use crate::psn::Psn;
use crate::time::{Span, Time};
use crate::tuning::{
    ALIVE_RTTS, ASK_SOON, ASKS_MAX, DOUBLING_EACH, DOUBLINGS_MAX, HEDGED_MAX, HEDGES_MAX, PATIENCE,
    STALL_DOUBLINGS_KEPT, STALL_DOUBLINGS_MAX, STALL_PROBE_SOON, STALL_PROBES_QUICK, UNREAD_LOOK,
};

/// What follows from the silence of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Silence {
    /// The peer may still answer.
    Bearable,
    /// The peer counts as gone, and requests to it end.
    WorkEnds,
    /// The peer counts as gone, and no request waits for it: its context is dropped.
    PeerGone,
}

impl<O: Observer> Lane<'_, O> {
    /// Declares overtaken packets lost, after an acknowledgment and when the timer fires. Returns
    /// their number.
    pub(crate) fn loss_detect(&mut self) -> u32 {
        let seen = self.seen();
        let mut n = 0;
        while let Some(p) = self.win.board.oldest() {
            let e = *self.win.board.get(p);
            if self.lost_at(&e).is_none_or(|at| at > seen) {
                break;
            }
            self.lose(p, LossRule::Overtaken);
            n += 1;
        }
        n
    }

    /// When a packet in flight counts as lost; `None`: not before a packet that was sent later has
    /// arrived.
    ///
    /// A packet is overdue when it was sent more than the reordering slack before the horizon. The
    /// horizon is the send time of the newest packet that has arrived or, if no further
    /// acknowledgment comes, the time one round trip ago (the reordering timer of RACK, RFC 8985).
    /// Rule CC-10.
    fn lost_at(&self, e: &Entry) -> Option<Time> {
        let newest = self.win.board.newest_acked();
        if e.sent >= newest {
            return None;
        }
        let paths = &self.way.paths;
        let due = e.sent + paths.reorder_slack();
        if due < newest {
            return Some(Time(0));
        }
        let timed = self.shared.cfg.guards.has(Guard::Overtaken);
        timed.then(|| due + paths.srtt().max(paths.turn()) + paths.host_delay())
    }

    /// Declares PSN `p`, which is in flight, lost.
    fn lose(&mut self, p: Psn, rule: LossRule) {
        let e = *self.win.board.get(p);
        debug_assert!(e.state == SentState::InFlight, "only what is in flight is lost");
        debug_assert!(e.sent <= self.now, "it has left");
        self.win.board.mark_lost(p);
        let sure = self.way.paths.awake(self.now).on_lost(e.path, e.wire_bytes, rule);
        let blame = if sure { Blame::Path } else { Blame::Unsure };
        self.win.loss.remember(GivenUp::new(p, &e, blame));
        self.silence_note(&e);
        self.shared
            .observer
            .event(self.now, Event::Lost { ctx: self.ci, psn: p, path: e.path, rule });
        self.mtu_lost(&e);
        debug_assert!(self.win.board.lost_len() > 0, "it waits to go again");
        self.room_offer();
    }

    /// The transmission of `e` was given up: evidence about the rail of its path.
    fn silence_note(&mut self, e: &Entry) {
        if self.shared.cfg.path.rails == 1 {
            return;
        }
        let slack = self.way.paths.reorder_slack();
        if self.way.paths.awake(self.now).on_silent(e.path, e.sent, slack) {
            self.path_changes();
        }
    }

    /// Packets of this context have left flight without an acknowledgment. The contexts of the
    /// address that wait for room have their turns before this one, which sends the packets again:
    /// otherwise a peer that acknowledges nothing would keep the room that it once had for ever.
    fn room_offer(&mut self) {
        self.inflight_check();
        if !planted!(RoomKept) {
            self.inflight_freed();
        }
        self.ready_push();
    }

    /// Next deadline of the context.
    pub(crate) fn deadline(&self) -> Time {
        if self.win.loss.is_deaf() {
            return self.now;
        }
        let mut loss_at = self.loss_deadline();
        let unread = self.shared.rx.unread;
        if unread > Span::ZERO && loss_at <= self.now {
            // The loss timer waits for packets that are not read yet: it is checked again soon, but
            // not at each call.
            loss_at = self.now + UNREAD_LOOK.of_span(unread);
        }
        let ack_at =
            if self.shared.out.ack_waits(self.ci) { Time::NEVER } else { self.win.ack.due() };
        loss_at.min(self.win.doubt_at()).min(ack_at)
    }

    /// When the peer is next asked for missing verdicts.
    fn ask_deadline(&self) -> Time {
        let asks = self.win.board.arrived_len() > 0 && !planted!(ArrivedUnasked);
        if asks { self.win.loss.ask_at() } else { Time::NEVER }
    }

    /// When the loss timer fires.
    fn loss_deadline(&self) -> Time {
        if self.peer.state() != ContextState::Open {
            return Time::NEVER;
        }
        let silent_at = self.silence_deadline();
        if self.win.loss.is_stalled() {
            let watched = silent_at != Time::NEVER;
            return if watched { self.win.loss.probe_at().min(silent_at) } else { Time::NEVER };
        }
        let ask_at = self.ask_deadline();
        let Some(oldest) = self.win.board.oldest() else {
            if planted!(ArrivedUnasked) && self.win.board.arrived_len() > 0 {
                return Time::NEVER;
            }
            // Responses are awaited, or requests cannot be sent, or state is kept for the peer: a
            // probe checks that the peer is still there.
            let quiet = self.peer.last_heard().max(self.win.loss.last_sent());
            let alive = quiet
                + self.patience(
                    self.way.paths.srtt().scale(ALIVE_RTTS, 1).max(self.shared.cfg.loss.rto_max),
                );
            let watched = if silent_at == Time::NEVER { silent_at } else { alive.min(silent_at) };
            return watched.min(ask_at);
        };
        let e = self.win.board.get(oldest);
        let since = self.win.loss.waits_since(e.sent);
        let timeout = self.timeout_of(e);
        let given_up = self.waited_until(since, self.win.loss.echoed_at(), timeout);
        let first = given_up.min(self.tail_deadline());
        first.min(silent_at).min(self.overtaken_at()).min(ask_at)
    }

    /// When the oldest packet in flight counts as lost because later ones have arrived.
    fn overtaken_at(&self) -> Time {
        let Some(oldest) = self.win.board.oldest() else { return Time::NEVER };
        self.lost_at(self.win.board.get(oldest)).unwrap_or(Time::NEVER)
    }

    /// When the tail of the packets in flight is probed. With few packets in flight, probes leave
    /// early and repeatedly, within the limit on such copies.
    /// Rule CC-11.
    fn tail_deadline(&self) -> Time {
        let probes = self.win.loss.tail_probes();
        let guards = self.shared.cfg.guards;
        let wait = match self.is_hedged() {
            true if probes < HEDGES_MAX => {
                let doublings = probes + self.win.loss.hedge_scarcity();
                self.way.paths.hedge_delay().scale(1 << doublings, 1)
            }
            false if probes == 0 && guards.has(Guard::TailProbe) => self.way.paths.tlp_delay(),
            _ => return Time::NEVER,
        };
        self.win.loss.last_sent() + self.patience(wait)
    }

    /// Whether so few packets are in flight that an early copy is useful, and the limit on such
    /// copies allows one.
    fn is_hedged(&self) -> bool {
        self.shared.cfg.guards.has(Guard::Hedge)
            && self.win.board.in_flight() <= HEDGED_MAX
            && self.win.loss.can_hedge()
    }

    /// Limits a wait, so that a peer is asked a few times before its silence counts.
    fn patience(&self, wait: Span) -> Span {
        Span(wait.0.min(PATIENCE.of_span(self.shared.cfg.loss.unresponsive_after).0))
    }

    /// Retransmission timeout of a packet in flight. It doubles every few transmissions of the
    /// packet, so that `RETRANSMITS_MAX` of them take about as long as a peer may be silent. No
    /// limit reduces it below the path's timeout from measured RTTs: a copy of a packet that is
    /// still under way only lengthens the queue.
    fn timeout_of(&self, e: &Entry) -> Span {
        let on = self.shared.cfg.guards.has(Guard::Doubling);
        let doublings = u8::from(on) * (e.again / DOUBLING_EACH).min(DOUBLINGS_MAX);
        let timeout = self.way.paths.rto(e.path);
        debug_assert!(timeout > Span::ZERO, "a timeout is some time");
        let longer = timeout.scale(1 << doublings, 1).0.min(self.shared.cfg.loss.rto_max.0);
        timeout.max(self.patience(Span(longer)))
    }

    /// When a packet in flight since `since` is given up: after `timeout`, or earlier, when no echo
    /// has come for so long that the measured RTTs behind a long timeout no longer hold.
    fn waited_until(&self, since: Time, answered: Time, timeout: Span) -> Time {
        (since + timeout).min(answered.max(since) + self.patience(timeout))
    }

    /// When a silent peer counts as gone. Outstanding requests then end; without any, the context
    /// is dropped with all its state. `NEVER`: no state is kept for the peer.
    fn silence_deadline(&self) -> Time {
        let after = self.shared.cfg.loss.unresponsive_after;
        if !self.win.outstanding.is_empty() {
            return self.peer.last_heard().max(self.win.outstanding.since()) + after;
        }
        if self.win.keeps() && !planted!(DeadKept) {
            return self.win.loss.silent_since(self.peer.last_heard()) + after;
        }
        Time::NEVER
    }

    /// Whether the peer has been silent for so long that it counts as gone.
    pub(crate) fn is_silent(&self) -> bool {
        let since = self.win.loss.silent_since(self.peer.last_heard());
        since + self.shared.cfg.loss.unresponsive_after <= self.seen()
    }

    /// Handles the loss timer, if it is due. The engine acts on the result.
    pub(crate) fn loss_fire(&mut self) -> Silence {
        let seen = self.seen();
        let suppressed = planted!(TimersSuppressed) && self.shared.rx.unread > Span::ZERO;
        if self.loss_deadline() > seen || suppressed {
            return Silence::Bearable;
        }
        if self.silence_deadline() <= seen {
            let work = !self.win.outstanding.is_empty();
            return if work { Silence::WorkEnds } else { Silence::PeerGone };
        }
        let heard = self.peer.last_heard();
        debug_assert!(self.peer.state() == ContextState::Open, "before, nothing can be lost");
        if self.win.loss.is_stalled() {
            self.stall_probe();
        } else if self.ask_deadline() <= seen {
            self.verdicts_ask();
        } else if self.win.board.oldest().is_none() {
            // Requests are outstanding and nothing is in flight: a probe asks whether the peer is
            // still there.
            self.win.loss.probed(self.now);
            self.probe_push();
        } else if self.overtaken_at() <= seen {
            self.shared.counters.timer_steps += u64::from(self.loss_detect());
            self.path_changes();
        } else if self.tail_deadline() <= seen {
            self.tail_probe();
        } else {
            self.timeout_scan(heard);
        }
        Silence::Bearable
    }

    /// An acknowledgment lacked the verdicts on some PSNs. `progress`: our lower edge has advanced;
    /// the peer's next list of verdicts begins there, so it is requested soon. `first`: no verdict
    /// was missing before.
    pub(crate) fn verdicts_await(&mut self, progress: bool, first: bool) {
        if !progress && !first {
            return;
        }
        let half = ASK_SOON.of_span(self.way.paths.srtt());
        self.win.loss.asks_begin(self.now, first);
        let soon = self.win.loss.asked_at() + half;
        if progress && soon <= self.now {
            return self.verdicts_ask();
        }
        // Without progress, a packet below these PSNs is missing, and their verdicts come with it.
        let later = self.now + self.ask_wait();
        self.win.loss.ask_set(if progress { soon } else { later });
    }

    /// Time until the next request for verdicts, which doubles each time.
    fn ask_wait(&mut self) -> Span {
        let wait = self.way.paths.tlp_delay();
        let round = self.win.loss.ask_round().min(ASKS_MAX);
        self.patience(wait.scale(1 << round, 1))
    }

    /// Requests missing verdicts. A peer that answers without them gets the packets again, as often
    /// as any packet may be retransmitted; this bounds how long it can keep requests open.
    fn verdicts_ask(&mut self) {
        let wait = self.ask_wait();
        let heard = self.peer.last_heard();
        debug_assert!(self.win.board.arrived_len() > 0, "there is something to ask for");
        let answers = self.win.loss.ask_round() >= ASKS_MAX && heard > self.win.loss.asked_at();
        if answers && self.win.board.get(self.win.board.una()).state == SentState::Arrived {
            let n = self.win.board.arrived_lose();
            self.shared.counters.timer_steps += u64::from(n);
            return self.ready_push();
        }
        self.win.loss.asked(self.now, self.now + wait);
        self.probe_push();
    }

    /// Tail-loss probe: sends the oldest packet again on another path, without declaring it lost.
    fn tail_probe(&mut self) {
        let Some(p) = self.win.board.oldest() else { return };
        let hedged = self.is_hedged();
        self.win.loss.tail_probed(self.now, hedged);
        let e = *self.win.board.get(p);
        debug_assert!(
            e.state == SentState::InFlight && !self.win.loss.is_stalled(),
            "it can be told"
        );
        self.win.board.mark_lost(p);
        self.win.loss.remember(GivenUp::unblamed(p, &e));
        self.silence_note(&e);
        if self.win.board.in_flight() < HEDGED_MAX {
            self.way.paths.on_copied(e.path, self.now.since(e.sent));
        }
        self.shared.counters.tlp_pkts += 1;
        if !planted!(TailProbeLeaks) {
            self.way.paths.on_forgotten(e.wire_bytes);
        }
        self.room_offer();
    }

    /// Handles timeouts: a packet counts as lost if the peer has been heard since it was sent;
    /// otherwise the peer has stalled.
    fn timeout_scan(&mut self, heard: Time) {
        let mut any = false;
        while let Some(p) = self.win.board.oldest() {
            let e = *self.win.board.get(p);
            let (since, answered) = (self.win.loss.waits_since(e.sent), self.win.loss.echoed_at());
            let timeout = self.timeout_of(&e);
            if self.waited_until(since, answered, timeout) > self.seen() {
                break;
            }
            if heard < since {
                self.stall();
                break;
            }
            self.shared.counters.timer_steps += 1;
            self.lose(p, LossRule::Timeout);
            any = true;
        }
        if any {
            self.shared.counters.retrans_timeout_events += 1;
            self.path_changes();
        }
    }

    /// The peer has stalled: nothing was heard from it on any path since the oldest packet was
    /// sent.
    fn stall(&mut self) {
        self.win.loss.stall(self.now);
        // The packets in flight wait for retransmission, unless an acknowledgment comes first.
        // Their room in flight is freed for the other engines at this address, which may work.
        let mut bytes = 0;
        while let Some(p) = self.win.board.oldest() {
            let e = *self.win.board.get(p);
            bytes += e.wire_bytes;
            self.shared.counters.timer_steps += 1;
            self.win.board.mark_lost(p);
            self.mtu_lost(&e);
            // If the peer received the original, it will echo it. If it never does, the original
            // was lost, and where little is sent this may be the only sign of a dead path.
            self.win.loss.remember(GivenUp::unblamed(p, &e));
            self.silence_note(&e);
        }
        debug_assert_eq!(self.win.board.in_flight(), 0, "all of it waits to go again");
        self.shared.counters.stalls += 1;
        self.shared.counters.impaired_remote_conn_events += 1;
        self.way.paths.on_forgotten(if planted!(StallLeaks) { 0 } else { bytes });
        self.inflight_check();
        self.inflight_freed();
        self.shared.observer.event(self.now, Event::Stalled { ctx: self.ci });
        self.stall_probe();
    }

    /// Sends one probe of a stalled peer, on another path each time, at growing intervals.
    fn stall_probe(&mut self) {
        let rto_max = self.shared.cfg.loss.rto_max;
        let srtt = self.way.paths.srtt().max(self.shared.cfg.loss.rto_min);
        let doublings =
            self.win.loss.probe_round().saturating_sub(STALL_PROBES_QUICK).min(STALL_DOUBLINGS_MAX);
        let wait = srtt.scale(1 << doublings, 1).min(rto_max) + self.way.paths.host_wait();
        self.win.loss.stall_probed(self.now + self.patience(wait));
        self.probe_push();
    }

    /// There is new work for a stalled peer: probes it again soon.
    pub(crate) fn stall_probe_soon(&mut self) {
        let kept = STALL_DOUBLINGS_KEPT + STALL_PROBES_QUICK;
        self.win.loss.stall_probe_hasten(self.now + STALL_PROBE_SOON, kept);
    }
}
