//! The receiving host at an address: whether it has fallen behind, and how that limits sending.
//!
//! This is separate from the health of paths and from the rate policy, because a backlog or drops
//! in a host say nothing about the network. The host itself signals that it is behind. The
//! resulting cap never blocks for ever: with nothing in flight, a packet leaves after two round
//! trips.

use crate::config::HostPolicy;
use crate::ids::Ctx;
use crate::time::{Span, Time};
use crate::tuning::{HOST_HALF_LIFE, HOST_OPEN_RTTS, HOST_SIGNAL_RTTS};

/// Signals of the receiving host at one address, and the cap that follows.
#[derive(Debug)]
pub(crate) struct HostCap {
    /// The context, modulo [`NOBODY`], whose peer last signalled that its host is behind, and has
    /// not withdrawn the signal.
    by: u16,
    /// When that signal last came, in the wire's clock format.
    told_at: u32,
    /// When the host last reported dropped packets, in the wire's clock format.
    drops_at: u32,
    /// Reported drops that have not been matched with a loss yet, up to 255.
    drops: u8,
    /// The delay in the host is its own backlog, which must not be covered by more bytes in flight.
    swamped: bool,
}

/// Value of [`HostCap::by`] for no context.
const NOBODY: u16 = u16::MAX;

impl Default for HostCap {
    fn default() -> Self {
        Self { by: NOBODY, told_at: 0, drops_at: 0, drops: 0, swamped: false }
    }
}

impl HostCap {
    /// The peer of context `ctx` signals whether its host is behind. Returns whether anything
    /// changed. `rtt`: round trip of packets that are on time.
    /// Rule CC-30.
    pub fn on_signal(&mut self, now: Time, ctx: Ctx, above: bool, rtt: Span) -> bool {
        let before = (self.is_behind(), self.swamped);
        let ctx = (ctx.0 % u32::from(NOBODY)) as u16;
        if above {
            (self.by, self.told_at, self.swamped) = (ctx, now.to_wire(), true);
        } else {
            // Several engines may receive at the address; each withdraws only its own signal, and
            // that of another one which has not repeated it: nothing is sent to that one, so it has
            // no reason to tell that it has caught up.
            let told = now.since_wire(self.told_at);
            let silent = told > rtt.scale(HOST_SIGNAL_RTTS, 1);
            self.by = if self.by == ctx || silent { NOBODY } else { self.by };
            // The largest recent delay in the hosts is remembered for as long.
            self.swamped &= now.since_wire(self.told_at) <= HOST_HALF_LIFE;
        }
        before != (self.is_behind(), self.swamped)
    }

    fn is_behind(&self) -> bool {
        self.by != NOBODY
    }

    /// Inflight cap in bytes, never less than a packet of `mtu` bytes.
    /// Rule CC-30.
    pub fn inflight_max(&self, policy: HostPolicy, mtu: u64) -> u64 {
        if self.stops(policy) { mtu } else { u64::MAX }
    }

    fn stops(&self, policy: HostPolicy) -> bool {
        policy == HostPolicy::StopGo && self.is_behind()
    }

    /// When the next packet may leave while nothing is in flight; the last one left at `sent`.
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

    /// Whether no signal is in force that limits sending.
    pub fn is_quiet(&self) -> bool {
        !self.is_behind() && !self.swamped
    }

    /// Whether the peer's host has a backlog because more is sent than it takes.
    pub fn is_swamped(&self) -> bool {
        self.swamped
    }

    /// The host reports `drops` dropped packets, whose losses are not blamed on paths.
    pub fn on_drops(&mut self, now: Time, drops: u32) {
        let drops = u8::try_from(drops).unwrap_or(u8::MAX);
        (self.drops, self.drops_at) = (self.drops.saturating_add(drops), now.to_wire());
    }

    /// Whether a loss can be matched with a drop that the host reported within `patience`; uses up
    /// that drop.
    pub fn drop_take(&mut self, now: Time, patience: Span) -> bool {
        let excused = self.drops > 0 && now.since_wire(self.drops_at) <= patience;
        self.drops = if excused { self.drops - 1 } else { 0 };
        excused
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
