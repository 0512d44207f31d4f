//! The receive path of a host: a ring between its card and its memory that drains at its own rate.
//!
//! A ring is a FIFO in virtual time, like a link's queue. Its state is the number of bytes written
//! to memory at some time; since then, bytes are written at one rate while any wait. Room becomes
//! free byte by byte; a packet that does not fit on arrival is dropped ([`DropReason::HostFull`]).
//! With [`Placement::Card`] the host's program is the transport on the card: it sees packets on
//! arrival and puts some of them into the ring ([`HostIo::rx_ring_put`]). With [`Placement::Host`]
//! the program is behind the ring: all packets pass through the ring, and the program sees them
//! when they are in memory.
//!
//! [`HostIo::rx_ring_put`]: crate::HostIo::rx_ring_put

use crate::event::{Event, RING};
use crate::net::Net;
use crate::stats::DropReason;
use crate::topo::{HostId, LinkId, Ps};
use std::collections::VecDeque;
use std::fmt;

/// Fractional bits of [`Ring::ps_per_byte`], as in a link's profile.
const FRACTION: u32 = 20;
/// Resolution of the depth histogram.
const DEPTH_STEPS: usize = 256;

/// Position of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On the card: the transport sees packets on arrival, before they are in memory.
    Card,
    /// On the host: the transport is behind the ring, as behind a socket.
    Host,
}

/// A host's receive path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Capacity in bytes, counted as on the wire.
    pub limit_bytes: u64,
    /// Rate at which waiting bytes are written to memory; `None`: without delay.
    pub bits_per_s: Option<u64>,
    /// Delay from the time a packet has left the ring until it is in memory, ps.
    pub dma_delay_ps: Ps,
    /// Position of the transport.
    pub placement: Placement,
}

/// Why a ring was refused. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingError(String);

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for RingError {}

/// State of a host's ring at one time, as its card sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingState {
    /// Bytes that wait.
    pub backlog_bytes: u64,
    /// Capacity in bytes.
    pub limit_bytes: u64,
    /// Present drain rate; `None`: bytes are written without delay.
    pub bits_per_s: Option<u64>,
    /// Bytes written to memory since the start.
    pub written_bytes: u64,
    /// Packets that did not fit since the start.
    pub dropped: u64,
}

/// Position of a packet in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPut {
    /// Value of [`RingState::written_bytes`] at which the packet's last byte is in memory.
    pub end_bytes: u64,
    /// Bytes that wait now, the packet included.
    pub backlog_bytes: u64,
    /// Time at which the packet will be in memory, if the rate does not change.
    pub written_at: Ps,
}

/// The ring has no room for the packet, which is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFull;

/// Counters of a ring. Always `arrived_bytes = written_bytes + waiting_bytes + dropped_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Bytes of all packets offered to the ring.
    pub arrived_bytes: u64,
    /// Bytes written to memory.
    pub written_bytes: u64,
    /// Bytes that wait in the ring.
    pub waiting_bytes: u64,
    /// Bytes of packets that did not fit.
    pub dropped_bytes: u64,
    /// Packets offered to the ring.
    pub arrived: u64,
    /// Packets that did not fit.
    pub dropped: u64,
    /// Largest depth in bytes.
    pub depth_bytes_max: u64,
    /// 99th percentile of the depth after a packet was added, in steps of 1/256 of the capacity.
    pub depth_bytes_p99: u64,
    /// Unused capacity: bytes that could have been written between the first packet and the last
    /// byte written, while nothing waited.
    pub idle_bytes: u64,
    /// Time between the first packet and the last byte written during which nothing waited.
    pub idle_ps: Ps,
    /// Time from the first packet to the last byte written, or to now.
    pub span_ps: Ps,
}

/// Sample of one ring; see [`World::rings_sample`](crate::World::rings_sample).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSample {
    /// Bytes that wait.
    pub backlog_bytes: u64,
    /// Largest depth since the previous sample.
    pub backlog_bytes_max: u64,
    /// Packets that did not fit since the start.
    pub dropped: u64,
}

