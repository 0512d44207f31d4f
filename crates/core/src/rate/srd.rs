//! SRD's own control: a rate from the delivery rate and the median path's queueing delay.
//!
//! The network counts as congested when the *majority of paths* is late, or when less is delivered
//! than was sent. A single bad path is a matter of path choice and must not slow the connection. A
//! round with a decrease is followed by one without, because the effect of the decrease is visible
//! only then.

use super::full::FullQueue;
use super::loss_cap::LossCap;
use super::marks::Marks;
use super::rival::{self, Contest, Outcome, Watch};
use super::stale::StaleBase;
use super::{Link, RateControl, Round};
use crate::guards::Guard;
use crate::tuning::{
    CAP_UNLIKE_LINKS_PERMILLE, CLEAR_QUEUE, CLEAR_ROUNDS, CREDITED_TARGETS, CUT_MAX,
    CUT_MAX_LIMITED, DECREASE, HEAVY_LOSS_QUEUE, HEAVY_PERMILLE, HEAVY_TARGETS, LINE_HALVINGS_MAX,
    LINE_MOST, LINE_SLOPE, LOSSLESS_ROUNDS, LOSSY_CUT, MARKED_START, PACKETS_TRUSTED, QUICK_STEPS,
    SHARED_MOST, SHARED_SLOPE, SHARED_TARGET, SHORT, SHORT_CUT, SHORT_DELIVERED, SHORT_QUEUE,
    SHORT_ROUNDS, START_HALVINGS_MAX, STEP_PACKET, STEP_SHARE, Share, TARGET_HALVINGS_MAX,
    TARGET_SLOPE, USED_RATE, WINDOW_CREDITED, WINDOW_FIRST, WINDOW_FIRST_PKTS_MIN, WINDOW_MOST,
    WINDOW_PKTS_MIN, WINDOW_TARGETS, WINDOW_UNKNOWN_MAX,
};

#[derive(Debug)]
pub(crate) struct SrdRate {
    rate: u64,
    /// Rounds in a row that delivered less than was sent.
    short: u8,
    /// Rounds in a row without a queue, up to [`CLEAR_ROUNDS`].
    clear: u8,
    /// Rounds since the last one with a loss, up to [`LOSSLESS_ROUNDS`].
    lossless: u8,
    /// Rounds in a row in which switches marked all packets.
    marks: Marks,
    /// Whether the last round ended in a decrease.
    hold: bool,
    /// Whether no round has ended yet, so that the first window is in force.
    first: bool,
    /// Bytes acknowledged in the first window without queueing delay, which widen it.
    clear_bytes: u64,
    /// Halvings of the first window, learnt from starts that lost packets. A pause keeps them.
    halvings: u8,
    /// Most bytes in flight after the start, while what is in flight still grows; 0: no limit.
    growth: u64,
    /// A cap where losses go on. Few contexts ever have one.
    loss_cap: Option<Box<LossCap>>,
    /// The rule for a queue that overflows again and again.
    full: FullQueue,
    /// The rule for a way that became longer, and what it said of the last round.
    stale: StaleBase,
    base_rise_ns: u32,
    /// What tells of rivals, and the contest with them.
    watch: Watch,
    contest: Option<Box<Contest>>,
}

