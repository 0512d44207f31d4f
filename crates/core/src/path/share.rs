//! One host, one sender: what the engines of a host tell each other of a remote address.
//!
//! Several processes of a host that send to one address share one way there. Each of them runs the
//! law on the rate of the *host* and takes its part of it: `V` is what the host may send, the mean
//! of what its senders think, and a part of `V` is paced and in flight here. So their sum is what
//! one engine would have, however many they are.
//!
//! The engine knows nothing of where the others are. Its driver takes a [`HostNote`] out
//! ([`crate::Engine::share_next`]) and puts the [`HostView`] of all of them in
//! ([`crate::Engine::share_view`]).

use super::PathContext;
use super::active::ActivePaths;
use crate::params::Params;
use crate::rate::{Link, RateControl as _, Round};
use crate::time::{Span, Time};
use crate::tuning::{
    SHARE_ACKED_PKTS, SHARE_ASKS, SHARE_EVERY, SHARE_RTTS, SHARE_STALE_MAX, SHARE_STALE_MIN,
    SHARE_STRETCH_MAX,
};
use core::net::IpAddr;

/// Most senders that count: engines of one host.
pub const HOST_SENDERS_MAX: u32 = 256;

/// What this engine tells of one remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostNote {
    /// The remote address.
    pub ip: IpAddr,
    /// Up to when this engine counts as a sender without another note; at or before now: it has
    /// nothing to send.
    pub until: Time,
    /// It would send more if it might.
    pub backlogged: bool,
    /// Bytes per second that the *host* may send, as this engine sees it; 0 = not known yet.
    pub rate_host: u64,
    /// Bytes per second that this engine paces.
    pub rate_own: u64,
    /// Bytes per second of this engine that arrived in the last round trip.
    pub delivered: u64,
    /// Lost bytes of it per thousand of lost and delivered.
    pub lost_permille: u32,
    /// Bytes in flight, and their cap.
    pub inflight: u64,
    /// See `inflight`.
    pub inflight_max: u64,
    /// Least round trip that this engine measured itself, ns; 0 = none.
    pub rtt_ns_min: u32,
    /// Smoothed round trip, ns; 0 = none.
    pub rtt_ns_smoothed: u32,
    /// Packets sent to the address, and declared lost (both wrap).
    pub packets_sent: u32,
    /// See `packets_sent`.
    pub packets_lost: u32,
}

/// What all engines of the host together know of one remote address, this one among them.
///
/// Nothing in it is believed beyond what another process of the same user may decide: rates end at
/// this engine's line, and no part is less than that of one sender among [`HOST_SENDERS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostView {
    /// Engines that send there, at least 1.
    pub senders: u32,
    /// Those of them that would send more.
    pub backlogged: u32,
    /// Bytes per second that the others of them, which have little to send, take together.
    pub limited_bytes_per_sec: u64,
    /// Bytes per second of all senders that arrived in their last round trips.
    pub delivered_bytes_per_sec: u64,
    /// Lost bytes of these per thousand of lost and delivered.
    pub lost_permille: u32,
    /// Mean of what they think that the host may send, bytes per second; 0 = nobody knows.
    pub rate_bytes_per_sec: u64,
    /// Least round trip that any of them measured, ns; 0 = none.
    pub rtt_ns_min: u32,
}

impl HostView {
    /// Of an engine that is the only one.
    pub const ALONE: Self = Self {
        senders: 1,
        backlogged: 1,
        limited_bytes_per_sec: 0,
        delivered_bytes_per_sec: 0,
        lost_permille: 0,
        rate_bytes_per_sec: 0,
        rtt_ns_min: 0,
    };
}

/// Part of what the host may send, in units of 2^-16; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part(u32);

impl Part {
    const WHOLE: Self = Self(1 << 16);

    fn of(self, x: u64) -> u64 {
        ((u128::from(x) * u128::from(self.0)) >> 16) as u64
    }
    /// What `x` is this part of.
    fn whole_of(self, x: u64) -> u64 {
        if self == Self::WHOLE {
            return x;
        }
        u64::try_from((u128::from(x) << 16) / u128::from(self.0)).unwrap_or(u64::MAX)
    }

    /// The part of a sender that would send more: what those who have little to send leave, in
    /// equal parts, and never less than an equal part of all. `own`: what this engine added to
    /// `limited_bytes_per_sec`, if it did.
    /// Rule CC-33.
    fn fair(view: &HostView, line: u64, own: Option<u64>) -> Self {
        let senders = view.senders.clamp(1, HOST_SENDERS_MAX);
        let rate = view.rate_bytes_per_sec.min(line);
        let equal = Self::WHOLE.0 / senders;
        if rate == 0 {
            return Self(equal);
        }
        let others = match own {
            Some(_) => view.backlogged,
            None => view.backlogged.saturating_sub(1),
        };
        let limited = view.limited_bytes_per_sec.saturating_sub(own.unwrap_or(0)).min(rate);
        let left = ((u128::from(rate - limited) << 16) / u128::from(rate)) as u32;
        Self((left / (others.min(HOST_SENDERS_MAX) + 1)).clamp(equal, Self::WHOLE.0))
    }
}

