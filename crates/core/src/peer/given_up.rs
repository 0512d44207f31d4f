//! Loss state of one context: transmissions given up, tail probes, probes of a silent peer, and
//! questions for verdicts.

use crate::peer::scoreboard::Entry;
use crate::psn::{Psn, TxLow};
use crate::time::Time;
use crate::tuning::{HEDGE_COST, HEDGE_CREDIT_MAX};
use std::collections::VecDeque;

/// Remembered transmissions that were given up and may still turn out to have arrived.
const RECENT_MAX: usize = 64;

/// A transmission that was declared lost or repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenUp {
    psn: Psn,
    tx_num: TxLow,
    path: u8,
    blame: Blame,
}

/// What was concluded about the path of a transmission that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The path lost the packet.
    Path,
    /// The packet counts as lost, but the peer was silent on all paths as well.
    Unsure,
    /// Nothing: a tail-loss probe repeated the packet, or all paths fell silent.
    None,
}

impl GivenUp {
    /// The transmission of `psn` that entry `e` records, with a conclusion about its path.
    pub fn new(psn: Psn, e: &Entry, blame: Blame) -> Self {
        Self { psn, tx_num: e.tx_num.low(), path: e.path, blame }
    }
    pub fn unblamed(psn: Psn, e: &Entry) -> Self {
        Self::new(psn, e, Blame::None)
    }
    pub fn psn(&self) -> Psn {
        self.psn
    }
    pub fn path(&self) -> u8 {
        self.path
    }
    pub fn blame(&self) -> Blame {
        self.blame
    }
}

/// Loss state of one context.
#[derive(Debug)]
pub(crate) struct LossState {
    /// The peer has stalled: all paths are silent, and only probes are sent.
    stalled: bool,
    /// The peer is alive but does not accept even packets without content.
    deaf: bool,
    last_sent: Time,
    /// Tail-loss probes since the last PSN was acknowledged.
    tail_probes: u8,
    /// Credit left for early tail-loss probes.
    hedge_credit: u8,
    /// Earliest start of a timeout: when the peer was last heard again after a stall.
    resumed_at: Time,
    /// When the peer last reported the arrival of any packet of ours.
    echoed_at: Time,
    probe_at: Time,
    probe_round: u8,
    /// Probes of an idle peer in a row, at most 7; sets their distance.
    idle_round: u8,
    idle_probed_at: Time,
    idle_unanswered: u8,
    /// Earliest start of the peer's silence: when the last work began or was given up.
    watched_from: Time,
    /// When the peer is asked (again) for verdicts that it has not reported.
    ask_at: Time,
    /// How often the peer was asked since it last reported a verdict.
    ask_round: u8,
    /// When the peer was last asked for verdicts.
    asked_at: Time,
    recent: VecDeque<GivenUp>,
}

impl Default for LossState {
    fn default() -> Self {
        Self {
            stalled: false,
            deaf: false,
            last_sent: Time(0),
            tail_probes: 0,
            hedge_credit: HEDGE_CREDIT_MAX,
            resumed_at: Time(0),
            echoed_at: Time(0),
            probe_at: Time::NEVER,
            probe_round: 0,
            idle_round: 0,
            idle_probed_at: Time(0),
            idle_unanswered: 0,
            watched_from: Time(0),
            ask_at: Time::NEVER,
            ask_round: 0,
            asked_at: Time(0),
            recent: VecDeque::with_capacity(RECENT_MAX),
        }
    }
}

impl LossState {
    /// Memory held, in bytes; it does not grow.
    pub fn held_bytes(&self) -> usize {
        self.recent.capacity() * size_of::<GivenUp>()
    }

    /// Notes that a reliable packet was sent.
    pub fn sent(&mut self, now: Time) {
        self.last_sent = now;
        self.idle_round = 0;
    }
    /// Notes that the peer reported the arrival of a packet.
    pub fn echoed(&mut self, now: Time) {
        self.echoed_at = now;
    }
    /// Number of probes in a row that an idle peer, last heard at `heard`, has not answered.
    pub fn idle_unanswered(&mut self, heard: Time) -> u8 {
        if heard > self.idle_probed_at {
            self.idle_unanswered = 0;
        }
        self.idle_unanswered
    }
    /// Counts one more probe that asks an idle peer for its lower edge. Returns the number of
    /// probes before it, at most 7.
    pub fn idle_round_take(&mut self, now: Time) -> u8 {
        let round = self.idle_round;
        self.idle_probed_at = now;
        self.idle_unanswered = self.idle_unanswered.saturating_add(1);
        self.idle_round = (round + 1).min(7);
        round
    }

