//! The path of a packet: card → queue → wire → switch → … → host. One event per hop.

pub(crate) use crate::event::{
    ARRIVE, ARRIVE_CREDITED, CALL, CONVERGE, CREDIT, DEADLOCK_WATCH, Event, FAULT, HELD, HELD_CALL,
    KIND_SHIFT, LATE, OUTPUT_WAKE, PAUSE, RING, RING_OUT, ROOM, SHAPED, TIMER,
};
use crate::event::{FLAGS_SHIFT, HOPS_SHIFT};
use crate::host::{FlowId, Outbound, PACKET_BYTES_MAX, Tag};
use crate::limit::FlowLimits;
use crate::link::{
    CREDITED, DEAD, HOLE, Link, LinkCold, MONITORED, Profile, SHARED, SLOW_ADMIT, SLOW_ARRIVE,
    SLOW_QUEUE, TO_HOLE,
};
use crate::lossless::{FlowControl, Lossless};
use crate::pool::Pools;
use crate::ring::Rings;
use crate::rng::mix64;
use crate::routing::ecmp::Routes;
use crate::routing::{Passing, Router, Routing};
use crate::slab::{CE, ECT, Header, Slab};
use crate::stats::{DropReason, HOPS_MAX, Monitor, Tap, TapEvent, TapWhat, Totals};
use crate::topo::{HostId, LinkId, Node, Port, Ps, Topology, TopologyError};
use crate::wheel::Wheel;
use crate::{fault::Fault, world::WorldConfig};

/// Windows longer than 1 us would not visit hosts less often, but would enlarge the working set.
const WINDOW_SHIFT_MAX: u32 = 20;
/// Timer events of a host that are remembered.
pub(crate) const TIMERS_QUEUED: usize = 3;

/// The network's state of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPort {
    /// Due time of its timer.
    pub timer: Ps,
    /// Queued timer events of the host, earliest first; other timer events are stale. A timer often
    /// alternates between a near and a far time; tracking the later events lets the far one be
    /// reused.
    pub timers_queued: [Ps; TIMERS_QUEUED],
    pub stalled_until: Ps,
    pub held_bytes: u64,
    /// Hash of the packets delivered to the host.
    pub hash: u64,
    /// The host's card.
    pub nic: u32,
}

/// Values stored under an index until their event is due.
#[derive(Clone, Debug)]
pub(crate) struct Shelf<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Shelf<T> {
    pub const fn new() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }
    pub fn put(&mut self, item: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.items[at as usize] = Some(item);
            return at;
        }
        self.items.push(Some(item));
        (self.items.len() - 1) as u32
    }
    pub fn take(&mut self, at: u32) -> Option<T> {
        let item = self.items.get_mut(at as usize)?.take();
        if item.is_some() {
            self.free.push(at);
        }
        item
    }
}

/// All state except the programs on the hosts.
pub(crate) struct Net<P> {
    pub now: Ps,
    pub seed: u64,
    pub config: WorldConfig,
    pub topo: Topology,
    pub wheel: Wheel<Event>,
    seq: u64,
    pub slab: Slab<P>,
    pub links: Vec<Link>,
    /// Number of links with special processing when a packet arrives at the far end.
    pub slow_arrivals: u32,
    pub cold: Vec<LinkCold>,
    pub profiles: Vec<Profile>,
    pub pools: Pools,
    pub routes: Routes,
    /// Routing other than ECMP.
    pub router: Router,
    /// State of a network with credits.
    pub lossless: Option<Box<Lossless>>,
    /// Receive paths of hosts that have one.
    pub rings: Option<Box<Rings>>,
    /// Limits of single flows at hosts' cards.
    pub limits: Option<Box<FlowLimits>>,
    pub hosts: Vec<HostPort>,
    pub calls: Shelf<u64>,
    pub faults: Shelf<Fault>,
    pub converges: Shelf<Vec<LinkId>>,
    /// Links that routing considers usable.
    pub routed: Vec<bool>,
    pub totals: Totals,
    pub tap: Option<Box<dyn Tap<P> + Send>>,
    pub monitor: Monitor,
}

