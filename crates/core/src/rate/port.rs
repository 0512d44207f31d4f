//! The port of the host: all addresses together send at most at its rate, in turn.

use super::Pacing;
use crate::config::{EngineConfig, RatePolicy};
use crate::guards::Guard;
use crate::time::Time;
use crate::tuning::{FRAME_BYTES, PORT_LAG};

/// The port, as far as data is concerned; acknowledgments and handshakes do not wait for it.
/// Rule CC-39.
#[derive(Debug)]
pub(crate) struct Port {
    /// `None`: the port is not paced.
    pacing: Option<Pacing>,
    /// Contexts wait for the port until then; `Time(0)`: none does.
    opens_at: Time,
}

impl Port {
    pub fn new(now: Time, cfg: &EngineConfig) -> Self {
        let line = cfg.rate.line_bytes_per_sec;
        let lag_bytes = u128::from(line) * u128::from(PORT_LAG.0) / 1_000_000_000;
        let lag_bytes = u32::try_from(lag_bytes).unwrap_or(u32::MAX).max(cfg.rate.burst_bytes);
        // A port whose rate is not known is as fast as the contexts find it to be.
        let paced = cfg.rate.policy == RatePolicy::Srd
            && cfg.guards.has(Guard::PortTurns)
            && !cfg.rate.line_learnt;
        let pacing = paced.then(|| Pacing::new(now, line, lag_bytes, cfg.mtu));
        Self { pacing, opens_at: Time(0) }
    }

    /// Whether the next burst may leave. If not, [`Self::opens_at`] says when.
    #[inline]
    pub fn is_open(&mut self, now: Time) -> bool {
        let next = self.pacing.as_ref().map_or(Time(0), Pacing::next);
        self.opens_at = if next > now { next } else { Time(0) };
        next <= now
    }

    /// A burst of `pkts` packets left, `bytes` without the headers of UDP, IP and Ethernet.
    #[inline]
    pub fn on_sent(&mut self, now: Time, bytes: u64, pkts: usize) {
        if let Some(pacing) = &mut self.pacing {
            let frames = bytes.saturating_add(pkts as u64 * FRAME_BYTES);
            pacing.on_sent(now, u32::try_from(frames).unwrap_or(u32::MAX));
        }
    }

    /// When contexts that are ready may send; `Time(0)`: now.
    pub fn opens_at(&self) -> Time {
        self.opens_at
    }

    /// It is `now`: who waited until then waits no longer.
    pub fn time_passed(&mut self, now: Time) {
        if self.opens_at <= now {
            self.opens_at = Time(0);
        }
    }
}
