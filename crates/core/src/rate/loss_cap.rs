//! A cap on the rate where losses go on: what a bottleneck passes, learnt from what it drops.
//!
//! A policer, the bucket of a virtual machine, or a buffer smaller than the tolerated delay shows
//! no delay that the rate could follow, and drops whatever is beyond its rate for as long as more
//! is sent. What passes is measured over intervals of many round trips. Two such intervals with
//! heavy losses cap the rate at what was delivered, and the cap falls while the losses go on. If
//! they end, it rises again, slowly at first. If they remain although the rate has halved, they do
//! not depend on the rate (a bad link), and the rate returns.

use super::{Link, Round};
use crate::tuning::{
    CAP_ALIKE, CAP_CLEAN, CAP_CUT, CAP_DEVIATIONS, CAP_DOUBLES, CAP_DOUBLINGS_MAX, CAP_EXEMPT_MAX,
    CAP_EXEMPT_MIN, CAP_FALL, CAP_HEAVY_FALL, CAP_HOLD, CAP_INTERVAL, CAP_KEPT, CAP_LOSSES_MOST,
    CAP_LOSSY_ROUNDS, CAP_PERMILLE, CAP_PKTS, CAP_RISE, CAP_RISE_LATE, CAP_RISE_MAX,
    CAP_RISE_SETTLES, CAP_SAME, CAP_TRIAL_CUT, CAP_UNLIKE_LINKS_PERMILLE, HEAVY_PERMILLE, Share,
};

/// What the losses of the last intervals mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    /// Nothing. The last interval lost heavily and delivered at this rate, if it did.
    Open { lossy_at: Option<u64> },
    /// The cap falls until the losses end. Before, this share was lost, so much was delivered, and
    /// this cap was in force.
    Trial { permille: u32, delivered: u64, cap: u64 },
    /// The cap ended the losses, so many ns and intervals ago.
    Capped { ns: u64, intervals: u8 },
}

/// Sums of an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    /// Bytes that the host delivered.
    delivered: u64,
    /// Bytes of this engine that were acknowledged, and those that were lost.
    acked: u64,
    lost: u64,
    ns: u64,
    /// Time with a queue that the control of delay answers.
    queued_ns: u64,
    /// Rounds with a loss: many packets of one burst may be lost at once.
    lossy_rounds: u64,
}

/// Packets that were sent and those of them that were lost.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    lost: u64,
    all: u64,
}

impl Losses {
    fn add(&mut self, other: Self) {
        *self = Self { lost: self.lost + other.lost, all: self.all + other.all };
        if self.all > CAP_LOSSES_MOST {
            *self = Self { lost: self.lost / 2, all: self.all / 2 };
        }
    }

    /// Whether a larger share is lost than of `other`, beyond what chance explains: the difference
    /// is more than [`CAP_DEVIATIONS`] standard deviations of losses that are independent.
    fn exceed(self, other: Self) -> bool {
        let (lost, all) = (u128::from(self.lost), u128::from(self.all));
        let (lost_other, all_other) = (u128::from(other.lost), u128::from(other.all));
        let Some(more) = (lost * all_other).checked_sub(lost_other * all) else { return false };
        let (lost, sum) = (lost + lost_other, all + all_other);
        let deviations = u128::from(CAP_DEVIATIONS * CAP_DEVIATIONS);
        more * more * sum > deviations * lost * (sum - lost) * all * all_other
    }
}

/// Conclusion of an interval.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    /// Bytes per second.
    delivered: u64,
    permille: u32,
    losses: Losses,
    queued: bool,
    ns: u64,
}

/// The cap of one context. Rules CC-41 and CC-42.
#[derive(Debug)]
pub(crate) struct LossCap {
    belief: Belief,
    /// Most bytes per second; `u64::MAX`: no cap.
    cap: u64,
    sums: Interval,
    /// The interval only lets the effect of a change arrive, because losses are found late.
    settling: bool,
    /// Share lost that does not depend on the rate, per thousand, and the intervals for which this
    /// is believed; the next time, for so many.
    bad_link_permille: u32,
    exempt: u16,
    exempt_next: u16,
    /// Losses of the last trial, and those since a bad link is believed in.
    in_trial: Losses,
    /// See [`Self::in_trial`].
    since: Losses,
}

impl Interval {
    fn add(&mut self, round: &Round, tolerated_ns: u64) {
        self.delivered = self.delivered.saturating_add(Link::bytes(round.delivered, round.ns));
        self.acked = self.acked.saturating_add(round.acked);
        self.lost = self.lost.saturating_add(round.missing);
        self.ns = self.ns.saturating_add(round.ns);
        self.lossy_rounds += u64::from(round.missing > 0);
        if round.queue_ns.is_some_and(|queue| queue > tolerated_ns) {
            self.queued_ns = self.queued_ns.saturating_add(round.ns);
        }
    }