impl<P> std::fmt::Debug for Net<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net").field("now", &self.now).field("totals", &self.totals).finish()
    }
}

impl<P> Net<P> {
    /// A network at time 0. The topology must be valid.
    pub fn new(topo: Topology, mut config: WorldConfig) -> Result<Self, TopologyError> {
        let lossless = match config.flow_control {
            FlowControl::Drop => None,
            FlowControl::Credits(c) => Some(Box::new(Lossless::new(&topo, c)?)),
            FlowControl::Pfc(c) => Some(Box::new(Lossless::with_pfc(&topo, c)?)),
        };
        let router = Router::new(config.routing, topo.tree(), config.seed)?;
        if lossless.is_none() && router.circuits().is_some() {
            return Err(TopologyError::new(
                "circuits need credits: where packets are dropped, the last of a flow may be, and \
                 its entries stay"
                    .into(),
            ));
        }
        // Circuits and registers are state of more than one node, which windows do not allow.
        config.windows &= lossless.is_none();
        let links = topo.links();
        let hosts = topo.hosts();
        let mut net = Self {
            now: 0,
            seed: config.seed,
            wheel: wheel_for(&topo, &config),
            config,
            seq: 0,
            slab: Slab::new(),
            links: Vec::with_capacity(links as usize),
            slow_arrivals: 0,
            cold: (0..links).map(|l| LinkCold::new(*topo.port(LinkId(l)))).collect(),
            profiles: Vec::new(),
            pools: Pools::new(&topo),
            routes: Routes::new(&topo, config.seed),
            router,
            lossless,
            rings: None,
            limits: None,
            hosts: Vec::with_capacity(hosts as usize),
            calls: Shelf::new(),
            faults: Shelf::new(),
            converges: Shelf::new(),
            routed: vec![true; links as usize],
            totals: Totals::default(),
            tap: None,
            monitor: Monitor::default(),
            topo,
        };
        for link in (0..links).map(LinkId) {
            let profile = net.profile_of(*net.topo.port(link));
            let to = match net.topo.to(link) {
                Node::Host(h) => h.0,
                Node::Switch(s) => hosts + s.0,
            };
            let credited = if net.lossless.is_some() { CREDITED } else { 0 };
            let flags = if net.pools.has(link.0) { SHARED } else { 0 } | credited;
            net.links.push(Link { flags, ..Link::new(profile, to) });
        }
        let idle = HostPort {
            timer: Ps::MAX,
            timers_queued: [Ps::MAX; TIMERS_QUEUED],
            stalled_until: 0,
            held_bytes: 0,
            hash: 0,
            nic: 0,
        };
        net.hosts.resize(hosts as usize, idle);
        for link in 0..links {
            if let Node::Host(h) = net.topo.from(LinkId(link)) {
                net.hosts[h.0 as usize].nic = link;
            }
        }
        Ok(net)
    }

    /// Index of the profile of ports equal to `port`.
    pub fn profile_of(&mut self, port: Port) -> u32 {
        let found = self.profiles.iter().position(|p| p.port == port);
        found.unwrap_or_else(|| {
            self.profiles.push(Profile::new(port));
            self.profiles.len() - 1
        }) as u32
    }

    /// Queues an event, ordered after the earlier events of its time and before packets.
    pub fn schedule(&mut self, at: Ps, event: Event) {
        self.seq += 1;
        self.wheel.push(at.max(self.now), self.seq, event);
    }

    /// Order of a packet among events of the same picosecond. It is a hash of seed, link and
    /// packet, so that neither of two synchronous senders is always first, and lies after all other
    /// events. It does not depend on the order in which nodes are processed.
    #[inline]
    pub fn packet_order(&self, link: u32, packets: u64) -> u64 {
        let bits = mix64(self.seed.wrapping_add(u64::from(link) << 40).wrapping_add(packets));
        let unique = u64::from(link) << 20 | packets & 0xF_FFFF;
        bits & (0xFFFF << 48) | 1 << 48 | unique
    }

