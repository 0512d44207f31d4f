//! A link and its queue in virtual time: the state of the queue is one number, the time at which it
//! will be empty. A packet's departure is known on arrival, so a hop costs one event.

use crate::impair::Impair;
use crate::rng::Chance;
use crate::stats::Drops;
use crate::topo::{Port, Ps};

/// Fractional bits of [`Profile::ps_per_byte`]: the rounding error is below 1 ps for the largest
/// packet.
const FRACTION: u32 = 20;

/// Flag of a link: a fault took the link down.
pub(crate) const DOWN: u32 = 1;
/// Flag of a link: the switch at its start is down.
pub(crate) const FROM_DEAD: u32 = 2;
/// Flag of a link: the switch at its end is down.
pub(crate) const TO_DEAD: u32 = 4;
/// Flag of a link: it is a black hole, which loses all packets silently.
pub(crate) const HOLE: u32 = 8;
/// Flag of a link: the switch at its end is a black hole.
pub(crate) const TO_HOLE: u32 = 16;
/// Flag of a link: it has an [`Impair`].
pub(crate) const IMPAIRED: u32 = 32;
/// Flag of a link: it is recorded over time.
pub(crate) const MONITORED: u32 = 64;
/// Flag of a link: temporary mark while faults are applied.
pub(crate) const CHOSEN: u32 = 128;
/// Flag of a link: its queue is part of a shared buffer.
pub(crate) const SHARED: u32 = 256;
/// Flag of a link: it is part of a network with credits.
pub(crate) const CREDITED: u32 = 512;

/// Flags of a link without carrier.
pub(crate) const DEAD: u32 = DOWN | FROM_DEAD | TO_DEAD;
/// Flags that require special processing before a packet is queued.
pub(crate) const SLOW_ADMIT: u32 = DEAD | SHARED;
/// Flags that require special processing when a packet is queued.
pub(crate) const SLOW_QUEUE: u32 = DEAD | MONITORED;
/// Flags that require special processing when a packet arrives at the far end.
pub(crate) const SLOW_ARRIVE: u32 = HOLE | TO_HOLE | IMPAIRED;
/// Flags of a link that routing avoids after convergence.
pub(crate) const UNUSABLE: u32 = DEAD | HOLE | TO_HOLE;

/// The part of a link that queueing accesses: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Link {
    /// Time at which the last queued bit will have left.
    pub busy_until: Ps,
    pub bytes: u64,
    pub packets: u64,
    /// Largest backlog with the present profile.
    pub backlog_max_ps: Ps,
    pub profile: u32,
    pub flags: u32,
    /// The node at its end: a host below the number of hosts, otherwise a switch.
    pub to: u32,
}

impl Link {
    pub const fn new(profile: u32, to: u32) -> Self {
        Self { busy_until: 0, bytes: 0, packets: 0, backlog_max_ps: 0, profile, flags: 0, to }
    }
}

/// The rest of a link's state.
#[derive(Clone, Debug)]
pub(crate) struct LinkCold {
    pub built: Port,
    pub percent: u32,
    pub buffer: Option<u64>,
    /// Largest backlog with earlier profiles.
    pub queue_bytes_max: u64,
    pub marked: u64,
    pub drops: Drops,
    pub impair: Option<Box<Impair>>,
}

impl LinkCold {
    pub const fn new(built: Port) -> Self {
        let drops = Drops([0; crate::stats::DROP_REASONS]);
        Self {
            built,
            percent: 100,
            buffer: None,
            queue_bytes_max: 0,
            marked: 0,
            drops,
            impair: None,
        }
    }
    /// The port with the effects of faults.
    pub fn port(&self) -> Port {
        let bits_per_s = (self.built.bits_per_s as u128 * self.percent as u128 / 100) as u64;
        let buffer_bytes = self.buffer.unwrap_or(self.built.buffer_bytes);
        Port { bits_per_s, buffer_bytes, ..self.built }
    }
}

/// Values of a port in time units, shared by all equal links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    /// Time per byte in units of `2^-FRACTION` ps.
    ps_per_byte: u64,
    pub delay_ps: Ps,
    pub limit_ps: Ps,
    pub ecn_min_ps: Ps,
    ecn_max_ps: Ps,
    ecn_prob_max: f64,
    pub port: Port,
}

impl Profile {
    pub fn new(port: Port) -> Self {
        let per_byte = (8_000_000_000_000u128 << FRACTION) / u128::from(port.bits_per_s);
        let mut p = Self {
            ps_per_byte: per_byte as u64,
            delay_ps: port.delay_ps,
            limit_ps: 0,
            ecn_min_ps: 0,
            ecn_max_ps: 0,
            ecn_prob_max: port.ecn.prob_max,
            port,
        };
        p.limit_ps = p.bytes_to_ps(port.buffer_bytes);
        p.ecn_min_ps = p.bytes_to_ps(port.ecn.min_bytes);
        p.ecn_max_ps = p.bytes_to_ps(port.ecn.max_bytes);
        p
    }
    /// Serialisation time of a packet.
    #[inline]
    pub const fn serialise_ps(&self, bytes: u32) -> Ps {
        (bytes as u64 * self.ps_per_byte) >> FRACTION
    }
    /// Serialisation time of any number of bytes, up to a quarter of the range of [`Ps`].
    pub fn bytes_to_ps(&self, bytes: u64) -> Ps {
        let ps = (u128::from(bytes) * u128::from(self.ps_per_byte)) >> FRACTION;
        ps.min(u128::from(u64::MAX / 4)) as u64
    }
    /// Number of bytes that take this long.
    pub const fn ps_to_bytes(&self, ps: Ps) -> u64 {
        (((ps as u128) << FRACTION).div_ceil(self.ps_per_byte as u128)) as u64
    }
    /// Whether a packet that finds this backlog is marked, for 64 random bits.
    pub fn marks(&self, backlog_ps: Ps, bits: u64) -> bool {
        if backlog_ps >= self.ecn_max_ps {
            return true;
        }
        let over = backlog_ps.saturating_sub(self.ecn_min_ps) as f64;
        let p = self.ecn_prob_max * over / (self.ecn_max_ps - self.ecn_min_ps) as f64;
        Chance::new(p).is_some_and(|c| c.hit(bits))
    }
    /// Converts a backlog from this profile's rate to the rate of `new`.
    pub fn rescale(&self, ps: Ps, new: &Self) -> Ps {
        (u128::from(ps) * u128::from(new.ps_per_byte) / u128::from(self.ps_per_byte)) as u64
    }
}