    /// Whether all paths are silent, so that only probes are sent.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }
    /// Whether the peer is alive but accepts no packet of ours, however short and however often
    /// sent.
    #[inline]
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }
    /// Notes that the peer has not accepted a packet without content after all retransmissions.
    pub fn deafen(&mut self) {
        self.deaf = true;
    }
    /// When a packet or probe was last sent, or an acknowledgment last moved the tail.
    pub fn last_sent(&self) -> Time {
        self.last_sent
    }
    /// Start of the timeout of a transmission that was sent at `sent`.
    pub fn waits_since(&self, sent: Time) -> Time {
        sent.max(self.resumed_at)
    }
    /// When the peer last reported the arrival of any packet of ours.
    pub fn echoed_at(&self) -> Time {
        self.echoed_at
    }
    /// Start of the silence of a peer that was last heard at `heard`.
    pub fn silent_since(&self, heard: Time) -> Time {
        heard.max(self.watched_from)
    }
    /// Notes that an idle peer is probed.
    pub fn probed(&mut self, now: Time) {
        self.last_sent = now;
    }

    /// Tail-loss probes since the last PSN was acknowledged.
    pub fn tail_probes(&self) -> u8 {
        self.tail_probes
    }
    /// Doublings of the wait for a copy: none while half of what can be saved up is there, and one
    /// more for each halving of that.
    pub fn hedge_scarcity(&self) -> u8 {
        let half = HEDGE_CREDIT_MAX / 2;
        let doublings = (half / self.hedge_credit.clamp(HEDGE_COST, half)).ilog2() as u8;
        debug_assert!(doublings < 8, "a wait is doubled some times");
        doublings
    }

    /// Whether there is credit for an early tail-loss probe.
    pub fn can_hedge(&self) -> bool {
        self.hedge_credit >= HEDGE_COST
    }
    /// Notes a tail-loss probe; an early one (`quick`) costs credit.
    pub fn tail_probed(&mut self, now: Time, quick: bool) {
        self.tail_probes = self.tail_probes.saturating_add(1);
        debug_assert!(!quick || self.can_hedge(), "what is paid for is there");
        if quick {
            self.hedge_credit -= HEDGE_COST;
        }
        self.last_sent = now;
    }

    /// Marks the peer as stalled, because all paths are silent.
    pub fn stall(&mut self, now: Time) {
        debug_assert!(!self.stalled, "a peer stalls once until it is heard");
        (self.stalled, self.probe_at, self.probe_round) = (true, now, 0);
    }
    /// When a stalled peer is probed next.
    pub fn probe_at(&self) -> Time {
        self.probe_at
    }
    /// How often a stalled peer was probed.
    pub fn probe_round(&self) -> u8 {
        self.probe_round
    }
    /// Notes that the stalled peer is probed now, and is to be probed again at `next`.
    pub fn stall_probed(&mut self, next: Time) {
        debug_assert!(self.stalled, "who is heard is not probed like this");
        self.probe_round = self.probe_round.saturating_add(1);
        self.probe_at = next;
    }
    /// Makes the next probe due at `soon` at the latest, and continues as if no more than `rounds`
    /// probes had been sent.
    pub fn stall_probe_hasten(&mut self, soon: Time, rounds: u8) {
        self.probe_round = self.probe_round.min(rounds);
        self.probe_at = self.probe_at.min(soon);
    }

    /// When the peer is asked for verdicts.
    pub fn ask_at(&self) -> Time {
        self.ask_at
    }
    /// When the peer was last asked for verdicts, or when the first reason to ask arose.
    pub fn asked_at(&self) -> Time {
        self.asked_at
    }
    /// How often the peer was asked since it last reported a verdict.
    pub fn ask_round(&self) -> u8 {
        self.ask_round
    }
    /// Notes that verdicts are awaited; `first`: none were awaited before.
    pub fn asks_begin(&mut self, now: Time, first: bool) {
        self.ask_round = 0;
        if first {
            self.asked_at = now;
        }
    }
    /// Sets the time of the next question.
    pub fn ask_set(&mut self, at: Time) {
        self.ask_at = at;
    }
    /// Notes that the peer is asked now, and is to be asked again at `next`.
    pub fn asked(&mut self, now: Time, next: Time) {
        debug_assert!(next >= now, "it is asked again later");
        self.ask_round = self.ask_round.saturating_add(1);
        (self.asked_at, self.ask_at) = (now, next);
    }

    /// Counts the peer's silence from `at` on, not earlier.
    pub fn watch(&mut self, at: Time) {
        self.watched_from = self.watched_from.max(at);
    }
    /// Notes that `psns` PSNs were acknowledged, which moves the tail.
    pub fn progress(&mut self, now: Time, psns: u32) {
        self.tail_probes = 0;
        let credit = u32::from(self.hedge_credit).saturating_add(psns);
        self.hedge_credit = credit.min(HEDGE_CREDIT_MAX.into()) as u8;
        debug_assert!(!self.stalled, "what arrives is heard, and who is heard has not stalled");
        self.last_sent = self.last_sent.max(now);
    }
    /// Ends a stall, because the peer was heard again.
    pub fn resume(&mut self, now: Time) {
        debug_assert!(self.stalled, "a peer resumes after it stalled");
        debug_assert!(now >= self.resumed_at, "time goes on");
        self.stalled = false;
        self.tail_probes = 0;
        self.resumed_at = now;
        self.last_sent = now;
        self.probe_at = Time::NEVER;
        self.probe_round = 0;
    }
    /// Remembers a transmission that was given up; the oldest is dropped if there are too many.
    pub fn remember(&mut self, g: GivenUp) {
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(g);
        debug_assert!(self.recent.len() <= RECENT_MAX, "a bounded list");
    }
    /// Removes and returns the remembered transmission `tx_num`, which has arrived after all.
    pub fn recall(&mut self, tx_num: TxLow) -> Option<GivenUp> {
        let at = self.recent.iter().position(|g| g.tx_num == tx_num)?;
        self.recent.remove(at)
    }
    /// Removes and returns an earlier transmission of `psn` that was not reported as arrived and
    /// whose path is not blamed yet.
    pub fn unjudged(&mut self, psn: Psn) -> Option<GivenUp> {
        let at = self.recent.iter().position(|g| g.psn == psn && g.blame != Blame::Path)?;
        self.recent.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::scoreboard::{Kind, Work};
    use crate::psn::TxNum;
    use crate::time::Span;

    fn given_up(psn: u32, tx_num: u64, blame: Blame) -> GivenUp {
        let mut e = Entry::new(Kind::Send, Work::NONE, 0, 0);
        (e.tx_num, e.path) = (TxNum(tx_num), psn as u8);
        GivenUp::new(Psn(psn), &e, blame)
    }

    #[test]
    fn what_was_given_up_is_remembered_once_and_the_oldest_goes() {
        let mut l = LossState::default();
        for n in 0..RECENT_MAX as u32 + 2 {
            l.remember(given_up(n, (1 << 32) + u64::from(n), Blame::Path));
        }
        assert!(
            l.recall(TxLow(0)).is_none() && l.recall(TxLow(1)).is_none(),
            "there is no room for them"
        );
        let of = l.recall(TxLow(2)).map(|g| (g.psn(), g.path(), g.blame()));
        assert_eq!(of, Some((Psn(2), 2, Blame::Path)));
        assert!(l.recall(TxLow(2)).is_none(), "it is acquitted once");
        l.remember(given_up(7, 900, Blame::None));
        assert!(l.unjudged(Psn(8)).is_none(), "its path is blamed");
        assert_eq!(l.unjudged(Psn(7)).map(|g| g.blame()), Some(Blame::None));
        assert!(l.unjudged(Psn(7)).is_none());
    }

    #[test]
    fn quick_tail_probes_cost_what_arrivals_bring() {
        let mut l = LossState::default();
        let mut quick = 0;
        let mut doublings = vec![];
        while l.can_hedge() {
            doublings.push(l.hedge_scarcity());
            l.tail_probed(Time(10), true);
            quick += 1;
        }
        assert_eq!(doublings, [0, 0, 0, 0, 0, 0, 1, 2], "the last ones leave late");
        assert_eq!(quick, u32::from(HEDGE_CREDIT_MAX / HEDGE_COST));
        l.progress(Time(20), u32::from(HEDGE_COST));
        assert!(l.can_hedge() && l.tail_probes() == 0, "paid for by what arrived");
        l.progress(Time(5), 0);
        assert_eq!(l.last_sent(), Time(20), "an earlier arrival moves nothing back");
    }

    #[test]
    fn a_stalled_peer_is_probed_until_it_is_heard() {
        let mut l = LossState::default();
        assert_eq!((l.is_stalled(), l.probe_at()), (false, Time::NEVER));
        l.stall(Time(100));
        l.stall_probed(Time(150));
        l.stall_probed(Time(250));
        assert_eq!((l.probe_at(), l.probe_round()), (Time(250), 2));
        l.stall_probe_hasten(Time(200), 1);
        assert_eq!((l.probe_at(), l.probe_round()), (Time(200), 1));
        l.resume(Time(300));
        assert_eq!((l.is_stalled(), l.probe_at(), l.probe_round()), (false, Time::NEVER, 0));
        assert_eq!(l.waits_since(Time(90)), Time(300), "timeouts count from here");
    }

    #[test]
    fn an_idle_peer_that_is_heard_owes_no_answer() {
        let mut l = LossState::default();
        for round in [0, 1, 2] {
            assert_eq!(l.idle_round_take(Time(100)), round);
        }
        assert_eq!(l.idle_unanswered(Time(99)), 3);
        assert_eq!(l.idle_unanswered(Time(101)), 0);
        l.sent(Time(200));
        assert_eq!(l.idle_round_take(Time(300)), 0, "it was not idle");
        l.watch(Time(400));
        assert_eq!((l.silent_since(Time(50)), l.silent_since(Time(500))), (Time(400), Time(500)));
    }

    #[test]
    fn verdicts_are_asked_for_ever_again_until_one_is_told() {
        let mut l = LossState::default();
        l.asks_begin(Time(10), true);
        l.asked(Time(20), Time(20) + Span(5));
        l.asked(Time(30), Time(30) + Span(9));
        assert_eq!((l.ask_round(), l.asked_at(), l.ask_at()), (2, Time(30), Time(39)));
        l.asks_begin(Time(35), false);
        l.ask_set(Time(36));
        assert_eq!((l.ask_round(), l.asked_at(), l.ask_at()), (0, Time(30), Time(36)));
    }
}
