//! Rails: the networks by which the paths to an address leave in turn. A rail that dies takes all
//! its paths with it, so that what its paths tell is judged together.
//!
//! Evidence against a rail are transmissions on several of its paths that were given up although
//! nothing that left on the rail since has arrived. If what left on another rail later than these
//! did arrive, the whole rail is retired at once. Probes return its paths one by one. The rest are
//! precautions while a rail is in doubt: what is sent again, probes of a silent peer and
//! acknowledgments take another rail.

use super::Awake;
use super::set::{Path, PathSet};
use crate::config::PathPolicy;
use crate::limits::RAILS_MAX;
use crate::params::Chooser::Policy;
use crate::params::Params;
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::tuning::{ACK_RETRY, ACK_RETRY_UNHEARD, RAIL_PATHS, RAIL_QUIET};

/// What is known of one rail.
#[derive(Clone, Copy, Debug)]
struct Rail {
    /// When the newest transmission left on it that arrived.
    proved: Time,
    /// When the first transmission left that counts as evidence; `NEVER`: there is none.
    since: Time,
    /// When the newest of the transmissions left that made the evidence sufficient.
    until: Time,
    /// Paths of these transmissions.
    silent: [u8; RAIL_PATHS],
    silent_len: u8,
    /// When it was retired; `NEVER`: it is in use.
    retired: Time,
    /// Changes of the path by which the peer's packets came since one came by this rail.
    quiet: u8,
    /// Acknowledgments that left on it since one of them was echoed.
    acks: u8,
}

/// What is known of the rails to an address; only where there are several.
#[derive(Debug)]
pub(crate) struct Rails {
    count: u8,
    rails: [Rail; RAILS_MAX],
    /// Path of the peer's newest packet.
    heard: u8,
    /// Rail of the newest transmission or probe that was not answered in time.
    asked: u8,
    /// Acknowledgments that left while a rail was in doubt.
    doubted: u8,
    /// An acknowledgment was repeated since one was echoed.
    repeated: bool,
    /// Rail of the newest acknowledgment.
    acked: u8,
}

impl Rails {
    /// `None` where all paths leave by one network.
    pub(crate) fn new(p: &Params, now: Time) -> Option<Box<Self>> {
        let rail = Rail {
            proved: now,
            since: Time::NEVER,
            until: Time::NEVER,
            silent: [0; RAIL_PATHS],
            silent_len: 0,
            retired: Time::NEVER,
            quiet: 0,
            acks: 0,
        };
        let count = u16::from(p.rails).min(p.paths) as u8;
        // Other policies take paths whatever their state.
        let judges = matches!(p.path_policy, Policy(PathPolicy::Srd | PathPolicy::RttP2c));
        (count > 1 && judges && !planted!(RailsUnknown)).then(|| {
            Box::new(Self {
                count,
                rails: [rail; RAILS_MAX],
                heard: 0,
                asked: 0,
                doubted: 0,
                repeated: false,
                acked: 0,
            })
        })
    }

    /// The rail of `path`.
    pub(crate) fn of(&self, path: u8) -> usize {
        usize::from(path % self.count)
    }

    fn each(&self) -> impl Iterator<Item = usize> + use<> {
        0..usize::from(self.count)
    }

    /// A packet of the peer came by `path`.
    pub(crate) fn on_heard(&mut self, path: u8) {
        if path != self.heard {
            self.rails.iter_mut().for_each(|r| r.quiet = r.quiet.saturating_add(1));
            self.heard = path;
        }
        let rail = self.of(path);
        self.rails[rail].quiet = 0;
        debug_assert!(rail < RAILS_MAX, "one of the table");
    }

    /// An acknowledgment left on `path`.
    pub(crate) fn on_ack_sent(&mut self, path: u8) {
        let rail = self.of(path);
        self.rails[rail].acks = self.rails[rail].acks.saturating_add(1);
        self.acked = rail as u8;
    }

    /// An acknowledgment that left on `rail` was echoed.
    pub(crate) fn on_ack_echoed(&mut self, rail: u8) {
        self.rails[usize::from(rail) % RAILS_MAX].acks = 0;
        self.repeated = false;
    }

