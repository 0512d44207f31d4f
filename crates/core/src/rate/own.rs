//! Policies of one's own, behind the interface of the engine's rate policies.

use super::{Link, RateControl, RateState, Round};
use crate::params::Params;
use crate::policy::{LinkView, PathLaw, RateLaw, RoundView};
use crate::time::Time;

/// The objects of one address. They are together here, so that contexts without them are no larger.
#[derive(Debug)]
pub(crate) struct OwnPolicy {
    rate: OwnRate,
    pub path: Option<Box<dyn PathLaw>>,
    /// Line rate in bytes per second.
    line: u64,
    /// What the law was told last of time and of bytes in flight, which its other inputs lack.
    seen: (Time, u64),
}

#[derive(Debug)]
enum OwnRate {
    Law(Box<dyn RateLaw>),
    /// Only the path policy is one's own.
    Engine(RateState),
}

impl OwnPolicy {
    pub(crate) fn new(p: &Params, link: LinkView) -> Self {
        let rate = p.own.rate.as_ref().map(|own| OwnRate::Law(own.make(&link)));
        Self {
            rate: rate.unwrap_or_else(|| OwnRate::Engine(RateState::of_engine(p))),
            path: p.own.path.as_ref().map(|own| own.make(&link)),
            line: link.line_bytes_per_sec,
            seen: (link.now, link.inflight_bytes),
        }
    }

    /// The rate law, before it is told of an event.
    pub(crate) fn law(&mut self, link: &LinkView) -> Option<&mut dyn RateLaw> {
        self.seen = (link.now, link.inflight_bytes);
        match &mut self.rate {
            OwnRate::Law(law) => Some(law.as_mut()),
            OwnRate::Engine(_) => None,
        }
    }

    /// The engine's rate policy, if only the path policy is one's own.
    pub(super) fn engine(&self) -> Option<&RateState> {
        match &self.rate {
            OwnRate::Law(_) => None,
            OwnRate::Engine(state) => Some(state),
        }
    }

    /// Like [`Self::engine`], to change it.
    pub(super) fn engine_mut(&mut self) -> Option<&mut RateState> {
        match &mut self.rate {
            OwnRate::Law(_) => None,
            OwnRate::Engine(state) => Some(state),
        }
    }

    fn view(&self, link: &Link) -> LinkView {
        let (now, inflight_bytes) = self.seen;
        link.view(now, inflight_bytes)
    }
}

impl Link {
    /// What a policy of one's own sees of it.
    pub(crate) fn view(&self, now: Time, inflight_bytes: u64) -> LinkView {
        LinkView {
            now,
            line_bytes_per_sec: self.line,
            rtt_ns_min: self.base_ns,
            rtt_known: self.base_known,
            rtt_ns_smoothed: self.srtt_ns,
            mtu: self.mtu,
            burst_bytes: self.burst,
            inflight_bytes,
            credited: self.credited,
        }
    }
}

impl RateControl for OwnPolicy {
    fn rate(&self) -> u64 {
        match &self.rate {
            OwnRate::Law(law) => law.rate_bytes_per_sec().clamp(1, self.line),
            OwnRate::Engine(state) => state.rate(),
        }
    }

    fn inflight_max(&self, link: &Link) -> u64 {
        match &self.rate {
            OwnRate::Law(law) => law.inflight_bytes_max(&self.view(link)).max(link.mtu),
            OwnRate::Engine(state) => state.inflight_max(link),
        }
    }

    fn on_round(&mut self, link: &Link, round: &Round) {
        let view = self.view(link);
        match &mut self.rate {
            OwnRate::Law(law) => {
                let round = RoundView {
                    queue_ns: round.queue_ns,
                    delivered_bytes_per_sec: round.delivered,
                    sent_bytes_per_sec: round.sent,
                    lost_permille: round.lost_permille,
                    app_limited: round.app_limited,
                };
                law.on_round(&view, &round);
            }
            OwnRate::Engine(state) => state.on_round(link, round),
        }
    }

    fn on_acked(&mut self, link: &Link, bytes: u64, queue_ns: u64) -> bool {
        self.engine_mut().is_some_and(|state| state.on_acked(link, bytes, queue_ns))
    }

    fn on_unproven(&mut self, link: &Link) {
        if let Some(state) = self.engine_mut() {
            state.on_unproven(link);
        }
    }

    fn on_restart(&mut self, link: &Link) {
        let view = self.view(link);
        match &mut self.rate {
            OwnRate::Law(law) => law.on_restart(&view),
            OwnRate::Engine(state) => state.on_restart(link),
        }
    }
}
