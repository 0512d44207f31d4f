//! Constant rate and inflight cap: for measurements, and for provisioned networks.

use super::{Link, RateControl, Round};
use crate::params::Params;

#[derive(Debug)]
pub(crate) struct FixedRate {
    rate: u64,
    inflight_max: u64,
}

impl FixedRate {
    pub(crate) fn new(p: &Params) -> Self {
        Self { rate: p.rate_fixed_bytes_per_sec, inflight_max: p.inflight_fixed_bytes }
    }
}

impl RateControl for FixedRate {
    fn rate(&self) -> u64 {
        self.rate
    }

    fn inflight_max(&self, link: &Link) -> u64 {
        self.inflight_max.max(link.mtu)
    }

    fn on_round(&mut self, _: &Link, _: &Round) {}

    fn on_restart(&mut self, _: &Link) {}
}
