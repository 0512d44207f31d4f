//! An acknowledgment comes in: timing to paths and rate, PSNs off the scoreboard, verdicts to
//! requests.

use crate::counters::Drop;
use crate::engine::Engine;
use crate::events::{Event, Observer};
use crate::limits::WINDOW_MAX;
use crate::path::Sample;
use crate::peer::given_up::Blame;
use crate::peer::scoreboard::{Kind, Sent, SentState, within};
use crate::psn;
use crate::time::{Span, Time};
use srd_wire::{AckBlock, Echo, Verdict};

/// Older echoes are a clock that wrapped, or a peer that invents.
const ECHO_AGE_MAX: Span = Span::from_secs(30);

/// The last PSN that a bit of the block speaks of.
fn top(ack: &AckBlock) -> Option<u32> {
    let k = ack.words.iter().rposition(|&w| w != 0)?;
    Some(ack.base.wrapping_add(64 * k as u32 + (63 - ack.words[k].leading_zeros())))
}

/// What one acknowledgment amounted to.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    bytes: u32,
    psns: u32,
}

impl<O: Observer> Engine<O> {
    /// `waited`: in our socket; `back`: on the way to us, longer than the quickest.
    pub(crate) fn ack_received(
        &mut self,
        now: Time,
        (waited, back): (Span, Span),
        ci: u32,
        ack: &AckBlock,
    ) -> Result<(), Drop> {
        let board = &mut self.contexts.get_mut(ci).act().board;
        let (una, next) = (board.una(), board.next());
        let waiting = board.arrived_len() > 0;
        let unsent = psn::before(next, ack.cum) || top(ack).is_some_and(|p| !psn::before(p, next));
        let near = ack.cum.wrapping_sub(next) < u32::from(WINDOW_MAX);
        if unsent && !(near && planted!(AckUnsentTaken)) {
            return Err(Drop::BadAck);
        }
        for e in &ack.echoes {
            self.echo_received(now, (waited, back), ci, e);
        }
        let mut tally = Tally::default();
        let mut steps = 0;
        // Nearly always nothing is refused.
        let plain = ack.verdicts.is_empty() && !ack.partial;
        let mut p = una;
        while psn::before(p, ack.cum) {
            steps += 1;
            if plain {
                self.psn_acked(now, ci, p, Verdict::Ok, &mut tally);
            } else {
                p = self.known_skip(ci, p, ack);
                if !psn::before(p, ack.cum) {
                    break;
                }
                self.psn_told(now, ci, p, ack, &mut tally);
            }
            p = p.wrapping_add(1);
        }
        for (k, &word) in ack.words.iter().enumerate() {
            let base = ack.base.wrapping_add(64 * k as u32);
            let mut bits = word;
            while bits != 0 {
                let p = base.wrapping_add(bits.trailing_zeros());
                bits &= bits - 1;
                steps += 1;
                if !within(p, una, next) {
                    continue;
                }
                if plain {
                    self.psn_acked(now, ci, p, Verdict::Ok, &mut tally);
                } else {
                    self.psn_told(now, ci, p, ack, &mut tally);
                }
            }
        }
        self.shared.counters.ack_steps += steps;
        // Completions may have ended the context's work, never the context itself.
        let board = &mut self.contexts.get_mut(ci).act().board;
        board.advance();
        if board.arrived_len() > 0 {
            board.note_arrived_to(ack.cum);
            let progress = board.una() != una;
            self.verdicts_await(now, ci, progress, !waiting);
        }
        self.ack_peer_state(now, ci, ack);
        self.ack_finish(now, ci, tally);
        Ok(())
    }

    /// The first PSN from `p` on of which the block may say something new. Where it does not tell
    /// how `p` was judged, it does not tell that of any that follows.
    fn known_skip(&mut self, ci: u32, p: u32, ack: &AckBlock) -> u32 {
        let to = self.contexts.get_mut(ci).act().board.arrived_to();
        if psn::before(p, to) && ack.verdict(p).is_none() { to } else { p }
    }

