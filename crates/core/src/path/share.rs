//! Several engines of one host sending to one remote address: how they share one rate.
//!
//! Several processes of a host that send to one address share one path through the network. Each of
//! them runs congestion control on the rate of the *host* and uses its share of that rate. The rate
//! of the host is the mean of the estimates of its senders; each engine paces its share of it and
//! keeps its share of the window in flight. So their sum is what one engine would send, however
//! many engines there are.
//!
//! An engine does not communicate with the others itself. Its driver takes a [`HostNote`] from it
//! ([`crate::Engine::share_next`]) and gives it the [`HostView`] that sums up all of them
//! ([`crate::Engine::share_view`]).

use super::PathContext;
use super::active::ActivePaths;
use crate::params::Params;
use crate::rate::{Link, RateControl as _, Round};
use crate::time::{Span, Time};
use crate::tuning::{
    SHARE_ACKED_PKTS, SHARE_ASKS, SHARE_EVERY, SHARE_LATE_PKTS, SHARE_RTTS, SHARE_STALE_MAX,
    SHARE_STALE_MIN, SHARE_STRETCH_MAX,
};
use core::net::IpAddr;
use srd_wire::Backlog;

/// Most engines of one host that count as senders.
pub const HOST_SENDERS_MAX: u32 = 256;

/// What one engine reports about one remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostNote {
    /// The remote address.
    pub ip: IpAddr,
    /// Time until which this engine counts as a sender without another note. A time that is not in
    /// the future means that the engine has nothing to send.
    pub until: Time,
    /// Whether the engine has a backlog: it would send more if it were allowed to.
    pub backlogged: bool,
    /// This engine's estimate of the rate of the *host* in bytes per second; 0 = not known yet.
    pub rate_host: u64,
    /// Paced rate of this engine in bytes per second.
    pub rate_own: u64,
    /// Delivery rate of this engine in the last round, in bytes per second.
    pub delivered: u64,
    /// Loss rate of this engine in the last round: lost bytes per thousand of lost and delivered
    /// ones.
    pub lost_permille: u32,
    /// Bytes in flight from this engine.
    pub inflight: u64,
    /// Inflight cap of this engine in bytes.
    pub inflight_max: u64,
    /// Least RTT that this engine measured itself, ns; 0 = none.
    pub rtt_ns_min: u32,
    /// Smoothed RTT, ns; 0 = none.
    pub rtt_ns_smoothed: u32,
    /// Packets sent to the address (wraps).
    pub packets_sent: u32,
    /// Packets to the address that were declared lost (wraps).
    pub packets_lost: u32,
}

/// Summary of the notes of all engines of the host about one remote address, including this engine.
///
/// Its effect is bounded by what another process of the same user may decide: rates are limited to
/// the line rate of this engine, and its share is at least that of one sender among
/// [`HOST_SENDERS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostView {
    /// Number of engines that send to the address, at least 1.
    pub senders: u32,
    /// Number of these engines that have a backlog.
    pub backlogged: u32,
    /// Rate of the engines without a backlog together, in bytes per second.
    pub limited_bytes_per_sec: u64,
    /// Delivery rate of all senders together in their last rounds, in bytes per second.
    pub delivered_bytes_per_sec: u64,
    /// Loss rate of all senders: lost bytes per thousand of lost and delivered ones.
    pub lost_permille: u32,
    /// Mean of the engines' estimates of the rate of the host, bytes per second; 0 = not known.
    pub rate_bytes_per_sec: u64,
    /// Least RTT that any of the engines measured, ns; 0 = none.
    pub rtt_ns_min: u32,
}

impl HostView {
    /// The view of an engine that is the only sender.
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

/// Share of the host's rate, in units of 2^-16; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part(u32);

impl Part {
    const WHOLE: Self = Self(1 << 16);

    fn of(self, x: u64) -> u64 {
        ((u128::from(x) * u128::from(self.0)) >> 16) as u64
    }
    /// The whole of which `x` is this share.
    fn whole_of(self, x: u64) -> u64 {
        if self == Self::WHOLE {
            return x;
        }
        u64::try_from((u128::from(x) << 16) / u128::from(self.0)).unwrap_or(u64::MAX)
    }

    /// The share of a sender with a backlog: the senders with a backlog divide equally what those
    /// without one leave, and none gets less than an equal share of the whole. `own`: what this
    /// engine contributed to `limited_bytes_per_sec`, if it did.
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

/// The state of sharing for one address.
#[derive(Debug)]
pub(super) struct Share {
    view: HostView,
    part: Part,
    /// Rate of this engine as counted in `limited_bytes_per_sec`, if it has no backlog.
    limited: Option<u64>,
    /// Bytes sent since the last packet that requested an acknowledgment.
    unasked: u32,
    /// When the next note is due.
    due: Time,
    /// When the last round ended.
    round_at: Time,
    /// Most packets that a lone context of the address asks grants for (it stands here because
    /// there is room).
    pub(super) asked: Backlog,
    /// Whether a note waits to be taken.
    queued: bool,
    /// Whether the note says that there is nothing to send.
    idle: bool,
    /// Delivery rate in bytes per second, and loss rate, of this engine's last round.
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
        asked: Backlog(0),
        queued: false,
        idle: true,
        delivered: 0,
        lost_permille: 0,
        sent: 0,
        lost: 0,
    };

    /// This engine's share of a rate or window of the host.
    pub(super) fn of(&self, host: u64) -> u64 {
        self.part.of(host)
    }

    /// The rate or window of the host of which this engine's share is `own`.
    pub(super) fn whole_of(&self, own: u64) -> u64 {
        self.part.whole_of(own)
    }

