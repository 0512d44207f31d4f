//! Rate, inflight and credits towards one remote address.
//!
//! Once per round trip a `Round` sums up the acknowledgments, and a `RateControl` derives a rate
//! and an inflight cap from it. `pacing` spaces packets by that rate; credits, where both ends use
//! them, bound what may be sent over the last hop.

pub(crate) mod credit;
mod fixed;
mod full;
pub(crate) mod grant;
mod loss_cap;
mod marks;
mod own;
pub(crate) mod pacing;
mod port;
mod rival;
pub(crate) mod round;
mod srd;
mod stale;

pub(crate) use credit::grants_ahead;
pub use grant::{Grant, Granter};
use pacing::Pacing;
pub(crate) use port::Port;
pub(crate) use round::{Round, RoundMeter};

use crate::config;
use crate::guards::Guards;
use crate::params::Params;
use crate::policy::LinkView;
use crate::tuning::RATE_MIN_RTTS;
use fixed::FixedRate;
use loss_cap::LossCap;
use own::OwnPolicy;
use rival::Contest;
use srd::SrdRate;

/// Inputs of a rate policy besides the round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Line rate of the local port in bytes per second.
    pub line: u64,
    /// Whether it was told.
    pub line_known: bool,
    /// Least RTT in ns: measured, or assumed until the first sample.
    pub base_ns: u64,
    /// Whether `base_ns` was measured.
    pub base_known: bool,
    /// Smoothed RTT in ns.
    pub srtt_ns: u64,
    /// Bytes that are delivered during the delay in the hosts, beyond the measured noise. They have
    /// to be in flight as well, although they are in no queue of the network.
    pub host_bytes: u64,
    /// Bytes that may leave back to back.
    pub burst: u64,
    /// Time in ns after which the losses of all packets sent before are known.
    pub known_ns: u64,
    /// Queueing-delay target in ns.
    pub target_ns: u64,
    /// Queueing delay in ns up to which a queue cannot be told from the usual differences between
    /// round trips.
    pub unsure_ns: u64,
    /// Payload of a full packet in bytes.
    pub mtu: u64,
    /// Whether credits are in force: the receiver allocates the last hop.
    pub credited: bool,
    pub guards: Guards,
}

impl Link {
    /// Bytes that `rate` (bytes per second) moves in `ns`.
    pub(crate) fn bytes(rate: u64, ns: u64) -> u64 {
        (u128::from(rate) * u128::from(ns) / 1_000_000_000) as u64
    }

    /// Rate in bytes per second that moves `bytes` in `ns`.
    pub(crate) fn rate(bytes: u64, ns: u64) -> u64 {
        let rate = u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// Least rate of any policy: one packet in eight round trips.
    pub(crate) fn rate_min(&self) -> u64 {
        Self::rate(self.mtu, RATE_MIN_RTTS * self.base_ns).clamp(1, self.line)
    }
}

/// How fast to send: asked once per round.
pub(crate) trait RateControl {
    /// Paced rate in bytes per second.
    fn rate(&self) -> u64;
    /// Most bytes in flight.
    fn inflight_max(&self, link: &Link) -> u64;
    /// A round trip is over.
    fn on_round(&mut self, link: &Link, round: &Round);
    /// `_bytes` were acknowledged, the newest with this queueing delay. Returns whether the
    /// inflight cap has changed.
    fn on_acked(&mut self, _link: &Link, _bytes: u64, _queue_ns: u64) -> bool {
        false
    }
    /// The peer acknowledges far more packets than its echoes prove to have arrived.
    fn on_unproven(&mut self, _link: &Link) {}
    /// Sending starts again after so long a pause that the old rate says nothing any more.
    fn on_restart(&mut self, link: &Link);
}

/// The policy in use.
#[derive(Debug)]
pub(crate) enum RateState {
    Srd(SrdRate),
    Fixed(FixedRate),
    /// Policies of one's own; the rate policy may still be the engine's.
    Own(Box<OwnPolicy>),
}

impl RateState {
    /// `link`: called if the policy is one's own.
    pub(crate) fn new(p: &Params, link: impl FnOnce() -> LinkView) -> Self {
        if p.own.rate.is_some() || p.own.path.is_some() {
            return Self::Own(Box::new(OwnPolicy::new(p, link())));
        }
        Self::of_engine(p)
    }

