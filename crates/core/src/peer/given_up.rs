//! What was given up of what one peer was sent, and how often it was probed and asked since.

use crate::peer::scoreboard::Entry;
use crate::time::Time;
use crate::tuning::HEDGE_CREDIT_MAX;
use std::collections::VecDeque;

/// Transmissions given up that may yet turn out to have arrived.
pub(crate) const RECENT_MAX: usize = 64;

/// A transmission that was given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenUp {
    pub psn: u32,
    pub tx_num: u32,
    pub path: u8,
    pub blame: Blame,
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
    pub fn unblamed(psn: u32, e: &Entry) -> Self {
        Self { psn, tx_num: e.tx_num as u32, path: e.path, blame: Blame::None }
    }
}

/// Loss state of one context.
#[derive(Debug)]
pub(crate) struct LossState {
    /// All paths are silent: the peer has stalled. Nothing but probes leaves.
    pub stalled: bool,
    pub last_sent: Time,
    /// Tail probes since something was acknowledged.
    pub tail_probes: u8,
    /// What quick tail probes may still cost.
    pub hedge_credit: u8,
    /// Timeouts count from here at the earliest.
    pub resumed_at: Time,
    /// When something of ours was last said to have arrived, whatever it was.
    pub echoed_at: Time,
    pub probe_at: Time,
    pub probe_round: u8,
    /// Probes of an idle peer in a row.
    pub idle_round: u8,
    pub idle_probed_at: Time,
    pub idle_unanswered: u8,
    /// Silence counts from here at the earliest: when the last work began or was given up.
    pub watched_from: Time,
    /// When the peer is asked (again) for verdicts that it has not told.
    pub ask_at: Time,
    /// How often it was asked since it last told any.
    pub ask_round: u8,
    /// When it was last asked.
    pub asked_at: Time,
    pub recent: VecDeque<GivenUp>,
}

impl Default for LossState {
    fn default() -> Self {
        Self {
            stalled: false,
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
    /// From `at` on the peer's silence counts.
    pub fn watch(&mut self, at: Time) {
        self.watched_from = self.watched_from.max(at);
    }
    /// PSNs were acknowledged: the tail moved.
    pub fn progress(&mut self, now: Time, psns: u32) {
        self.tail_probes = 0;
        let credit = u32::from(self.hedge_credit).saturating_add(psns);
        self.hedge_credit = credit.min(HEDGE_CREDIT_MAX.into()) as u8;
        self.last_sent = self.last_sent.max(now);
    }
    /// The peer is heard again.
    pub fn resume(&mut self, now: Time) {
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
    }
    /// The transmission given up that arrived after all.
    pub fn recall(&mut self, tx_num: u32) -> Option<GivenUp> {
        let at = self.recent.iter().position(|g| g.tx_num == tx_num)?;
        self.recent.remove(at)
    }
    /// An earlier transmission of `psn` that was never heard of and whose path is not blamed yet.
    pub fn unjudged(&mut self, psn: u32) -> Option<GivenUp> {
        let at = self.recent.iter().position(|g| g.psn == psn && g.blame != Blame::Path)?;
        self.recent.remove(at)
    }
}
