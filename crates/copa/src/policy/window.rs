//! `window`: a fixed number of unacknowledged packets.

use super::Policy;
use srd_fabric::Ps;

#[derive(Debug)]
pub(crate) struct Window {
    packets: u64,
}

impl Window {
    pub fn new(packets: u32) -> Self {
        Self { packets: packets.into() }
    }
}

impl Policy for Window {
    fn allows(&self, _: Ps, in_flight: u64) -> bool {
        in_flight < self.packets
    }
}
