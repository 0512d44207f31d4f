//! Rate control of a queue pair: DCQCN, or InfiniBand's congestion control.

use super::{Dcqcn, IbCcConfig, RcConfig};
use srd_fabric::Ps;

/// Rate of one queue pair.
#[derive(Clone, Debug)]
pub(super) enum Rate {
    Dcqcn(Box<Dcqcn>),
    InfiniBand(IbCc),
}

impl Rate {
    pub fn new(config: &RcConfig) -> Option<Self> {
        match (config.dcqcn, config.ib_cc) {
            (Some(d), _) => Some(Self::Dcqcn(Box::new(Dcqcn::new(d, config.line_bps)))),
            (_, Some(ib)) => Some(Self::InfiniBand(IbCc::new(ib, config.line_bps))),
            _ => None,
        }
    }

    pub fn rate_bps(&mut self, now: Ps) -> f64 {
        match self {
            Self::Dcqcn(d) => d.rate_bps(now),
            Self::InfiniBand(ib) => ib.rate_bps(now),
        }
    }

    pub fn notified(&mut self, now: Ps) {
        match self {
            Self::Dcqcn(d) => d.notified(now),
            Self::InfiniBand(ib) => ib.notified(now),
        }
    }

    pub fn sent(&mut self, bytes: u32) {
        if let Self::Dcqcn(d) = self {
            d.sent(bytes);
        }
    }
}

/// InfiniBand's congestion control at the source (Architecture, annex A10): each notification
/// (BECN) raises the queue pair's index into the congestion control table (CCTI), each period of
/// the timer lowers it by one, and the table's entry is the pause after each packet, in times of
/// that packet.
#[derive(Clone, Debug)]
pub struct IbCc {
    config: IbCcConfig,
    line_bps: f64,
    index: u32,
    /// Periods of the timer that have been counted. The timer is the card's: it runs for all
    /// queue pairs alike.
    periods: u64,
}

impl IbCc {
    /// A queue pair at line rate.
    pub const fn new(config: IbCcConfig, line_bps: f64) -> Self {
        Self { config, line_bps, index: 0, periods: 0 }
    }

    /// Index into the table.
    pub fn index(&mut self, now: Ps) -> u32 {
        let periods = now / self.config.timer_ps;
        let passed = periods - self.periods.min(periods);
        self.periods = periods;
        self.index = self.index.saturating_sub(passed.min(u32::MAX.into()) as u32);
        self.index
    }

    /// The rate at `now`.
    pub fn rate_bps(&mut self, now: Ps) -> f64 {
        let pause = f64::from(self.index(now)) * self.config.step;
        self.line_bps / (1.0 + pause)
    }

    /// A notification has arrived.
    pub fn notified(&mut self, now: Ps) {
        let index = self.index(now) + self.config.increase;
        self.index = index.min(self.config.limit);
    }
}