    /// Rails by which acknowledgments should not leave, one bit each. `patience`: so many
    /// acknowledgments on a rail without an echo are too many; `None`: the peer echoes none at all.
    fn doubts(&self, patience: Option<u32>) -> u8 {
        let unechoed = |rail: &Rail| patience.is_some_and(|most| u32::from(rail.acks) > most);
        let in_doubt =
            |rail: &Rail| rail.retired != Time::NEVER || rail.quiet >= RAIL_QUIET || unechoed(rail);
        let bits_of = |is: &dyn Fn(&Rail) -> bool| {
            self.each().filter(|&r| is(&self.rails[r])).fold(0u8, |bits, r| bits | 1 << r)
        };
        // Where all are in doubt, those are better whose acknowledgments are echoed: each rail may
        // live in one direction only. If that holds for none either, none is better than another.
        let all = bits_of(&|_| true);
        let doubts = [bits_of(&in_doubt), bits_of(&unechoed)];
        doubts.into_iter().find(|&bits| bits != all).unwrap_or(0)
    }

    /// A live path for an acknowledgment, if a rail is in doubt and `path` is of this rail. Now and
    /// then one leaves there nevertheless, to see whether it is echoed.
    pub(crate) fn ack_path(
        &mut self,
        set: &mut PathSet,
        path: u8,
        patience: Option<u32>,
        rng: &mut Rng,
    ) -> u8 {
        let doubts = self.doubts(patience);
        if doubts >> self.of(path) & 1 == 0 {
            return path;
        }
        self.doubted = self.doubted.wrapping_add(1);
        // If nothing is echoed, each rail may live in one direction only.
        let each = if patience.is_none() { ACK_RETRY_UNHEARD } else { ACK_RETRY };
        if self.doubted.is_multiple_of(each) {
            return path;
        }
        let count = self.count;
        set.scan_where(rng, |i, _| doubts >> (i % count) & 1 == 0).unwrap_or(path)
    }

    /// A live path for the repetition of an acknowledgment that the peer seems to have missed, on
    /// another rail than the newest one: that by which the peer's newest packet came, and after
    /// that the next one each time, since this one may live in the other direction only.
    pub(crate) fn repeat_path(&mut self, set: &mut PathSet, rng: &mut Rng) -> Option<u8> {
        let (count, heard) = (self.count, self.of(self.heard) as u8);
        let next = self.repeated || heard == self.acked;
        let rail = if next { (self.acked + 1) % count } else { heard };
        self.repeated = true;
        set.scan_where(rng, |i, _| i % count == rail)
    }

    /// A live path for a question to a silent peer: each leaves by another rail than the one
    /// before.
    pub(crate) fn ask_path(&mut self, set: &mut PathSet, rng: &mut Rng) -> Option<u8> {
        for _ in self.each() {
            let (count, rail) = (self.count, (self.asked + 1) % self.count);
            self.asked = rail;
            let path = set.scan_where(rng, |i, _| i % count == rail);
            if path.is_some() {
                return path;
            }
        }
        None
    }

    /// A path for what `avoid` did not carry, if several paths of its rail have fallen silent: the
    /// most recently clean one of a rail of which this is not so, or any live one there.
    pub(crate) fn other_path(&self, set: &mut PathSet, avoid: u8, rng: &mut Rng) -> Option<u8> {
        let blamed = |rail: usize| self.rails[rail].silent_len > 1;
        if !blamed(self.of(avoid)) {
            return None;
        }
        let is = |i: u8, entry: &Path| i != avoid && entry.is_live() && !blamed(self.of(i));
        if let Some(path) = set.clean_newest_where(is) {
            set.clean_forget(path);
            return Some(path);
        }
        set.scan_where(rng, is)
    }

    /// A transmission that left on `path` at `sent` was given up.
    fn on_silent(&mut self, path: u8, sent: Time) {
        let r = self.of(path);
        self.asked = r as u8;
        let rail = &mut self.rails[r];
        let known = rail.silent[..usize::from(rail.silent_len)].contains(&path);
        if rail.retired != Time::NEVER || sent <= rail.proved {
            return;
        }
        rail.since = rail.since.min(sent);
        if !known && usize::from(rail.silent_len) < RAIL_PATHS {
            rail.silent[usize::from(rail.silent_len)] = path;
            rail.silent_len += 1;
            rail.until = if rail.silent_len == 1 { sent } else { rail.until.max(sent) };
        }
    }

