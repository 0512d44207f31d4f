//! SRD's own control: a rate from the delivery rate and the median path's queueing delay.
//!
//! Congested is when the *majority of paths* is late, or when less comes back than was sent. One
//! bad path is a matter of path choice and must not slow the connection. A decrease is followed by
//! a round without another: its effect is seen only then.

use super::{Link, RateControl, Round};
use crate::guards::Guard;
use crate::tuning::{
    CLEAR_QUEUE, CLEAR_ROUNDS, CREDITED_TARGETS, CUT_MAX, CUT_MAX_LIMITED, DECREASE,
    HEAVY_LOSS_QUEUE, HEAVY_PERMILLE, HEAVY_TARGETS, LOSSLESS_ROUNDS, LOSSY_CUT, PACKETS_TRUSTED,
    QUICK_STEPS, SHORT, SHORT_CUT, SHORT_DELIVERED, SHORT_QUEUE, SHORT_ROUNDS, STEP_PACKET,
    STEP_SHARE, Share, TARGET_HALVINGS_MAX, TARGET_SLOPE, USED_RATE, WINDOW_FIRST,
    WINDOW_FIRST_PKTS_MIN, WINDOW_MOST, WINDOW_PKTS_MIN, WINDOW_TARGETS, WINDOW_UNKNOWN_MAX,
};

#[derive(Debug)]
pub(crate) struct SrdRate {
    rate: u64,
    /// Rounds in a row that delivered less than was sent.
    short: u8,
    /// Rounds in a row without a queue, to [`CLEAR_ROUNDS`].
    clear: u8,
    /// Rounds since the last with a loss, to [`LOSSLESS_ROUNDS`].
    lossless: u8,
    /// The last round ended in a decrease.
    hold: bool,
    /// No round has ended yet: the first window.
    first: bool,
    /// Bytes acknowledged in the first window without a queue: they widen it.
    clear_bytes: u64,
}

/// What a round says of the rate: decided once, when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Regime {
    /// So little is sent that delay says nothing of it.
    /// Rule CC-20.
    Alone,
    /// The round before ended in a decrease, whose effect is not seen yet.
    Held,
    /// The queue is far too long, or it is long and overflows.
    /// Rule CC-17.
    Overload,
    /// The queue is longer than this rate tolerates.
    /// Rule CC-18.
    Queue,
    /// Losses without delay: a shallow buffer, or a part of the fabric going dark.
    /// Rule CC-19.
    Lossy,
    /// Less comes back than was sent, and a queue begins.
    /// Rule CC-21.
    Short,
    /// There is room.
    /// Rule CC-22.
    Clear,
}

impl Regime {
    /// Whether the round that follows is one without a decrease.
    fn is_decrease(self) -> bool {
        matches!(self, Self::Overload | Self::Queue | Self::Lossy)
    }
}

/// log2(a / b) in units of 1/256, linear between the powers of two; `a >= b > 0`.
fn log2_256(a: u64, b: u64) -> u64 {
    let ratio = (u128::from(a) << 8) / u128::from(b);
    let whole = u64::from(ratio.max(256).ilog2());
    let fraction = (ratio << 8 >> whole) as u64 & 0xFF;
    (whole << 8 | fraction) - (8 << 8)
}

impl SrdRate {
    pub(crate) fn new(line: u64) -> Self {
        Self {
            rate: line,
            short: 0,
            clear: 0,
            lossless: 0,
            hold: false,
            first: true,
            clear_bytes: 0,
        }
    }

    /// No round has ended yet.
    pub(crate) fn is_opening(&self) -> bool {
        self.first
    }

    /// Goes on from a rate that others found: there is no first window any more.
    pub(crate) fn adopt(&mut self, rate: u64) {
        (self.rate, self.first) = (rate, false);
    }