    /// Whether the share lost can be told from chance.
    fn is_over(&self, link: &Link) -> bool {
        let passed = self.acked.saturating_add(self.lost);
        self.ns >= length(link)
            && (passed >= CAP_PKTS * link.mtu || self.lossy_rounds >= CAP_LOSSY_ROUNDS)
    }

    fn verdict(&self, mtu: u64) -> Verdict {
        let packets = |bytes: u64| bytes.div_ceil(mtu.max(1));
        let all = u128::from(self.acked) + u128::from(self.lost);
        let permille = (u128::from(self.lost) * 1000 / all.max(1)) as u32;
        Verdict {
            delivered: Link::rate(self.delivered, self.ns),
            permille,
            losses: Losses {
                lost: packets(self.lost),
                all: packets(self.lost) + packets(self.acked),
            },
            queued: self.queued_ns > self.ns / 2,
            ns: self.ns,
        }
    }
}

/// Least length of an interval in ns.
fn length(link: &Link) -> u64 {
    (CAP_INTERVAL * (link.srtt_ns + link.target_ns)).max(1)
}

impl LossCap {
    pub(crate) fn new() -> Self {
        Self {
            belief: Belief::Open { lossy_at: None },
            cap: u64::MAX,
            sums: Interval::default(),
            settling: true,
            bad_link_permille: 0,
            exempt: 0,
            exempt_next: CAP_EXEMPT_MIN,
            in_trial: Losses::default(),
            since: Losses::default(),
        }
    }

    /// The most that may be sent, in bytes per second; `u64::MAX`: no cap.
    pub(crate) fn cap(&self) -> u64 {
        self.cap
    }

    /// Share lost, per thousand, that is a bad link's and does not depend on the rate; 0: none.
    pub(crate) fn bad_link_permille(&self) -> u32 {
        self.bad_link_permille
    }

    /// A pause: what the interval has measured says nothing, but a cap is remembered.
    pub(crate) fn on_restart(&mut self) {
        self.begin(true);
    }

    fn begin(&mut self, settling: bool) {
        (self.sums, self.settling) = (Interval::default(), settling);
    }

    /// A round is over. `tolerated_ns`: queueing delay beyond which delay lowers the rate. Returns
    /// whether it ended an interval after which nothing is known that a new cap would not know.
    pub(crate) fn on_round(&mut self, link: &Link, round: &Round, tolerated_ns: u64) -> bool {
        // On slow links the base RTT is that of a small packet, and a full one takes longer by
        // itself.
        let link = &Link { base_ns: link.base_ns + round.own_ns, ..*link };
        if round.full {
            // The base RTT may have fallen.
            self.cap = self.cap.max(link.rate_min());
        }
        if round.app_limited {
            self.begin(self.settling);
            return false;
        }
        self.sums.add(round, tolerated_ns);
        if !self.sums.is_over(link) {
            return false;
        }
        let verdict = self.sums.verdict(link.mtu);
        let settled = !self.settling;
        self.begin(false);
        if let Belief::Capped { ns, .. } = &mut self.belief {
            *ns = ns.saturating_add(verdict.ns);
        }
        if settled {
            self.judge(link, verdict);
        }
        let knows = self.exempt > 0 || self.exempt_next > CAP_EXEMPT_MIN;
        settled && self.belief == (Belief::Open { lossy_at: None }) && !knows
    }

    fn judge(&mut self, link: &Link, verdict: Verdict) {
        self.believe(verdict);
        let lossy = verdict.permille >= CAP_PERMILLE.max(2 * self.bad_link_permille);
        match self.belief {
            Belief::Open { lossy_at } => self.open(link, verdict, lossy, lossy_at),
            Belief::Trial { permille, delivered, cap } if lossy => {
                self.in_trial.add(verdict.losses);
                let alike = CAP_ALIKE.of(permille.into())..=CAP_ALIKE.over(permille.into());
                let same = alike.contains(&verdict.permille.into());
                // No link loses so much, unless lower rates show it for certain.
                let heavy = verdict.permille >= CAP_UNLIKE_LINKS_PERMILLE;
                let low = delivered / if heavy { CAP_HEAVY_FALL } else { CAP_FALL };
                let bad = same && !verdict.queued && !planted!(BadLinkCapped);
                if self.cap < low && bad {
                    self.bad_link(verdict.permille, cap);
                } else {
                    self.cut(link, verdict.delivered, CAP_TRIAL_CUT);
                }
            }
            Belief::Trial { .. } => self.belief = Belief::Capped { ns: 0, intervals: 0 },
            Belief::Capped { .. } if lossy => {
                self.in_trial = Losses::default();
                self.belief = Belief::Trial {
                    permille: verdict.permille,
                    delivered: verdict.delivered,
                    cap: self.cap,
                };
                self.cut(link, verdict.delivered, CAP_CUT);
            }
            Belief::Capped { ns, intervals } => {
                self.belief = Belief::Capped { ns, intervals: intervals.saturating_add(1) };
                self.rise(link, verdict.ns, ns, intervals);
            }
        }
    }

