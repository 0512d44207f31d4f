//! The path and rate context: the paths to one remote address, their state, and the rate of sending
//! to it.
//!
//! One [`PathContext`] per remote IP address is shared by all reliability contexts to that address.
//! It decides whether a packet may leave ([`PathContext::gate`]) and on which path, and learns from
//! acknowledgments. While it is in use, an `Awake` borrows its state. Files: `leave` handles
//! packets that are sent, `learn` handles acknowledgments and losses, `delays` computes timeouts,
//! `active` holds the state; below them, `set` is the table of paths, `clean` the list of paths
//! whose packets came back without delay, `choose` the path policies, `rtt` the round-trip times,
//! `health` penalties, retirement and probes, `denial` the paths that an operator takes out of use,
//! `ack_path` the paths of pure acknowledgments, `rails` the
//! networks by which paths leave, `waits` the contexts that wait to send, `host` the
//! signals of a receiving host that falls behind, `share` the division of the rate among the
//! engines of this host, and `mtu` the path MTU. `rate/` decides how fast to send.

mod ack_path;
mod active;
mod choose;
mod clean;
mod delays;
mod denial;
mod health;
mod host;
mod learn;
mod leave;
mod mtu;
mod own;
mod rails;
mod rtt;
mod set;
mod share;
pub(crate) mod table;
mod waits;

pub(crate) use denial::Denials;
pub use denial::{DenyError, PathMask};
pub use health::PathProbe;
pub(crate) use leave::Lost;
pub(crate) use mtu::{Found, PathMtu, Step, below, next_below};
pub use set::PathState;
pub use share::{HOST_SENDERS_MAX, HostNote, HostView};

use crate::config::{LossConfig, PathConfig, RateConfig};
use crate::guards::{Guard, Guards};
use crate::ids::Ctx;
use crate::params::Params;
use crate::policy::OwnPolicies;
use crate::random::Random;
use crate::rate::credit::Credit;
use crate::rate::grants_ahead;
use crate::rate::{RateControl, RateState, pacing};
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::tuning::{GRANT_AHEAD_MIN, GRANT_PACKETS};
use active::ActivePaths;
use rtt::Smoothed;
use srd_wire::{Backlog, OVERHEAD_BYTES};
use std::sync::Arc;

/// Statistics of one path, for tools.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathStats {
    /// Index of the path: the source-port entropy.
    pub path: u8,
    /// Smoothed RTT in ns (0 = no sample yet).
    pub rtt_ns_smoothed: u64,
    /// Least RTT measured, in ns (0 = no sample yet).
    pub rtt_ns_min: u64,
    /// Packets sent on it.
    pub packets_sent: u64,
    /// Packets sent on it that were declared lost.
    pub packets_lost: u64,
    /// Packets acknowledged with the CE mark.
    pub packets_ce: u64,
    /// "live", "penalised", "retired", "probing" or "denied".
    pub state: &'static str,
    /// Whether a packet that took it came back since it was last asked to be probed
    /// ([`Engine::paths_probe`](crate::Engine::paths_probe)).
    pub echoed: bool,
}

/// Whether data may be sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Data may leave now: up to this many bytes in a row on one path.
    Open {
        /// Bytes of packets, at least one MTU.
        bytes: u32,
    },
    /// The pacer lets the next packet leave at this time. All contexts to the address share the
    /// pacer.
    Until(Time),
    /// The peer's credits are used up, and nothing is in flight that could bring more. At this time
    /// the first window may be sent without credits again.
    Uncredited(Time),
    /// The inflight cap or the credits are used up; an acknowledgment will open the gate.
    Blocked,
}

/// The round trip of one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Round-trip time without the delays in the hosts, and without `back`.
    pub rtt: Span,
    /// One-way delay of the acknowledgment above the recent minimum.
    pub back: Span,
    /// When the packet left.
    pub sent: Time,
    /// What was subtracted from the round trip because of what the peer reported: its own delay,
    /// and `back`.
    pub claimed: Span,
    /// Whether the packet was ECN-marked.
    pub ce: bool,
    /// Whether the packet was a full one.
    pub full: bool,
}