/// The state of sharing of one address.
#[derive(Debug)]
pub(super) struct Share {
    view: HostView,
    part: Part,
    /// What this engine counts for among those that have little to send.
    limited: Option<u64>,
    /// Bytes sent since a packet asked for an acknowledgment.
    unasked: u32,
    /// When the next note is due.
    due: Time,
    /// When the last round ended.
    round_at: Time,
    /// A note waits to be taken.
    queued: bool,
    /// It says that there is nothing to send.
    idle: bool,
    /// Bytes per second that arrived in the last round, and how much of it was lost.
    delivered: u64,
    lost_permille: u32,
    /// Packets sent, and declared lost (both wrap).
    pub(super) sent: u32,
    pub(super) lost: u32,
}

impl Share {
    pub(super) const ALONE: Self = Self {
        view: HostView::ALONE,
        part: Part::WHOLE,
        limited: None,
        unasked: 0,
        due: Time(0),
        round_at: Time(0),
        queued: false,
        idle: true,
        delivered: 0,
        lost_permille: 0,
        sent: 0,
        lost: 0,
    };

    /// This engine's part of a rate or a window of the host.
    pub(super) fn of(&self, host: u64) -> u64 {
        self.part.of(host)
    }

    /// What the host has where this engine has `own`.
    pub(super) fn whole_of(&self, own: u64) -> u64 {
        self.part.whole_of(own)
    }

    /// Engines of the host that send there, this one among them.
    pub(super) fn senders(&self) -> u32 {
        self.view.senders.clamp(1, HOST_SENDERS_MAX)
    }

    /// Bytes that this engine may send in one piece: its part of the host's.
    pub(super) fn burst(&self, p: &Params) -> u32 {
        (self.of(p.burst_bytes.into()) as u32).max(p.mtu.into())
    }

    /// The round as the host's. Of the few packets of one engine among many, one more or less is a
    /// fifth of a rate, and one lost is heavy loss; so what all of them said last counts, as far as
    /// this engine's own round does not contradict it.
    /// Rule CC-34.
    pub(super) fn round(&mut self, round: Round) -> Round {
        (self.delivered, self.lost_permille) = (round.delivered, round.lost_permille);
        if self.view.senders <= 1 {
            return round;
        }
        let own = self.whole_of(round.delivered);
        let told = self.view.delivered_bytes_per_sec;
        let delivered = told.clamp(own / 2, own.saturating_mul(2));
        let sent =
            u128::from(delivered) * u128::from(round.sent) / u128::from(round.delivered.max(1));
        Round {
            delivered,
            sent: u64::try_from(sent).unwrap_or(u64::MAX),
            lost_permille: self.view.lost_permille.max(round.lost_permille / 4),
            ..round
        }
    }

    /// What the others think that the host may send, if there are others who know.
    pub(super) fn rate(&self, link: &Link) -> Option<u64> {
        let rate = self.view.rate_bytes_per_sec;
        (self.view.senders > 1 && rate > 0).then(|| rate.clamp(link.rate_min(), link.line))
    }
}

impl ActivePaths {
    fn share_note(&mut self, p: &Params, now: Time, ip: IpAddr) -> HostNote {
        let share = &mut self.share;
        share.queued = false;
        let srtt_ns = self.rtt.all.srtt_ns;
        let every = SHARE_RTTS.of_span(Span(srtt_ns.into()));
        share.due = now + every.max(SHARE_EVERY);
        let own = share.of(self.rate.rate()).max(1);
        let gap = Span(u64::from(p.mtu) * 1_000_000_000 / own);
        let stale = gap.scale(2, 1).max(Span(4 * u64::from(srtt_ns)));
        let stale = stale.max(SHARE_STALE_MIN).min(SHARE_STALE_MAX);
        let limited = self.app_limited && !share.idle;
        share.limited = limited.then_some(share.delivered);
        let (packets_sent, packets_lost) = (share.sent, share.lost);
        HostNote {
            ip,
            until: if share.idle { Time(0) } else { now + stale },
            backlogged: !self.app_limited,
            rate_host: if self.rate.is_opening() { 0 } else { self.rate.rate() },
            rate_own: own,
            delivered: share.delivered,
            lost_permille: share.lost_permille,
            inflight: self.inflight,
            inflight_max: self.inflight_max,
            rtt_ns_min: self.rtt.least_ns(),
            rtt_ns_smoothed: srtt_ns,
            packets_sent,
            packets_lost,
        }
    }

