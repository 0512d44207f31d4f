//! Health of paths: penalties, retirement, and probes.
//!
//! A path that is out of use is asked whether it lives by small packets, and its return is decided
//! by one that is as large as data: what carries only small packets stays out of use. All probes of
//! an address together use a small part of what arrives there, whatever the number of paths.

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

/// What is common to all paths.
#[derive(Debug)]
pub(crate) struct Health {
    /// When something last came back.
    heard: Time,
    /// Next probe of any path.
    probe_at: Time,
    /// Not before this: probes keep a distance, and are paid for.
    probe_opens: Time,
    /// Bytes that must arrive yet to pay for the probes that left, as of `owed_at`.
    owed: u64,
    owed_at: Time,
    /// Counts spans of an RTT with losses: what a path loses within one is one event.
    period: u8,
    period_began: Time,
}

/// What is learnt about a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Evidence {
    /// A packet came back from it that left at `sent`, late by so many times what a path may be
    /// (0: clean; 1, too, for a mark).
    Echo { late: u64, sent: Time },
    /// A packet sent on it was acknowledged.
    Arrived,
    /// A packet sent on it was declared lost.
    Lost(Loss),
    /// A packet that was given up without blame never arrived, and a later copy did. `counted`: it
    /// had been declared lost.
    Proved { counted: bool, srtt: Span },
    /// A packet that was declared lost arrived all the same.
    Acquitted,
}

/// A packet was declared lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub rule: LossRule,
    /// Smoothed RTT of all paths.
    pub srtt: Span,
    /// Silence this long means that the peer has stalled rather than the path.
    pub silence_max: Span,
}

/// What a loss came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consequence {
    /// The first loss of the path since an acknowledgment: later ones speak of the path, not of
    /// the connection.
    pub first: bool,
    /// The path is blamed: the peer was not silent as well.
    pub blamed: bool,
}

/// A probe of a path that is out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProbe {
    /// Which path.
    pub path: u8,
    /// Payload of the packet that it is as large as; 0: no larger than it must be.
    pub payload: u16,
}

/// What probes are paid from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbePay {
    /// Payload of a packet of full size; 0: sizes are not asked for.
    pub full: u16,
    /// Bytes per second that arrived lately, a guess.
    pub arriving: u64,
    /// Bytes per second that count as arriving whatever does.
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

    /// Concludes from what was learnt about `path`.
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
            Evidence::Echo { late, sent } => {
                self.heard = now;
                self.echo_judge(p, set, now, path, (late, sent));
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
        (late, sent): (u64, Time),
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
            // Without a probe under way it is a packet from before the retirement.
            _ if entry.probe_out() && late == 0 => self.on_probe_echo(p, set, now, path, sent),
            _ => {}
        }
    }

    /// Whether a loss on `path` begins an event: what a path loses within one round trip is one.
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

    /// `path` lost a packet: it gets a penalty, and is retired once its loss events, of which this
    /// is so many, are too many.
    fn blame(&mut self, p: &Params, set: &mut PathSet, now: Time, path: u8, events: u8) {
        let entry = set.get_mut(path);
        if !entry.is_live() {
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
        // A small probe that is answered late does not say that a large one arrived.
        if entry.state == PathState::Probing && Self::is_before_probe(p, entry, sent) {
            return;
        }
        entry.probe_out_set(false);
        if entry.state.probe_good().is_ok() {
            entry.at = (now + Span(u64::from(p.probe_ns_first))).to_wire();
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

    /// A loss on `path` was none.
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

    /// Paths from number `first` on are in use again.
    pub(crate) fn acquit_from(&mut self, set: &mut PathSet, first: usize) {
        for i in first..set.paths.len() {
            let entry = &mut set.paths[i];
            if entry.state.acquitted().is_ok() {
                entry.probe_out_set(false);
                Self::return_to_use(set, i as u8);
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

    /// So many bytes arrived.
    #[inline(always)]
    pub(crate) fn probes_earn(&mut self, bytes: u32) {
        self.owed = self.owed.saturating_sub(bytes.into());
    }

    /// The retired path whose probe is due first, once its time has come and the probes before it
    /// are paid for, and the payload that the probe is as large as. A probe still out is one that
    /// failed.
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
        let path = Self::probe_first(p, set, now)?.1;
        let took = core::mem::replace(&mut self.owed_at, now);
        let earned = u128::from(now.since(took).0) * u128::from(pay.least) / 1_000_000_000;
        self.owed = self.owed.saturating_sub(u64::try_from(earned).unwrap_or(u64::MAX));
        if self.owed > 0 {
            self.probe_opens = now + self.owed_span(pay.least);
            self.probe_at = self.probe_opens;
            return None;
        }
        let entry = set.get_mut(path);
        if entry.probe_out() {
            let _ = entry.state.probe_failed();
        }
        // It returns only if it carries what is sent.
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

    /// Until the next probe of a path, of which so many were sent before.
    fn probe_wait(p: &Params, sent: u8) -> Span {
        let wait = u64::from(p.probe_ns_first) << sent.min(PROBE_DOUBLINGS_MAX);
        Span(wait.min(p.probe_ns_max.into()))
    }

    /// Whether what left at `sent` left before the probe of `entry` that is under way.
    fn is_before_probe(p: &Params, entry: &Path, sent: Time) -> bool {
        debug_assert!(entry.probe_out(), "when it left follows from when the next is due");
        let wait = Time(Self::probe_wait(p, entry.level.saturating_sub(1)).0).to_wire();
        let probed = entry.at.wrapping_sub(wait);
        // Both spans are rounded.
        let after = sent.to_wire().wrapping_sub(probed).wrapping_add(2);
        after > u32::MAX / 2
    }

    /// When it is looked again whether what is owed has arrived, at so many bytes per second.
    fn owed_span(&self, rate: u64) -> Span {
        let ns = u128::from(self.owed) * 1_000_000_000 / u128::from(rate.max(1));
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        Span(ns).max(PROBE_DISTANCE).min(PROBE_LOOK)
    }

    /// Time to the earliest probe, and its path: of those that are overdue, the one that is so for
    /// longest.
    fn probe_first(p: &Params, set: &PathSet, now: Time) -> Option<(Span, u8)> {
        let out = set.paths.iter().enumerate().filter(|(_, e)| !e.is_live());
        out.map(|(i, e)| {
            // The 32-bit clock may have wrapped while nobody asked: what is further away than a
            // probe can be is overdue.
            let ahead = Span(u64::from(e.at.wrapping_sub(now.to_wire())) << 4);
            let overdue = ahead.0 > u64::from(p.probe_ns_max) + 16;
            (!overdue, ahead, i as u8)
        })
        .min()
        .map(|(due, ahead, path)| (if due { ahead } else { Span::ZERO }, path))
    }

    fn probe_schedule(&mut self, p: &Params, set: &PathSet, now: Time) {
        let none = set.out == 0;
        let first = if none { None } else { Self::probe_first(p, set, now) };
        debug_assert!(none || first.is_some(), "who is out of use is asked some time");
        self.probe_at = first.map_or(Time::NEVER, |(ahead, _)| now + ahead).max(self.probe_opens);
    }
}
