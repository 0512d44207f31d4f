//! Calls of policies of one's own, and the table of paths as they see it.

use super::active::ActivePaths;
use super::choose::Need;
use super::set::PathSet;
use crate::events::LossRule;
use crate::params::Params;
use crate::policy::{Acked, Echo, LinkView, Lost, PathTable};
use crate::rate::{Link, RateState};
use crate::rng::Rng;
use crate::time::Time;

impl PathTable for PathSet {
    fn paths(&self) -> usize {
        self.paths.len()
    }

    fn is_live(&self, path: u8) -> bool {
        self.get(path).is_live()
    }

    fn rtt_ns_smoothed(&self, path: u8) -> u64 {
        self.get(path).rtt.srtt_ns.into()
    }

    fn packets_sent(&self, path: u8) -> u64 {
        self.get(path).sent()
    }

    fn packets_lost(&self, path: u8) -> u64 {
        self.get(path).lost.into()
    }

    fn packets_marked(&self, path: u8) -> u64 {
        self.get(path).ce.into()
    }
}

impl ActivePaths {
    pub(super) fn link_view(&self, p: &Params, now: Time) -> LinkView {
        self.link_now(p).view(now, self.inflight)
    }

    /// The choice of the own path policy.
    #[cold]
    pub(super) fn own_choose(&mut self, need: &Need, rng: &mut Rng) -> u8 {
        let RateState::Own(own) = &mut self.rate else { return self.set.scan_live(rng) };
        let Some(law) = &mut own.path else { return self.set.scan_live(rng) };
        let path = law.choose(need.now, &self.set, need.avoid, rng);
        let path = path & self.set.mask() as u8;
        if self.set.get(path).is_live() { path } else { self.set.scan_live(rng) }
    }

    #[cold]
    pub(super) fn own_echo(
        &mut self,
        p: &Params,
        now: Time,
        path: u8,
        rtt_ns: u32,
        queue_ns: u32,
        marked: bool,
    ) {
        let echo = Echo { path, rtt_ns: rtt_ns.into(), queue_ns: queue_ns.into(), marked };
        let view = self.link_view(p, now);
        let RateState::Own(own) = &mut self.rate else { return };
        if let Some(law) = own.law(&view) {
            law.on_echo(&view, &echo);
        }
        if let Some(law) = &mut own.path {
            law.on_echo(now, &echo);
        }
    }

    #[cold]
    pub(super) fn own_acked(
        &mut self,
        p: &Params,
        now: Time,
        link: &Link,
        bytes: u64,
        app_limited: bool,
    ) {
        let view = link.view(now, self.inflight);
        let RateState::Own(own) = &mut self.rate else { return };
        if let Some(law) = own.law(&view) {
            law.on_acked(&view, &Acked { bytes, app_limited });
            self.rate_apply(p);
        }
    }

    #[cold]
    pub(super) fn own_lost(&mut self, p: &Params, now: Time, path: u8, bytes: u32, rule: LossRule) {
        let lost = Lost { path, bytes: bytes.into(), timeout: rule == LossRule::Timeout };
        let view = self.link_view(p, now);
        let RateState::Own(own) = &mut self.rate else { return };
        if let Some(law) = &mut own.path {
            law.on_lost(now, &lost);
        }
        if let Some(law) = own.law(&view) {
            law.on_lost(&view, &lost);
            self.rate_apply(p);
        }
    }
}