#[derive(Clone, Debug)]
struct Ring {
    config: RingConfig,
    percent: u32,
    /// Time per byte in units of `2^-FRACTION` ps; 0: no delay.
    ps_per_byte: u64,
    /// Time at which `base_bytes` had been written; the rate is constant since then.
    base_at: Ps,
    base_bytes: u64,
    /// Bytes that have entered the ring.
    put_bytes: u64,
    /// Waiting packets, with the position of their last byte (`Placement::Host`).
    queue: VecDeque<(u64, u32)>,
    /// Arrival times of the packets that are in the ring or on their way from it to memory, in
    /// order (`Placement::Host`).
    arrivals: VecDeque<Ps>,
    /// Number of written bytes at which the card wants to be called.
    call_at_bytes: Option<u64>,
    /// The earliest event queued for the ring; other events are stale.
    due: Ps,
    /// Arrival of the first packet.
    first_at: Option<Ps>,
    /// Start of the present empty phase; valid only while the ring is empty.
    empty_since: Ps,
    /// Bytes that could have been written in the present pause at earlier rates of the ring.
    pause_bytes: u64,
    pause_ps: Ps,
    stats: RingStats,
    depths: Box<[u64; DEPTH_STEPS + 1]>,
    sampled_max: u64,
}

/// The rings of a network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rings {
    /// Index of each host's ring, `u32::MAX` without one.
    of_host: Vec<u32>,
    all: Vec<Ring>,
    /// Bytes of the packet that is being delivered and may enter the ring; 0 = none.
    arriving_bytes: u32,
}

/// A due action of a ring.
pub(crate) enum RingStep {
    /// A packet has left the ring and is in memory after this delay.
    Out(u32, Ps),
    /// The card's call is due.
    Call,
}

impl Ring {
    fn new(config: RingConfig) -> Self {
        let mut ring = Self {
            config,
            percent: 100,
            ps_per_byte: 0,
            base_at: 0,
            base_bytes: 0,
            put_bytes: 0,
            queue: VecDeque::new(),
            arrivals: VecDeque::new(),
            call_at_bytes: None,
            due: Ps::MAX,
            first_at: None,
            empty_since: 0,
            pause_bytes: 0,
            pause_ps: 0,
            stats: RingStats::default(),
            depths: Box::new([0; DEPTH_STEPS + 1]),
            sampled_max: 0,
        };
        ring.ps_per_byte = ring.per_byte();
        ring
    }

    fn bits_per_s(&self) -> Option<u64> {
        let built = self.config.bits_per_s?;
        Some((u128::from(built) * u128::from(self.percent) / 100).max(1) as u64)
    }

    fn per_byte(&self) -> u64 {
        let per = |bits: u64| (8_000_000_000_000u128 << FRACTION) / u128::from(bits);
        self.bits_per_s().map_or(0, per) as u64
    }

    /// Bytes that can be written in a time.
    fn bytes_in(&self, ps: Ps) -> u64 {
        if self.ps_per_byte == 0 {
            return 0;
        }
        ((u128::from(ps) << FRACTION) / u128::from(self.ps_per_byte)) as u64
    }

    /// Bytes written until now.
    fn written(&self, now: Ps) -> u64 {
        if self.ps_per_byte == 0 {
            return self.put_bytes;
        }
        let since = self.bytes_in(now.saturating_sub(self.base_at));
        self.base_bytes.saturating_add(since).min(self.put_bytes)
    }

    /// Time at which `bytes`, which have entered the ring, will have been written.
    fn at(&self, bytes: u64) -> Ps {
        let more = u128::from(bytes.saturating_sub(self.base_bytes));
        let ps = (more * u128::from(self.ps_per_byte)).div_ceil(1 << FRACTION);
        self.base_at.saturating_add(ps.min(u128::from(Ps::MAX / 2)) as Ps)
    }