/// A path has another state than the one that was told last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// Which path.
    pub path: u8,
    /// Whether the path is in use now.
    pub live: bool,
    /// Whether it was in use.
    pub was_live: bool,
    /// The former state, as in [`PathStats::state`] (but never "penalised").
    pub from: &'static str,
    /// The state now.
    pub to: &'static str,
}

/// The path and rate context of one remote IP address.
///
/// An idle context shrinks to a summary of RTTs, credits and retired paths.
#[derive(Debug)]
pub struct PathContext {
    /// Parameters, shared by all contexts of an engine.
    params: Arc<Params>,
    active: Option<Box<ActivePaths>>,
    /// Smoothed RTT when the context shrank.
    rtt: Smoothed,
    rtt_ns_min: u32,
    /// Fixed random number for the hashing of flows and the order of paths.
    salt: u32,
    /// Which paths were retired when the context shrank.
    retired: PathMask,
    /// Path of the peer's newest packet; only where there are several rails.
    heard: u8,
    credit: Credit,
}

/// Packets that each context with data for an address asks grants for at least.
pub(crate) const GRANTS_ASKED_MIN: u64 = (GRANT_AHEAD_MIN * GRANT_PACKETS) as u64;
/// The step between the classes of backlogs: a sender keeps so many times what it needs at most.
const GRANTS_ASKED_OVER: u64 = 4;

/// A [`PathContext`] in use at the time `now`: packets sent (`leave.rs`), acknowledgments and
/// losses (`learn.rs`).
pub(crate) struct Awake<'a> {
    p: &'a Params,
    now: Time,
    active: &'a mut ActivePaths,
    credit: &'a mut Credit,
    salt: u32,
}

/// See [`PathContext::grants_asked`].
fn grants_asked(p: &Params, rtt_min: Span, contexts: u32) -> Backlog {
    let ahead = grants_ahead(p.line.bytes_per_sec(), rtt_min);
    let packets = ahead / u64::from(p.mtu) / u64::from(contexts.max(1));
    Backlog::from_packets(packets.max(GRANTS_ASKED_MIN))
}

