//! The rate where a queue overflows again and again: many senders before one tail-drop buffer.
//!
//! The delay that the law tolerates follows from the base RTT and the noise of hosts. A buffer may
//! hold less than that, and then only losses slow the senders down, for ever. Losses that come in
//! turn with one and the same largest delay, on the median path, tell how long a full buffer
//! delays. That delay is the same for all who share the buffer, and so is the delay of now: a
//! window whose target is a share of the one, and the larger the smaller the window is, makes the
//! windows equal before a packet is lost.
//! Rule CC-40.

use super::srd::log2_256;
use super::{Link, Round};
use crate::tuning::{
    CUT_MAX, FULL_AT, FULL_CALM_ROUNDS, FULL_CUT, FULL_DOUBTS_MAX, FULL_FLAT, FULL_FORGET_SPANS,
    FULL_HALVINGS_MAX, FULL_JOIN_SPANS, FULL_LEARN, FULL_LOST_HEAVY, FULL_LOST_LEAST, FULL_LOW,
    FULL_LOW_ROUNDS, FULL_LOW_SPANS, FULL_MEDIAN, FULL_NEAR, FULL_NS_MAX, FULL_NS_MIN,
    FULL_OVERFLOWS, FULL_OVERFLOWS_JOIN, FULL_OVERFLOWS_MAX, FULL_QUICK_BELOW,
    FULL_QUICK_DOUBLINGS, FULL_QUICK_ECHOES, FULL_SHARE_HEAVY, FULL_SHARE_LOST, FULL_STEP,
    FULL_TALLY, FULL_TALLY_LEAST, FULL_TARGET_LEAST, FULL_TARGET_MOST, FULL_TARGETS, FULL_TURN_NS,
    FULL_WATCH_SPANS, FULL_WINDOW, PACKETS_TRUSTED, RIVAL_BEGIN, Share,
};

/// One packet, in units of the window.
const PACKET: u64 = 1 << 32;
/// A share of one, in units of 2^-20.
const ONE: i64 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct FullQueue {
    /// Queueing delay of a full buffer in ns, as losses show it; 0: nothing was lost yet.
    full_ns: u32,
    /// Largest delays of this and of the span before, in which losses come to be known.
    peaks: [Peak; 2],
    /// How long the span has lasted, in ns.
    span_ns: u32,
    /// What was delivered and lost while the queue was at its peak, and while it was not.
    at_peak: Tally,
    /// See [`Self::at_peak`].
    below: Tally,
    /// So long losses may still be those of packets that left before the last overflow, in ns.
    hold_ns: u32,
    /// How long the queue has been as good as empty, in ns and rounds.
    low_ns: u32,
    /// See [`Self::low_ns`].
    low_rounds: u8,
    /// Overflows that agree, less those that do not.
    overflows: u8,
    /// How often the rule was in force and turned out to be wrong.
    doubts: u8,
    /// For how long others have kept the queue above this sender's target, in ns.
    high_ns: u32,
    /// The window in packets, in units of 2^-32.
    window: u64,
    /// The window with which the rule came into force.
    window_first: u64,
    /// Rounds in a row with a queue far below the target.
    below_rounds: u8,
    /// Rounds in a row at the delay of the full buffer without a loss.
    calm_rounds: u8,
    /// Largest delays of the last overflows, and how many the first one sums up.
    fulls: [u32; 2],
    /// See [`Self::fulls`].
    fulls_age: u8,
    /// For how long a sender has watched the buffer, or the rule has been in force, in ns.
    age_ns: u32,
    /// The losses were those of a full buffer.
    proved: bool,
    in_force: bool,
}

/// Largest delays of any packet and of the median path in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    most_ns: u32,
    median_ns: u32,
}

impl Peak {
    fn max(self, other: Self) -> Self {
        let most_ns = self.most_ns.max(other.most_ns);
        Self { most_ns, median_ns: self.median_ns.max(other.median_ns) }
    }
}

/// Bytes that were delivered and lost.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    acked: u32,
    lost: u32,
}