    /// Adds a packet, if there is room.
    fn put(&mut self, now: Ps, bytes: u32) -> Result<RingPut, RingFull> {
        let own = u64::from(bytes);
        let waiting = self.put_bytes - self.written(now);
        self.stats.arrived += 1;
        self.stats.arrived_bytes += own;
        if waiting == 0 {
            self.pause_end(now);
        }
        if self.ps_per_byte > 0 && waiting + own > self.config.limit_bytes {
            self.stats.dropped += 1;
            self.stats.dropped_bytes += own;
            return Err(RingFull);
        }
        self.put_bytes += own;
        let depth = if self.ps_per_byte > 0 { waiting + own } else { 0 };
        self.stats.depth_bytes_max = self.stats.depth_bytes_max.max(depth);
        self.sampled_max = self.sampled_max.max(depth);
        let step = depth as usize * DEPTH_STEPS / self.config.limit_bytes.max(1) as usize;
        self.depths[step.min(DEPTH_STEPS)] += 1;
        self.empty_since = if self.ps_per_byte > 0 { self.at(self.put_bytes) } else { now };
        Ok(RingPut {
            end_bytes: self.put_bytes,
            backlog_bytes: depth,
            written_at: self.empty_since + self.config.dma_delay_ps,
        })
    }

    /// Ends the pause of an empty ring at the arrival of a packet.
    fn pause_end(&mut self, now: Ps) {
        self.pause_add(now);
        let (bytes, ps) = (self.pause_bytes, self.pause_ps);
        if self.first_at.is_some() {
            self.stats.idle_bytes += bytes;
            self.stats.idle_ps += ps;
        }
        (self.pause_bytes, self.pause_ps) = (0, 0);
        self.first_at.get_or_insert(now);
        (self.base_at, self.base_bytes, self.empty_since) = (now, self.put_bytes, now);
    }

    fn pause_add(&mut self, now: Ps) {
        let idle = now.saturating_sub(self.empty_since);
        self.pause_bytes += self.bytes_in(idle);
        self.pause_ps += idle;
    }

    fn percent_set(&mut self, now: Ps, percent: u32) {
        let written = self.written(now);
        if written == self.put_bytes {
            self.pause_add(now);
        }
        (self.base_at, self.base_bytes, self.percent) = (now, written, percent);
        self.ps_per_byte = self.per_byte();
        self.empty_since = if written == self.put_bytes { now } else { self.at(self.put_bytes) };
    }

    fn state(&self, now: Ps) -> RingState {
        let written_bytes = self.written(now);
        RingState {
            backlog_bytes: self.put_bytes - written_bytes,
            limit_bytes: self.config.limit_bytes,
            bits_per_s: self.bits_per_s(),
            written_bytes,
            dropped: self.stats.dropped,
        }
    }

    fn stats(&self, now: Ps) -> RingStats {
        let written_bytes = self.written(now);
        let end = if written_bytes == self.put_bytes { self.empty_since.min(now) } else { now };
        // The present pause, which is not over, lies after the end of the span.
        let end = end.saturating_sub(self.pause_ps);
        let packets: u64 = self.depths.iter().sum();
        let mut seen = 0;
        let p99 = self.depths.iter().position(|n| {
            seen += n;
            packets > 0 && seen * 100 >= packets * 99
        });
        let edge = |step: usize| (step as u64 + 1) * self.config.limit_bytes / DEPTH_STEPS as u64;
        RingStats {
            written_bytes,
            waiting_bytes: self.put_bytes - written_bytes,
            depth_bytes_p99: p99.map_or(0, edge).min(self.stats.depth_bytes_max),
            span_ps: self.first_at.map_or(0, |first| end.saturating_sub(first)),
            ..self.stats
        }
    }
}

impl Rings {
    fn get(&self, host: u32) -> Option<&Ring> {
        self.all.get(*self.of_host.get(host as usize)? as usize)
    }

    fn get_mut(&mut self, host: u32) -> Option<&mut Ring> {
        self.all.get_mut(*self.of_host.get(host as usize)? as usize)
    }

