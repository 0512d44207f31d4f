//! What was given up of what one peer was sent, and how often it was probed and asked since.

use crate::peer::scoreboard::Entry;
use crate::psn::{Psn, TxLow};
use crate::time::Time;
use crate::tuning::{HEDGE_COST, HEDGE_CREDIT_MAX};
use std::collections::VecDeque;

/// Transmissions given up that may yet turn out to have arrived.
const RECENT_MAX: usize = 64;

/// A transmission that was given up.
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
    /// It lost the packet.
    Path,
    /// The packet counts as lost, but the peer had been silent as well.
    Unsure,
    /// Nothing: a tail-loss probe repeated it, or all paths fell silent.
    None,
}

impl GivenUp {
    /// The transmission of `psn` that `e` tells of, whose path is to blame or perhaps not.
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
    /// All paths are silent: the peer has stalled. Nothing but probes leaves.
    stalled: bool,
    /// The peer is alive and does not take packets that have no content any more.
    deaf: bool,
    last_sent: Time,
    /// Tail probes since something was acknowledged.
    tail_probes: u8,
    /// What quick tail probes may still cost.
    hedge_credit: u8,
    /// Timeouts count from here at the earliest.
    resumed_at: Time,
    /// When something of ours was last said to have arrived, whatever it was.
    echoed_at: Time,
    probe_at: Time,
    probe_round: u8,
    /// Probes of an idle peer in a row.
    idle_round: u8,
    idle_probed_at: Time,
    idle_unanswered: u8,
    /// Silence counts from here at the earliest: when the last work began or was given up.
    watched_from: Time,
    /// When the peer is asked (again) for verdicts that it has not told.
    ask_at: Time,
    /// How often it was asked since it last told any.
    ask_round: u8,
    /// When it was last asked.
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
    /// Bytes that it holds: no more than it begins with.
    pub fn held_bytes(&self) -> usize {
        self.recent.capacity() * size_of::<GivenUp>()
    }

    /// A reliable packet left.
    pub fn sent(&mut self, now: Time) {
        self.last_sent = now;
        self.idle_round = 0;
    }
    /// The peer told of the arrival of something sent.
    pub fn echoed(&mut self, now: Time) {
        self.echoed_at = now;
    }
    /// Probes in a row that an idle peer, last heard at `heard`, has not answered.
    pub fn idle_unanswered(&mut self, heard: Time) -> u8 {
        if heard > self.idle_probed_at {
            self.idle_unanswered = 0;
        }
        self.idle_unanswered
    }
    /// How often an idle peer was asked for its lower edge (at most 7), and counts one more.
    pub fn idle_round_take(&mut self, now: Time) -> u8 {
        let round = self.idle_round;
        self.idle_probed_at = now;
        self.idle_unanswered = self.idle_unanswered.saturating_add(1);
        self.idle_round = (round + 1).min(7);
        round
    }

    /// Whether all paths are silent: nothing but probes leaves.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }
    /// Whether the peer is alive and takes nothing from us, however short and however often.
    #[inline]
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }
    /// The peer has not taken a packet without content, however often it was sent.
    pub fn deafen(&mut self) {
        self.deaf = true;
    }
    /// When the tail of what was sent was last touched: by a packet, a probe or an acknowledgment.
    pub fn last_sent(&self) -> Time {
        self.last_sent
    }
    /// Since when a transmission that left at `sent` has been waited for.
    pub fn waits_since(&self, sent: Time) -> Time {
        sent.max(self.resumed_at)
    }
    /// When something of ours was last said to have arrived.
    pub fn echoed_at(&self) -> Time {
        self.echoed_at
    }
    /// Since when a peer that was last heard at `heard` is silent.
    pub fn silent_since(&self, heard: Time) -> Time {
        heard.max(self.watched_from)
    }
    /// An idle peer is asked whether it is there.
    pub fn probed(&mut self, now: Time) {
        self.last_sent = now;
    }

    /// Tail probes since something was acknowledged.
    pub fn tail_probes(&self) -> u8 {
        self.tail_probes
    }
    /// Whether a quick tail probe may be paid for.
    pub fn can_hedge(&self) -> bool {
        self.hedge_credit >= HEDGE_COST
    }
    /// The tail is probed now; `quick`: early, which costs.
    pub fn tail_probed(&mut self, now: Time, quick: bool) {
        self.tail_probes = self.tail_probes.saturating_add(1);
        debug_assert!(!quick || self.can_hedge(), "what is paid for is there");
        if quick {
            self.hedge_credit -= HEDGE_COST;
        }
        self.last_sent = now;
    }

    /// All paths have fallen silent.
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
    /// It is probed now, and again at `next`.
    pub fn stall_probed(&mut self, next: Time) {
        debug_assert!(self.stalled, "who is heard is not probed like this");
        self.probe_round = self.probe_round.saturating_add(1);
        self.probe_at = next;
    }
    /// It is probed at `soon` at the latest, as if it had not been probed more than `rounds` times.
    pub fn stall_probe_hasten(&mut self, soon: Time, rounds: u8) {
        self.probe_round = self.probe_round.min(rounds);
        self.probe_at = self.probe_at.min(soon);
    }

    /// When the peer is asked for verdicts.
    pub fn ask_at(&self) -> Time {
        self.ask_at
    }
    /// When it was last asked, or when there was first a reason to.
    pub fn asked_at(&self) -> Time {
        self.asked_at
    }
    /// How often it was asked since it last told any.
    pub fn ask_round(&self) -> u8 {
        self.ask_round
    }
    /// Verdicts are awaited (again); `first`: none were before.
    pub fn asks_begin(&mut self, now: Time, first: bool) {
        self.ask_round = 0;
        if first {
            self.asked_at = now;
        }
    }
    /// It is asked at `at`.
    pub fn ask_set(&mut self, at: Time) {
        self.ask_at = at;
    }
    /// It is asked now, and again at `next`.
    pub fn asked(&mut self, now: Time, next: Time) {
        debug_assert!(next >= now, "it is asked again later");
        self.ask_round = self.ask_round.saturating_add(1);
        (self.asked_at, self.ask_at) = (now, next);
    }

    /// From `at` on the peer's silence counts.
    pub fn watch(&mut self, at: Time) {
        self.watched_from = self.watched_from.max(at);
    }
    /// PSNs were acknowledged: the tail moved.
    pub fn progress(&mut self, now: Time, psns: u32) {
        self.tail_probes = 0;
        let credit = u32::from(self.hedge_credit).saturating_add(psns);
        self.hedge_credit = credit.min(HEDGE_CREDIT_MAX.into()) as u8;
        debug_assert!(!self.stalled, "what arrives is heard, and who is heard has not stalled");
        self.last_sent = self.last_sent.max(now);
    }
    /// The peer is heard again.
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
    /// Keeps a transmission in mind that was given up.
    pub fn remember(&mut self, g: GivenUp) {
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(g);
        debug_assert!(self.recent.len() <= RECENT_MAX, "a bounded list");
    }
    /// The transmission given up that arrived after all.
    pub fn recall(&mut self, tx_num: TxLow) -> Option<GivenUp> {
        let at = self.recent.iter().position(|g| g.tx_num == tx_num)?;
        self.recent.remove(at)
    }
    /// An earlier transmission of `psn` that was never heard of and whose path is not blamed yet.
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
        while l.can_hedge() {
            l.tail_probed(Time(10), true);
            quick += 1;
        }
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