    /// The queueing delay that this rate tolerates: the link's target at line rate, a quarter
    /// of it more for each halving. Without that slope, the one of two senders whose least RTT is
    /// the worse estimate would take all. At line rate nobody else is at the last hop: what waits
    /// there waits for the fabric, and slowing down would only cost.
    /// Rule CC-16.
    fn target(&self, link: &Link) -> u64 {
        let halvings = log2_256(link.line, self.rate).min(TARGET_HALVINGS_MAX << 8);
        let slope = if link.guards.has(Guard::TargetSlope) { TARGET_SLOPE } else { Share(0, 1) };
        let slack = link.credited && link.guards.has(Guard::CreditedSlack);
        let tolerated = if slack { CREDITED_TARGETS } else { 1 };
        let base = tolerated * link.target_ns;
        (base + slope.of((base * halvings) >> 8)).max(1)
    }

    /// Least rate that delay alone may bring: one burst per RTT. Lower needs losses to prove that
    /// the delay is a queue and not the hosts' noise.
    /// Rule CC-20.
    fn rate_least(&self, link: &Link) -> u64 {
        match self.lossless >= LOSSLESS_ROUNDS && link.guards.has(Guard::LosslessFloor) {
            true => Link::rate(link.burst, link.srtt_ns).min(self.rate),
            false => 0,
        }
    }

    /// The rate after heavy congestion: what was delivered, at most eight times less at once.
    fn cut(&self, round: &Round) -> u64 {
        let floor = if round.app_limited { CUT_MAX_LIMITED } else { CUT_MAX }.of(self.rate);
        round.delivered.max(floor).min(self.rate)
    }

    /// The rate after a queue of the majority of paths: less in proportion to the excess.
    fn decrease(&self, link: &Link, round: &Round, queue: u64, target: u64) -> u64 {
        // A rate that the inflight cap kept from being used is no rate to come down from.
        let used = if round.app_limited || !link.guards.has(Guard::UsedRate) {
            self.rate
        } else {
            round.delivered.saturating_mul(USED_RATE)
        };
        let from = self.rate.min(used);
        let less = u128::from(from) * u128::from(queue - target) / u128::from(queue);
        from - DECREASE.of(less as u64)
    }

    /// Additive, the same for all senders whatever they have: that is what makes them equal.
    fn increase(&self, link: &Link, queue: u64, target: u64) -> u64 {
        let quick = if self.clear >= CLEAR_ROUNDS && link.guards.has(Guard::QuickSteps) {
            QUICK_STEPS
        } else {
            1
        };
        let most = u128::from(link.line / STEP_SHARE * quick);
        let step = most * u128::from(target - queue) / u128::from(target);
        let packet = STEP_PACKET.of(Link::rate(link.mtu, link.base_ns))
            * u64::from(link.guards.has(Guard::PacketStep));
        self.rate.saturating_add(step as u64).saturating_add(packet)
    }

    /// Whether delay says nothing: no loss for long, and less than a packet under way. What a
    /// packet meets then is its own time on a slow wire, or somebody else's queue; taken for ours
    /// it would hold the rate at its least for ever.
    fn is_alone(&self, link: &Link) -> bool {
        self.lossless >= LOSSLESS_ROUNDS
            && self.rate < Link::rate(link.mtu, link.srtt_ns)
            && link.guards.has(Guard::PacketFloor)
    }

    /// What the round says: the first regime whose condition holds. Counts rounds in a row.
    fn regime(&mut self, link: &Link, round: &Round, queue: u64, target: u64) -> Regime {
        let guards = link.guards;
        let held = core::mem::take(&mut self.hold) && guards.has(Guard::Hold);
        let lossy = round.lost_permille > HEAVY_PERMILLE && guards.has(Guard::Lossy);
        // A last hop that is shared out does not overflow: the loss is that of some paths.
        let shared_out = link.credited && guards.has(Guard::CreditedLoss);
        let overflow = lossy
            && queue > HEAVY_LOSS_QUEUE.of(target)
            && !shared_out
            && guards.has(Guard::HeavyLoss);
        let short = round.packets >= PACKETS_TRUSTED
            && !round.app_limited
            && round.delivered < SHORT.of(round.sent);
        self.short = if short { self.short.saturating_add(1) } else { 0 };
        let clear = queue * CLEAR_QUEUE < target;
        self.clear = if clear { (self.clear + 1).min(CLEAR_ROUNDS) } else { 0 };
        let short = self.short >= SHORT_ROUNDS && guards.has(Guard::Short);
        match () {
            () if (lossy || queue > target) && self.is_alone(link) => Regime::Alone,
            () if (lossy || queue > target) && held => Regime::Held,
            () if queue > HEAVY_TARGETS * target || overflow => Regime::Overload,
            () if queue > target => Regime::Queue,
            () if lossy => Regime::Lossy,
            () if short && queue > SHORT_QUEUE.of(target) => Regime::Short,
            () => Regime::Clear,
        }
    }