    /// Whether a host has a ring whose rate can be changed.
    pub fn drains(&self, host: HostId) -> bool {
        self.get(host.0).is_some_and(|r| r.config.bits_per_s.is_some())
    }
}

impl<P> Net<P> {
    /// Gives a host a ring.
    pub fn ring_set(&mut self, host: HostId, config: RingConfig) -> Result<(), RingError> {
        let hosts = self.hosts.len();
        let refuse = |text: String| Err(RingError(text));
        if host.0 as usize >= hosts {
            return refuse(format!("host {} does not exist: there are {hosts}", host.0));
        }
        if self.lossless.is_some() {
            return refuse(
                "a ring drops packets that do not fit: not possible with credits".into(),
            );
        }
        if config.limit_bytes == 0 {
            return refuse("a ring of 0 bytes holds no packet".into());
        }
        if config.bits_per_s.is_some_and(|bits| bits < 1_000_000) {
            return refuse("a ring that drains at less than 1 Mb/s: give a higher rate".into());
        }
        let rings = self.rings.get_or_insert_default();
        rings.of_host.resize(hosts, u32::MAX);
        if rings.get(host.0).is_some() {
            return refuse(format!("host {} already has a ring", host.0));
        }
        rings.of_host[host.0 as usize] = rings.all.len() as u32;
        rings.all.push(Ring::new(config));
        Ok(())
    }

    /// Handles the arrival of a packet from the last link. Returns true if it waits in the ring or
    /// was dropped.
    #[cold]
    pub fn ring_takes(&mut self, host: u32, link: u32, packet: u32) -> bool {
        let (now, bytes) = (self.now, self.slab.header(packet).bytes);
        let Some(rings) = &mut self.rings else { return false };
        let Some(ring) = rings.get_mut(host) else { return false };
        if ring.config.placement == Placement::Card {
            return false;
        }
        match ring.put(now, bytes) {
            Ok(put) => {
                ring.queue.push_back((put.end_bytes, packet));
                ring.arrivals.push_back(now);
                self.ring_schedule(host);
            }
            Err(RingFull) => self.discard(Some(link), packet, DropReason::HostFull),
        }
        true
    }

    /// The host's last link.
    pub fn last_link(&self, host: u32) -> u32 {
        LinkId(self.hosts[host as usize].nic).reverse().0
    }

    /// Permits the host to put the packet that it is called for into its ring, until
    /// [`Net::ring_close`].
    pub fn ring_open(&mut self, bytes: u32) {
        if let Some(rings) = &mut self.rings {
            rings.arriving_bytes = bytes;
        }
    }

    /// Ends the delivery of the packet.
    pub fn ring_close(&mut self) {
        self.ring_open(0);
    }

    /// Puts the packet for which the host is called into its ring.
    pub fn ring_put(&mut self, host: HostId) -> Result<RingPut, RingFull> {
        let now = self.now;
        let at_once = Ok(RingPut { end_bytes: 0, backlog_bytes: 0, written_at: now });
        let Some(rings) = &mut self.rings else { return at_once };
        let bytes = std::mem::take(&mut rings.arriving_bytes);
        let Some(ring) = rings.get_mut(host.0) else { return at_once };
        if ring.config.placement == Placement::Host {
            return at_once;
        }
        assert!(bytes > 0, "a packet enters the ring once, during on_packet");
        let put = ring.put(now, bytes);
        if put.is_err() {
            let link = self.last_link(host.0);
            // The packet was counted as delivered when the card received it.
            self.totals.delivered -= 1;
            self.totals.delivered_bytes -= u64::from(bytes);
            self.drop_count(Some(link), DropReason::HostFull);
        }
        put
    }

    pub fn ring_state(&self, host: HostId) -> Option<RingState> {
        let ring = self.rings.as_ref()?.get(host.0)?;
        (ring.config.placement == Placement::Card).then(|| ring.state(self.now))
    }