impl Tally {
    fn add(&mut self, round: &Round) {
        let sum = |a: u32, b: u64| a.saturating_add(ns32(b));
        *self = Self { acked: sum(self.acked, round.acked), lost: sum(self.lost, round.missing) };
        if self.all() >= FULL_TALLY {
            *self = Self { acked: self.acked / 2, lost: self.lost / 2 };
        }
    }

    fn all(self) -> u64 {
        u64::from(self.acked) + u64::from(self.lost)
    }
}

/// What a round says of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    /// Packets were lost while the buffer was as full as ever.
    Overflow,
    /// Packets were lost at another delay.
    Otherwise,
}

/// Nanoseconds in 32 bits.
fn ns32(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(u32::MAX)
}

impl FullQueue {
    pub(super) fn is_in_force(&self) -> bool {
        self.in_force
    }

    /// A queueing delay in ns that no sender tolerates for long while this rule is in force.
    /// `None`: it is not, others may still learn of the buffer, or there are so many senders that
    /// it takes long until they agree.
    pub(super) fn tolerated_most(&self) -> Option<u64> {
        let full = u64::from(self.full_ns);
        let learnt = u64::from(self.age_ns) >= FULL_WATCH_SPANS * full;
        let few = self.window_first >= RIVAL_BEGIN * PACKET;
        (self.in_force && learnt && few).then(|| FULL_AT.of(full))
    }

    /// A round is over. Returns the new rate where this rule is in force.
    pub(super) fn on_round(&mut self, link: &Link, round: &Round, rate: u64) -> Option<u64> {
        // A packet's own transmission on slow links is no queue: it stays whatever is sent.
        let own = round.own_ns;
        let round = &Round {
            queue_ns: round.queue_ns.map(|q| q.saturating_sub(own)),
            median_ns: round.median_ns.saturating_sub(own),
            ..*round
        };
        let peak = self.peak(link, round);
        if self.full_ns == 0 && round.missing == 0 {
            return None;
        }
        self.age_ns = self.age_ns.saturating_add(ns32(round.ns));
        let held = self.hold_ns > 0;
        self.hold_ns = self.hold_ns.saturating_sub(ns32(round.ns));
        let said = match held || round.missing == 0 {
            true => Said::Nothing,
            false => self.judge(link, peak),
        };
        self.tally(round, peak);
        if self.is_over(link, round, said) {
            let known = self.in_force && said != Said::Otherwise;
            *self = Self {
                full_ns: if known { self.full_ns } else { 0 },
                fulls: if known { self.fulls } else { [0; 2] },
                overflows: u8::from(known) * FULL_OVERFLOWS_JOIN,
                proved: known,
                doubts: self.doubts,
                ..Self::default()
            };
            return None;
        }
        let often = |least: u8| self.overflows >= least << self.doubts;
        let (first, follows) = (often(FULL_OVERFLOWS), often(FULL_OVERFLOWS_JOIN));
        self.proved |= follows && self.is_proved(link);
        if said == Said::Overflow {
            self.high_ns = 0;
        }
        let joins = self.joins(link, round, rate);
        let waited =
            u64::from(self.age_ns) >= FULL_WATCH_SPANS * (link.base_ns + u64::from(self.full_ns));
        let enters = !self.in_force && self.proved && waited && (first || joins);
        if enters {
            self.in_force = true;
            self.age_ns = 0;
            self.overflows = FULL_OVERFLOWS_MAX;
        }
        if !self.in_force {
            return None;
        }
        debug_assert!(self.full_ns > 0, "the delay of a full buffer is known");
        if enters {
            self.window = self.window_of(link, Self::cut(round, rate));
            self.window_first = self.window;
        } else if said == Said::Overflow && round.missing > round.acked {
            self.adopt(rate, Self::cut(round, rate));
        } else if said == Said::Overflow {
            let kept = if planted!(FullOverflowIgnored) { Share(1, 1) } else { FULL_CUT };
            self.window = kept.of(self.window);
        } else if let Some(queue) = round.queue_ns {
            self.step(queue.max(round.median_ns), round.app_limited);
        } else if round.missing == 0 {
            // No echo told of a queue. A window that waited for one would stay as it is for ever.
            self.step(0, round.app_limited);
        }
        self.window = self.window.clamp(self.window_least(link), self.window_most(link));
        Some(self.rate(link, round.queue_ns.map(|_| round.median_ns)))
    }

