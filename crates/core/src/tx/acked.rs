//! Handling of acknowledgments: RTT samples for paths and rate, acknowledged PSNs of the
//! scoreboard, verdicts for requests.

use crate::counters::DropReason;
use crate::events::{Event, Observer};
use crate::guards::Guard;
use crate::lane::{Arrival, Lane};
use crate::limits::WINDOW_MAX;
use crate::path::Sample;
use crate::peer::given_up::Blame;
use crate::peer::reports::News;
use crate::peer::scoreboard::{Kind, SentState, Settled};
use crate::psn::{Psn, TxLow};
use crate::time::{Span, Time};
use srd_wire::{AckBlock, Echo, Verdict};

/// Largest plausible age of an echo: an older one comes from a clock that wrapped, or from a peer
/// that invents echoes.
const ECHO_AGE_MAX: Span = Span::from_secs(30);

/// The highest PSN that a bit of the block acknowledges.
fn top(ack: &AckBlock) -> Option<Psn> {
    let k = ack.words.iter().rposition(|&w| w != 0)?;
    Some(Psn(ack.base).plus(64 * k as u32 + (63 - ack.words[k].leading_zeros())))
}

/// Newly acknowledged bytes and PSNs of one acknowledgment.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    bytes: u32,
    psns: u32,
}