    /// Hands a packet to its host's card.
    #[inline]
    pub fn send(&mut self, from: HostId, out: Outbound, payload: P) -> Result<(), P> {
        let Outbound { dst, sport, dport, bytes, ect } = out;
        assert!((dst.0 as usize) < self.hosts.len(), "host {} does not exist", dst.0);
        assert!(
            bytes > 0 && bytes <= PACKET_BYTES_MAX,
            "a packet of {bytes} bytes: use 1 to {PACKET_BYTES_MAX}"
        );
        let nic = self.hosts[from.0 as usize].nic;
        let link = &self.links[nic as usize];
        if link.flags & CREDITED != 0 {
            return self.credited_send(from, out, Tag::default(), payload);
        }
        let profile = &self.profiles[link.profile as usize];
        let backlog = link.busy_until.saturating_sub(self.now);
        if link.flags & DEAD == 0 && backlog + profile.serialise_ps(bytes) > profile.limit_ps {
            return Err(payload);
        }
        let hash = flow_hash(from, &out);
        let header = Header {
            src: from.0,
            dst: dst.0,
            bytes,
            hash,
            sport,
            dport,
            corrupt: 0,
            flags: if ect { ECT } else { 0 },
            sent_ps: self.now,
        };
        let packet = self.slab.insert(header, payload);
        self.totals.sent += 1;
        if self.tap.is_some() {
            self.tap_call(TapWhat::Sent, None, packet);
        }
        let size = bytes | u32::from(header.flags) << FLAGS_SHIFT;
        let event = Event { a: 0, b: packet, dst: dst.0, hash, size, to: 0 };
        if self.limits.is_some() {
            self.limited_send(from, &out, event);
        } else {
            self.enqueue(nic, event);
        }
        Ok(())
    }

    /// Hands a tagged packet to its host's card.
    pub fn send_tagged(
        &mut self,
        from: HostId,
        out: Outbound,
        tag: Tag,
        payload: P,
    ) -> Result<(), P> {
        if self.lossless.is_none() {
            return self.send(from, out, payload);
        }
        let (hosts, bytes) = (self.hosts.len(), out.bytes);
        assert!((out.dst.0 as usize) < hosts, "host {} does not exist", out.dst.0);
        assert!(
            bytes > 0 && bytes <= PACKET_BYTES_MAX,
            "a packet of {bytes} bytes: use 1 to {PACKET_BYTES_MAX}"
        );
        self.credited_send(from, out, tag, payload)
    }

    /// Opens a flow.
    pub fn flow_open(&mut self, from: HostId, dst: HostId) -> FlowId {
        assert!((dst.0 as usize) < self.hosts.len(), "host {} does not exist", dst.0);
        FlowId(self.router.circuits_mut().map_or(u32::MAX, |c| c.flow_open(from, dst)))
    }

    /// Puts a packet into a link's queue and schedules its arrival, which only faults can change.
    #[inline]
    pub fn enqueue(&mut self, at: u32, mut event: Event) {
        let bytes = event.bytes();
        if self.links[at as usize].flags & SLOW_ADMIT != 0
            && let Some(reason) = self.refusal(at, bytes)
        {
            return self.discard(Some(at), event.b, reason);
        }
        let link = &mut self.links[at as usize];
        let profile = &self.profiles[link.profile as usize];
        let backlog = link.busy_until.saturating_sub(self.now);
        let own = profile.serialise_ps(bytes);
        if backlog + own > profile.limit_ps {
            return self.discard(Some(at), event.b, DropReason::BufferFull);
        }
        link.busy_until = self.now.max(link.busy_until) + own;
        link.bytes += u64::from(bytes);
        link.packets += 1;
        link.backlog_max_ps = link.backlog_max_ps.max(backlog + own);
        let (arrival, packets) = (link.busy_until + profile.delay_ps, link.packets);
        let (to, slow) = (link.to, link.flags & SLOW_QUEUE != 0);
        if backlog >= profile.ecn_min_ps && event.flags() & ECT != 0 {
            self.mark(at, &mut event, backlog);
        }
        if slow {
            self.watch(at, bytes, backlog + own);
        }
        let order = self.packet_order(at, packets);
        self.wheel.push(arrival, order, Event { a: ARRIVE << KIND_SHIFT | at, to, ..event });
    }