    /// Round trip of a packet that waits in the full buffer, in ns.
    fn trip(&self, link: &Link) -> u64 {
        link.base_ns + u64::from(self.full_ns)
    }

    /// Least window: delay is the delay of all senders, so there may be any number of them.
    fn window_least(&self, link: &Link) -> u64 {
        let trip = self.trip(link);
        (u128::from(PACKET) * u128::from(trip) / u128::from(FULL_TURN_NS)) as u64
    }

    /// Window with which the line is full even if the buffer is.
    fn window_most(&self, link: &Link) -> u64 {
        Self::packets(link.mtu, Link::bytes(link.line, self.trip(link))).max(2 * PACKET)
    }

    /// Bytes as packets.
    fn packets(mtu: u64, bytes: u64) -> u64 {
        u64::try_from((u128::from(bytes) << 32) / u128::from(mtu.max(1))).unwrap_or(u64::MAX)
    }

    /// The window of a rate.
    fn window_of(&self, link: &Link, rate: u64) -> u64 {
        let ns = (u128::from(rate) * u128::from(self.trip(link))) << 32;
        let packets = ns / (u128::from(link.mtu.max(1)) * 1_000_000_000);
        u64::try_from(packets).unwrap_or(u64::MAX).max(1)
    }

    /// Bytes that may be in flight; at least a packet.
    pub(super) fn window_bytes(&self, link: &Link) -> u64 {
        self.window.div_ceil(PACKET).max(1) * link.mtu
    }

    /// The rate of the pacer in 1/256 of that of the window. From a packet on, acknowledgments pace
    /// the sender, and the pacer only prevents bursts: the more packets, the more room it leaves.
    /// With one or two it still decides, because the window is rounded up.
    pub(super) fn pace_256(&self) -> u64 {
        256 + (self.window.saturating_sub(PACKET) >> 26).min(256)
    }

    /// Another rate is to take the place of `from`.
    pub(super) fn adopt(&mut self, from: u64, to: u64) {
        if self.in_force && from != to {
            let window = u128::from(self.window) * u128::from(to) / u128::from(from.max(1));
            self.window = u64::try_from(window).unwrap_or(u64::MAX).clamp(1, 1 << 62);
        }
    }

    /// The largest delays since the losses of this round may have happened.
    fn peak(&mut self, link: &Link, round: &Round) -> Peak {
        let median_ns = ns32(round.median_ns);
        // What a packet waits in this host's port, behind others of its burst, is no delay of the
        // buffer, and senders with bursts would find a larger one than those without.
        let most_ns = ns32(round.most_ns.saturating_sub(round.port_ns));
        let this = self.peaks[0].max(Peak { most_ns, median_ns });
        self.peaks[0] = this;
        let peak = this.max(self.peaks[1]);
        self.span_ns = self.span_ns.saturating_add(ns32(round.ns));
        if u64::from(self.span_ns) >= link.known_ns {
            (self.peaks, self.span_ns) = ([Peak::default(), this], 0);
        }
        peak
    }

    fn tally(&mut self, round: &Round, peak: Peak) {
        let (most, full) = (u64::from(peak.most_ns), u64::from(self.full_ns));
        if most >= FULL_AT.of(full) {
            self.at_peak.add(round);
        } else if most < FULL_NEAR.of(full) {
            self.below.add(round);
        }
    }

    /// Whether the losses are those of a full buffer: many, again and again, and few otherwise.
    fn is_proved(&self, link: &Link) -> bool {
        let (at, below) = (self.at_peak, self.below);
        let lost = u64::from(at.lost);
        let many = lost > FULL_SHARE_LOST.of(at.all()).max(FULL_LOST_LEAST * link.mtu)
            || lost > FULL_SHARE_HEAVY.of(at.all()).max(FULL_LOST_HEAVY * link.mtu);
        let little = below.all() * FULL_TALLY_LEAST < at.all();
        let few = u128::from(below.lost) * u128::from(at.all()) * 4
            < u128::from(at.lost) * u128::from(below.all());
        many && (few || little)
    }

