//! Health of paths: penalties, retirement, and probes.
//!
//! A retired path is probed with small packets first; the probe that returns it to use is as large
//! as data, so a path that carries only small packets stays retired. All probes to an address
//! together take a small fraction of the bytes that arrive there, whatever the number of paths.

use super::set::{Path, PathSet, PathState};
use crate::events::LossRule;
use crate::guards::Guard;
use crate::params::Params;
use crate::time::{Span, Time};
use crate::tuning::{
    LOSSES_RETIRE, LOSSES_TIMEOUT, PENALTY_LOSS, PENALTY_MAX, PROBE_DISTANCE, PROBE_DOUBLINGS_MAX,
    PROBE_LOOK, PROBE_SHARE,
};
use srd_wire::OVERHEAD_BYTES;

/// State that all paths to an address share.
#[derive(Debug)]
pub(crate) struct Health {
    /// When an acknowledgment or echo last came from the address, on any path.
    heard: Time,
    /// When a path is next to be probed.
    probe_at: Time,
    /// Earliest time of the next probe: probes keep a minimum interval and stay within their
    /// budget.
    probe_opens: Time,
    /// Bytes that must still arrive to pay for the probes sent, as of `owed_at`.
    owed: u64,
    owed_at: Time,
    /// Number of the present period of one RTT: all losses of a path within one period are one loss
    /// event.
    period: u8,
    period_began: Time,
}

/// Evidence about the state of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Evidence {
    /// A packet that left at `sent` was echoed. `late`: its lateness in units of the delay target
    /// (0: clean). `few`: little is in flight, so each echo tells of a path as it is now.
    Echo { late: u64, sent: Time, few: bool },
    /// A packet sent on it was acknowledged.
    Arrived,
    /// A packet sent on it was declared lost.
    Lost(Loss),
    /// A packet that was given up without blaming its path never arrived, but a later copy did.
    /// `counted`: it had been declared lost.
    Proved { counted: bool, srtt: Span },
    /// A packet that was declared lost had arrived.
    Acquitted,
}

/// A packet was declared lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub rule: LossRule,
    /// Smoothed RTT of all paths.
    pub srtt: Span,
    /// After this long without any sign of the peer, the peer counts as stalled, and the path is
    /// not blamed.
    pub silence_max: Span,
}

/// How a loss was judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consequence {
    /// The loss is the first of the path since an acknowledgment. Later ones are evidence about the
    /// path, not about congestion.
    pub first: bool,
    /// The path is blamed for the loss, because the peer was not silent.
    pub blamed: bool,
}

/// A probe of a retired path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProbe {
    /// Which path.
    pub path: u8,
    /// Payload of the data packet whose size the probe has; 0: the smallest probe.
    pub payload: u16,
}

/// Budget of probes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbePay {
    /// Payload of a packet of full size; 0: probes do not test sizes.
    pub full: u16,
    /// Estimate of the bytes per second that arrived recently.
    pub arriving: u64,
    /// Bytes per second that count as arriving at least.
    pub least: u64,
}