/// The verdict of a round on the rate, decided once, when the round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Regime {
    /// So little is sent that delay says nothing about the rate.
    /// Rule CC-20.
    Alone,
    /// The previous round ended in a decrease, whose effect is not visible yet.
    Held,
    /// The queueing delay is far above the target, or it is high and packets are lost.
    /// Rule CC-17.
    Overload,
    /// The queueing delay exceeds what this rate tolerates.
    /// Rule CC-18.
    Queue,
    /// Losses without delay: a shallow buffer, or the failure of a part of the fabric.
    /// Rule CC-19.
    Lossy,
    /// Less was delivered than sent, and a queue begins to build.
    /// Rule CC-21.
    Short,
    /// The line rate, with which a sender starts, was too high: switches marked most packets of the
    /// first round.
    /// Rule CC-37.
    MarkedStart,
    /// Switches have marked all packets for many rounds.
    /// Rule CC-43.
    Marked,
    /// There is room for a higher rate.
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
pub(super) fn log2_256(a: u64, b: u64) -> u64 {
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
            marks: Marks::default(),
            hold: false,
            first: true,
            clear_bytes: 0,
            halvings: 0,
            growth: 0,
            loss_cap: None,
            full: FullQueue::default(),
            stale: StaleBase::default(),
            base_rise_ns: 0,
            watch: Watch::default(),
            contest: None,
        }
    }

    /// Heap memory held, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        let cap = self.loss_cap.as_ref().map_or(0, |_| size_of::<LossCap>());
        cap + self.contest.as_ref().map_or(0, |_| size_of::<Contest>())
    }

    /// See [`FullQueue::pace_256`]; `None`: the rate does not follow it.
    pub(crate) fn full_pace_256(&self) -> Option<u64> {
        self.full.is_in_force().then(|| self.full.pace_256())
    }

    /// See [`StaleBase::on_round`].
    pub(crate) fn base_rise_ns(&self) -> u32 {
        self.base_rise_ns
    }

    /// No round has ended yet.
    pub(crate) fn is_opening(&self) -> bool {
        self.first
    }

    /// Whether there are rivals.
    #[cfg(test)]
    pub(crate) fn is_contested(&self) -> bool {
        self.contest.is_some()
    }

    /// Continues from a rate that other engines found; the first window is over.
    pub(crate) fn adopt(&mut self, rate: u64) {
        self.full.adopt(self.rate, rate);
        if let Some(contest) = &mut self.contest {
            contest.adopt(self.rate, rate);
        }
        (self.rate, self.first) = (rate, false);
    }

    /// Halvings of the rate below the line rate, in units of 1/256, and what each adds to the
    /// tolerated delay, as a fraction of it. Where the line rate is learnt, each sender has its
    /// own, and only a scale that is the same for all makes them converge.
    fn halvings(&self, link: &Link) -> (u64, Share) {
        let (scale, most, slope) = match link.line_known {
            true => (link.line, TARGET_HALVINGS_MAX, TARGET_SLOPE),
            false => (LINE_MOST, LINE_HALVINGS_MAX, LINE_SLOPE),
        };
        let slope = if link.guards.has(Guard::TargetSlope) { slope } else { Share(0, 1) };
        (log2_256(scale.max(self.rate), self.rate).min(most << 8), slope)
    }

    /// The queueing delay in ns that this rate tolerates: the link's target at line rate, and a
    /// quarter of the target more for each halving of the rate. Without that slope, of two senders
    /// the one with the worse estimate of the least RTT would take all of the bandwidth. While
    /// credits are in force, several targets are tolerated, because the queue is then in the
    /// fabric.
    /// Rule CC-16.
    fn target(&self, link: &Link) -> u64 {
        let (halvings, slope) = self.halvings(link);
        let slack = link.credited && link.guards.has(Guard::CreditedSlack);
        let tolerated = if slack { CREDITED_TARGETS } else { 1 };
        let base = tolerated * link.target_ns;
        (base + slope.of((base * halvings) >> 8)).max(1)
    }

    /// The queueing delay of the round, as [`Self::target`] takes it. What nearly all paths have is
    /// the queue of a port that the sender shares with others, and path choice does not shorten it:
    /// less of it is tolerated, so that it counts as more, up to a limit.
    /// Rule CC-47.
    fn queue(&self, link: &Link, round: &Round, queue: u64, target: u64) -> u64 {
        if !link.credited || !link.guards.has(Guard::SharedQueue) {
            return queue;
        }
        debug_assert!(target > 0, "some delay is always tolerated");
        let (halvings, slope) = self.halvings(link);
        let least = SHARED_TARGET.of(link.target_ns);
        let tolerated = least + ((SHARED_SLOPE * slope.of(least * halvings)) >> 8);
        let tolerated = tolerated.max(link.unsure_ns).clamp(1, target);
        let counts = u128::from(round.shared_ns) * u128::from(target) / u128::from(tolerated);
        queue.max((counts as u64).min(SHARED_MOST * target))
    }

    /// Least rate to which delay alone may lead: one burst per RTT. A lower rate needs losses,
    /// which prove that the delay is a queue and not noise of the hosts.
    /// Rule CC-20.
    fn rate_least(&self, link: &Link) -> u64 {
        match self.lossless >= LOSSLESS_ROUNDS && link.guards.has(Guard::LosslessFloor) {
            true => Link::rate(link.burst, link.srtt_ns).min(self.rate),
            false => 0,
        }
    }

    /// The rate after heavy congestion: the delivery rate, but at least an eighth of the old rate.
    fn cut(&self, round: &Round) -> u64 {
        let floor = if round.app_limited { CUT_MAX_LIMITED } else { CUT_MAX }.of(self.rate);
        round.delivered.max(floor).min(self.rate)
    }

    /// The rate after queueing delay above the target on the majority of paths: lower in proportion
    /// to the excess.
    fn decrease(&self, link: &Link, round: &Round, queue: u64, target: u64) -> u64 {
        // A rate that the inflight cap kept from being used is no basis for a decrease.
        let used = if round.app_limited || !link.guards.has(Guard::UsedRate) {
            self.rate
        } else {
            round.delivered.saturating_mul(USED_RATE)
        };
        let from = self.rate.min(used);
        let less = u128::from(from) * u128::from(queue - target) / u128::from(queue);
        from - DECREASE.of(less as u64)
    }

    /// Additive increase, the same for all senders whatever their rates, so that the rates
    /// converge.
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

    /// Whether delay says nothing about the rate: no loss for many rounds, and less than a packet
    /// per RTT. The delay is then the packet's own transmission time on a slow link, or the queue
    /// of others; counted as ours, it would keep the rate at its minimum for ever.
    fn is_alone(&self, link: &Link) -> bool {
        self.lossless >= LOSSLESS_ROUNDS
            && self.rate < Link::rate(link.mtu, link.srtt_ns)
            && link.guards.has(Guard::PacketFloor)
    }

    /// Whether switches marked most packets. The delivery rate has to be accurate, since the new
    /// rate follows from it. Credits make no difference: the first window needs none.
    fn is_marked(link: &Link, round: &Round) -> bool {
        round.marked
            && !round.app_limited
            && round.packets >= PACKETS_TRUSTED
            && link.guards.has(Guard::MarkedStart)
    }

    /// The regime of the round: the first one whose condition holds. Also counts consecutive
    /// rounds.
    fn regime(&mut self, link: &Link, round: &Round, queue: u64, target: u64) -> Regime {
        let first = core::mem::replace(&mut self.first, false);
        let guards = link.guards;
        let held = core::mem::take(&mut self.hold) && guards.has(Guard::Hold);
        let lossy = round.lost_permille > HEAVY_PERMILLE && guards.has(Guard::Lossy);
        // A last hop that the receiver allocates does not overflow, so the losses are those of some
        // paths.
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
        self.marks.on_round(link, round, self.rate);
        let short = self.short >= SHORT_ROUNDS && guards.has(Guard::Short);
        match () {
            () if (lossy || queue > target) && self.is_alone(link) => Regime::Alone,
            () if (lossy || queue > target) && held => Regime::Held,
            () if queue > HEAVY_TARGETS * target || overflow => Regime::Overload,
            () if queue > target => Regime::Queue,
            () if lossy => Regime::Lossy,
            () if self.marks.count(round) => Regime::Marked,
            () if short && queue > SHORT_QUEUE.of(target) => Regime::Short,
            () if first && Self::is_marked(link, round) => Regime::MarkedStart,
            () => Regime::Clear,
        }
    }

    /// Learns from a round of the start how far the line rate was from what was delivered: if
    /// packets were lost at a queue, the first window after the next pause is as much smaller.
    /// Returns whether the start goes on: a smaller first window that met no queue doubles.
    /// Rule CC-38.
    fn start_goes_on(&mut self, link: &Link, round: &Round, queue: u64) -> bool {
        if !link.guards.has(Guard::KnownStart) {
            return false;
        }
        let heavy = round.lost_permille > HEAVY_PERMILLE;
        if round.marked || heavy || queue > link.target_ns {
            if round.lost_permille > 0 && round.packets >= PACKETS_TRUSTED {
                let found = round.delivered.saturating_mul(MARKED_START).clamp(1, link.line);
                let ratio = link.line / found;
                let halvings = ratio.ilog2().min(START_HALVINGS_MAX) as u8;
                self.halvings = self.halvings.max(halvings);
            }
            return false;
        }
        let smaller = self.halvings > 0;
        self.halvings = self.halvings.saturating_sub(1);
        smaller
    }

    /// The rate that delivered so much: what a bad link loses at any rate is no sign of a limit.
    /// Larger shares are not believed to be a link's.
    fn carried(&self, round: &Round) -> u64 {
        let lost = self.loss_cap.as_ref().map_or(0, |cap| cap.bad_link_permille());
        let believed = !round.app_limited && lost <= CAP_UNLIKE_LINKS_PERMILLE;
        let lost = if believed { lost } else { 0 };
        Share(1000 - u64::from(lost), 1000).over(round.delivered)
    }

    /// The new rate in a regime.
    fn rate_in(&self, regime: Regime, link: &Link, round: &Round, queue: u64, target: u64) -> u64 {
        let delivered = round.delivered;
        let rate = match regime {
            Regime::Alone => self.increase(link, 0, 1).min(Link::rate(link.mtu, link.srtt_ns)),
            Regime::Held => self.rate,
            Regime::Overload => self.cut(round).max(self.rate_least(link)),
            Regime::Queue => {
                let less = self.decrease(link, round, queue, target);
                // A queue that is hardly too long, such as marks make without any packet that
                // waits, takes next to nothing.
                let less =
                    if self.marks.count(round) { less.min(Marks::cut(self.rate)) } else { less };
                less.max(self.rate_least(link))
            }
            Regime::Lossy => LOSSY_CUT.of(self.rate).max(self.carried(round).min(self.rate)),
            Regime::Short => {
                SHORT_DELIVERED.of(delivered).max(SHORT_CUT.of(self.rate)).min(self.rate)
            }
            Regime::MarkedStart => {
                let least = CUT_MAX.of(self.rate);
                self.rate.min(delivered.saturating_mul(MARKED_START).max(least))
            }
            Regime::Marked => {
                let least = Link::rate(link.burst, link.srtt_ns).min(self.rate);
                Marks::cut(self.rate).max(least)
            }
            Regime::Clear => self.increase(link, queue, target),
        };
        rate.clamp(link.rate_min(), link.line)
    }

    /// After the start what is in flight at most doubles per round, until that is no limit any more
    /// or congestion shows one. Where the delay target is much longer than the base RTT, the window
    /// would grow to the whole target at once. `opening`: the first window, if it was in force.
    /// Rule CC-45.
    fn grow(&mut self, link: &Link, round: &Round, opening: Option<u64>) {
        if self.first || (opening.is_none() && self.growth == 0) {
            return;
        }
        let congested = self.hold || round.missing > 0 || self.full.is_in_force();
        let doubled = 2 * Link::bytes(round.delivered, round.ns);
        let growth = doubled.max(self.growth).max(opening.unwrap_or(0));
        self.growth = 0;
        if !congested && link.guards.has(Guard::Growth) && growth < self.inflight_max(link) {
            self.growth = growth;
        }
    }

    /// The new rate after a round.
    fn decide(&mut self, link: &Link, round: &Round) {
        self.base_rise_ns = 0;
        self.lossless = match round.lost_permille {
            0 => (self.lossless + 1).min(LOSSLESS_ROUNDS),
            _ => 0,
        };
        if !self.first && link.guards.has(Guard::Rivals) && self.contest(link, round) {
            return;
        }
        if !self.first
            && link.guards.has(Guard::FullBuffer)
            && let Some(rate) = self.full.on_round(link, round, self.rate)
        {
            self.rate = rate;
            return;
        }
        let target = self.target(link);
        if !self.first {
            self.loss_cap(link, round, target);
        }
        let Some(queue) = round.queue_ns else { return };
        let queue = self.queue(link, round, queue, target);
        if self.first && self.start_goes_on(link, round, queue) {
            return;
        }
        if !self.first {
            self.base_rise_ns = self.stale.on_round(link, round, self.rate, queue > target);
        }
        let regime = self.regime(link, round, queue, target);
        self.hold = regime.is_decrease();
        if regime != Regime::Held {
            self.marks.on_change(self.hold);
        }
        self.rate = self.rate_in(regime, link, round, queue, target);
    }

    /// Whether a contest with rivals is going on, and took the round in the place of the law.
    fn contest(&mut self, link: &Link, round: &Round) -> bool {
        let Some(contest) = &mut self.contest else {
            return self.contest_begins(link, round);
        };
        let outcome = contest.on_round(link, round);
        self.rate = contest.rate(link, round);
        if outcome != Outcome::GoesOn {
            self.watch.on_end(outcome == Outcome::Over && contest.is_long(link));
            self.contest = None;
        }
        true
    }

    /// Begins a contest if others keep a queue that no sender of this law would tolerate, or have
    /// switches mark all packets whatever this sender's rate.
    fn contest_begins(&mut self, link: &Link, round: &Round) -> bool {
        let queue = round.queue_ns.map(|_| rival::queue(round));
        let high = queue.zip(self.full.tolerated_most()).is_some_and(|(queue, most)| queue > most);
        // Where the rule for full buffers is in force, marks are not counted.
        let marked = !self.full.is_in_force() && self.marks.are_of_rivals(link, self.rate);
        let high = high || marked;
        if !self.watch.on_round(link, round, high) {
            return false;
        }
        let contest = Contest::new(link, self.rate, round);
        *self = Self {
            rate: contest.rate(link, round),
            first: false,
            halvings: self.halvings,
            watch: self.watch,
            contest: Some(Box::new(contest)),
            ..Self::new(link.line)
        };
        debug_assert!(!self.full.is_in_force(), "the contest takes the place of the law");
        true
    }

    /// Lets losses that go on cap the rate. `tolerated_ns`: queueing delay beyond which delay
    /// lowers it.
    fn loss_cap(&mut self, link: &Link, round: &Round, tolerated_ns: u64) {
        if self.loss_cap.is_none() && (round.lost_permille == 0 || !link.guards.has(Guard::LossCap))
        {
            return;
        }
        let cap = self.loss_cap.get_or_insert_with(|| Box::new(LossCap::new()));
        if cap.on_round(link, round, tolerated_ns) {
            self.loss_cap = None;
        }
    }
}