    /// Overflows that prove a buffer. Twice as many each time that it turned out to be wrong.
    fn overflows_needed(&self) -> u8 {
        FULL_OVERFLOWS << self.doubts
    }

    /// Packets were lost for the first time after all earlier losses had come to be known.
    fn judge(&mut self, link: &Link, peak: Peak) -> Said {
        self.hold_ns = ns32(link.known_ns);
        let full = u64::from(self.full_ns);
        let (most, median) = (u64::from(peak.most_ns), u64::from(peak.median_ns));
        // The largest of the last overflows: all senders have to find the same.
        let delay_ns = peak.most_ns;
        let beyond_noise = u64::from(delay_ns) > FULL_TARGETS.of(link.target_ns)
            && (FULL_NS_MIN..=FULL_NS_MAX).contains(&u64::from(delay_ns));
        let agrees = beyond_noise && most >= FULL_NEAR.of(full) && median >= FULL_MEDIAN.of(full);
        let now = self.fulls[0].max(delay_ns);
        self.fulls[0] = now;
        self.full_ns = now.max(self.fulls[1]).max(1);
        self.fulls_age += 1;
        if self.fulls_age >= FULL_LEARN {
            (self.fulls, self.fulls_age) = ([delay_ns, now], 0);
        }
        let most_overflows = self.overflows_needed().max(FULL_OVERFLOWS_MAX);
        self.overflows = match agrees {
            true => (self.overflows + 1).min(most_overflows),
            false => self.overflows.saturating_sub(1),
        };
        if agrees { Said::Overflow } else { Said::Otherwise }
    }

    /// Whether what was learnt says nothing any more: the queue has been empty for long, or losses
    /// come at other delays.
    fn is_over(&mut self, link: &Link, round: &Round, said: Said) -> bool {
        let full = u64::from(self.full_ns);
        let refuted = said == Said::Otherwise && self.overflows == 0;
        let aim = if self.in_force { self.target(self.window) } else { full };
        let low = round.queue_ns.is_some_and(|q| q < (full / FULL_LOW).min(aim / 2));
        if round.queue_ns.is_some() {
            self.low_ns = if low { self.low_ns.saturating_add(ns32(round.ns)) } else { 0 };
            self.low_rounds = if low { self.low_rounds.saturating_add(1) } else { 0 };
        }
        // A full buffer drops something.
        let calm = round.missing == 0 && round.queue_ns.is_some_and(|q| q >= FULL_AT.of(full));
        self.calm_rounds = if calm { self.calm_rounds.saturating_add(1) } else { 0 };
        let refuted = refuted || (self.in_force && self.calm_rounds >= FULL_CALM_ROUNDS);
        let spans = if self.in_force { FULL_LOW_SPANS } else { FULL_FORGET_SPANS };
        let empty_ns = spans * (link.base_ns + full);
        let empty = self.low_rounds >= FULL_LOW_ROUNDS && u64::from(self.low_ns) >= empty_ns;
        if self.in_force && refuted {
            self.doubts = (self.doubts + 1).min(FULL_DOUBTS_MAX);
        }
        refuted || empty
    }

    /// Whether a sender that has seen the buffer overflow once has to join the others, because it
    /// would take their part or be left with the least rate: its own target allows more than the
    /// buffer holds, or its least rate is more than its part.
    fn joins(&mut self, link: &Link, round: &Round, rate: u64) -> bool {
        let full = u64::from(self.full_ns);
        let own_is_wrong = 2 * link.target_ns > FULL_NEAR.of(full) || rate <= 2 * link.rate_min();
        let target = self.target(self.window_of(link, rate));
        let high = round.queue_ns.is_some_and(|q| q >= target);
        let counts = self.proved && own_is_wrong && high;
        self.high_ns =
            if counts { self.high_ns.saturating_add(ns32(round.ns)) } else { self.high_ns / 2 };
        u64::from(self.high_ns) >= FULL_JOIN_SPANS * (link.base_ns + full)
    }

