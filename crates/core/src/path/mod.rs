//! Paths to one remote address, and what is known of sending to it: the path and rate context.
//!
//! One [`PathContext`] per remote IP address is shared by all reliability contexts to it. It says
//! whether a packet may leave ([`PathContext::gate`]), on which path, and learns from what comes
//! back. While it is used it lends all of that as an `Awake`. Files: `leave` what leaves, `learn`
//! what is learnt, `delays` how long to wait, `active` the state; below them `set` the table of
//! paths, `clean` those that came back without delay, `choose` the policies, `rtt` round trips,
//! `health` penalties, retirement and probes, `ack_path` the paths of pure acknowledgments,
//! `waits` the contexts that wait to send, `host` what a receiving host that falls behind says,
//! `share` what other engines of this host have to do with it; `rate/` decides how fast.

mod ack_path;
mod active;
mod choose;
mod clean;
mod delays;
mod health;
mod host;
mod learn;
mod leave;
mod mtu;
mod rtt;
mod set;
mod share;
pub(crate) mod table;
mod waits;

pub use health::PathProbe;
pub(crate) use mtu::{Found, PathMtu, Step, below, next_below};
pub use set::PathState;
pub use share::{HOST_SENDERS_MAX, HostNote, HostView};

use crate::config::{LossConfig, PathConfig, RateConfig};
use crate::guards::Guards;
use crate::params::Params;
use crate::random::Random;
use crate::rate::credit::Credit;
use crate::rate::{RateControl, RateState, pacing};
use crate::rng::Rng;
use crate::time::{Span, Time};
use active::ActivePaths;
use rtt::Smoothed;
use std::sync::Arc;

/// What a tool shows of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathStats {
    /// Index: the source-port entropy.
    pub path: u8,
    /// Smoothed RTT in ns (0 = no sample yet).
    pub rtt_ns_smoothed: u64,
    /// Least RTT seen in ns.
    pub rtt_ns_min: u64,
    /// Packets sent on it.
    pub packets_sent: u64,
    /// Packets sent on it that were declared lost.
    pub packets_lost: u64,
    /// Packets acknowledged with the CE mark.
    pub packets_ce: u64,
    /// "live", "penalised", "retired" or "probing".
    pub state: &'static str,
}

/// Whether data may be sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Now: up to this many bytes in a row on one path, always room for one packet.
    Open {
        /// Bytes of packets, at least one MTU.
        bytes: u32,
    },
    /// Paced: ask again then. All contexts to the address share the pacer.
    Until(Time),
    /// The peer's credits are used up, and nothing is in flight that could bring more: ask again
    /// then, when the first window is free again.
    Uncredited(Time),
    /// Inflight cap or credits: an acknowledgment will open it.
    Blocked,
}

/// Paths whose state the summary of an idle context keeps: bits of one word.
const SUMMARY_PATHS: usize = 64;

/// The round trip of one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Without what the hosts took, and without `back`.
    pub rtt: Span,
    /// What the way back took longer than others do.
    pub back: Span,
    /// When it left.
    pub sent: Time,
    /// What was taken off the round trip on the peer's word: its own delay, and `back`.
    pub claimed: Span,
    /// It was marked.
    pub ce: bool,
}

/// A path was retired or returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// Which path.
    pub path: u8,
    /// Whether it is in use now.
    pub live: bool,
}

/// The path and rate context of one remote IP address.
///
/// Idle ones shrink to a summary of RTTs, credits and retired paths.
#[derive(Debug)]
pub struct PathContext {
    /// The same for all contexts of an engine.
    params: Arc<Params>,
    active: Option<Box<ActivePaths>>,
    /// RTTs as left behind by the last active time.
    rtt: Smoothed,
    rtt_ns_min: u32,
    /// Fixed random number: hashing of flows, order of paths.
    salt: u32,
    /// Which of the first 64 paths were retired when the context shrank.
    retired: u64,
    credit: Credit,
}

/// A [`PathContext`] in use, now: what leaves (`leave.rs`) and what is learnt (`learn.rs`).
pub(crate) struct Awake<'a> {
    p: &'a Params,
    now: Time,
    active: &'a mut ActivePaths,
    credit: &'a mut Credit,
    salt: u32,
}

