//! The receive path of a host: a ring between its card and its memory, which drains at a rate of
//! its own.
//!
//! A ring is a FIFO in virtual time, as a link's queue is: so many bytes had been written to memory
//! at a moment, and since then they are written at one rate while any wait. Byte by byte they make
//! room; a packet that does not fit as it comes is dropped ([`DropReason::HostFull`]). With
//! [`Placement::Card`] the program on the host is the transport on the card: it sees packets on
//! arrival and says which of them take the ring ([`HostIo::rx_ring_put`]). With
//! [`Placement::Host`] it sits behind the ring: all packets take it, and the program sees them when
//! they are in memory.
//!
//! [`HostIo::rx_ring_put`]: crate::HostIo::rx_ring_put

use crate::event::{Event, RING};
use crate::net::Net;
use crate::stats::DropReason;
use crate::topo::{HostId, LinkId, Ps};
use std::collections::VecDeque;
use std::fmt;

/// Binary places of [`Ring::ps_per_byte`], as a link's profile has.
const FRACTION: u32 = 20;
/// Steps in which depths are counted.
const DEPTH_STEPS: usize = 256;

/// Where the transport is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On the card: it judges packets on arrival, memory follows.
    Card,
    /// On the host: it sits behind the ring, as behind a socket.
    Host,
}

/// A host's receive path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Bytes that wait at most, counted as on the wire.
    pub limit_bytes: u64,
    /// Rate at which they are written to memory; `None`: at once.
    pub bits_per_s: Option<u64>,
    /// From the moment a packet has left the ring to that at which it is in memory.
    pub dma_delay_ps: Ps,
    /// Where the transport is.
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

/// A host's ring at one moment, as its card sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingState {
    /// Bytes that wait.
    pub backlog_bytes: u64,
    /// Bytes that may.
    pub limit_bytes: u64,
    /// Present rate; `None`: bytes are written at once.
    pub bits_per_s: Option<u64>,
    /// Bytes written to memory since the start.
    pub written_bytes: u64,
}

/// A packet that took its place in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPut {
    /// Its last byte is in memory when [`RingState::written_bytes`] gets here.
    pub end_bytes: u64,
    /// Bytes waiting now, its own among them.
    pub backlog_bytes: u64,
    /// When it is in memory, if the rate stays as it is.
    pub written_at: Ps,
}

/// A packet found no room in the ring, and is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFull;

/// What became of the packets of a ring. Always `arrived_bytes = written_bytes + waiting_bytes +
/// dropped_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Bytes of packets that were to take it.
    pub arrived_bytes: u64,
    /// Bytes written to memory.
    pub written_bytes: u64,
    /// Bytes that wait.
    pub waiting_bytes: u64,
    /// Bytes of packets that found no room.
    pub dropped_bytes: u64,
    /// Packets that were to take it.
    pub arrived: u64,
    /// Packets that found no room.
    pub dropped: u64,
    /// Most bytes that ever waited.
    pub depth_bytes_max: u64,
    /// 99 in 100 packets that took it made it at most this deep, to 1/256 of its limit.
    pub depth_bytes_p99: u64,
    /// Bytes that could have been written between the first packet and the last byte written, while
    /// nothing waited.
    pub idle_bytes: u64,
    /// Time between the first packet and the last byte written in which nothing waited.
    pub idle_ps: Ps,
    /// From the first packet to the last byte written, or to now.
    pub span_ps: Ps,
}

/// One ring at one moment; see [`World::rings_sample`](crate::World::rings_sample).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSample {
    /// Bytes that wait.
    pub backlog_bytes: u64,
    /// Most bytes that waited since the sample before.
    pub backlog_bytes_max: u64,
    /// Packets that found no room since the start.
    pub dropped: u64,
}

#[derive(Clone, Debug)]
struct Ring {
    config: RingConfig,
    percent: u32,
    /// Time per byte in units of `2^-FRACTION` ps; 0: none.
    ps_per_byte: u64,
    /// At this moment `base_bytes` had been written; the rate has been the same since.
    base_at: Ps,
    base_bytes: u64,
    /// Bytes that took the ring.
    put_bytes: u64,
    /// Packets that wait for it, with the place of their last byte (`Placement::Host`).
    queue: VecDeque<(u64, u32)>,
    /// The card wants to be called when so many bytes have been written.
    call_at_bytes: Option<u64>,
    /// The earliest event queued for it; others are stale.
    due: Ps,
    /// When the first packet came.
    first_at: Option<Ps>,
    /// Start of the present empty phase; meaningful only while the ring is empty.
    empty_since: Ps,
    /// Idle capacity of the present pause under earlier rates.
    pause_bytes: u64,
    pause_ps: Ps,
    stats: RingStats,
    depths: Box<[u64; DEPTH_STEPS + 1]>,
    sampled_max: u64,
}