    /// Why a link does not accept a packet, apart from the limit of its own queue.
    #[cold]
    fn refusal(&self, at: u32, bytes: u32) -> Option<DropReason> {
        let flags = self.links[at as usize].flags;
        if flags & DEAD != 0 {
            return Some(DropReason::LinkDown);
        }
        let shared = flags & SHARED != 0;
        let full = shared && !self.pools.admits(&self.links, &self.profiles, at, bytes, self.now);
        full.then_some(DropReason::BufferFull)
    }

    /// Marks a packet that found `backlog` in the queue if the marking rule demands it.
    #[cold]
    fn mark(&mut self, at: u32, event: &mut Event, backlog: Ps) {
        let link = &self.links[at as usize];
        let bits = mix64(!self.seed ^ mix64(u64::from(at) << 40 | link.packets));
        if !self.profiles[link.profile as usize].marks(backlog, bits) {
            return;
        }
        event.flags_set(event.flags() | CE);
        self.cold[at as usize].marked += 1;
        self.totals.marked += 1;
        if self.tap.is_some() {
            self.tap_call(TapWhat::Marked, Some(at), event.b);
        }
    }

    /// Records a queued packet in a watched link's series.
    #[cold]
    pub fn watch(&mut self, at: u32, bytes: u32, backlog: Ps) {
        let link = &self.links[at as usize];
        let queue = self.profiles[link.profile as usize].ps_to_bytes(backlog);
        let sent = link.busy_until;
        if let Some(bucket) = self.monitor.at(at, sent) {
            bucket.bytes += u64::from(bytes);
        }
        if let Some(bucket) = self.monitor.at(at, self.now) {
            bucket.queue_bytes_max = bucket.queue_bytes_max.max(queue);
        }
    }

    /// Handles a packet at the far end of a link: forwards it, or returns `Some(host)` if it is for
    /// that host.
    #[inline]
    fn forward(&mut self, mut event: Event) -> Option<u32> {
        let (link, hosts) = (event.id(), self.hosts.len() as u32);
        if event.to < hosts {
            if event.dst == event.to {
                self.slab.header_mut(event.b).flags = event.flags();
                return Some(event.to);
            }
            self.discard(Some(link), event.b, DropReason::NoRoute);
            return None;
        }
        event.size += 1 << HOPS_SHIFT;
        if event.hops() > HOPS_MAX {
            self.discard(Some(link), event.b, DropReason::HopLimit);
            return None;
        }
        let next = match &self.router {
            Router::Ecmp => self.routes.next(event.to - hosts, event.dst, event.hash),
            _ => self.next_other(event.to - hosts, event.dst),
        };
        match next {
            Some(next) => self.enqueue(next, event),
            None => self.discard(Some(link), event.b, DropReason::NoRoute),
        }
        None
    }

    /// The next link of a packet with routing other than ECMP.
    #[cold]
    fn next_other(&mut self, switch: u32, dst: u32) -> Option<u32> {
        let Router::Oblivious(oblivious) = &mut self.router else { return None };
        // Packets without credits do not count their ring links, so they must not take any.
        let ring_hops = u32::MAX / 2;
        let (hash, flow, last, adds) = (0, u32::MAX, false, None);
        let packet = Passing { switch, dst, hash, ring_hops, flow, last, adds };
        oblivious.next(&packet, &|_| 0).map(|l| l.0)
    }

