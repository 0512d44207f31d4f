//! Rivals: transports of another law that fill the buffer of a bottleneck, and keep a queue there
//! that no sender of this law would tolerate. Whoever lowers the rate for a queue is left with
//! nothing beside them.
//!
//! A [`Watch`] finds out that there are such rivals, and a [`Contest`] takes the place of the law
//! until they are gone: a window that grows by a packet per round trip and shrinks with losses, as
//! theirs do.
//! Rule CC-53.

use super::{Link, Round};
use crate::tuning::{
    RIVAL_BEGIN, RIVAL_CUT, RIVAL_DOUBTS_MAX, RIVAL_FORGET, RIVAL_LEAST, RIVAL_LONG_SPANS,
    RIVAL_LOOK, RIVAL_LOOK_EACH, RIVAL_LOOK_SHARE, RIVAL_LOST_LEAST, RIVAL_LOST_MORE,
    RIVAL_LOST_MOST, RIVAL_LOW, RIVAL_LOW_ROUNDS, RIVAL_SPANS, RIVAL_TALLY_SPANS,
    RIVAL_TRUCE_SPANS,
};

/// One packet, in units of the window.
const PACKET: u64 = 1 << 16;

/// The queueing delay of a round in ns: that of the median path. What stands for a mark in it is no
/// delay of any packet.
pub(super) fn queue(round: &Round) -> u64 {
    round.median_ns.min(round.most_ns.saturating_sub(round.port_ns)).saturating_sub(round.own_ns)
}

/// How long the queue has been longer than any sender of this law tolerates.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    /// In ns. Shorter queues count against it.
    high_ns: u32,
    /// Contests in a row that found no rivals.
    doubts: u8,
}

impl Watch {
    /// Takes a round, the queue of which was longer than any sender of this law tolerates, or not.
    /// Returns whether others keep it there.
    pub(super) fn on_round(&mut self, link: &Link, round: &Round, high: bool) -> bool {
        let ns = u32::try_from(round.ns).unwrap_or(u32::MAX);
        self.high_ns = match high {
            true => self.high_ns.saturating_add(ns),
            false => self.high_ns.saturating_sub(ns / RIVAL_FORGET),
        };
        let span = link.base_ns + round.median_ns;
        debug_assert!(self.doubts <= RIVAL_DOUBTS_MAX, "doublings that fit in 64 bits");
        u64::from(self.high_ns) >= (RIVAL_SPANS * span) << self.doubts
    }

    /// A contest has ended. `proved`: with rivals, and not because there were none or too many.
    /// Otherwise the next one takes twice the evidence.
    pub(super) fn on_end(&mut self, proved: bool) {
        let doubts = if proved { 0 } else { (self.doubts + 1).min(RIVAL_DOUBTS_MAX) };
        *self = Self { high_ns: 0, doubts };
    }
}

/// What a round means for a contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    GoesOn,
    /// The queue is short, or the time for which losses of others are tolerated is over: the law
    /// is in force again.
    Over,
    /// Even a few packets in flight are too many: these are not rivals but a crowd.
    Lost,
}

/// A contest with rivals.
#[derive(Debug)]
pub(super) struct Contest {
    /// Packets in flight, in units of 2^-16.
    window: u64,
    /// So long losses may still be those of packets that left before the last cut, in ns.
    hold_ns: u64,
    /// Since the last look began, in ns.
    look_since_ns: u64,
    /// What is left of the look in progress, in ns.
    look_ns: u64,
    /// Largest queueing delay of late, in ns.
    most_ns: u64,
    /// Rounds in a row with a queue that is next to nothing of that.
    low: u8,
    /// What was delivered and lost since the tally began, and when that was.
    acked: u64,
    lost: u64,
    tally_ns: u64,
    /// Share of packets in thousandths that is lost with the least window already.
    given: Option<u32>,
    /// The window is the least one, with which the losses are measured.
    measures: bool,
    /// For how long the contest has gone on, and losses have been tolerated, in ns.
    age_ns: u64,
    given_ns: u64,
}

impl Contest {
    /// Begins with a window of that rate.
    pub(super) fn new(link: &Link, rate: u64, round: &Round) -> Self {
        let trip = link.base_ns + round.median_ns;
        let window = Self::packets(link, Link::bytes(rate, trip));
        Self {
            window: window.max(RIVAL_BEGIN * PACKET),
            hold_ns: 0,
            look_since_ns: 0,
            look_ns: 0,
            most_ns: round.median_ns,
            low: 0,
            acked: 0,
            lost: 0,
            tally_ns: 0,
            given: None,
            measures: false,
            age_ns: 0,
            given_ns: 0,
        }
    }

    /// Bytes as packets.
    fn packets(link: &Link, bytes: u64) -> u64 {
        let packets = (u128::from(bytes) << 16) / u128::from(link.mtu.max(1));
        u64::try_from(packets).unwrap_or(u64::MAX)
    }

