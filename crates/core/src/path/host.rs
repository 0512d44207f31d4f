//! The receiving host at an address: whether it has fallen behind, and what follows for sending.
//!
//! Apart from the health of paths and from the rate policy: what waits in a host, or is dropped
//! there, says nothing about the network. The host says itself that it is behind, and the cap that
//! follows never holds for ever: with nothing in flight, a packet leaves after two round trips.

use crate::config::HostPolicy;
use crate::time::{Span, Time};
use crate::tuning::{HOST_HALF_LIFE, HOST_OPEN_RTTS};

/// See the module.
#[derive(Debug)]
pub(crate) struct HostCap {
    /// The context, modulo [`NOBODY`], whose engine said last that its host is behind, and has not
    /// said otherwise.
    by: u16,
    /// When one said so last, as on the wire.
    told_at: u32,
    /// When the host said last that it has dropped packets, as on the wire.
    drops_at: u32,
    /// Packets that it has dropped, and that were not declared lost yet, up to 255.
    drops: u8,
    /// What waits there is its own backlog, and must not be covered by more in flight.
    swamped: bool,
}

/// No context.
const NOBODY: u16 = u16::MAX;

impl Default for HostCap {
    fn default() -> Self {
        Self { by: NOBODY, told_at: 0, drops_at: 0, drops: 0, swamped: false }
    }
}

impl HostCap {
    /// An engine at the address says whether its host is behind. Returns whether anything changed.
    pub fn on_signal(&mut self, now: Time, ctx: u32, above: bool) -> bool {
        let before = (self.is_behind(), self.swamped);
        let ctx = (ctx % u32::from(NOBODY)) as u16;
        if above {
            (self.by, self.told_at, self.swamped) = (ctx, now.to_wire(), true);
        } else {
            // Several engines may be there: each speaks for itself.
            self.by = if self.by == ctx { NOBODY } else { self.by };
            // The longest wait of late is remembered that long.
            self.swamped &= now.since_wire(self.told_at) <= HOST_HALF_LIFE;
        }
        before != (self.is_behind(), self.swamped)
    }

    fn is_behind(&self) -> bool {
        self.by != NOBODY
    }

    /// Most bytes in flight, never less than a packet of `mtu` bytes.
    /// Rule CC-30.
    pub fn inflight_max(&self, policy: HostPolicy, mtu: u64) -> u64 {
        if self.stops(policy) { mtu } else { u64::MAX }
    }

    fn stops(&self, policy: HostPolicy) -> bool {
        policy == HostPolicy::StopGo && self.is_behind()
    }

    /// When the next packet may leave with nothing in flight; the last one left at `sent`.
    pub fn opens_at(&self, policy: HostPolicy, now: Time, sent: Time, rtt: Span) -> Time {
        if !self.stops(policy) {
            return Time(0);
        }
        if planted!(HostStopForever) {
            return Time::NEVER;
        }
        let told = Time(now.0.saturating_sub(now.since_wire(self.told_at).0));
        told.max(sent) + rtt.scale(HOST_OPEN_RTTS, 1)
    }

    /// Nothing is known that would limit anything.
    pub fn is_quiet(&self) -> bool {
        !self.is_behind() && !self.swamped
    }

    /// Whether what waits in the peer's host is a backlog because more is sent than it takes.
    pub fn is_swamped(&self) -> bool {
        self.swamped
    }

    /// The host has dropped so many packets: their losses are no path's fault.
    pub fn on_drops(&mut self, now: Time, drops: u32) {
        let drops = u8::try_from(drops).unwrap_or(u8::MAX);
        (self.drops, self.drops_at) = (self.drops.saturating_add(drops), now.to_wire());
    }

    /// Whether a loss is one of the drops that the host told within `patience`, of which there is
    /// one less from now on.
    pub fn drop_take(&mut self, now: Time, patience: Span) -> bool {
        let excused = self.drops > 0 && now.since_wire(self.drops_at) <= patience;
        self.drops = if excused { self.drops - 1 } else { 0 };
        excused
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