    /// The rate after an overflow: what was delivered of it.
    fn cut(round: &Round, rate: u64) -> u64 {
        let found = match round.packets >= PACKETS_TRUSTED && !round.app_limited {
            true => round.delivered,
            false => {
                let all = u128::from(round.acked + round.missing).max(1);
                (u128::from(rate) * u128::from(round.acked) / all) as u64
            }
        };
        found.max(CUT_MAX.of(rate)).min(rate)
    }

    /// The queueing delay in ns at which a window stays: the smaller, the more it tolerates, which
    /// makes senders equal, since all see the same queue.
    fn target(&self, window: u64) -> u64 {
        let full = u128::from(self.full_ns);
        let reference = FULL_WINDOW * PACKET;
        let least = FULL_TARGET_LEAST;
        let window = if planted!(FullTargetFlat) { PACKET } else { window };
        let share = match window < reference {
            true => {
                let halvings = log2_256(reference, window.max(1)).min(FULL_HALVINGS_MAX << 8);
                least * (FULL_HALVINGS_MAX << 8) + (FULL_TARGET_MOST - least) * halvings
            }
            // Flatter, but never flat.
            false => {
                let doublings = log2_256(window, reference);
                least * (FULL_HALVINGS_MAX << 8) * (FULL_FLAT << 8) / ((FULL_FLAT << 8) + doublings)
            }
        };
        ((full * u128::from(share) / u128::from(FULL_HALVINGS_MAX << 18)) as u64).max(1)
    }

    /// By how much the queue exceeds the target, as a share of the full buffer's delay.
    fn excess(&self, queue: u64, target: u64) -> i64 {
        let full = i64::from(self.full_ns.max(1));
        let more = queue as i64 - target as i64;
        (more.saturating_mul(ONE) / full).clamp(-ONE, ONE)
    }

    /// The window after a round: a step towards the target. Below one packet the answer of a sender
    /// comes late, by the time between two of its packets, so that the step has to be smaller in
    /// proportion; else all senders together overshoot.
    fn step(&mut self, queue: u64, app_limited: bool) {
        let excess = self.excess(queue, self.target(self.window));
        let far = excess < -FULL_QUICK_BELOW;
        self.below_rounds = if far { self.below_rounds.saturating_add(1) } else { 0 };
        // Who is far below the target for several packets in a row is starved, or the others have
        // left.
        let more =
            u32::from(self.below_rounds.saturating_sub(FULL_QUICK_ECHOES) / FULL_QUICK_ECHOES);
        let gain = if self.window < PACKET {
            (((self.window >> 13).max(1)) << more.min(20)).min(ONE as u64)
        } else {
            (ONE as u64) << more.min(FULL_QUICK_DOUBLINGS)
        };
        let by = ((excess.unsigned_abs() * gain) >> 20) / FULL_STEP;
        let share = u128::from(self.window) * u128::from(by);
        match excess < 0 {
            true if app_limited => {}
            true => self.window += (share >> 20) as u64,
            false => self.window -= (share / u128::from(ONE as u64 + by)) as u64,
        }
    }

    /// The rate of the window at the target. The measured round trip must not decide on it: it
    /// answers late, and the sum of many late answers swings.
    fn rate(&self, link: &Link, queue: Option<u64>) -> u64 {
        let target = self.target(self.window);
        let ns = u128::from(link.base_ns + target);
        let bytes = u128::from(self.window) * u128::from(link.mtu);
        let mut rate = ((bytes * 1_000_000_000 / ns) >> 32) as u64;
        if self.window < PACKET
            && let Some(queue) = queue
        {
            let half = ((self.window >> 13) as i64 * self.excess(queue, target)) >> 20;
            rate = (u128::from(rate) * ONE as u128 / (ONE + half) as u128) as u64;
        }
        rate.clamp(1, link.line)
    }
}