    /// Drops a packet.
    #[cold]
    pub fn discard(&mut self, link: Option<u32>, packet: u32, reason: DropReason) {
        if self.tap.is_some() {
            self.tap_call(TapWhat::Dropped(reason), link, packet);
        }
        self.drop_count(link, reason);
        self.slab.remove(packet);
    }

    /// Counts a dropped packet.
    pub fn drop_count(&mut self, link: Option<u32>, reason: DropReason) {
        self.totals.drops.0[reason as usize] += 1;
        if let Some(at) = link {
            self.cold[at as usize].drops.0[reason as usize] += 1;
            if self.links[at as usize].flags & MONITORED != 0
                && let Some(bucket) = self.monitor.at(at, self.now)
            {
                bucket.drops += 1;
            }
        }
    }

    /// Reports an event to the tap.
    #[cold]
    pub fn tap_call(&mut self, what: TapWhat, link: Option<u32>, packet: u32) {
        let (Some(tap), Some(payload)) = (&mut self.tap, self.slab.payload(packet)) else {
            return;
        };
        let h = self.slab.header(packet);
        let event = TapEvent {
            now: self.now,
            what,
            link: link.map(LinkId),
            src: HostId(h.src),
            dst: HostId(h.dst),
            sport: h.sport,
            dport: h.dport,
            bytes: h.bytes,
            sent_ps: h.sent_ps,
            packet,
        };
        tap.on_event(&event, payload);
    }

    /// Sets a host's timer. If an earlier event is queued, that event is requeued when it is due.
    #[inline]
    pub fn timer_set(&mut self, host: HostId, at: Ps) {
        let port = &mut self.hosts[host.0 as usize];
        port.timer = at;
        let at = at.max(self.now);
        if at < port.timers_queued[0] {
            port.timers_queued.rotate_right(1);
            port.timers_queued[0] = at;
            self.schedule(at, Event::new(TIMER, host.0, 0));
        }
    }

    pub fn timer(&self, host: HostId) -> Ps {
        self.hosts[host.0 as usize].timer
    }

    /// Handles a timer event. Returns true if the host's timer is due.
    pub fn timer_due(&mut self, host: u32) -> bool {
        let now = self.now;
        let port = &mut self.hosts[host as usize];
        if port.timers_queued[0] != now {
            return false;
        }
        port.timers_queued.rotate_left(1);
        port.timers_queued[TIMERS_QUEUED - 1] = Ps::MAX;
        let next = port.timer.max(port.stalled_until);
        if next <= now {
            port.timer = Ps::MAX;
            return true;
        }
        if port.timer != Ps::MAX && next < port.timers_queued[0] {
            port.timers_queued.rotate_right(1);
            port.timers_queued[0] = next;
            self.schedule(next, Event::new(TIMER, host, 0));
        }
        false
    }

    fn nic(&self, host: HostId) -> &Link {
        &self.links[self.hosts[host.0 as usize].nic as usize]
    }

    pub fn nic_free_at(&self, host: HostId) -> Ps {
        let nic = self.nic(host);
        let Some(ll) = &self.lossless else {
            return nic.busy_until.max(self.limit_taken_at(host));
        };
        let waiting = ll.waiting_bytes(self.hosts[host.0 as usize].nic);
        nic.busy_until.max(self.now) + self.profiles[nic.profile as usize].bytes_to_ps(waiting)
    }

    pub fn nic_backlog_bytes(&self, host: HostId) -> u64 {
        let nic = self.nic(host);
        let free_at = nic.busy_until.max(self.limit_taken_at(host));
        let backlog = free_at.saturating_sub(self.now);
        let waiting = |ll: &Lossless| ll.waiting_bytes(self.hosts[host.0 as usize].nic);
        self.profiles[nic.profile as usize].ps_to_bytes(backlog)
            + self.lossless.as_deref().map_or(0, waiting)
    }
}