    /// Goes on from what the others found, if they did.
    pub(super) fn share_adopt(&mut self, link: &Link) {
        if let Some(rate) = self.share.rate(link) {
            self.rate.adopt(rate);
        }
    }

    /// A round trip is over: the law decides on the rate of the host.
    pub(super) fn share_round(&mut self, now: Time, link: &Link, round: Round) {
        let took = now.since(core::mem::replace(&mut self.share.round_at, now));
        let round = self.share.round(round);
        let before = self.rate.rate();
        self.rate.on_round(link, &round);
        if self.share.view.senders > 1 && !self.rate.is_opening() {
            self.rate.adopt(stretched(link, took, before, self.rate.rate()));
        }
    }

    /// What the host's engines know. Returns whether more may be in flight than before.
    fn share_view(&mut self, p: &Params, view: &HostView) -> bool {
        let before = (self.share.part, self.inflight_max);
        self.share.view = *view;
        self.share.part = Part::fair(view, p.line_bytes_per_sec, self.share.limited);
        if self.share.view.senders > 1 {
            self.rtt.hint(view.rtt_ns_min);
        }
        if self.share.view.senders > 1 || self.share.part != before.0 {
            self.share_adopt(&self.link_now(p));
            self.rate_apply(p);
        }
        self.inflight_max > before.1
    }
}

/// The rate of the host after a round that took `took` here, where the law goes from `before` to
/// `after`. The fewer packets an engine sends, the rarer are its acknowledgments and the longer its
/// rounds; of all engines together the rate must move as fast as that of one, whose rounds have the
/// length of a round trip and of the packets that are acknowledged together.
/// Rule CC-35.
fn stretched(link: &Link, took: Span, before: u64, after: u64) -> u64 {
    let usual = link.srtt_ns + SHARE_ACKED_PKTS * link.mtu * 1_000_000_000 / before.max(1);
    let took = took.0.clamp(usual, usual * SHARE_STRETCH_MAX);
    let step = u128::from(before.abs_diff(after)) * u128::from(took) / u128::from(usual.max(1));
    let step = u64::try_from(step).unwrap_or(u64::MAX);
    if after >= before {
        return before.saturating_add(step).min(link.line);
    }
    before.saturating_sub(step).max(after.min(before / 2)).max(link.rate_min())
}

impl PathContext {
    /// Whether a note is to be queued now: one is due, or there is nothing to send any more.
    #[inline(always)]
    pub(crate) fn share_wants(&mut self, now: Time, idle: bool) -> bool {
        let Some(active) = &mut self.active else { return !idle };
        let share = &mut active.share;
        let wants = !share.queued && if idle { !share.idle } else { now >= share.due };
        // What waits to be told is told as it is then.
        if wants || share.queued {
            share.idle = idle;
        }
        share.queued |= wants;
        wants
    }

    /// A packet of `bytes` leaves: whether it asks for an acknowledgment. `last`: it does anyway. A
    /// part of a window may be less than what receivers acknowledge together; without asking on the
    /// way, its sender would send it, wait for a round trip, and send it again.
    /// Rule CC-36.
    #[inline(always)]
    pub(crate) fn share_asks(&mut self, bytes: u32, last: bool) -> bool {
        let Some(active) = &mut self.active else { return last };
        if last || active.share.view.senders <= 1 {
            active.share.unasked = 0;
            return last;
        }
        active.share.unasked = active.share.unasked.saturating_add(bytes);
        let asks = u64::from(active.share.unasked) >= SHARE_ASKS.of(active.inflight_max);
        if asks {
            active.share.unasked = 0;
        }
        asks
    }

    /// Nothing waits to be told: the queue had no room.
    pub(crate) fn share_unqueued(&mut self) {
        if let Some(active) = &mut self.active {
            active.share.queued = false;
        }
    }

    /// What this engine tells the others of the host. A context that was idle begins with it.
    pub(crate) fn share_note(&mut self, now: Time, ip: IpAddr) -> HostNote {
        let fresh = self.active.is_none();
        let awake = self.awake(now);
        if fresh {
            awake.active.share.idle = false;
        }
        awake.active.share_note(awake.p, now, ip)
    }

    /// See [`crate::Engine::share_view`].
    pub(crate) fn share_view(&mut self, view: &HostView) -> bool {
        let p = &self.params;
        self.active.as_mut().is_some_and(|active| active.share_view(p, view))
    }
}

#[cfg(test)]
#[path = "share_tests.rs"]
mod tests;