impl PathContext {
    /// Heap memory that the context holds, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.active.as_ref().map_or(0, |a| {
            let rails = a.rails.as_ref().map_or(0, |r| size_of_val(&**r));
            size_of::<ActivePaths>() + size_of_val(&*a.set.paths) + a.rate.held_bytes() + rails
        })
    }

    /// Upper bound of [`Self::held_bytes`] with this many paths and rails.
    pub(crate) fn held_bytes_max(paths: usize, rails: u8) -> usize {
        let rails = if rails > 1 { size_of::<rails::Rails>() } else { 0 };
        size_of::<ActivePaths>()
            + paths * size_of::<set::Path>()
            + RateState::held_bytes_max()
            + rails
    }

    /// A context for a peer about which nothing is known yet. It allocates nothing until it is
    /// used.
    pub fn new(
        path: &PathConfig,
        rate: &RateConfig,
        loss: &LossConfig,
        mtu: u16,
        rng: &mut Rng,
    ) -> Self {
        Self::with_params(
            Arc::new(Params::new(path, rate, loss, mtu, Guards::ALL, &OwnPolicies::default())),
            rng,
        )
    }

    /// The same with parameters shared among contexts.
    pub(crate) fn with_params(params: Arc<Params>, rng: &mut impl Random) -> Self {
        Self {
            params,
            active: None,
            rtt: Smoothed::default(),
            rtt_ns_min: 0,
            salt: rng.next_u32(),
            retired: PathMask::NONE,
            heard: 0,
            credit: Credit::default(),
        }
    }

    /// Borrows the active state at the time `now`; creates it from the summary if the context had
    /// shrunk.
    #[inline(always)]
    pub(crate) fn awake(&mut self, now: Time) -> Awake<'_> {
        if self.active.is_none() {
            self.active = Some(self.active_new(now));
        }
        let active = self.active.as_mut().expect("it was made just now");
        Awake { p: &self.params, now, active, credit: &mut self.credit, salt: self.salt }
    }

    #[cold]
    fn active_new(&mut self, now: Time) -> Box<ActivePaths> {
        let (p, rtt, min) = (&self.params, self.rtt, self.rtt_ns_min);
        let mut active = Box::new(ActivePaths::new(p, now, rtt, min, self.salt));
        active.retire_all(p, now, &core::mem::take(&mut self.retired));
        if let Some(rails) = &mut active.rails {
            rails.on_heard(self.heard);
        }
        active
    }

    /// Whether data may be sent now. `credited`: the destination engine grants credits, so they are
    /// obeyed; other engines at the same address need none.
    pub fn gate(&self, now: Time, credited: bool) -> Gate {
        let p = &self.params;
        match &self.active {
            Some(active) => active.gate(p, now, credited.then_some(&self.credit)),
            None => {
                let rate = RateState::rate_initial(p);
                Gate::Open { bytes: pacing::burst_bytes(rate, p.burst_bytes, p.mtu) }
            }
        }
    }

    /// Whether nothing more may leave before an acknowledgment comes; see [`Self::gate`].
    #[inline(always)]
    pub(crate) fn is_blocked(&self, credited: bool) -> bool {
        let credit = credited.then_some(&self.credit);
        self.active.as_ref().is_some_and(|a| a.is_blocked(&self.params, credit))
    }

    /// A pure acknowledgment of `ctx` left on `path`; `tx_num_low`: low bits of its transmission
    /// number.
    pub fn ack_sent(&mut self, now: Time, ctx: Ctx, path: u8, tx_num_low: u16) {
        if let Some(active) = &mut self.active {
            active.ack_paths.on_sent(now, ctx, path, tx_num_low, active.rails.as_deref_mut());
        }
    }

    /// The peer echoed an acknowledgment of `ctx`: `tx_num_low` holds the low bits of its
    /// transmission number.
    pub fn ack_echoed(&mut self, now: Time, ctx: Ctx, tx_num_low: u16) {
        if let Some(active) = &mut self.active {
            active.ack_paths.on_echoed(now, ctx, tx_num_low, active.rails.as_deref_mut());
        }
    }

    /// A packet of the peer came by `path`.
    #[cold]
    pub(crate) fn rail_heard(&mut self, path: u8) {
        // An idle context knows it, too: it may be the first question of a peer that hears nothing.
        self.heard = path;
        if let Some(rails) = self.active.as_mut().and_then(|a| a.rails.as_mut()) {
            rails.on_heard(path);
        }
    }

    /// Path of the peer's newest packet, where there are several rails.
    pub(crate) fn heard(&self) -> u8 {
        self.heard
    }

    /// Whether no path of `rail` is in use.
    pub(crate) fn rail_is_out(&self, rail: u8) -> bool {
        let p = &self.params;
        if p.rails == 1 {
            return false;
        }
        let live = |path: u8| match &self.active {
            Some(active) => active.set.get(path).is_live(),
            None => !self.retired.has(path),
        };
        !(0..p.paths).any(|path| path % u16::from(p.rails) == rail.into() && live(path as u8))
    }

    /// A round trip for a host that may only receive: the least one that it measured, else the time
    /// from an acknowledgment to its echo. [`Span::ZERO`]: not known.
    pub(crate) fn echo(&self) -> Span {
        self.active.as_ref().map_or(Span::ZERO, |a| match a.rtt.min_ns() {
            0 => a.ack_paths.echo(),
            ns => Span(ns.into()),
        })
    }

    /// Delay that the hosts may add to a round trip, beyond the measured noise.
    pub(crate) fn host_delay(&self) -> Span {
        self.active.as_ref().map_or(Span::ZERO, |a| a.host_delay(&self.params))
    }

    /// The same for timers: without the limit that holds for bytes in flight.
    pub(crate) fn host_wait(&self) -> Span {
        self.active.as_ref().map_or(Span::ZERO, |a| a.host_wait(&self.params))
    }

    /// A lone packet that left on `path` is copied after this wait, because its echo is overdue:
    /// until that comes, the path is not known to be clean, and its round trip is no shorter. A
    /// probe looks for another path. Where there are several rails, they are judged instead
    /// (CC-46).
    /// Rule CC-52.
    pub(crate) fn on_copied(&mut self, path: u8, waited: Span) {
        if let Some(active) = &mut self.active
            && active.rails.is_none()
        {
            active.set.clean_forget(path);
            let rtt = &mut active.set.get_mut(path).rtt;
            if rtt.srtt_ns != 0 {
                rtt.srtt_ns = rtt.srtt_ns.max(rtt::sample_ns(waited));
            }
            active.explore |= self.params.guards.has(Guard::Explore);
        }
    }

    /// A packet counts as in flight no longer, without evidence for or against its path.
    pub fn on_forgotten(&mut self, bytes: u32) {
        self.credit.on_lost(bytes, false);
        if let Some(active) = &mut self.active {
            active.leave_flight(bytes);
            active.meter.on_forgotten();
        }
    }

    /// The peer of context `ctx` signals whether its host has fallen behind.
    pub(crate) fn on_host_signal(&mut self, now: Time, ctx: Ctx, above: bool) {
        // Fast path: the host is not behind, and was not before.
        if !above && self.active.as_ref().is_none_or(|a| a.host.is_quiet()) {
            return;
        }
        let awake = self.awake(now);
        let rtt = awake.active.host_rtt(awake.p);
        if awake.active.host.on_signal(now, ctx, above, rtt) {
            awake.active.cap_update(awake.p);
        }
    }

    /// When [`Self::probe_poll`] is to be called next; [`Time::NEVER`] without retired paths.
    pub fn probe_next(&self) -> Time {
        self.active.as_ref().map_or(Time::NEVER, |a| a.health.probe_next())
    }

    /// A retired path that is to be probed now, if one is due. There are at most four probes per
    /// ms, and they take at most a small fraction of the bytes that arrive. A probe that is not
    /// echoed before the next probe of its path has failed. Two echoed in a row return the path to
    /// use; the second is as large as a packet with a payload of `full` bytes.
    pub fn probe_poll(&mut self, now: Time, full: u16) -> Option<PathProbe> {
        let active = self.active.as_mut()?;
        let pay = active.probe_pay(&self.params, full);
        active.health.probe_poll(&self.params, &mut active.set, now, pay)
    }

    /// Takes one path whose state has changed since its last report.
    pub fn change_take(&mut self) -> Option<PathChange> {
        let (path, from, to) = self.active.as_mut()?.set.change_take()?;
        let [was_live, live] = [from, to].map(|state| state == PathState::Live);
        Some(PathChange { path, live, was_live, from: from.word(), to: to.word() })
    }

    /// An engine at this address grants credits. The first window may be sent without credits.
    pub fn credits_begin(&mut self) {
        let first = ActivePaths::window_first(&self.params, self.rtt_ns_min);
        let own = self.active.as_ref().map_or(first, |a| a.share.of(first));
        self.credit.begin(own);
    }

    /// The first round trip was measured, before which the first window was a guess.
    pub fn credits_first(&mut self) {
        if let Some(active) = &self.active {
            self.credit.refill(active.uncredited_max(&self.params), 0);
        }
    }

    /// Everything posted to this address has been sent, so that nothing is asked for: what is in
    /// flight counts against the first window alone. Otherwise who sends one small message after
    /// the other would use up that window and wait.
    /// Rule CC-25.
    pub(crate) fn credits_renew(&mut self) {
        if let Some(active) = &self.active {
            self.credit.refill(active.uncredited_max(&self.params), active.inflight);
        }
    }

    /// Takes the peer's cumulative counter of granted bytes, in units of 64 bytes, wrapping.
    /// Rule CC-25.
    pub fn on_credit(&mut self, now: Time, granted_64b: u32, contexts: u32) {
        let balance_max = self.credit_max(contexts);
        if let Some(active) = &self.active {
            active.credit_silence(&self.params, now, &mut self.credit);
        }
        self.credit.on_counter(now, granted_64b, balance_max);
    }

    /// Most packets that one of `contexts` with data for this address asks grants for, as a class
    /// of the wire: its part of what a receiver with this line rate grants ahead. A faster one
    /// grants more, and so do several engines at one address together. Of what a sender does not
    /// keep, the receiver would know nothing, and it would grant no more in its place.
    /// Rule CC-48.
    #[inline(always)]
    pub(crate) fn grants_asked(&self, contexts: u32) -> u32 {
        match &self.active {
            Some(active) if contexts <= 1 => active.share.asked.packets_max(),
            _ => grants_asked(&self.params, self.rtt_min(), contexts).packets_max(),
        }
    }

    /// Bytes of grants that may be held unused: all that the contexts ask for, with the first
    /// window, or a window if that is larger. A lower limit would drop grants that the receiver
    /// still counts.
    fn credit_max(&self, contexts: u32) -> u64 {
        let p = &self.params;
        let packet = u64::from(p.mtu) + OVERHEAD_BYTES as u64;
        let ahead = grants_ahead(p.line.bytes_per_sec(), self.rtt_min());
        let asked = match self.grants_asked(contexts) {
            // The class has no end.
            u32::MAX => ahead.saturating_mul(GRANTS_ASKED_OVER),
            packets => u64::from(packets) * u64::from(contexts.max(1)) * packet,
        };
        let first = self.active.as_ref().map_or(0, |a| a.uncredited_max(p));
        asked.saturating_add(first).max(self.inflight_max())
    }

    /// Granted bytes that were not used yet.
    pub(crate) fn credit_bytes(&self) -> u64 {
        self.credit.room()
    }

    /// The line rate that is told or believed, in bytes per second.
    #[cfg(test)]
    pub(crate) fn line_bytes_per_sec(&self) -> u64 {
        self.params.line.bytes_per_sec()
    }

    /// Bytes in flight.
    pub fn inflight(&self) -> u64 {
        self.active.as_ref().map_or(0, |a| a.inflight)
    }

    /// Inflight cap in bytes.
    pub fn inflight_max(&self) -> u64 {
        let first = || ActivePaths::window_first(&self.params, self.rtt_ns_min);
        self.active.as_ref().map_or_else(first, |a| a.inflight_max)
    }

    /// Paced rate in bytes per second.
    pub fn rate_bytes_per_sec(&self) -> u64 {
        let first = || RateState::rate_initial(&self.params);
        self.active.as_ref().map_or_else(first, |a| a.rate.rate())
    }

    /// Whether nothing is in flight and no change of a path waits to be reported.
    pub fn is_idle(&self) -> bool {
        self.active.as_ref().is_none_or(|a| a.inflight == 0 && !a.set.changes())
    }

    /// Denies the paths of `mask` and allows all others. `told` takes each path that changes, and
    /// its old and new state. At least one path must be left.
    pub(crate) fn deny(
        &mut self,
        now: Time,
        mask: &PathMask,
        told: impl FnMut(u8, PathState, PathState),
    ) {
        let awake = self.awake(now);
        awake.active.deny(awake.p, now, mask, told);
    }

    /// Of the paths of `mask`, makes the probes of those that are retired due now, and returns
    /// those in use, which the caller probes. Denied paths are not probed.
    pub(crate) fn probes_order(&mut self, now: Time, mask: &PathMask) -> PathMask {
        let awake = self.awake(now);
        awake.active.probes_order(awake.p, now, mask)
    }

    /// Whether `path` is denied.
    pub(crate) fn is_denied(&self, path: u8) -> bool {
        self.active.as_ref().is_some_and(|a| a.set.denied > 0 && a.set.get(path).is_denied())
    }

    /// Frees the state of the paths and keeps a summary, from which the next use creates the state
    /// anew. Does nothing unless idle, or while paths are denied.
    pub fn shrink(&mut self) {
        if !self.is_idle() || self.active.as_ref().is_some_and(|a| a.set.denied > 0) {
            return;
        }
        if let Some(active) = self.active.take() {
            // The time of the last packet is dropped with the rest, so its grants end here.
            self.credit.forget();
            self.credit.refill(active.uncredited_max(&self.params), 0);
            self.rtt = active.rtt.all;
            self.rtt_ns_min = active.rtt.min_ns();
            debug_assert!(self.retired.is_empty(), "the state took it over when it was made");
            for (i, entry) in active.set.paths.iter().enumerate() {
                self.retired.put(i as u8, !entry.is_live());
            }
        }
    }

    /// Checks that the sums agree with the paths.
    #[cfg(debug_assertions)]
    pub(crate) fn audit(&self) {
        if let Some(active) = &self.active {
            active.set.audit();
        }
    }

    /// Appends the statistics of each path.
    pub fn stats(&self, out: &mut Vec<PathStats>) {
        match &self.active {
            Some(active) => active.stats(out),
            None => out.extend((0..self.params.paths).map(|i| PathStats {
                path: i as u8,
                state: if self.retired.has(i as u8) { "retired" } else { "live" },
                ..PathStats::default()
            })),
        }
    }
}

#[cfg(test)]
mod tests;