    /// Takes a round.
    pub(super) fn on_round(&mut self, link: &Link, round: &Round) -> Outcome {
        if self.is_low(round) {
            return Outcome::Over;
        }
        let span = link.base_ns + self.most_ns;
        self.look_since_ns += round.ns;
        self.age_ns += round.ns;
        self.look_ns = self.look_ns.saturating_sub(round.ns);
        if let Some(lost) = self.tally(round, span)
            && self.judge(lost) == Outcome::Lost
        {
            return Outcome::Lost;
        }
        self.given_ns += if self.given.is_some() { round.ns } else { 0 };
        if self.given_ns > RIVAL_TRUCE_SPANS * span {
            return Outcome::Over;
        }
        let overflow = round.missing > 0 && self.hold_ns == 0;
        self.hold_ns = self.hold_ns.saturating_sub(round.ns);
        if overflow && self.given.is_none() {
            self.cut(link, span);
        } else if !round.app_limited && self.look_ns == 0 && self.hold_ns == 0 && !self.measures {
            let trip = link.base_ns + round.queue_ns.map_or(self.most_ns, |_| round.median_ns);
            self.window += (PACKET * round.ns / trip.max(1)).min(self.window);
        }
        let most = Self::packets(link, Link::bytes(link.line, span));
        self.window = self.window.min(most.max(RIVAL_LEAST * PACKET));
        debug_assert!(self.window >= RIVAL_LEAST * PACKET, "an overflow leaves the least window");
        Outcome::GoesOn
    }

    /// Whether the queue has been next to nothing for some rounds.
    fn is_low(&mut self, round: &Round) -> bool {
        if round.queue_ns.is_some() {
            let queue = queue(round);
            let low = queue <= self.most_ns / RIVAL_LOW;
            self.low = if low { self.low.saturating_add(1) } else { 0 };
            self.most_ns = (self.most_ns - self.most_ns / 256).max(queue);
        }
        self.low >= RIVAL_LOW_ROUNDS
    }

    /// Adds a round to the tally. At its end, the share of lost packets in thousandths.
    fn tally(&mut self, round: &Round, span: u64) -> Option<u32> {
        self.acked += round.acked;
        self.lost += round.missing;
        self.tally_ns += round.ns;
        if self.tally_ns < RIVAL_TALLY_SPANS * span {
            return None;
        }
        let lost = u128::from(self.lost) * 1000 / u128::from((self.acked + self.lost).max(1));
        (self.acked, self.lost, self.tally_ns) = (0, 0, 0);
        debug_assert!(lost <= 1000, "a share");
        Some(lost as u32)
    }

    /// Judges the share of lost packets. What is lost with the least window is the doing of others,
    /// and only more than that is heard from then on.
    fn judge(&mut self, lost: u32) -> Outcome {
        if self.measures {
            debug_assert!(self.given.is_none(), "losses are measured once");
            self.measures = false;
            self.given = (lost >= RIVAL_LOST_LEAST).then_some(lost);
            return if lost > RIVAL_LOST_MOST { Outcome::Lost } else { Outcome::GoesOn };
        }
        if self.given.is_some_and(|given| lost > given + RIVAL_LOST_MORE) {
            self.window = RIVAL_CUT.of(self.window).max(RIVAL_LEAST * PACKET);
        }
        Outcome::GoesOn
    }

    /// The buffer overflowed.
    fn cut(&mut self, link: &Link, span: u64) {
        self.window = RIVAL_CUT.of(self.window);
        self.hold_ns = link.known_ns;
        if self.window < RIVAL_LEAST * PACKET {
            self.window = RIVAL_LEAST * PACKET;
            (self.acked, self.lost, self.tally_ns) = (0, 0, 0);
            self.measures = true;
        } else if self.look_ns == 0 && self.look_since_ns >= RIVAL_LOOK_EACH * span {
            // Where the queue has become much shorter meanwhile, the last look may still go on.
            // If the others are senders of this law too, the overflow makes all of them look at the
            // same time, and the queue becomes short.
            (self.look_since_ns, self.look_ns) = (0, RIVAL_LOOK.of(span));
        }
    }

    /// Whether it has gone on for so long that there were rivals indeed.
    pub(super) fn is_long(&self, link: &Link) -> bool {
        self.age_ns >= RIVAL_LONG_SPANS * (link.base_ns + self.most_ns)
    }

    /// Another rate takes the place of `from`.
    pub(super) fn adopt(&mut self, from: u64, to: u64) {
        let window = u128::from(self.window) * u128::from(to) / u128::from(from.max(1));
        self.window =
            u64::try_from(window).unwrap_or(u64::MAX).clamp(RIVAL_LEAST * PACKET, 1 << 48);
    }

    fn window_now(&self) -> u64 {
        let looks = self.look_ns > 0;
        debug_assert!(self.window > 0, "some packets may be in flight");
        if looks { RIVAL_LOOK_SHARE.of(self.window) } else { self.window }
    }

    /// Bytes that may be in flight.
    pub(super) fn window_bytes(&self, link: &Link) -> u64 {
        self.window_now().div_ceil(PACKET).max(1) * link.mtu
    }

    /// The rate of the window, in bytes per second.
    pub(super) fn rate(&self, link: &Link, round: &Round) -> u64 {
        let trip = link.base_ns + round.queue_ns.map_or(self.most_ns, |_| round.median_ns);
        let bytes = (u128::from(self.window_now()) * u128::from(link.mtu)) >> 16;
        let rate = bytes * 1_000_000_000 / u128::from(trip.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX).clamp(link.rate_min(), link.line)
    }
}