    /// One echo: an RTT sample, a sign of life for its path, perhaps the news that a loss was none.
    fn echo_received(&mut self, now: Time, (waited, back): (Span, Span), ci: u32, e: &Echo) {
        let c = self.contexts.get_mut(ci);
        let path_ctx = c.path_ctx;
        let next = c.tx_num_next;
        let age = now.since_wire(e.timestamp);
        let a = c.act();
        // What names no transmission of this context is invented, and paths and round trips are
        // those of all contexts to the address.
        let sent = Time(now.0.wrapping_sub(age.0));
        let known = age.0 <= now.0 && a.sent_log.take(sent, e, next);
        if !known && !planted!(EchoUnmatched) {
            self.shared.counters.echoes_refused += 1;
            return;
        }
        if self.shared.sizes.awake > 0 {
            self.mtu_passed(ci, Some(e.tx_num), None);
        }
        let a = self.contexts.get_mut(ci).act();
        if let Some(lost) = a.loss.recall(e.tx_num)
            && lost.blame != Blame::None
        {
            self.shared.counters.retrans_spurious_pkts += 1;
            self.paths.get_mut(path_ctx).ctx.on_spurious(now, lost.path);
            self.shared
                .observer
                .event(now, Event::Spurious { ctx: ci, psn: lost.psn, path: lost.path });
        }
        if age > ECHO_AGE_MAX || age.0 > now.0 {
            return;
        }
        a.loss.echoed(now);
        // No way back is longer than the round trip: a clock has leapt.
        let leapt = back > age;
        let back = if leapt { Span::ZERO } else { back };
        if leapt {
            a.inbound.forget();
        }
        a.board.note_arrival(e.path, sent);
        // Out comes what either host took: the wait in our socket, and what the peer reports.
        let both = age - waited - Span(u64::from(e.delay) << 6);
        // And what the acknowledgment's own way took too long: no fault of this path.
        let rtt = both - back;
        if e.delay == u16::MAX {
            self.paths.get_mut(path_ctx).ctx.on_host_delay(now, age);
        }
        let measured = e.delay != u16::MAX && rtt > Span::ZERO;
        if measured && u16::from(e.path) < self.shared.cfg.path.paths {
            let pc = &mut self.paths.get_mut(path_ctx).ctx;
            pc.on_host_delay(now, age - both);
            let claimed = age - waited - rtt;
            pc.on_sample(now, e.path, &Sample { sent, rtt, back, claimed, ce: e.ce });
            let (path, ce, rtt_ns) = (e.path, e.ce, rtt.0);
            self.shared.observer.event(now, Event::Rtt { ctx: ci, path, rtt_ns, ce });
        }
    }

    /// The block says that `p` has arrived, and perhaps how it was judged.
    #[inline(never)]
    fn psn_told(&mut self, now: Time, ci: u32, p: u32, ack: &AckBlock, tally: &mut Tally) {
        let board = &mut self.contexts.get_mut(ci).act().board;
        if board.is_acked(p) {
            return;
        }
        match ack.verdict(p) {
            Some(_) if planted!(VerdictIgnored) => self.psn_acked(now, ci, p, Verdict::Ok, tally),
            Some(verdict) => self.psn_acked(now, ci, p, verdict, tally),
            None => {
                if let Some(was) = board.mark_arrived(p) {
                    self.psn_arrived(now, ci, p, &was, tally);
                }
            }
        }
    }

    /// `p` has arrived and was judged.
    #[inline]
    fn psn_acked(&mut self, now: Time, ci: u32, p: u32, verdict: Verdict, tally: &mut Tally) {
        let Some(was) = self.contexts.get_mut(ci).act().board.mark_acked(p) else { return };
        if was.state != SentState::Arrived {
            self.psn_arrived(now, ci, p, &was, tally);
        }
        self.shared.observer.event(now, Event::Acked { ctx: ci, psn: p });
        self.entry_resolved(now, ci, &was, verdict);
    }

