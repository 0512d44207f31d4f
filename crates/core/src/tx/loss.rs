//! Loss: two rules driven by acknowledgments, a tail-loss probe and a timeout driven by time, and
//! the silence that is nobody's loss.

use crate::engine::Engine;
use crate::events::{Event, LossRule, Observer};
use crate::outbox::ProbeOut;
use crate::path::PathContext;
use crate::peer::given_up::{Blame, GivenUp, HEDGE_COST};
use crate::peer::scoreboard::{Sent, SentState};
use crate::peer::{Active, ContextState};
use crate::time::{Span, Time};

/// Probes of a stalled peer, a round trip apart, before they become ever rarer: some may have taken
/// dead paths, or their answers may.
const PROBES_QUICK: u8 = 4;
/// A packet's timeout doubles with so many transmissions, whatever paths they took.
const DOUBLING_EACH: u8 = 8;
/// Times that a peer which is heard is asked for verdicts before the packets themselves go again.
/// The first wait is a tail probe's; each is twice the one before.
const ASKS_MAX: u8 = 8;
/// Packets in flight that are worth a tail probe sooner than usual.
const HEDGED_MAX: u32 = 4;
/// Such probes in a row, each after twice the time.
const HEDGES_MAX: u8 = 3;

/// When the peer is asked for verdicts that it has not told.
fn ask_deadline(a: &Active) -> Time {
    let asks = a.board.arrived_len() > 0 && !planted!(ArrivedUnasked);
    if asks { a.loss.ask_at } else { Time::NEVER }
}

impl<O: Observer> Engine<O> {
    /// Applies both rules after an acknowledgment.
    pub(crate) fn loss_detect(&mut self, now: Time, ci: u32) {
        let path_ctx = self.contexts.get(ci).path_ctx;
        let cross = self.paths.get(path_ctx).ctx.reorder_slack_cross();
        loop {
            let board = &self.contexts.get_mut(ci).act().board;
            let Some(p) = board.oldest() else { break };
            let (e, newest) = (*board.get(p), board.newest_acked);
            if e.sent + cross >= newest {
                break;
            }
            let lag = self.paths.get(path_ctx).ctx.lag(e.path);
            if e.sent + cross + lag >= newest {
                break;
            }
            self.lose(now, ci, p, LossRule::CrossPath);
        }
        let touched = self.contexts.get_mut(ci).act().board.touched_take();
        for (word, mut bits) in touched.into_iter().enumerate() {
            while bits != 0 {
                let path = (word as u32 * 64 + bits.trailing_zeros()) as u8;
                bits &= bits - 1;
                self.loss_detect_path(now, ci, path_ctx, path);
            }
        }
    }

    fn loss_detect_path(&mut self, now: Time, ci: u32, path_ctx: u32, path: u8) {
        if u16::from(path) >= self.shared.cfg.path.paths {
            return;
        }
        let slack = self.paths.get_mut(path_ctx).ctx.reorder_slack_same_path(path);
        loop {
            let board = &self.contexts.get_mut(ci).act().board;
            let (Some(p), newest) = board.path_oldest(path) else { return };
            if board.get(p).sent + slack >= newest {
                return;
            }
            self.lose(now, ci, p, LossRule::SamePath);
        }
    }

    /// PSN `p`, in flight, is lost.
    fn lose(&mut self, now: Time, ci: u32, p: u32, rule: LossRule) {
        let c = self.contexts.get_mut(ci);
        let path_ctx = c.path_ctx;
        let a = c.act();
        let e = *a.board.get(p);
        a.board.mark_lost(p);
        let pc = &mut self.paths.get_mut(path_ctx).ctx;
        let sure = pc.on_lost(now, e.path, e.wire_bytes, rule);
        let blame = if sure { Blame::Path } else { Blame::Unsure };
        a.loss.remember(GivenUp { psn: p, tx_num: e.tx_num as u32, path: e.path, blame });
        self.shared.observer.event(now, Event::Lost { ctx: ci, psn: p, path: e.path, rule });
        self.mtu_lost(now, ci, &e);
        self.shared.out.ready_push(ci);
    }