    /// Like `ring_state`, wherever the transport is.
    pub fn ring_waiting(&self, host: HostId) -> Option<RingState> {
        Some(self.rings.as_ref()?.get(host.0)?.state(self.now))
    }

    /// How long the packet that now comes out of the ring was in it, ps.
    pub fn ring_waited(&mut self, host: u32) -> Ps {
        let now = self.now;
        let ring = self.rings.as_mut().and_then(|r| r.get_mut(host));
        ring.and_then(|r| r.arrivals.pop_front()).map_or(0, |at| now - at)
    }

    /// Sets the number of written bytes at which the card is called.
    pub fn ring_call_set(&mut self, host: HostId, bytes: Option<u64>) {
        let Some(ring) = self.rings.as_mut().and_then(|r| r.get_mut(host.0)) else { return };
        ring.call_at_bytes = bytes.map(|b| b.min(ring.put_bytes));
        self.ring_schedule(host.0);
    }

    /// Queues an event for the ring's next action.
    fn ring_schedule(&mut self, host: u32) {
        let stalled_until = self.hosts[host as usize].stalled_until;
        let Some(ring) = self.rings.as_mut().and_then(|r| r.get_mut(host)) else { return };
        let out = ring.queue.front().map_or(Ps::MAX, |(end, _)| ring.at(*end));
        let call = ring.call_at_bytes.map_or(Ps::MAX, |b| ring.at(b).max(stalled_until));
        let next = out.min(call);
        if next < ring.due {
            ring.due = next.max(self.now);
            self.schedule(next, Event::new(RING, host, 0));
        }
    }

    /// Handles a ring's event: false if it is stale.
    pub fn ring_woken(&mut self, host: u32) -> bool {
        let now = self.now;
        let Some(ring) = self.rings.as_mut().and_then(|r| r.get_mut(host)) else { return false };
        let due = ring.due <= now;
        if due {
            ring.due = Ps::MAX;
        }
        due
    }

    /// The next due action of a ring; `None` if nothing is due, and the next event is queued.
    pub fn ring_next(&mut self, host: u32) -> Option<RingStep> {
        let (now, stalled) = (self.now, self.stalled(host));
        let ring = self.rings.as_mut()?.get_mut(host)?;
        let written = ring.written(now);
        if let Some((_, packet)) = ring.queue.pop_front_if(|(end, _)| *end <= written) {
            return Some(RingStep::Out(packet, ring.config.dma_delay_ps));
        }
        if !stalled && ring.call_at_bytes.take_if(|b| *b <= written).is_some() {
            return Some(RingStep::Call);
        }
        self.ring_schedule(host);
        None
    }

    /// Sets the drain rate of a host's ring, in percent of the configured rate.
    pub fn drain_set(&mut self, host: HostId, percent: u32) {
        let now = self.now;
        let Some(ring) = self.rings.as_mut().and_then(|r| r.get_mut(host.0)) else { return };
        ring.percent_set(now, percent);
        self.ring_schedule(host.0);
    }

    /// Resets all rings to their configured rate.
    pub fn drains_heal(&mut self) {
        for host in 0..self.hosts.len() as u32 {
            self.drain_set(HostId(host), 100);
        }
    }

    pub fn ring_stats(&self, host: HostId) -> Option<RingStats> {
        Some(self.rings.as_ref()?.get(host.0)?.stats(self.now))
    }

    /// Samples every ring at `at`, and begins new intervals.
    pub fn rings_sample(&mut self, at: Ps, mut see: impl FnMut(HostId, RingSample)) {
        let Some(rings) = &mut self.rings else { return };
        for (host, number) in rings.of_host.iter().enumerate() {
            let Some(ring) = rings.all.get_mut(*number as usize) else { continue };
            let backlog_bytes = ring.put_bytes - ring.written(at);
            let dropped = ring.stats.dropped;
            let backlog_bytes_max = std::mem::replace(&mut ring.sampled_max, backlog_bytes);
            let sample = RingSample { backlog_bytes, backlog_bytes_max, dropped };
            see(HostId(host as u32), sample);
        }
    }
}