    /// `p` has arrived, of which that was not known.
    #[inline(always)]
    fn psn_arrived(&mut self, now: Time, ci: u32, p: u32, was: &Sent, tally: &mut Tally) {
        tally.psns += 1;
        let path_ctx = self.contexts.get(ci).path_ctx;
        // Late or not, as large as that it has passed.
        let awake = self.shared.sizes.awake > 0;
        debug_assert!(awake || !self.paths.get(path_ctx).mtu.is_awake(), "counted");
        if awake && was.kind.recalled().is_none() {
            self.mtu_passed(ci, None, Some(was.len));
        }
        if was.state == SentState::InFlight {
            tally.bytes += was.wire_bytes;
            let pc = &mut self.paths.get_mut(path_ctx).ctx;
            pc.on_acked(now, was.path, was.wire_bytes, was.sent);
        }
        if was.again > 0
            && let Some(first) = self.contexts.get_mut(ci).act().loss.unjudged(p)
        {
            let pc = &mut self.paths.get_mut(path_ctx).ctx;
            // The copy arrived and the original was never echoed: its path lost it.
            pc.on_proved_lost(now, first.path, first.blame == Blame::Unsure);
        }
    }

    /// What a PSN carried has been judged by the peer.
    fn entry_resolved(&mut self, now: Time, ci: u32, was: &Sent, verdict: Verdict) {
        match was.kind {
            Kind::Tombstone => {}
            Kind::Cancel => {
                let c = self.contexts.get_mut(ci);
                c.imms_out -= u16::from(!planted!(ImmediateCreditLost));
                self.shared.out.ready_push(ci);
            }
            Kind::RecallSend | Kind::RecallWrite | Kind::RecallResp => {
                self.recall_resolved(now, ci, was, verdict);
            }
            Kind::ReadResp | Kind::ReadError => self.job_segment_done(ci, was.wr, Some(verdict)),
            Kind::Send | Kind::Write | Kind::ImmRetry | Kind::ReadReq => {
                self.wr_segment_done(now, was.wr, was.kind, verdict);
            }
        }
    }

    /// What the block says about the peer itself.
    fn ack_peer_state(&mut self, now: Time, ci: u32, ack: &AckBlock) {
        let credits = self.granting(ci);
        let c = self.contexts.get_mut(ci);
        let before = c.peer_rxq_drops.replace(ack.rxq_drops);
        let drops = before.map_or(0, |b| ack.rxq_drops.wrapping_sub(b));
        c.rx_budget = ack.rx_budget;
        // Each context has a counter of its own; the address shares what they bring.
        let units = ack.credit.wrapping_sub(c.credit_seen);
        let fresh = credits && units > 0 && units < 1 << 31;
        if fresh {
            c.credit_seen = ack.credit;
        }
        let path_ctx = c.path_ctx;
        let entry = self.paths.get_mut(path_ctx);
        let pc = &mut entry.ctx;
        if drops > 0 && drops < 1 << 31 {
            entry.mtu.on_receiver_drops();
            pc.on_receiver_drops(now, drops);
        }
        if fresh {
            entry.credit_total = entry.credit_total.wrapping_add(units);
            pc.on_credit(entry.credit_total);
        }
    }

    fn ack_finish(&mut self, now: Time, ci: u32, tally: Tally) {
        let a = self.contexts.get_mut(ci).act();
        let app_limited = !a.has_to_send();
        if tally.psns > 0 {
            a.loss.progress(now, tally.psns);
        }
        let credited = self.granting(ci);
        let path_ctx = self.contexts.get(ci).path_ctx;
        let pc = &mut self.paths.get_mut(path_ctx).ctx;
        pc.on_ack_end(now, tally.bytes, app_limited, credited);
        let event = Event::Rate {
            bytes_per_sec: pc.rate_bytes_per_sec(),
            inflight_max: pc.inflight_max(),
            inflight: pc.inflight(),
        };
        self.shared.observer.event(now, event);
        self.loss_detect(now, ci);
        self.inflight_freed(path_ctx);
        self.shared.out.ready_push(ci);
        self.path_changes(now, path_ctx);
    }
}