    /// The policy that the configuration names.
    fn of_engine(p: &Params) -> Self {
        match p.rate_policy {
            config::RatePolicy::Srd => Self::Srd(SrdRate::new(p.line.bytes_per_sec())),
            config::RatePolicy::Fixed => Self::Fixed(FixedRate::new(p)),
        }
    }

    /// The rate with which a new context starts.
    pub(crate) fn rate_initial(p: &Params) -> u64 {
        match p.rate_policy {
            config::RatePolicy::Srd => p.line.bytes_per_sec(),
            config::RatePolicy::Fixed => p.rate_fixed_bytes_per_sec,
        }
    }

    /// Heap memory of the engine's own policies, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Srd(s) => s.held_bytes(),
            Self::Fixed(_) | Self::Own(_) => 0,
        }
    }

    /// Upper bound of [`Self::held_bytes`].
    pub(crate) fn held_bytes_max() -> usize {
        size_of::<LossCap>() + size_of::<Contest>()
    }

    /// Whether a policy is one's own.
    #[inline(always)]
    pub(crate) fn has_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    /// Where the rate follows the delay of a full buffer, the rate of the pacer in 1/256 of it.
    pub(crate) fn full_pace_256(&self) -> Option<u64> {
        match self {
            Self::Srd(s) => s.full_pace_256(),
            Self::Fixed(_) => None,
            Self::Own(own) => own.engine().and_then(Self::full_pace_256),
        }
    }

    /// By how many ns the base RTT is to rise since the last round (0: not): the way became longer.
    pub(crate) fn base_rise_ns(&self) -> u32 {
        match self {
            Self::Srd(s) => s.base_rise_ns(),
            Self::Fixed(_) => 0,
            Self::Own(own) => own.engine().map_or(0, Self::base_rise_ns),
        }
    }

    /// Whether no round has ended yet, so that the rate was not derived from measurements.
    pub(crate) fn is_opening(&self) -> bool {
        match self {
            Self::Srd(s) => s.is_opening(),
            Self::Fixed(_) => false,
            Self::Own(own) => own.engine().is_some_and(Self::is_opening),
        }
    }

    /// Continues from a rate that other engines of the host found.
    pub(crate) fn adopt(&mut self, rate: u64) {
        match self {
            Self::Srd(s) => s.adopt(rate),
            Self::Fixed(_) => {}
            Self::Own(own) => {
                if let Some(state) = own.engine_mut() {
                    state.adopt(rate);
                }
            }
        }
    }

    fn policy(&mut self) -> &mut dyn RateControl {
        match self {
            Self::Srd(s) => s,
            Self::Fixed(f) => f,
            Self::Own(own) => own.as_mut(),
        }
    }
}

impl RateControl for RateState {
    fn rate(&self) -> u64 {
        match self {
            Self::Srd(s) => s.rate(),
            Self::Fixed(f) => f.rate(),
            Self::Own(own) => own.rate(),
        }
    }

    fn inflight_max(&self, link: &Link) -> u64 {
        match self {
            Self::Srd(s) => s.inflight_max(link),
            Self::Fixed(f) => f.inflight_max(link),
            Self::Own(own) => own.inflight_max(link),
        }
    }

    fn on_round(&mut self, link: &Link, round: &Round) {
        self.policy().on_round(link, round);
    }

    fn on_acked(&mut self, link: &Link, bytes: u64, queue_ns: u64) -> bool {
        match self {
            Self::Srd(s) => s.on_acked(link, bytes, queue_ns),
            Self::Fixed(_) => false,
            Self::Own(own) => own.on_acked(link, bytes, queue_ns),
        }
    }

    fn on_unproven(&mut self, link: &Link) {
        self.policy().on_unproven(link);
    }

    fn on_restart(&mut self, link: &Link) {
        self.policy().on_restart(link);
    }
}

#[cfg(test)]
mod tests;