impl PathContext {
    /// Bytes that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.active.as_ref().map_or(0, |a| size_of::<ActivePaths>() + size_of_val(&*a.set.paths))
    }

    /// The most that it may hold.
    pub(crate) fn held_bytes_max(paths: usize) -> usize {
        size_of::<ActivePaths>() + paths * size_of::<set::Path>()
    }

    /// A context to a peer of which nothing is known yet. Allocates nothing until it is used.
    pub fn new(
        path: &PathConfig,
        rate: &RateConfig,
        loss: &LossConfig,
        mtu: u16,
        rng: &mut Rng,
    ) -> Self {
        Self::with_params(Arc::new(Params::new(path, rate, loss, mtu, Guards::ALL)), rng)
    }

    /// The same with parameters shared among contexts.
    pub(crate) fn with_params(params: Arc<Params>, rng: &mut impl Random) -> Self {
        Self {
            params,
            active: None,
            rtt: Smoothed::default(),
            rtt_ns_min: 0,
            salt: rng.next_u32(),
            retired: 0,
            credit: Credit::default(),
        }
    }

    /// What it knows while it is used, made anew if it had shrunk, at the time `now`.
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
        active.retire_all(p, now, core::mem::take(&mut self.retired));
        active
    }

    /// Whether data may be sent now. `credited`: to an engine that grants credits, which are
    /// obeyed; others at the same address need none.
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

    /// A pure acknowledgment left on `path`; `tx_num_low`: low bits of its transmission number.
    pub fn ack_sent(&mut self, path: u8, tx_num_low: u16) {
        if let Some(active) = &mut self.active {
            active.ack_paths.on_sent(path, tx_num_low);
        }
    }

    /// The peer said that the acknowledgment with these low bits reached it.
    pub fn ack_echoed(&mut self, tx_num_low: u16) {
        if let Some(active) = &mut self.active {
            active.ack_paths.on_echoed(tx_num_low);
        }
    }

    /// What the hosts may add to a round trip.
    pub(crate) fn host_delay(&self) -> Span {
        self.active.as_ref().map_or(Span::ZERO, |a| a.host_delay(&self.params))
    }

    /// A packet in flight was given up without a verdict on its path.
    pub fn on_forgotten(&mut self, bytes: u32) {
        if let Some(active) = &mut self.active {
            active.leave_flight(bytes);
        }
    }

    /// An engine at the address, that of context `ctx`, tells whether its host has fallen behind.
    pub(crate) fn on_host_signal(&mut self, now: Time, ctx: u32, above: bool) {
        // Nearly always there is nothing to remember.
        if !above && self.active.as_ref().is_none_or(|a| a.host.is_quiet()) {
            return;
        }
        let awake = self.awake(now);
        if awake.active.host.on_signal(now, ctx, above) {
            awake.active.cap_update(awake.p);
        }
    }

    /// When [`Self::probe_poll`] has something to do next; [`Time::NEVER`] without retired paths.
    pub fn probe_next(&self) -> Time {
        self.active.as_ref().map_or(Time::NEVER, |a| a.health.probe_next())
    }

    /// A retired path that is to be probed now. At most four per ms, and at most a small part of
    /// the bytes that arrive; a probe that is not echoed by the time of the path's next one has
    /// failed; two in a row that are bring the path back, of which the second is as large as a
    /// packet with a payload of `full`.
    pub fn probe_poll(&mut self, now: Time, full: u16) -> Option<PathProbe> {
        let active = self.active.as_mut()?;
        let pay = active.probe_pay(&self.params, full);
        active.health.probe_poll(&self.params, &mut active.set, now, pay)
    }

    /// A path that was retired or came back since this was last asked for it.
    pub fn change_take(&mut self) -> Option<PathChange> {
        let (path, live) = self.active.as_mut()?.set.change_take()?;
        Some(PathChange { path, live })
    }

    /// An engine at this address grants credits. What may be sent before the first ones come is
    /// free.
    pub fn credits_begin(&mut self) {
        let first = ActivePaths::window_first(&self.params, self.rtt_ns_min);
        let own = self.active.as_ref().map_or(first, |a| a.share.of(first));
        self.credit.begin(own);
    }

    /// The peer's cumulative counter of granted bytes, in units of 64, wrapping.
    pub fn on_credit(&mut self, granted_64b: u32) {
        self.credit.on_counter(granted_64b);
    }

    /// Bytes in flight.
    pub fn inflight(&self) -> u64 {
        self.active.as_ref().map_or(0, |a| a.inflight)
    }

    /// Most bytes in flight.
    pub fn inflight_max(&self) -> u64 {
        let first = || ActivePaths::window_first(&self.params, self.rtt_ns_min);
        self.active.as_ref().map_or_else(first, |a| a.inflight_max)
    }

    /// Paced rate.
    pub fn rate_bytes_per_sec(&self) -> u64 {
        let first = || RateState::rate_initial(&self.params);
        self.active.as_ref().map_or_else(first, |a| a.rate.rate())
    }

    /// Nothing is in flight and there is no change to be told.
    pub fn is_idle(&self) -> bool {
        self.active.as_ref().is_none_or(|a| a.inflight == 0 && !a.set.changes())
    }

    /// To be asked before [`Self::shrink`]: retired paths that the summary has no room for are in
    /// use again, which is a change to be told.
    pub fn acquit_beyond_summary(&mut self) {
        if let Some(active) = &mut self.active {
            active.health.acquit_from(&mut active.set, SUMMARY_PATHS);
        }
    }

    /// Gives the state of the paths back; a summary stays, and the next use creates the rest anew.
    /// Does nothing unless idle.
    pub fn shrink(&mut self) {
        if !self.is_idle() {
            return;
        }
        if let Some(active) = self.active.take() {
            self.rtt = active.rtt.all;
            self.rtt_ns_min = active.rtt.min_ns();
            let paths = active.set.paths.iter().take(SUMMARY_PATHS).enumerate();
            self.retired = paths.fold(0, |r, (i, e)| r | u64::from(!e.is_live()) << i);
        }
    }

    /// Whether its sums say what its paths do.
    #[cfg(debug_assertions)]
    pub(crate) fn audit(&self) {
        if let Some(active) = &self.active {
            active.set.audit();
        }
    }

    /// Appends what is known of each path.
    pub fn stats(&self, out: &mut Vec<PathStats>) {
        match &self.active {
            Some(active) => active.stats(out),
            None => out.extend((0..self.params.paths).map(|i| PathStats {
                path: i as u8,
                state: if usize::from(i) < SUMMARY_PATHS && self.retired >> i & 1 == 1 {
                    "retired"
                } else {
                    "live"
                },
                ..PathStats::default()
            })),
        }
    }
}

#[cfg(test)]
mod tests;