    /// Whether the evidence against rail `r` is sufficient. `least`: so many paths stay in use.
    fn is_dead(&self, set: &PathSet, r: usize, slack: Span, least: u16) -> bool {
        let rail = &self.rails[r];
        if rail.silent_len < 2 || rail.retired != Time::NEVER {
            return false;
        }
        let live = set.of_rail(r, self.count).filter(|&path| set.get(path).is_live()).count();
        let proved = |q: usize| q != r && self.rails[q].proved > rail.until + slack;
        usize::from(rail.silent_len) >= live.min(RAIL_PATHS)
            && set.live() - live >= usize::from(least)
            && self.each().any(proved)
    }

    /// What left on `path` at `sent` arrived. Returns a rail that was retired wrongly.
    fn on_echo(&mut self, path: u8, sent: Time) -> Option<usize> {
        let r = self.of(path);
        let rail = &mut self.rails[r];
        rail.proved = rail.proved.max(sent);
        // Times of echoes are rounded down to the units of the wire.
        if rail.silent_len == 0 || sent + Span(16) < rail.since {
            return None;
        }
        // What left after it was retired are probes, which return their own path alone.
        let wrong = rail.retired != Time::NEVER && sent < rail.retired;
        if wrong || rail.retired == Time::NEVER {
            self.clear(r);
        }
        wrong.then_some(r)
    }

    /// A path of rail `r` is in use again.
    fn clear(&mut self, r: usize) {
        let rail = &mut self.rails[r];
        (rail.since, rail.until, rail.retired) = (Time::NEVER, Time::NEVER, Time::NEVER);
        rail.silent_len = 0;
        rail.acks = 0;
    }
}

/// Rule CC-46.
impl Awake<'_> {
    /// A transmission that left on `path` at `sent` was given up, whether or not the path is blamed
    /// for it. Returns whether its rail is retired for that.
    pub(crate) fn on_silent(&mut self, path: u8, sent: Time, slack: Span) -> bool {
        let Some(rails) = &mut self.active.rails else { return false };
        rails.on_silent(path, sent);
        self.rails_judge(slack)
    }

    /// What left on `path` at `sent` arrived.
    pub(crate) fn on_rail_echo(&mut self, path: u8, sent: Time) {
        let a = &mut *self.active;
        let Some(rails) = &mut a.rails else { return };
        if let Some(r) = rails.on_echo(path, sent) {
            let count = rails.count;
            a.health.rail_acquit(self.p, &mut a.set, self.now, r, count);
        }
    }

    /// Retires a rail that has died, if there is one.
    pub(crate) fn rails_judge(&mut self, slack: Span) -> bool {
        let a = &*self.active;
        let Some(rails) = &a.rails else { return false };
        let dead = rails.each().find(|&r| rails.is_dead(&a.set, r, slack, self.p.live_min));
        dead.inspect(|&r| self.rail_retire(r)).is_some()
    }

    fn rail_retire(&mut self, r: usize) {
        let (p, now) = (self.p, self.now);
        let a = &mut *self.active;
        let Some(rails) = &mut a.rails else { return };
        debug_assert!(rails.rails[r].retired == Time::NEVER, "it is in use");
        rails.rails[r].retired = now;
        a.health.rail_retire(p, &mut a.set, now, r, rails.count);
        debug_assert!(a.set.live() > 0, "another rail is in use");
        // Otherwise a longer way would count as a queue until the base of the dead rail is
        // forgotten.
        let live = a.set.paths.iter().filter(|e| e.is_live() && e.rtt_ns_min != u32::MAX);
        if let Some(ns) = live.map(|e| e.rtt_ns_min).min() {
            a.rtt.least_raise(ns);
        }
    }

    /// A path returned to use, and its rail with it.
    pub(crate) fn rail_return(&mut self, path: u8) {
        let a = &mut *self.active;
        let Some(rails) = &mut a.rails else { return };
        let r = rails.of(path);
        if rails.rails[r].retired != Time::NEVER && a.set.get(path).is_live() {
            rails.clear(r);
        }
    }
}