    /// A bad link is believed in for a while, and as long as no larger share is lost than in the
    /// trial. What depends on the rate is no bad link: in a crowd the losses remain while one of
    /// them slows down, and rise when all have returned.
    fn believe(&mut self, verdict: Verdict) {
        self.exempt = self.exempt.saturating_sub(1);
        if self.exempt > 0 {
            self.since.add(verdict.losses);
        }
        if self.exempt == 0 || self.since.exceed(self.in_trial) {
            (self.bad_link_permille, self.exempt) = (0, 0);
        }
    }

    /// Without a cap: two intervals with heavy losses that no queue explains, and that delivered
    /// the same, begin one.
    /// Rule CC-41.
    fn open(&mut self, link: &Link, verdict: Verdict, lossy: bool, lossy_at: Option<u64>) {
        let Verdict { delivered, permille, .. } = verdict;
        if !lossy || permille < HEAVY_PERMILLE || verdict.queued {
            self.belief = Belief::Open { lossy_at: None };
            return;
        }
        let same = |at: u64| {
            permille >= CAP_UNLIKE_LINKS_PERMILLE
                || at.abs_diff(delivered) <= CAP_SAME.of(at.max(delivered))
        };
        if !lossy_at.is_some_and(same) {
            self.belief = Belief::Open { lossy_at: Some(delivered) };
            return;
        }
        self.in_trial = Losses::default();
        self.belief = Belief::Trial { permille, delivered, cap: self.cap };
        self.cap_set(link, delivered);
    }

    /// The losses remain at half of the rate: `cap` is in force again.
    fn bad_link(&mut self, permille: u32, cap: u64) {
        (self.bad_link_permille, self.since) = (permille, Losses::default());
        self.exempt = self.exempt_next;
        self.exempt_next = self.exempt_next.saturating_mul(2).min(CAP_EXEMPT_MAX);
        self.cap = cap;
        self.belief = match cap {
            u64::MAX => Belief::Open { lossy_at: None },
            _ => Belief::Capped { ns: 0, intervals: 0 },
        };
        self.begin(true);
    }

    /// Lowers the cap to a share of what was delivered, at most to that share of its half.
    fn cut(&mut self, link: &Link, delivered: u64, share: Share) {
        self.cap_set(link, share.of(delivered.max(self.cap / 2).min(self.cap)));
    }

    /// Sets the cap a little below `rate`, so that what is full drains. No cap is below the least
    /// rate of any policy: if nothing passes, that is an outage and no limit.
    fn cap_set(&mut self, link: &Link, rate: u64) {
        if !planted!(CapNeverFalls) {
            self.cap = CAP_KEPT.of(rate).clamp(link.rate_min(), link.line);
        }
        self.begin(true);
    }

    /// Raises the cap, `ns` after it ended the losses and after an interval of `took` ns without
    /// any. At the line rate it is gone.
    /// Rule CC-42.
    fn rise(&mut self, link: &Link, took: u64, ns: u64, intervals: u8) {
        let length = length(link);
        let Some(past) = (ns / length).checked_sub(CAP_HOLD) else { return };
        let doublings =
            (past / CAP_DOUBLES).min(u64::from(intervals / CAP_CLEAN)).min(CAP_DOUBLINGS_MAX);
        let root = self.cap.isqrt().saturating_mul(link.line.isqrt());
        let first = CAP_RISE.of(root).saturating_mul((took / length).max(1));
        let more = first.min(CAP_RISE_LATE.of(self.cap)) << doublings;
        let more = more.min(CAP_RISE_MAX.of(self.cap)).max(1);
        let more = if planted!(CapNeverRises) { 0 } else { more };
        self.settling = more >= CAP_RISE_SETTLES.of(self.cap);
        self.cap = self.cap.saturating_add(more);
        if self.cap >= link.line {
            (self.cap, self.belief) = (u64::MAX, Belief::Open { lossy_at: None });
        }
    }
}

#[cfg(test)]
#[path = "loss_cap_tests.rs"]
mod tests;