impl RateControl for SrdRate {
    fn rate(&self) -> u64 {
        self.loss_cap.as_ref().map_or(self.rate, |c| self.rate.min(c.cap()))
    }

    /// Inflight cap in bytes, rule CC-23.
    fn inflight_max(&self, link: &Link) -> u64 {
        let bdp = Link::bytes(link.line, link.base_ns) + link.host_bytes;
        if self.first {
            // More than the bandwidth-delay product of the base RTT: acknowledgments are coalesced,
            // and data sprayed at line rate meets some queue in a fabric.
            let quick = link.guards.has(Guard::QuickStart);
            let covered = if quick { WINDOW_FIRST.of(bdp) } else { bdp };
            let known = link.base_known && link.line_known;
            let most = if known { covered } else { covered.min(WINDOW_UNKNOWN_MAX) };
            let most = most >> self.halvings;
            let widest = bdp + Link::bytes(link.line, link.target_ns);
            return (most + self.clear_bytes)
                .min(widest.max(most))
                .max(WINDOW_FIRST_PKTS_MIN * link.mtu)
                .max(if link.line_known { 0 } else { link.burst });
        }
        if let Some(contest) = &self.contest {
            return contest.window_bytes(link) + link.host_bytes;
        }
        if self.full.is_in_force() {
            return self.full.window_bytes(link) + link.host_bytes;
        }
        let quiet = if self.lossless >= LOSSLESS_ROUNDS && link.guards.has(Guard::LosslessFloor) {
            link.burst
        } else {
            0
        };
        let least = quiet.max(WINDOW_PKTS_MIN * link.mtu);
        // More than the target: the control loop acts on the median of the paths, and the cap must
        // leave room for the slower half.
        let targets = if link.credited { WINDOW_CREDITED } else { WINDOW_TARGETS };
        let covered = link.base_ns + targets.of(link.target_ns);
        let most = WINDOW_MOST.of(bdp).max(Link::bytes(link.line, covered) + link.host_bytes);
        let wanted = Link::bytes(self.rate(), covered) + link.host_bytes;
        // What waits in hosts is in no queue of the network.
        let growth = if self.growth > 0 { self.growth + link.host_bytes } else { u64::MAX };
        wanted.min(growth).clamp(least, most.max(least))
    }

    fn on_round(&mut self, link: &Link, round: &Round) {
        let opening = self.first.then(|| self.inflight_max(link));
        self.decide(link, round);
        self.grow(link, round, opening);
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
        let rate = CUT_MAX.of(self.rate).clamp(link.rate_min().min(self.rate), link.line);
        self.full.adopt(self.rate, rate);
        // The law is in force again.
        self.contest = None;
        self.rate = rate;
    }

    fn on_restart(&mut self, link: &Link) {
        let mut loss_cap = self.loss_cap.take();
        if let Some(cap) = &mut loss_cap {
            cap.on_restart();
        }
        *self = Self { halvings: self.halvings, loss_cap, ..Self::new(link.line) };
    }
}