impl<P: Clone> Net<P> {
    /// Handles the arrival of a packet from a link's wire. Returns `Some(host)` if it is for that
    /// host.
    #[inline]
    pub fn arrive(&mut self, mut event: Event) -> Option<u32> {
        if self.slow_arrivals > 0 && !self.survives(&mut event) {
            return None;
        }
        self.forward(event)
    }

    /// A packet or copy that a faulty link delayed arrives.
    pub fn arrive_late(&mut self, event: Event) -> Option<u32> {
        self.forward(event)
    }

    /// Effect of a link, which may be faulty, on an arriving packet; false if the packet is not
    /// forwarded now.
    #[cold]
    fn survives(&mut self, event: &mut Event) -> bool {
        let (link, packet) = (event.id(), event.b);
        if self.links[link as usize].flags & SLOW_ARRIVE == 0 {
            return true;
        }
        if self.links[link as usize].flags & (HOLE | TO_HOLE) != 0 {
            self.discard(Some(link), packet, DropReason::BlackHole);
            return false;
        }
        let Some(impair) = &mut self.cold[link as usize].impair else { return true };
        let header = self.slab.header_mut(packet);
        header.flags = event.flags();
        let fate = impair.judge(header);
        event.flags_set(header.flags);
        if let Some(reason) = fate.drop {
            self.discard(Some(link), packet, reason);
            return false;
        }
        if fate.corrupted {
            self.totals.corrupted += 1;
            self.tap_call(TapWhat::Corrupted, Some(link), packet);
        }
        if let Some(after) = fate.copy_after_ps
            && let Some(copy) = self.slab.duplicate(packet)
        {
            self.totals.duplicated += 1;
            self.tap_call(TapWhat::Duplicated, Some(link), copy);
            self.late(Event { b: copy, ..*event }, fate.delay_ps.saturating_add(after));
        }
        if fate.delay_ps > 0 {
            self.tap_call(TapWhat::Delayed(fate.delay_ps), Some(link), packet);
            self.late(*event, fate.delay_ps);
            return false;
        }
        true
    }

    fn late(&mut self, event: Event, after: Ps) {
        let link = event.id();
        self.seq += 1;
        let order = self.packet_order(link, self.seq);
        let late = Event { a: LATE << KIND_SHIFT | link, ..event };
        self.wheel.push(self.now.saturating_add(after), order, late);
    }
}

/// Hash of addresses and ports, the same for every switch; each switch adds its own seed.
#[inline]
pub(crate) fn flow_hash(from: HostId, out: &Outbound) -> u32 {
    let hosts = u64::from(from.0) << 32 | u64::from(out.dst.0);
    let ports = u64::from(out.sport) << 16 | u64::from(out.dport);
    (mix64(mix64(hosts).wrapping_add(ports)) >> 32) as u32
}

/// The event queue, with windows if they are configured and every link's delay is long enough.
fn wheel_for(topo: &Topology, config: &WorldConfig) -> Wheel<Event> {
    let ports = topo.cables().iter().flat_map(|c| [c.up, c.down]);
    let delay = ports.map(|p| p.delay_ps).min().unwrap_or(0);
    let window = delay.checked_ilog2().unwrap_or(0).min(WINDOW_SHIFT_MAX);
    let narrow = config.slot_shift.unwrap_or_else(|| slot_shift(topo));
    if !config.windows || window < narrow {
        return Wheel::new(narrow);
    }
    let mut wheel = Wheel::new(window);
    wheel.windows(topo.hosts() + topo.switches(), Event::node);
    wheel
}

/// Width of the event queue's slots: some twenty events per slot if every link carried 4 KiB
/// packets, between 8 ns (below which the lists of a slot no longer stay in cache) and 65 ns.
fn slot_shift(topo: &Topology) -> u32 {
    let per_second: f64 = topo
        .cables()
        .iter()
        .map(|c| (c.up.bits_per_s as f64 + c.down.bits_per_s as f64) / (8.0 * 4096.0))
        .sum();
    let slot_ps = 20.0e12 / per_second.max(1.0);
    (slot_ps.log2().round() as u32).clamp(13, 16)
}