    /// When the loss timer of `ci` fires.
    pub(crate) fn loss_deadline(&self, ci: u32) -> Time {
        let c = self.contexts.get(ci);
        let Some(a) = c.active.as_ref() else { return Time::NEVER };
        if c.state != ContextState::Open {
            return Time::NEVER;
        }
        let silent_at = self.silence_deadline(ci);
        if a.loss.stalled {
            let watched = silent_at != Time::NEVER;
            return if watched { a.loss.probe_at.min(silent_at) } else { Time::NEVER };
        }
        let pc = &self.paths.get(c.path_ctx).ctx;
        let ask_at = ask_deadline(a);
        let Some(oldest) = a.board.oldest() else {
            if planted!(ArrivedUnasked) && a.board.arrived_len() > 0 {
                return Time::NEVER;
            }
            // Responses are awaited, or work that cannot leave, or something is kept for the peer:
            // make sure that it is still there.
            let quiet = c.last_heard.max(a.loss.last_sent);
            let alive =
                quiet + self.patience(pc.srtt().scale(8, 1).max(self.shared.cfg.loss.rto_max));
            let watched = if silent_at == Time::NEVER { silent_at } else { alive.min(silent_at) };
            return watched.min(ask_at);
        };
        let e = a.board.get(oldest);
        let since = e.sent.max(a.loss.resumed_at);
        let timeout = self.timeout_of(pc, e);
        let given_up = self.waited_until(since, a.loss.echoed_at, timeout);
        let first = given_up.min(self.tail_deadline(a, pc));
        first.min(silent_at).min(self.overtaken_at(ci)).min(ask_at)
    }

    /// When the oldest packet in flight counts as lost although nothing more is sent that could
    /// prove it: one that left after it has arrived, and its own round trip with the slack of the
    /// rule is over (the reordering timer of RACK, RFC 8985).
    fn overtaken_at(&self, ci: u32) -> Time {
        let c = self.contexts.get(ci);
        let Some(a) = c.active.as_ref() else { return Time::NEVER };
        let Some(oldest) = a.board.oldest() else { return Time::NEVER };
        let e = a.board.get(oldest);
        if e.sent >= a.board.newest_acked {
            return Time::NEVER;
        }
        let pc = &self.paths.get(c.path_ctx).ctx;
        let round_trip = pc.srtt() + pc.lag(e.path) + pc.host_delay();
        e.sent + round_trip + pc.reorder_slack_cross()
    }

    /// When the end of what is in flight is probed. A few packets are probed early and often, as
    /// long as that stays rare.
    fn tail_deadline(&self, a: &Active, pc: &PathContext) -> Time {
        let probes = a.loss.tail_probes;
        let hedged = a.board.in_flight() <= HEDGED_MAX && a.loss.hedge_credit >= HEDGE_COST;
        let wait = match hedged {
            true if probes < HEDGES_MAX => pc.hedge_delay().scale(1 << probes, 1),
            false if probes == 0 => pc.tlp_delay(),
            _ => return Time::NEVER,
        };
        a.loss.last_sent + self.patience(wait)
    }

    /// A wait, however slow the network was: a peer is asked a few times before its silence counts.
    fn patience(&self, wait: Span) -> Span {
        Span(wait.0.min(self.shared.cfg.loss.unresponsive_after.0 / 4))
    }

    /// How long a packet in flight is waited for while answers come. One that was sent often waits
    /// longer, whatever its paths: what is sent as often as `RETRANSMITS_MAX` allows takes as long
    /// as a silent peer is given. No limit cuts it below the round trips that are measured: a copy
    /// of what is still under way only makes the queue longer that it waits in.
    fn timeout_of(&self, pc: &PathContext, e: &Sent) -> Span {
        let doublings = (e.again / DOUBLING_EACH).min(5);
        let timeout = pc.rto(e.path);
        timeout.max(self.patience(timeout.scale(1 << doublings, 1)))
    }

    /// When a packet in flight since then is given up: after `timeout`, or when nothing has been
    /// said to have arrived for so long that the round trips behind a longer one have passed away.
    fn waited_until(&self, since: Time, answered: Time, timeout: Span) -> Time {
        (since + timeout).min(answered.max(since) + self.patience(timeout))
    }

    /// When a silent peer counts as gone: with requests of ours outstanding they end, without any
    /// the peer is forgotten with all that is kept for it. `NEVER`: nothing is kept for it.
    fn silence_deadline(&self, ci: u32) -> Time {
        let c = self.contexts.get(ci);
        let after = self.shared.cfg.loss.unresponsive_after;
        if c.outstanding > 0 {
            return c.last_heard.max(c.outstanding_since) + after;
        }
        match c.active.as_ref() {
            Some(a) if a.keeps() && !planted!(DeadKept) => {
                c.last_heard.max(a.loss.watched_from) + after
            }
            _ => Time::NEVER,
        }
    }

    /// Whether nothing was heard of the peer for so long that it counts as gone.
    pub(crate) fn is_silent(&self, now: Time, ci: u32) -> bool {
        let c = self.contexts.get(ci);
        let watched = c.active.as_ref().map_or(Time(0), |a| a.loss.watched_from);
        c.last_heard.max(watched) + self.shared.cfg.loss.unresponsive_after <= now
    }