    /// Number of engines of the host that send to the address, including this one.
    pub(super) fn senders(&self) -> u32 {
        self.view.senders.clamp(1, HOST_SENDERS_MAX)
    }

    /// Bytes that this engine may send in one burst: its share of the host's burst, at least a
    /// packet.
    pub(super) fn burst(&self, p: &Params) -> u32 {
        (self.of(p.burst_bytes.into()) as u32).max(p.mtu.into())
    }

    /// Bytes that this engine may catch up at once when it is late: what it may send in one burst
    /// beyond a packet. One of several engines may catch up a packet at least. While its process
    /// waited for a processor nobody else sent what was its part, so that a host whose processes
    /// wait in turn would otherwise never use all of its rate.
    /// Rule CC-51.
    pub(super) fn late(&self, p: &Params, burst: u32) -> u32 {
        let mtu = u32::from(p.mtu);
        let least = if self.senders() > 1 { SHARE_LATE_PKTS * mtu } else { 0 };
        burst.saturating_sub(mtu).max(least)
    }

    /// Converts this engine's round to a round of the host. With the few packets of one engine
    /// among many, a single packet more or less changes the rate by a fifth, and a single loss
    /// looks like heavy loss. So the rates that all engines reported last are used, within bounds
    /// that this engine's own round sets.
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

    /// The rate of the host as other engines estimate it, if there are others with an estimate.
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

    /// Continues from the rate that the other engines found, if there is one.
    pub(super) fn share_adopt(&mut self, link: &Link) {
        if let Some(rate) = self.share.rate(link) {
            self.rate.adopt(rate);
        }
    }

    /// Least RTT if each engine of the host has sent a packet of full size before: in the port of
    /// the host they wait for each other, however few packets each of them has in flight. Zero for
    /// a lone engine.
    /// Rule CC-50.
    pub(super) fn turn(&self, p: &Params) -> Span {
        let senders = self.share.senders();
        if senders == 1 {
            return Span::ZERO;
        }
        let bytes = u64::from(senders) * u64::from(p.mtu);
        debug_assert!(senders <= HOST_SENDERS_MAX, "no neighbour tells of more");
        let ns = u64::from(self.rtt.min_ns()) + bytes * 1_000_000_000 / self.rate.rate().max(1);
        Span(ns.min(p.rto_ns_max.into()))
    }

    /// A round is over: congestion control decides on the rate of the host.
    pub(super) fn share_round(&mut self, p: &Params, now: Time, link: &Link, round: Round) {
        let took = now.since(core::mem::replace(&mut self.share.round_at, now));
        let round = self.share.round(round);
        let before = self.rate.rate();
        let raised = round.is_calm(link.target_ns) && p.line.on_calm_round(round.delivered);
        let link = &Link { line: p.line.bytes_per_sec(), ..*link };
        self.rate.on_round(link, &round);
        if raised {
            self.rate.adopt(before.saturating_mul(2).min(link.line));
        }
        if self.share.view.senders > 1 && !self.rate.is_opening() {
            self.rate.adopt(stretched(link, took, before, self.rate.rate()));
        }
    }

    /// Takes the summary of the host's engines. Returns whether more may be in flight than before.
    fn share_view(&mut self, p: &Params, view: &HostView) -> bool {
        let before = (self.share.part, self.inflight_max);
        self.share.view = *view;
        if view.senders > 1 {
            p.line.at_least(view.rate_bytes_per_sec);
        }
        self.share.part = Part::fair(view, p.line.bytes_per_sec(), self.share.limited);
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

/// The rate of the host after a round that took `took` at this engine, where congestion control
/// changes it from `before` to `after`. The fewer packets an engine sends, the rarer its
/// acknowledgments and the longer its rounds. The common rate must change as fast as that of a
/// single engine, whose rounds last a round trip plus the time of the packets that are acknowledged
/// together.
/// Rule CC-35.
fn stretched(link: &Link, took: Span, before: u64, after: u64) -> u64 {
    let usual = link.srtt_ns + SHARE_ACKED_PKTS * link.mtu * 1_000_000_000 / before.max(1);
    let took = took.0.clamp(usual, usual * SHARE_STRETCH_MAX);
    let step = u128::from(before.abs_diff(after)) * u128::from(took) / u128::from(usual.max(1));
    let step = u64::try_from(step).unwrap_or(u64::MAX);
    if after >= before {
        return before.saturating_add(step).min(link.line);
    }
    before.saturating_sub(step).max(after.min(before / 2)).max(link.rate_min().min(after))
}

impl PathContext {
    /// Whether a note is to be queued now: because one is due, or because there is nothing to send
    /// any more.
    #[inline(always)]
    pub(crate) fn share_wants(&mut self, now: Time, idle: bool) -> bool {
        let Some(active) = &mut self.active else { return !idle };
        let share = &mut active.share;
        let wants = !share.queued && if idle { !share.idle } else { now >= share.due };
        // A queued note is filled in when it is taken, so it gets the newest state.
        if wants || share.queued {
            share.idle = idle;
        }
        share.queued |= wants;
        wants
    }

    /// Whether the packet of `bytes` that is about to leave requests an acknowledgment. `last`: it
    /// requests one anyway. A share of a window may be smaller than what receivers acknowledge
    /// together; without requests in between, its sender would send the share, wait for a round
    /// trip, and repeat.
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

    /// The note was not queued, because the queue had no room.
    pub(crate) fn share_unqueued(&mut self) {
        if let Some(active) = &mut self.active {
            active.share.queued = false;
        }
    }

    /// The note of this engine for the others of the host. It wakes a context that was idle.
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