/// The rings of a network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rings {
    /// Number of each host's ring, `u32::MAX` without one.
    of_host: Vec<u32>,
    all: Vec<Ring>,
    /// Bytes of the packet being delivered, which the host may put into its ring; 0 = none.
    arriving_bytes: u32,
}

/// What a ring has to do.
pub(crate) enum RingStep {
    /// A packet has left it, and is in memory so much later.
    Out(u32, Ps),
    /// The card is to be called.
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

    /// Bytes written by now.
    fn written(&self, now: Ps) -> u64 {
        if self.ps_per_byte == 0 {
            return self.put_bytes;
        }
        let since = self.bytes_in(now.saturating_sub(self.base_at));
        self.base_bytes.saturating_add(since).min(self.put_bytes)
    }

    /// When so many bytes, of those that it holds, will have been written.
    fn at(&self, bytes: u64) -> Ps {
        let more = u128::from(bytes.saturating_sub(self.base_bytes));
        let ps = (more * u128::from(self.ps_per_byte)).div_ceil(1 << FRACTION);
        self.base_at.saturating_add(ps.min(u128::from(Ps::MAX / 2)) as Ps)
    }

    /// Takes a packet, if there is room.
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

    /// The ring is empty, and a packet comes: what was idle until now is known.
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
        }
    }

    fn stats(&self, now: Ps) -> RingStats {
        let written_bytes = self.written(now);
        let end = if written_bytes == self.put_bytes { self.empty_since.min(now) } else { now };
        // With a pause that is not over, the span ends before all of it.
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

    /// Whether a host's drain can be slowed down.
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
            return refuse("a ring drops what it cannot hold: not with credits".into());
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
            return refuse(format!("host {} has a ring already", host.0));
        }
        rings.of_host[host.0 as usize] = rings.all.len() as u32;
        rings.all.push(Ring::new(config));
        Ok(())
    }

    /// A packet came off the last link. True if it waits in the ring, or was dropped there.
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

    /// From now until [`Net::ring_close`] the host may put the packet it is told of into its ring.
    pub fn ring_open(&mut self, bytes: u32) {
        if let Some(rings) = &mut self.rings {
            rings.arriving_bytes = bytes;
        }
    }

    /// The delivery of the packet has ended.
    pub fn ring_close(&mut self) {
        self.ring_open(0);
    }

    /// The card puts the packet that it was told of into its ring.
    pub fn ring_put(&mut self, host: HostId) -> Result<RingPut, RingFull> {
        let now = self.now;
        let at_once = Ok(RingPut { end_bytes: 0, backlog_bytes: 0, written_at: now });
        let Some(rings) = &mut self.rings else { return at_once };
        let bytes = std::mem::take(&mut rings.arriving_bytes);
        let Some(ring) = rings.get_mut(host.0) else { return at_once };
        if ring.config.placement == Placement::Host {
            return at_once;
        }
        assert!(bytes > 0, "a packet takes the ring once, while its host is told of it");
        let put = ring.put(now, bytes);
        if put.is_err() {
            let link = self.last_link(host.0);
            // It was handed to the card, and is no delivery.
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

    /// The card wants to be called when so many bytes have been written.
    pub fn ring_call_set(&mut self, host: HostId, bytes: Option<u64>) {
        let Some(ring) = self.rings.as_mut().and_then(|r| r.get_mut(host.0)) else { return };
        ring.call_at_bytes = bytes.map(|b| b.min(ring.put_bytes));
        self.ring_schedule(host.0);
    }

    /// Queues an event for what comes next.
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

    /// A ring's event: false if it is stale.
    pub fn ring_woken(&mut self, host: u32) -> bool {
        let now = self.now;
        let Some(ring) = self.rings.as_mut().and_then(|r| r.get_mut(host)) else { return false };
        let due = ring.due <= now;
        if due {
            ring.due = Ps::MAX;
        }
        due
    }

    /// What a ring has to do now; `None` if nothing is left, and the next event is queued.
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

    /// Sets the rate at which a host's ring drains, in percent of the built one.
    pub fn drain_set(&mut self, host: HostId, percent: u32) {
        let now = self.now;
        let Some(ring) = self.rings.as_mut().and_then(|r| r.get_mut(host.0)) else { return };
        ring.percent_set(now, percent);
        self.ring_schedule(host.0);
    }

    /// All rings drain as built.
    pub fn drains_heal(&mut self) {
        for host in 0..self.hosts.len() as u32 {
            self.drain_set(HostId(host), 100);
        }
    }

    pub fn ring_stats(&self, host: HostId) -> Option<RingStats> {
        Some(self.rings.as_ref()?.get(host.0)?.stats(self.now))
    }

    /// Shows every ring as it is at `at`, and begins new intervals.
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