    /// The rate that a regime brings.
    fn rate_in(&self, regime: Regime, link: &Link, round: &Round, queue: u64, target: u64) -> u64 {
        let delivered = round.delivered;
        let rate = match regime {
            Regime::Alone => self.increase(link, 0, 1).min(Link::rate(link.mtu, link.srtt_ns)),
            Regime::Held => self.rate,
            Regime::Overload => self.cut(round).max(self.rate_least(link)),
            Regime::Queue => self.decrease(link, round, queue, target).max(self.rate_least(link)),
            Regime::Lossy => LOSSY_CUT.of(self.rate).max(delivered.min(self.rate)),
            Regime::Short => {
                SHORT_DELIVERED.of(delivered).max(SHORT_CUT.of(self.rate)).min(self.rate)
            }
            Regime::Clear => self.increase(link, queue, target),
        };
        rate.clamp(link.rate_min(), link.line)
    }
}

impl RateControl for SrdRate {
    fn rate(&self) -> u64 {
        self.rate
    }

    /// The law of congestion, rule CC-23.
    fn inflight_max(&self, link: &Link) -> u64 {
        let bdp = Link::bytes(link.line, link.base_ns) + link.host_bytes;
        if self.first {
            // More than the base RTT holds: acknowledgments are coalesced, and data that is sprayed
            // at line rate meets some queue in a fabric.
            let quick = link.guards.has(Guard::QuickStart);
            let covered = if quick { WINDOW_FIRST.of(bdp) } else { bdp };
            let most = if link.base_known { covered } else { covered.min(WINDOW_UNKNOWN_MAX) };
            let widest = bdp + Link::bytes(link.line, link.target_ns);
            return (most + self.clear_bytes)
                .min(widest.max(most))
                .max(WINDOW_FIRST_PKTS_MIN * link.mtu);
        }
        let quiet = if self.lossless >= LOSSLESS_ROUNDS && link.guards.has(Guard::LosslessFloor) {
            link.burst
        } else {
            0
        };
        let least = quiet.max(WINDOW_PKTS_MIN * link.mtu);
        // Twice the target: the median of the paths is controlled, and the cap must let the later
        // half come back, too.
        let covered = link.base_ns + WINDOW_TARGETS * link.target_ns;
        let most = WINDOW_MOST.of(bdp).max(Link::bytes(link.line, covered) + link.host_bytes);
        let wanted = Link::bytes(self.rate, covered) + link.host_bytes;
        wanted.clamp(least, most.max(least))
    }

    fn on_round(&mut self, link: &Link, round: &Round) {
        self.lossless = match round.lost_permille {
            0 => (self.lossless + 1).min(LOSSLESS_ROUNDS),
            _ => 0,
        };
        let Some(queue) = round.queue_ns else { return };
        self.first = false;
        let target = self.target(link);
        let regime = self.regime(link, round, queue, target);
        self.hold = regime.is_decrease();
        self.rate = self.rate_in(regime, link, round, queue, target);
    }

    fn on_acked(&mut self, link: &Link, bytes: u64, queue_ns: u64) -> bool {
        let widens =
            self.first && queue_ns < link.target_ns && link.guards.has(Guard::OpeningWidens);
        if widens {
            self.clear_bytes += bytes;
        }
        widens
    }

    fn on_unproven(&mut self, link: &Link) {
        self.first = false;
        self.rate = CUT_MAX.of(self.rate).clamp(link.rate_min(), link.line);
    }

    fn on_restart(&mut self, link: &Link) {
        *self = Self::new(link.line);
    }
}
