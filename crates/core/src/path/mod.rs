//! Paths to one remote address, and what is known of sending to it: the path and rate context.
//!
//! One [`PathContext`] per remote IP address is shared by all reliability contexts to it. It says
//! whether a packet may leave ([`PathContext::gate`]), on which path, and learns from what comes
//! back. Files: `set` the table, `clean` the paths
//! that came back without delay, `choose` the policies, `rtt` times, `health` penalties, retirement
//! and probes, `ack_path` the paths of pure acknowledgments, `waits` the contexts that wait to
//! send, `active` what ties them together; `rate/` decides how fast.

mod ack_path;
mod active;
mod choose;
mod clean;
mod health;
mod mtu;
mod rtt;
mod set;
pub(crate) mod table;
mod waits;

pub(crate) use mtu::{Found, PathMtu, Step, below, next_below};
pub use set::PathState;

use crate::config::{LossConfig, PathConfig, PathPolicy, RateConfig};
use crate::events::LossRule;
use crate::guards::{Guard, Guards};
use crate::params::Params;
use crate::random::Random;
use crate::rate::credit::Credit;
use crate::rate::{RateControl, RateState, pacing};
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::tuning::{EXPLORE_EACH, HEDGE, SLACK_CROSS, SLACK_SAME_PATH, TAIL_PROBE};
use active::ActivePaths;
use health::Evidence;
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

    /// The active part, created anew if the context had shrunk.
    #[inline(always)]
    fn grow(&mut self, now: Time) -> (&Params, &mut ActivePaths, &mut Credit) {
        if self.active.is_none() {
            self.active = Some(self.active_new(now));
        }
        let active = self.active.as_mut().expect("it was made just now");
        (&self.params, active, &mut self.credit)
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

    /// The path of the next packet or burst of reliability context `flow`. `avoid`: the path that
    /// lost the packet, not taken while there is another (except by plain ECMP).
    pub fn path_choose(&mut self, now: Time, flow: u32, avoid: Option<u8>, rng: &mut Rng) -> u8 {
        let salt = self.salt;
        let (p, active, _) = self.grow(now);
        let alone = active.is_resting(p, now);
        let age_max = active.proof_age_max(p);
        let need = choose::Need { now, flow, avoid, age_max, salt, alone, guards: p.guards };
        let choice = choose::choose(p.path_policy, &mut active.set, &need, rng);
        active.lone += u32::from(choice.trusted);
        active.explore |= choice.trusted
            && p.guards.has(Guard::Explore)
            && (active.lone.is_power_of_two() || active.lone.is_multiple_of(EXPLORE_EACH));
        choice.path
    }

    /// A path to be probed because packets that leave alone keep to those that are known to be
    /// quick: what is known of the others would grow old. `None`: not now.
    /// Rule CC-08.
    pub(crate) fn explore_take(&mut self, rng: &mut Rng) -> Option<u8> {
        let active = self.active.as_mut()?;
        core::mem::take(&mut active.explore).then(|| active.set.scan_live(rng))
    }

    /// The path of the next packet that carries only acknowledgments. `alone`: of a packet or two,
    /// not of a burst.
    pub fn ack_path_choose(&mut self, now: Time, alone: bool, rng: &mut Rng) -> u8 {
        let salt = self.salt;
        let (p, active, _) = self.grow(now);
        // Plain ECMP spreads nothing.
        if p.path_policy == PathPolicy::Ecmp {
            return choose::of_hash(&active.set, salt);
        }
        if alone
            && p.guards.has(Guard::AckProof)
            && let Some(path) = active.set.clean_newest(now, active.proof_age_max(p), None)
        {
            return path;
        }
        active.ack_paths.choose(&mut active.set, p.guards, rng)
    }

    /// The next of all paths in use, for a probe, or for the repetition of an acknowledgment that
    /// the peer seems to have missed: the few that acknowledgments rotate over may mostly have
    /// died together.
    pub fn path_any(&mut self, now: Time, rng: &mut Rng) -> u8 {
        let (_, active, _) = self.grow(now);
        active.set.scan_live(rng)
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

    /// A reliable packet left: it counts as in flight until one of [`Self::on_acked`],
    /// [`Self::on_lost`], [`Self::on_forgotten`] is called for it.
    #[inline(always)]
    pub fn on_sent(&mut self, now: Time, path: u8, bytes: u32, retransmit: bool, credited: bool) {
        let (p, active, credit) = self.grow(now);
        active.on_sent(p, now, path, bytes, retransmit, credited.then_some(credit));
    }

    /// A packet left that nothing held back (acknowledgment, probe): it does not count as in
    /// flight, and uses up what the pacer has to spare, no more.
    pub fn on_uncounted_sent(&mut self, now: Time, path: u8, bytes: u32) {
        let (_, active, _) = self.grow(now);
        active.set.get_mut(path).count_sent();
        active.pacing.on_free(now, bytes);
    }

    /// An unreliable datagram left: paced, but not counted as in flight.
    pub fn on_datagram_sent(&mut self, now: Time, path: u8, bytes: u32) {
        let (_, active, _) = self.grow(now);
        active.set.get_mut(path).count_sent();
        active.pacing.on_sent(now, bytes);
    }

    /// A packet sent at `sent` was acknowledged.
    pub fn on_acked(&mut self, now: Time, path: u8, bytes: u32, sent: Time) {
        let (p, active, _) = self.grow(now);
        active.leave_flight(bytes);
        // An acknowledgment faster than any round trip is that of an earlier copy.
        let least = Span(u64::from(active.rtt.min_ns()));
        let sent = if now.since(sent) < least { Time(0) } else { sent };
        active.meter.on_acked(bytes, sent);
        active.on_told();
        active.health.judge(p, &mut active.set, now, path, Evidence::Arrived);
    }

    /// An echo named a transmission, which has arrived.
    pub(crate) fn on_proof(&mut self, now: Time) {
        self.grow(now).1.on_proof();
    }

    /// RTT sample of one packet of any type without the receiver's delay; `ce`: it was marked.
    pub fn on_echo(&mut self, now: Time, path: u8, rtt: Span, ce: bool) {
        let (back, claimed) = (Span::ZERO, Span::ZERO);
        self.on_proof(now);
        self.on_sample(now, path, &Sample { rtt, back, claimed, ce });
    }

    /// The same with all that is known of it.
    pub(crate) fn on_sample(&mut self, now: Time, path: u8, sample: &Sample) {
        let (p, active, _) = self.grow(now);
        active.on_echo(p, now, path, sample);
    }

    /// What the two hosts took of a round trip: waits in sockets and for the processor. Covered by
    /// more bytes in flight and longer timers, never blamed on a path or on the rate.
    pub fn on_host_delay(&mut self, now: Time, host: Span) {
        let (p, active, _) = self.grow(now);
        active.on_host_delay(p, now, host.0);
    }

    /// What the hosts may add to a round trip.
    pub(crate) fn host_delay(&self) -> Span {
        self.active.as_ref().map_or(Span::ZERO, |a| a.host_delay(&self.params))
    }

    /// An acknowledgment block was handled. `app_limited`: all that was posted has been sent.
    /// `credited`: by an engine that grants credits.
    pub fn on_ack_end(
        &mut self,
        now: Time,
        newly_acked_bytes: u32,
        app_limited: bool,
        credited: bool,
    ) {
        let (p, active, _) = self.grow(now);
        active.on_ack_end(p, now, newly_acked_bytes, app_limited, credited);
    }

    /// A packet was declared lost. Whether its path is blamed for it: not while the peer is silent
    /// as well.
    pub fn on_lost(&mut self, now: Time, path: u8, bytes: u32, rule: LossRule) -> bool {
        let (p, active, _) = self.grow(now);
        active.on_lost(p, now, path, bytes, rule)
    }

    /// A packet that had been given up without blame on `path` never arrived, a later copy did.
    /// `counted`: it was declared lost.
    pub fn on_proved_lost(&mut self, now: Time, path: u8, counted: bool) {
        let (p, active, _) = self.grow(now);
        active.on_proved_lost(p, now, path, counted);
    }

    /// A loss on `path` turned out to be none: takes the blame back and widens the slack.
    pub fn on_spurious(&mut self, now: Time, path: u8) {
        let (p, active, _) = self.grow(now);
        active.on_spurious(p, now, path);
    }

    /// A packet in flight was given up without a verdict on its path.
    pub fn on_forgotten(&mut self, bytes: u32) {
        if let Some(active) = &mut self.active {
            active.leave_flight(bytes);
        }
    }

    /// The peer's receive queue dropped so many packets: lowers the cap, blames no path.
    pub fn on_receiver_drops(&mut self, now: Time, drops: u32) {
        let (p, active, _) = self.grow(now);
        if drops > 0 {
            active.on_receiver_drops(p, now);
        }
    }

    /// All paths are silent: path health stays as it is, no probes leave, until [`Self::thaw`].
    pub fn freeze(&mut self, now: Time) {
        let (p, active, _) = self.grow(now);
        if p.guards.has(Guard::Freeze) {
            active.health.freeze();
        }
    }

    /// First sign of life after [`Self::freeze`].
    pub fn thaw(&mut self, now: Time) {
        let (p, active, _) = self.grow(now);
        active.health.thaw(p, &mut active.set, now);
    }

    /// Smoothed RTT over all paths; the assumed one before the first sample.
    pub fn srtt(&self) -> Span {
        match self.smoothed().srtt_ns {
            0 => Span(u64::from(self.params.rtt_ns_initial)),
            ns => Span(u64::from(ns)),
        }
    }

    fn smoothed(&self) -> Smoothed {
        self.active.as_ref().map_or(self.rtt, |a| a.rtt.all)
    }

    /// Least RTT of the last 5 to 10 s; the assumed one before the first sample.
    pub fn rtt_min(&self) -> Span {
        match self.active.as_ref().map_or(self.rtt_ns_min, |a| a.rtt.min_ns()) {
            0 => Span(u64::from(self.params.rtt_ns_initial)),
            ns => Span(u64::from(ns)),
        }
    }

    /// Retransmission timeout of a packet on `path`: SRTT + 4 deviations, floor and ceiling from
    /// the configuration, doubled by each timeout of the path in a row.
    pub fn rto(&self, path: u8) -> Span {
        let known = self.active.as_ref().map(|a| a.set.get(path));
        let (rtt, timeouts) = known.map_or((Smoothed::default(), 0), |e| (e.rtt, e.timeouts));
        rtt::rto(&self.params, rtt, self.smoothed(), timeouts) + self.host_delay()
    }

    /// Until a probe's answer should be here, whatever path it took and was lost there before.
    pub(crate) fn answer_wait(&self) -> Span {
        let rto = rtt::rto(&self.params, Smoothed::default(), self.smoothed(), 0);
        self.tlp_delay().max(rto + self.host_delay())
    }

    fn widening(&self) -> Span {
        if !self.params.guards.has(Guard::Widen) {
            return Span::ZERO;
        }
        self.active.as_ref().map_or(Span::ZERO, |a| a.rtt.widening(self.srtt()))
    }

    /// How much later than a packet another one of its path must have been sent to prove, by its
    /// acknowledgment, that the first is lost: RTT/4, more after spurious losses.
    pub fn reorder_slack_same_path(&self, path: u8) -> Span {
        let known = self.active.as_ref().map_or(0, |a| a.set.get(path).rtt.srtt_ns);
        let rtt = if known == 0 { self.srtt() } else { Span(u64::from(known)) };
        SLACK_SAME_PATH.of_span(rtt) + self.widening()
    }

    /// The same for packets of other paths: RTT/2 with a floor, more after spurious losses.
    pub fn reorder_slack_cross(&self) -> Span {
        let floor = Span(u64::from(self.params.floors.reorder_ns()));
        SLACK_CROSS.of_span(self.srtt()).max(floor) + self.widening()
    }

    /// How much longer than the average the round trip on `path` takes: a packet there may be
    /// overtaken by that much without being lost.
    pub fn lag(&self, path: u8) -> Span {
        if !self.params.guards.has(Guard::Lag) {
            return Span::ZERO;
        }
        let known = self.active.as_ref().map_or(0, |a| a.set.get(path).rtt.srtt_ns);
        Span(u64::from(known)) - self.srtt()
    }

    /// Silence after which the tail of a burst is probed for loss: 1.5 SRTT with a floor.
    pub fn tlp_delay(&self) -> Span {
        TAIL_PROBE.of_span(self.srtt()).max(Span(u64::from(self.params.floors.tail_ns())))
            + self.host_delay()
    }

    /// The same while next to nothing is in flight: what paths take that are not late. What the
    /// hosts may add is left out: copies are few (see `tx/loss.rs`).
    pub fn hedge_delay(&self) -> Span {
        let known = self.active.as_ref().map_or(Smoothed::default(), |a| a.rtt.on_time);
        if known.srtt_ns == 0 {
            return self.tlp_delay();
        }
        let ns = known.timeout_ns().max(HEDGE.of(known.srtt_ns.into()));
        Span(ns.max(self.params.floors.hedge_ns().into())).min(self.tlp_delay())
    }

    /// When [`Self::probe_poll`] has something to do next; [`Time::NEVER`] without retired paths.
    pub fn probe_next(&self) -> Time {
        self.active.as_ref().map_or(Time::NEVER, |a| a.health.probe_next())
    }

    /// A retired path that is to be probed now. At most four per ms; a probe that is not echoed by
    /// the time of the path's next one has failed; two in a row that are bring the path back.
    pub fn probe_poll(&mut self, now: Time) -> Option<u8> {
        let active = self.active.as_mut()?;
        active.health.probe_poll(&self.params, &mut active.set, now)
    }

    /// A path that was retired or came back since this was last asked for it.
    pub fn change_take(&mut self) -> Option<PathChange> {
        let (path, live) = self.active.as_mut()?.set.change_take()?;
        Some(PathChange { path, live })
    }

    /// An engine at this address grants credits. What may be sent before the first ones come is
    /// free.
    pub fn credits_begin(&mut self) {
        self.credit.begin(ActivePaths::window_first(&self.params, self.rtt_ns_min));
    }

    /// The peer's cumulative counter of granted bytes, in units of 64, wrapping.
    pub fn on_credit(&mut self, granted_64b: u32) {
        let most = ActivePaths::window_first(&self.params, self.rtt_ns_min);
        let capped = self.params.guards.has(Guard::CreditCap);
        let most = if capped { most.max(self.inflight_max()) } else { u64::MAX };
        self.credit.on_counter(granted_64b, most);
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