    /// The loss timer fired.
    pub(crate) fn loss_fire(&mut self, now: Time, ci: u32) {
        let seen = self.shared.seen(now);
        let suppressed = planted!(TimersSuppressed) && self.shared.rx.unread > Span::ZERO;
        if self.loss_deadline(ci) > seen || suppressed {
            return;
        }
        if self.silence_deadline(ci) <= seen {
            return match self.contexts.get(ci).outstanding {
                0 => self.peer_forget(now, ci),
                _ => self.peer_unresponsive(now, ci),
            };
        }
        let c = self.contexts.get_mut(ci);
        if c.act().loss.stalled {
            return self.stall_probe(now, ci);
        }
        let a = c.act();
        if ask_deadline(a) <= seen {
            return self.verdicts_ask(now, ci);
        }
        if a.board.oldest().is_none() {
            // Reads outstanding, nothing in flight: a probe asks whether anybody is there.
            c.act().loss.last_sent = now;
            return self.probe_push(now, ci);
        }
        let (path_ctx, heard) = (c.path_ctx, c.last_heard);
        if self.overtaken_lose(now, ci) {
            return;
        }
        let a = self.contexts.get(ci).active.as_ref();
        let pc = &self.paths.get(path_ctx).ctx;
        if a.is_some_and(|a| self.tail_deadline(a, pc) <= seen) {
            return self.tail_probe(now, ci);
        }
        self.timeout_scan(now, ci, heard);
    }

    /// Loses what was overtaken for long enough.
    fn overtaken_lose(&mut self, now: Time, ci: u32) -> bool {
        let mut any = false;
        while self.overtaken_at(ci) <= self.shared.seen(now) {
            let Some(p) = self.contexts.get_mut(ci).act().board.oldest() else { break };
            self.shared.counters.timer_steps += 1;
            self.lose(now, ci, p, LossRule::CrossPath);
            any = true;
        }
        if any {
            let path_ctx = self.contexts.get(ci).path_ctx;
            self.path_changes(now, path_ctx);
        }
        any
    }

    /// An acknowledgment has left open how some PSNs were judged. `progress`: our lower edge has
    /// moved, and where it lies now the peer's next list begins: that is asked for soon. `first`:
    /// all was known before.
    pub(crate) fn verdicts_await(&mut self, now: Time, ci: u32, progress: bool, first: bool) {
        if !progress && !first {
            return;
        }
        let path_ctx = self.contexts.get(ci).path_ctx;
        let half = self.paths.get(path_ctx).ctx.srtt().scale(1, 2);
        let loss = &mut self.contexts.get_mut(ci).act().loss;
        loss.ask_round = 0;
        if first {
            loss.asked_at = now;
        }
        let soon = loss.asked_at + half;
        if progress && soon <= now {
            return self.verdicts_ask(now, ci);
        }
        // Without progress a packet before them is missing: they wait for it, too.
        let later = now + self.ask_wait(ci);
        self.contexts.get_mut(ci).act().loss.ask_at = if progress { soon } else { later };
    }

    /// Until an answer should have come, ever longer.
    fn ask_wait(&mut self, ci: u32) -> Span {
        let path_ctx = self.contexts.get(ci).path_ctx;
        let wait = self.paths.get(path_ctx).ctx.tlp_delay();
        let round = self.contexts.get_mut(ci).act().loss.ask_round.min(ASKS_MAX);
        self.patience(wait.scale(1 << round, 1))
    }

    /// Asks for verdicts that the peer has not told. Who answers, and does not tell, gets the
    /// packets again, as often as any packet is sent: a bound for what a peer can keep open.
    fn verdicts_ask(&mut self, now: Time, ci: u32) {
        let wait = self.ask_wait(ci);
        let c = self.contexts.get_mut(ci);
        let heard = c.last_heard;
        let a = c.act();
        let answers = a.loss.ask_round >= ASKS_MAX && heard > a.loss.asked_at;
        if answers && a.board.get(a.board.una()).state == SentState::Arrived {
            let n = a.board.arrived_lose();
            self.shared.counters.timer_steps += u64::from(n);
            return self.shared.out.ready_push(ci);
        }
        a.loss.ask_round = a.loss.ask_round.saturating_add(1);
        (a.loss.asked_at, a.loss.ask_at) = (now, now + wait);
        self.probe_push(now, ci);
    }

    /// Resends the oldest packet on another path without concluding anything about its loss.
    fn tail_probe(&mut self, now: Time, ci: u32) {
        let c = self.contexts.get_mut(ci);
        let path_ctx = c.path_ctx;
        let a = c.act();
        let hedged = a.board.in_flight() <= HEDGED_MAX;
        a.loss.tail_probes = a.loss.tail_probes.saturating_add(1);
        if hedged {
            a.loss.hedge_credit = a.loss.hedge_credit.saturating_sub(HEDGE_COST);
        }
        let Some(p) = a.board.oldest() else { return };
        let e = *a.board.get(p);
        a.board.mark_lost(p);
        a.loss.remember(GivenUp::unblamed(p, &e));
        a.loss.last_sent = now;
        self.shared.counters.tlp_pkts += 1;
        if !planted!(TailProbeLeaks) {
            self.paths.get_mut(path_ctx).ctx.on_forgotten(e.wire_bytes);
        }
        self.shared.out.ready_push(ci);
    }

