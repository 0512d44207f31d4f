//! Measures the delivery rate (draft-cheng-iccrg-delivery-rate-estimation), as the kernel does.

use crate::tcp::cc::bbr::Sample;
use srd_fabric::Ps;

/// State of the connection when a segment was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamp {
    /// Segments delivered by then, and when the last of them was.
    delivered: u64,
    delivered_ps: Ps,
    /// When the segment was sent from whose acknowledgement the sending rate counts.
    first_ps: Ps,
    limited: bool,
}

/// Deliveries of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    delivered: u64,
    delivered_ps: Ps,
    first_ps: Ps,
    /// Segments are limited by the application until this many are delivered; 0: they are not.
    limited_until: u64,
    /// The newest segment of the acknowledgement at hand: when it was sent, its end, its stamp.
    newest: Option<(Ps, u64, Stamp)>,
}

impl Sampler {
    /// Segments delivered.
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Whether the application limits what is sent.
    pub const fn limited(&self) -> bool {
        self.limited_until > 0
    }

    /// The application has nothing more to send with `flight` segments in flight.
    pub fn limit(&mut self, flight: u32) {
        self.limited_until = (self.delivered + u64::from(flight)).max(1);
    }

    /// A segment is sent. `idle`: nothing else is in flight.
    pub const fn sent(&mut self, now: Ps, idle: bool) -> Stamp {
        if idle {
            (self.first_ps, self.delivered_ps) = (now, now);
        }
        Stamp {
            delivered: self.delivered,
            delivered_ps: self.delivered_ps,
            first_ps: self.first_ps,
            limited: self.limited_until > 0,
        }
    }

    /// A segment is acknowledged.
    pub fn arrived(&mut self, sent_ps: Ps, end: u64, stamp: &Stamp) {
        if self.newest.is_none_or(|(at, other, _)| (sent_ps, end) > (at, other)) {
            self.newest = Some((sent_ps, end, *stamp));
        }
    }

    /// The rate that an acknowledgement of `acked` new segments shows. `rtt_min`: least round trip.
    pub fn take(&mut self, now: Ps, acked: u32, rtt_min: Ps) -> Option<Sample> {
        self.delivered += u64::from(acked);
        if acked > 0 {
            self.delivered_ps = now;
        }
        if self.limited_until > 0 && self.delivered > self.limited_until {
            self.limited_until = 0;
        }
        let (sent_ps, _, stamp) = self.newest.take()?;
        self.first_ps = sent_ps;
        let sending = sent_ps.saturating_sub(stamp.first_ps);
        let interval = sending.max(now.saturating_sub(stamp.delivered_ps));
        Some(Sample {
            delivered: self.delivered - stamp.delivered,
            prior_delivered: stamp.delivered,
            interval_ps: (interval >= rtt_min).then_some(interval),
            limited: stamp.limited,
        })
    }
}