impl<O: Observer> Lane<'_, O> {
    /// Handles an acknowledgment block. It is not inlined, because few packets carry one.
    #[inline(never)]
    pub(crate) fn ack_received(
        &mut self,
        arrival: Arrival,
        ack: &AckBlock,
    ) -> Result<(), DropReason> {
        let (una, next, cum) = (self.win.board.una(), self.win.board.next(), Psn(ack.cum));
        let waiting = self.win.board.arrived_len() > 0;
        let unsent = next.is_before(cum) || top(ack).is_some_and(|p| !p.is_before(next));
        let near = cum.since(next) < u32::from(WINDOW_MAX);
        if unsent && !(near && planted!(AckUnsentTaken)) {
            return Err(DropReason::BadAck);
        }
        for e in &ack.echoes {
            self.echo_received(arrival, e);
        }
        let mut tally = Tally::default();
        let mut steps = 0;
        // The usual case: nothing was refused.
        let plain = ack.verdicts.is_empty() && !ack.partial;
        let mut p = una;
        while plain && p.is_before(cum) {
            steps += 1;
            self.psn_acked(p, Verdict::Ok, &mut tally);
            p = p.next();
        }
        while p.is_before(cum) {
            steps += 1;
            p = self.known_skip(p, ack);
            if !p.is_before(cum) {
                break;
            }
            self.psn_told(p, ack, &mut tally);
            p = p.next();
        }
        for (k, &word) in ack.words.iter().enumerate() {
            let base = Psn(ack.base).plus(64 * k as u32);
            let mut bits = word;
            while bits != 0 {
                let p = base.plus(bits.trailing_zeros());
                bits &= bits - 1;
                steps += 1;
                if !p.is_within(una, next) {
                    continue;
                }
                self.psn_told(p, ack, &mut tally);
            }
        }
        self.shared.counters.ack_steps += steps;
        // Completions may have ended the context's requests, but never the context itself.
        self.win.board.advance();
        debug_assert!(!self.win.board.una().is_before(una), "the lower edge never goes back");
        if self.win.board.arrived_len() > 0 {
            self.win.board.note_arrived_to(cum);
            let progress = self.win.board.una() != una;
            self.verdicts_await(progress, !waiting);
        }
        if self.win.replay.ack_take(arrival.tx_num) || planted!(HostSignalStale) {
            self.ack_peer_state(ack);
        }
        self.ack_finish(tally);
        Ok(())
    }

    /// The first PSN from `p` on about which the block may say something new. If the block holds no
    /// verdict on `p`, it holds none on the PSNs known to have arrived that follow.
    fn known_skip(&self, p: Psn, ack: &AckBlock) -> Psn {
        let to = self.win.board.arrived_to();
        if p.is_before(to) && ack.verdict(p.0).is_none() { to } else { p }
    }

    /// Handles one echo: an RTT sample, evidence that its path works, and possibly that a loss was
    /// spurious.
    fn echo_received(&mut self, arrival: Arrival, e: &Echo) {
        let next = self.peer.tx_num_next();
        let age = self.now.since_wire(e.timestamp);
        // An echo that names no transmission of this context is invented. It is refused, because
        // all contexts to the address share paths and round-trip times.
        let sent = Time(self.now.0.wrapping_sub(age.0));
        let taken = (age.0 <= self.now.0).then(|| self.win.sent_log.take(sent, e, next)).flatten();
        let (known, full) = (taken.is_some(), taken == Some(true));
        if !known && !planted!(EchoUnmatched) {
            self.shared.counters.echoes_refused += 1;
            return;
        }
        if known {
            self.way.paths.awake(self.now).on_proof();
        }
        if self.shared.sizes.awake > 0 {
            self.mtu_passed(Some(TxLow(e.tx_num)), None);
        }
        if let Some(lost) = self.win.loss.recall(TxLow(e.tx_num))
            && lost.blame() != Blame::None
        {
            self.shared.counters.retrans_spurious_pkts += 1;
            self.way.paths.awake(self.now).on_spurious(lost.path());
            self.shared.observer.event(
                self.now,
                Event::Spurious { ctx: self.ci, psn: lost.psn(), path: lost.path() },
            );
        }
        if age > ECHO_AGE_MAX || age.0 > self.now.0 {
            return;
        }
        self.win.loss.echoed(self.now);
        if self.shared.cfg.path.rails > 1 {
            self.way.paths.awake(self.now).on_rail_echo(e.path, sent);
        }
        let (waited, back) = (arrival.waited, arrival.back);
        // A one-way delay above the round-trip time means that a clock has leapt.
        let leapt = back > age;
        let known = self.shared.cfg.guards.has(Guard::WayBack) && !leapt;
        let back = if known { back } else { Span::ZERO };
        if leapt {
            self.win.inbound.forget();
        }
        self.win.board.note_arrival(sent);
        // Rule CC-01.
        // Subtracts the delays in the two hosts: the wait in our socket, and the delay that the
        // peer reports.
        let both = age - waited - Span(u64::from(e.delay) << 6);
        // Subtracts the excess one-way delay of the acknowledgment as well, which is not caused by
        // this path.
        let rtt = both - back;
        if e.delay == u16::MAX {
            self.way.paths.awake(self.now).on_host_delay(age);
        }
        let measured = e.delay != u16::MAX && rtt > Span::ZERO;
        if measured && u16::from(e.path) < self.shared.cfg.path.paths {
            self.way.paths.awake(self.now).on_host_delay(age - both);
            let claimed = age - waited - rtt;
            self.way
                .paths
                .awake(self.now)
                .on_sample(e.path, &Sample { rtt, back, sent, claimed, ce: e.ce, full });
            let (path, ce, rtt_ns) = (e.path, e.ce, rtt.0);
            self.shared.observer.event(self.now, Event::Rtt { ctx: self.ci, path, rtt_ns, ce });
        }
    }

    /// The block says that `p` has arrived, and may hold the verdict on it.
    #[inline(never)]
    fn psn_told(&mut self, p: Psn, ack: &AckBlock, tally: &mut Tally) {
        if self.win.board.is_acked(p) {
            return;
        }
        match ack.verdict(p.0) {
            Some(_) if planted!(VerdictIgnored) => self.psn_acked(p, Verdict::Ok, tally),
            Some(verdict) => self.psn_acked(p, verdict, tally),
            None => {
                if let Some(was) = self.win.board.mark_arrived(p) {
                    self.psn_arrived(p, &was, tally);
                }
            }
        }
    }

    /// `p` has arrived with this verdict. Usually it is one of many in a row.
    #[inline(always)]
    fn psn_acked(&mut self, p: Psn, verdict: Verdict, tally: &mut Tally) {
        let Some(was) = self.win.board.mark_acked(p) else { return };
        if was.state != SentState::Arrived {
            self.psn_arrived(p, &was, tally);
        }
        self.shared.observer.event(self.now, Event::Acked { ctx: self.ci, psn: p });
        self.entry_resolved(p, &was, verdict);
    }

    /// `p` has arrived, which was not known before.
    #[inline(always)]
    fn psn_arrived(&mut self, p: Psn, was: &Settled, tally: &mut Tally) {
        tally.psns += 1;
        // Even if it was declared lost before, its arrival shows that packets of its size pass.
        let awake = self.shared.sizes.awake > 0;
        debug_assert!(awake || !self.way.mtu.is_awake(), "counted");
        if awake && was.kind.recalled().is_none() {
            self.mtu_passed(None, Some(was.size_shown()));
        }
        if was.state == SentState::InFlight {
            tally.bytes += was.wire_bytes;
            self.way.paths.awake(self.now).on_acked(was.path, was.wire_bytes, was.sent);
        }
        if was.again > 0
            && let Some(first) = self.win.loss.unjudged(p)
        {
            // The copy arrived and the original was never echoed: the path of the original lost it.
            let unsure = first.blame() == Blame::Unsure;
            self.way.paths.awake(self.now).on_proved_lost(first.path(), unsure);
        }
    }

    /// Handles the peer's verdict on the content of a PSN.
    #[inline(always)]
    fn entry_resolved(&mut self, p: Psn, was: &Settled, verdict: Verdict) {
        match was.kind {
            Kind::Tombstone => {}
            Kind::Cancel => {
                if !planted!(ImmediateCreditLost) {
                    self.win.outstanding.imm_end();
                }
                self.ready_push();
            }
            Kind::RecallSend | Kind::RecallWrite | Kind::RecallResp => {
                self.recall_resolved(p, verdict);
            }
            Kind::ReadResp | Kind::ReadError => self.job_segment_done(was.job(), Some(verdict)),
            Kind::Send | Kind::Write | Kind::ImmRetry | Kind::ReadReq => {
                self.wr_segment_done(was.request(), was.kind, verdict);
            }
        }
    }

    /// Handles what the newest block says about the peer itself: drops, credits and the state of
    /// its host.
    fn ack_peer_state(&mut self, ack: &AckBlock) {
        let credits = self.granting();
        let News { drops, credit_units } = self.peer.reports_mut().read(ack, credits);
        if self.signalling() {
            self.way.paths.on_host_signal(self.now, self.ci, ack.above);
        }
        if drops > 0 {
            self.way.mtu.on_receiver_drops();
            self.way.paths.awake(self.now).on_receiver_drops(drops);
        }
        if credit_units > 0 {
            // Each context has a counter of its own; all contexts to the address share the credits.
            self.way.credit_total = self.way.credit_total.wrapping_add(credit_units);
            self.way.paths.on_credit(self.now, self.way.credit_total, self.way.active);
        }
    }

    fn ack_finish(&mut self, tally: Tally) {
        let app_limited = !self.win.has_to_send();
        if tally.psns > 0 {
            self.win.loss.progress(self.now, tally.psns);
        }
        self.share_touch(app_limited && self.way.paths.inflight() == 0);
        let credited = self.granting();
        self.way.paths.awake(self.now).on_ack_end(tally.bytes, app_limited, credited);
        if credited && app_limited && self.way.waits.is_empty() {
            self.way.paths.credits_renew();
        }
        let event = Event::Rate {
            bytes_per_sec: self.way.paths.rate_bytes_per_sec(),
            inflight_max: self.way.paths.inflight_max(),
            inflight: self.way.paths.inflight(),
        };
        self.shared.observer.event(self.now, event);
        self.loss_detect();
        if self.shared.cfg.path.rails > 1 {
            let slack = self.way.paths.reorder_slack();
            self.way.paths.awake(self.now).rails_judge(slack);
        }
        self.inflight_check();
        self.inflight_freed();
        self.ready_push_useful();
        self.path_changes();
    }
}
