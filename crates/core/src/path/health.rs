//! Health of paths: penalties, retirement, probes, and the freeze while the peer is silent.

use super::set::{PathSet, PathState};
use crate::events::LossRule;
use crate::guards::Guard;
use crate::params::Params;
use crate::time::{Span, Time};
use crate::tuning::{
    LOSS_COMMON_PERMILLE, LOSSES_RETIRE, LOSSES_RETIRE_COMMON, LOSSES_TIMEOUT, PENALTY_LOSS,
    PENALTY_MAX, PROBE_DISTANCE, PROBE_DOUBLINGS_MAX,
};

/// What is common to all paths.
#[derive(Debug)]
pub(crate) struct Health {
    /// When something last came back.
    heard: Time,
    /// Next probe of any path.
    probe_at: Time,
    frozen: bool,
    /// Counts spans of an RTT with losses: what a path loses within one is one event.
    period: u8,
    period_began: Time,
}

/// What is learnt about a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Evidence {
    /// A packet came back from it, late by so many times what a path may be (0: clean; 1, too, for
    /// a mark).
    Echo { late: u64 },
    /// A packet sent on it was acknowledged.
    Arrived,
    /// A packet sent on it was declared lost.
    Lost(Loss),
    /// A packet that was given up without blame never arrived, and a later copy did. `counted`: it
    /// had been declared lost.
    Proved { counted: bool, around: Around },
    /// A packet that was declared lost arrived all the same.
    Acquitted,
}

/// What all paths do while one loses a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around {
    /// Share of the last round's packets that was lost.
    pub permille: u32,
    pub srtt: Span,
}

/// A packet was declared lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub rule: LossRule,
    pub around: Around,
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

impl Health {
    pub(crate) fn new(now: Time) -> Self {
        Self { heard: now, probe_at: Time::NEVER, frozen: false, period: 0, period_began: now }
    }

    /// Concludes from what was learnt about `path`.
    /// Rule CC-14.
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
            Evidence::Echo { late } => {
                self.heard = now;
                self.echo_judge(p, set, now, path, late);
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
                let silent = self.frozen || now.since(self.heard) > loss.silence_max;
                let timeout = loss.rule == LossRule::Timeout;
                let entry = set.get_mut(path);
                entry.lost = entry.lost.saturating_add(1);
                came_to = Consequence { first: entry.losses == 0, blamed: !silent };
                let event = self.event_begin(p, set, now, path, loss.around.srtt);
                let entry = set.get_mut(path);
                if timeout && (event || entry.timeouts == 0) {
                    entry.timeouts = entry.timeouts.saturating_add(1);
                }
                let weight = if timeout { LOSSES_TIMEOUT } else { 1 };
                if !silent {
                    self.blame(p, set, now, path, u8::from(event) * weight, loss.around);
                }
            }
            Evidence::Proved { counted, around } => {
                let entry = set.get_mut(path);
                entry.lost = entry.lost.saturating_add(u32::from(!counted));
                let event = self.event_begin(p, set, now, path, around.srtt);
                if !self.frozen {
                    self.blame(p, set, now, path, event.into(), around);
                }
            }
        }
        let entry = set.get(path);
        debug_assert!(entry.is_live() || !entry.is_clean(), "what is out of use is not used again");
        came_to
    }

    fn echo_judge(&mut self, p: &Params, set: &mut PathSet, now: Time, path: u8, late: u64) {
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
            _ if entry.probe_out() && late == 0 => self.on_probe_echo(p, set, now, path),
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
    fn blame(
        &mut self,
        p: &Params,
        set: &mut PathSet,
        now: Time,
        path: u8,
        events: u8,
        around: Around,
    ) {
        let entry = set.get_mut(path);
        if !entry.is_live() {
            return;
        }
        entry.level = (entry.level + PENALTY_LOSS).min(PENALTY_MAX);
        entry.losses = entry.losses.saturating_add(events);
        let losses = entry.losses;
        debug_assert!((1..=PENALTY_MAX).contains(&entry.level), "who is blamed has a penalty");
        set.clean_forget(path);
        let common = around.permille > LOSS_COMMON_PERMILLE && p.guards.has(Guard::CommonLoss);
        let retire_at = if common { LOSSES_RETIRE_COMMON } else { LOSSES_RETIRE };
        let least = if planted!(PathLeastForgotten) { 0 } else { usize::from(p.live_min) };
        if losses >= retire_at && set.live() > least {
            self.retire(p, set, now, path);
            set.change_note(path);
        }
    }

    fn on_probe_echo(&mut self, p: &Params, set: &mut PathSet, now: Time, path: u8) {
        let entry = set.get_mut(path);
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

    pub(crate) fn freeze(&mut self) {
        self.frozen = true;
        self.probe_at = Time::NEVER;
    }

    /// Ends a freeze: probes start over, since those under way were lost to the stall.
    pub(crate) fn thaw(&mut self, p: &Params, set: &mut PathSet, now: Time) {
        self.heard = now;
        if !core::mem::take(&mut self.frozen) {
            return;
        }
        let due = (now + Span(u64::from(p.probe_ns_first))).to_wire();
        for path in set.paths.iter_mut() {
            if !path.is_live() {
                path.at = due;
                path.probe_out_set(false);
            }
            path.timeouts = 0;
        }
        self.probe_schedule(p, set, now);
    }

    pub(crate) fn probe_next(&self) -> Time {
        self.probe_at
    }

    /// The retired path whose probe is due first, once its time has come. A probe still out is one
    /// that failed.
    /// Rule CC-15.
    pub(crate) fn probe_poll(&mut self, p: &Params, set: &mut PathSet, now: Time) -> Option<u8> {
        if now < self.probe_at {
            return None;
        }
        let path = Self::probe_first(p, set, now)?.1;
        let entry = set.get_mut(path);
        if entry.probe_out() {
            let _ = entry.state.probe_failed();
        }
        let wait = (u64::from(p.probe_ns_first) << entry.level.min(PROBE_DOUBLINGS_MAX))
            .min(p.probe_ns_max.into());
        entry.level = (entry.level + 1).min(PROBE_DOUBLINGS_MAX);
        entry.probe_out_set(true);
        entry.at = (now + Span(wait)).to_wire();
        self.probe_schedule(p, set, now);
        if self.probe_at != Time::NEVER {
            self.probe_at = self.probe_at.max(now + PROBE_DISTANCE);
        }
        Some(path)
    }

    /// Time to the earliest probe, and its path.
    fn probe_first(p: &Params, set: &PathSet, now: Time) -> Option<(Span, u8)> {
        let out = set.paths.iter().enumerate().filter(|(_, e)| !e.is_live());
        out.map(|(i, e)| {
            // The 32-bit clock may have wrapped while nobody asked: what is further away than a
            // probe can be is overdue.
            let ahead = Span(u64::from(e.at.wrapping_sub(now.to_wire())) << 4);
            let overdue = ahead.0 > u64::from(p.probe_ns_max) + 16;
            (if overdue { Span::ZERO } else { ahead }, i as u8)
        })
        .min_by_key(|&(ahead, path)| (ahead, path))
    }

    fn probe_schedule(&mut self, p: &Params, set: &PathSet, now: Time) {
        let none = self.frozen || set.out == 0;
        let first = if none { None } else { Self::probe_first(p, set, now) };
        debug_assert!(none || first.is_some(), "who is out of use is asked some time");
        self.probe_at = first.map_or(Time::NEVER, |(ahead, _)| now + ahead);
    }
}