    /// Timeouts: lost if the peer has been heard since, a stall if not.
    fn timeout_scan(&mut self, now: Time, ci: u32, heard: Time) {
        let mut any = false;
        loop {
            let c = self.contexts.get_mut(ci);
            let path_ctx = c.path_ctx;
            let a = c.act();
            let Some(p) = a.board.oldest() else { break };
            let e = *a.board.get(p);
            let (since, answered) = (e.sent.max(a.loss.resumed_at), a.loss.echoed_at);
            let timeout = self.timeout_of(&self.paths.get(path_ctx).ctx, &e);
            if self.waited_until(since, answered, timeout) > self.shared.seen(now) {
                break;
            }
            if heard < since {
                self.stall(now, ci, since);
                break;
            }
            self.shared.counters.timer_steps += 1;
            self.lose(now, ci, p, LossRule::Timeout);
            any = true;
        }
        if any {
            self.shared.counters.retrans_timeout_events += 1;
            let path_ctx = self.contexts.get(ci).path_ctx;
            self.path_changes(now, path_ctx);
        }
    }

    /// Nothing was heard on any path since the oldest packet left: the peer has stalled.
    fn stall(&mut self, now: Time, ci: u32, since: Time) {
        let c = self.contexts.get_mut(ci);
        let path_ctx = c.path_ctx;
        let a = c.act();
        a.loss.stalled = true;
        a.loss.probe_at = now;
        a.loss.probe_round = 0;
        // What is in flight waits to be sent again, unless the first acknowledgment says otherwise:
        // its room belongs to the other engines at this address, which may be well.
        let mut bytes = 0;
        loop {
            let a = self.contexts.get_mut(ci).act();
            let Some(p) = a.board.oldest() else { break };
            let e = *a.board.get(p);
            bytes += e.wire_bytes;
            self.shared.counters.timer_steps += 1;
            a.board.mark_lost(p);
            self.mtu_lost(now, ci, &e);
            let a = self.contexts.get_mut(ci).act();
            // What a stalled peer gets later it acknowledges as what it is. What it never got was
            // lost, and where little is sent there may be no other sign of a dead path.
            a.loss.remember(GivenUp::unblamed(p, &e));
        }
        self.shared.counters.stalls += 1;
        self.shared.counters.impaired_remote_conn_events += 1;
        let pc = &mut self.paths.get_mut(path_ctx).ctx;
        pc.on_forgotten(if planted!(StallLeaks) { 0 } else { bytes });
        // Another engine at the address was heard since: then the paths are well.
        if self.paths.get(path_ctx).last_heard < since {
            self.paths.get_mut(path_ctx).ctx.freeze(now);
        }
        self.inflight_freed(path_ctx);
        self.shared.observer.event(now, Event::Stalled { ctx: ci });
        self.stall_probe(now, ci);
    }

    /// One probe, on another path each time, ever more rarely.
    fn stall_probe(&mut self, now: Time, ci: u32) {
        let rto_max = self.shared.cfg.loss.rto_max;
        let path_ctx = self.contexts.get(ci).path_ctx;
        let srtt = self.paths.get(path_ctx).ctx.srtt().max(self.shared.cfg.loss.rto_min);
        let a = self.contexts.get_mut(ci).act();
        let doublings = a.loss.probe_round.saturating_sub(PROBES_QUICK).min(16);
        let wait = srtt.scale(1 << doublings, 1).min(rto_max);
        a.loss.probe_round = a.loss.probe_round.saturating_add(1);
        a.loss.probe_at = now + wait;
        self.probe_push(now, ci);
    }

    /// New work for a stalled peer: ask again soon.
    pub(crate) fn stall_probe_soon(&mut self, now: Time, ci: u32) {
        let a = self.contexts.get_mut(ci).act();
        a.loss.probe_round = a.loss.probe_round.min(4 + PROBES_QUICK);
        let soon = now + Span::from_us(10);
        a.loss.probe_at = a.loss.probe_at.min(soon);
    }

    pub(crate) fn probe_push(&mut self, now: Time, ci: u32) {
        let path_ctx = self.contexts.get(ci).path_ctx;
        let path = self.paths.get_mut(path_ctx).ctx.path_any(now, &mut self.shared.rng);
        if !planted!(StallUnprobed) {
            self.shared.out.probe_push(ProbeOut::small(ci, path));
        }
    }
}