impl Health {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            heard: now,
            probe_at: Time::NEVER,
            probe_opens: Time(0),
            owed: 0,
            owed_at: now,
            period: 0,
            period_began: now,
        }
    }

    /// Updates the state of `path` from a piece of evidence.
    /// Rule CC-14.
    #[inline(always)]
    pub(crate) fn judge(
        &mut self,
        p: &Params,
        set: &mut PathSet,
        now: Time,
        path: u8,
        evidence: Evidence,
    ) -> Consequence {
        let mut came_to = Consequence { first: false, blamed: false };
        match evidence {
            Evidence::Echo { late, sent, few } => {
                self.heard = now;
                if late == 0 && few && p.guards.has(Guard::Alone) && set.get(path).is_live() {
                    // Nobody else takes turns, after which the penalty would end. Rule CC-52.
                    set.get_mut(path).level = 0;
                }
                self.echo_judge(p, set, now, path, late, sent);
            }
            Evidence::Arrived => {
                self.heard = now;
                set.get_mut(path).losses_forget();
            }
            Evidence::Acquitted => {
                self.heard = now;
                self.acquit(p, set, now, path);
            }
            Evidence::Lost(loss) => {
                let silent = now.since(self.heard) > loss.silence_max;
                let timeout = loss.rule == LossRule::Timeout;
                let entry = set.get_mut(path);
                entry.lost = entry.lost.saturating_add(1);
                came_to = Consequence { first: entry.losses == 0, blamed: !silent };
                let event = self.event_begin(p, set, now, path, loss.srtt);
                let entry = set.get_mut(path);
                if timeout && (event || entry.timeouts == 0) {
                    entry.timeouts = entry.timeouts.saturating_add(1);
                }
                let weight = if timeout { LOSSES_TIMEOUT } else { 1 };
                if !silent {
                    self.blame(p, set, now, path, u8::from(event) * weight);
                }
            }
            Evidence::Proved { counted, srtt } => {
                let entry = set.get_mut(path);
                entry.lost = entry.lost.saturating_add(u32::from(!counted));
                let event = self.event_begin(p, set, now, path, srtt);
                self.blame(p, set, now, path, event.into());
            }
        }
        let entry = set.get(path);
        debug_assert!(entry.is_live() || !entry.is_clean(), "what is out of use is not used again");
        came_to
    }

    fn echo_judge(
        &mut self,
        p: &Params,
        set: &mut PathSet,
        now: Time,
        path: u8,
        late: u64,
        sent: Time,
    ) {
        let entry = set.get_mut(path);
        match entry.state {
            PathState::Live if late == 0 && entry.level == 0 => set.clean_note(now, path),
            PathState::Live if late == 0 => {}
            PathState::Live => {
                let step = u64::from(entry.level) + 1;
                entry.level = step.max(late).min(PENALTY_MAX.into()) as u8;
                set.clean_forget(path);
            }
            // If no probe is under way, the echoed packet left before the path was retired.
            _ if entry.probe_out() && late == 0 => self.on_probe_echo(p, set, now, path, sent),
            _ => {}
        }
    }

    /// Whether a loss on `path` begins a loss event: all losses of a path within one round trip are
    /// one event.
    fn event_begin(
        &mut self,
        p: &Params,
        set: &mut PathSet,
        now: Time,
        path: u8,
        srtt: Span,
    ) -> bool {
        if now.since(self.period_began) > srtt {
            self.period_began = now;
            self.period = self.period.wrapping_add(1);
        }
        let entry = set.get_mut(path);
        let same = entry.losses > 0 && entry.loss_period == self.period;
        entry.loss_period = self.period;
        !same || !p.guards.has(Guard::LossEvent)
    }

    /// `path` lost a packet: it gets a penalty, and is retired once its loss events, to which
    /// `events` are added, are too many.
    fn blame(&mut self, p: &Params, set: &mut PathSet, now: Time, path: u8, events: u8) {
        let entry = set.get_mut(path);
        if !entry.is_live() {
            // What flew on a denied path may be lost: like for a retired one, that is a congestion
            // signal once.
            entry.losses = if entry.is_denied() { entry.losses.max(1) } else { entry.losses };
            return;
        }
        entry.level = (entry.level + PENALTY_LOSS).min(PENALTY_MAX);
        entry.losses = entry.losses.saturating_add(events);
        let losses = entry.losses;
        debug_assert!((1..=PENALTY_MAX).contains(&entry.level), "who is blamed has a penalty");
        set.clean_forget(path);
        let least = if planted!(PathLeastForgotten) { 0 } else { usize::from(p.live_min) };
        if losses >= LOSSES_RETIRE && set.live() > least {
            self.retire(p, set, now, path);
            set.change_note(path);
        }
    }

    fn on_probe_echo(&mut self, p: &Params, set: &mut PathSet, now: Time, path: u8, sent: Time) {
        let entry = set.get_mut(path);
        // A late echo of the small probe does not prove that the large probe arrived.
        if entry.state == PathState::Probing && Self::is_before_probe(p, entry, sent) {
            return;
        }
        entry.probe_out_set(false);
        if entry.state.probe_good().is_ok() {
            entry.at = (now + Span(u64::from(p.probe_ns_first))).to_wire();
            set.change_note(path);
        } else if entry.state.returned().is_ok() {
            Self::return_to_use(set, path);
        }
        self.probe_schedule(p, set, now);
    }

    /// Takes `path` out of use and schedules its first probe.
    pub(crate) fn retire(&mut self, p: &Params, set: &mut PathSet, now: Time, path: u8) {
        let entry = set.get_mut(path);
        if entry.state.retired().is_err() {
            return;
        }
        set.clean_forget(path);
        let entry = set.get_mut(path);
        entry.level = 0;
        entry.probe_out_set(false);
        entry.with_rail_set(false);
        entry.at = (now + Span(u64::from(p.probe_ns_first))).to_wire();
        set.out += 1;
        self.probe_schedule(p, set, now);
    }

    fn return_to_use(set: &mut PathSet, path: u8) {
        let entry = set.get_mut(path);
        entry.level = 0;
        entry.losses_forget();
        debug_assert!(set.out > 0, "it was out of use");
        set.out -= 1;
        if !planted!(PathReturnUntold) {
            set.change_note(path);
        }
    }

    /// A loss on `path` was spurious.
    fn acquit(&mut self, p: &Params, set: &mut PathSet, now: Time, path: u8) {
        let entry = set.get_mut(path);
        entry.lost = entry.lost.saturating_sub(1);
        entry.losses_forget();
        if entry.is_live() {
            entry.level = entry.level.saturating_sub(PENALTY_LOSS);
        } else if entry.state.acquitted().is_ok() {
            entry.probe_out_set(false);
            Self::return_to_use(set, path);
            self.probe_schedule(p, set, now);
        }
    }

    /// Takes all paths of rail `rail` of `count` out of use.
    pub(super) fn rail_retire(
        &mut self,
        p: &Params,
        set: &mut PathSet,
        now: Time,
        rail: usize,
        count: u8,
    ) {
        for path in set.of_rail(rail, count) {
            if set.get(path).is_live() {
                self.retire(p, set, now, path);
                set.get_mut(path).with_rail_set(true);
                set.change_note(path);
            }
        }
    }

    /// Returns the paths to use that were retired with their rail, wrongly.
    pub(super) fn rail_acquit(
        &mut self,
        p: &Params,
        set: &mut PathSet,
        now: Time,
        rail: usize,
        count: u8,
    ) {
        for path in set.of_rail(rail, count) {
            let entry = set.get_mut(path);
            if entry.with_rail() && entry.state.acquitted().is_ok() {
                entry.probe_out_set(false);
                Self::return_to_use(set, path);
            }
        }
        self.probe_schedule(p, set, now);
    }

    /// Returns up to `most` retired paths to use.
    pub(super) fn acquit_some(&mut self, set: &mut PathSet, most: usize) {
        let mut left = most;
        for i in 0..set.paths.len() {
            if left == 0 {
                return;
            }
            let entry = &mut set.paths[i];
            if entry.state.acquitted().is_ok() {
                entry.probe_out_set(false);
                Self::return_to_use(set, i as u8);
                left -= 1;
            }
        }
    }

    /// The peer is heard again.
    pub(crate) fn resumed(&mut self, now: Time) {
        self.heard = now;
    }

    pub(crate) fn probe_next(&self) -> Time {
        self.probe_at
    }

    /// Adds `bytes` that arrived to the budget of probes.
    #[inline(always)]
    pub(crate) fn probes_earn(&mut self, bytes: u32) {
        self.owed = self.owed.saturating_sub(bytes.into());
    }

    /// The retired path whose probe is due first, if that time has come and the earlier probes are
    /// paid for, and the size of the probe. If the previous probe of the path was not echoed, it
    /// has failed.
    /// Rule CC-15.
    pub(crate) fn probe_poll(
        &mut self,
        p: &Params,
        set: &mut PathSet,
        now: Time,
        pay: ProbePay,
    ) -> Option<PathProbe> {
        if now < self.probe_at {
            return None;
        }
        let Some((_, path)) = Self::probe_first(p, set, now) else {
            // All have returned to use since, or are denied.
            self.probe_at = Time::NEVER;
            return None;
        };
        let took = core::mem::replace(&mut self.owed_at, now);
        let earned = u128::from(now.since(took).0) * u128::from(pay.least) / 1_000_000_000;
        self.owed = self.owed.saturating_sub(u64::try_from(earned).unwrap_or(u64::MAX));
        if self.owed > 0 {
            self.probe_opens = now + self.owed_span(pay.least);
            self.probe_at = self.probe_opens;
            return None;
        }
        let entry = set.get_mut(path);
        if entry.probe_out() && entry.state.probe_failed().is_ok() {
            set.change_note(path);
        }
        let entry = set.get_mut(path);
        // The path returns only if it carries packets as large as data.
        let payload = if entry.state == PathState::Probing { pay.full } else { 0 };
        let wait = Self::probe_wait(p, entry.level);
        entry.level = (entry.level + 1).min(PROBE_DOUBLINGS_MAX);
        entry.probe_out_set(true);
        entry.at = (now + wait).to_wire();
        self.owed = PROBE_SHARE * (OVERHEAD_BYTES as u64 + u64::from(payload));
        self.probe_opens = now + self.owed_span(pay.arriving.max(pay.least));
        self.probe_schedule(p, set, now);
        Some(PathProbe { path, payload })
    }

    /// Interval to the next probe of a path that was probed `sent` times before.
    fn probe_wait(p: &Params, sent: u8) -> Span {
        let wait = u64::from(p.probe_ns_first) << sent.min(PROBE_DOUBLINGS_MAX);
        Span(wait.min(p.probe_ns_max.into()))
    }

    /// Whether a packet sent at `sent` left before the probe of `entry` that is under way.
    fn is_before_probe(p: &Params, entry: &Path, sent: Time) -> bool {
        debug_assert!(entry.probe_out(), "when it left follows from when the next is due");
        let wait = Time(Self::probe_wait(p, entry.level.saturating_sub(1)).0).to_wire();
        let probed = entry.at.wrapping_sub(wait);
        // Both times are rounded to the clock's units.
        let after = sent.to_wire().wrapping_sub(probed).wrapping_add(2);
        after > u32::MAX / 2
    }

    /// Time until the bytes owed should have arrived at `rate` bytes per second, within bounds.
    fn owed_span(&self, rate: u64) -> Span {
        let ns = u128::from(self.owed) * 1_000_000_000 / u128::from(rate.max(1));
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        Span(ns).max(PROBE_DISTANCE).min(PROBE_LOOK)
    }

    /// Time to the earliest probe, and its path. Among overdue paths, the one that has been overdue
    /// longest.
    fn probe_first(p: &Params, set: &PathSet, now: Time) -> Option<(Span, u8)> {
        let out = set.paths.iter().enumerate().filter(|(_, e)| !e.is_live() && !e.is_denied());
        out.map(|(i, e)| {
            // The 32-bit clock may have wrapped since the last call: a time further away than any
            // probe interval is overdue.
            let ahead = Span(u64::from(e.at.wrapping_sub(now.to_wire())) << 4);
            let overdue = ahead.0 > u64::from(p.probe_ns_max) + 16;
            (!overdue, ahead, i as u8)
        })
        .min()
        .map(|(due, ahead, path)| (if due { ahead } else { Span::ZERO }, path))
    }

    pub(super) fn probe_schedule(&mut self, p: &Params, set: &PathSet, now: Time) {
        let none = set.out == set.denied;
        let first = if none { None } else { Self::probe_first(p, set, now) };
        debug_assert!(none || first.is_some(), "who is out of use is asked some time");
        self.probe_at = first.map_or(Time::NEVER, |(ahead, _)| now + ahead).max(self.probe_opens);
    }
}
