//! The part of the configuration that path and rate contexts use, in compact form.

use crate::config::{HostPolicy, LossConfig, PathConfig, PathPolicy, RateConfig, RatePolicy};
use crate::guards::Guards;
use crate::limits::RAILS_MAX;
use crate::line::Line;
use crate::noise::Floors;
use crate::policy::OwnPolicies;
use crate::time::Span;
use std::sync::Arc;

/// The fields of three configurations that a path and rate context needs. Spans are in ns, limited
/// to 4.29 s.
#[derive(Debug)]
pub(crate) struct Params {
    pub rate_fixed_bytes_per_sec: u64,
    pub inflight_fixed_bytes: u64,
    pub rtt_ns_initial: u32,
    pub burst_bytes: u32,
    pub probe_ns_first: u32,
    pub probe_ns_max: u32,
    pub rto_ns_max: u32,
    pub paths: u16,
    pub live_min: u16,
    pub rails: u8,
    pub mtu: u16,
    pub path_policy: Chooser,
    pub rate_policy: RatePolicy,
    pub host_policy: HostPolicy,
    pub guards: Guards,
    /// Floors of times, which follow from the noise of the host. They are behind a pointer because
    /// they change, while the fields above are immutable.
    pub floors: Arc<Floors>,
    /// The line rate, which changes where it is learnt.
    pub line: Line,
    pub own: OwnPolicies,
}

/// Which code chooses paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chooser {
    Policy(PathPolicy),
    /// The object of `own.path`.
    Own,
}

/// A span as 32 bits of ns.
pub(crate) fn ns32(span: Span) -> u32 {
    u32::try_from(span.0).unwrap_or(u32::MAX)
}

impl Params {
    pub(crate) fn new(
        path: &PathConfig,
        rate: &RateConfig,
        loss: &LossConfig,
        mtu: u16,
        guards: Guards,
        own: &OwnPolicies,
    ) -> Self {
        debug_assert!(mtu > 0 && path.paths.is_power_of_two(), "the configuration was checked");
        Self {
            rate_fixed_bytes_per_sec: rate.rate_fixed_bytes_per_sec.max(1),
            inflight_fixed_bytes: rate.inflight_fixed_bytes,
            rtt_ns_initial: ns32(rate.rtt_initial).max(1),
            burst_bytes: rate.burst_bytes.max(u32::from(mtu)),
            probe_ns_first: ns32(path.probe_first).max(1),
            probe_ns_max: ns32(path.probe_max.max(path.probe_first)),
            rto_ns_max: ns32(loss.rto_max),
            paths: path.paths.clamp(1, 256),
            live_min: path.live_min.clamp(1, path.paths.max(1)),
            rails: path.rails.clamp(1, RAILS_MAX as u8),
            mtu,
            path_policy: match own.path {
                Some(_) => Chooser::Own,
                None => Chooser::Policy(path.policy),
            },
            rate_policy: rate.policy,
            host_policy: rate.host_policy,
            guards,
            floors: Arc::new(Floors::new(rate, loss, mtu)),
            line: Line::new(rate),
            own: own.clone(),
        }
    }
}
