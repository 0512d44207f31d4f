//! A simulated network with a program on every host.

use crate::fault::{Fault, FaultError, FaultPlan};
use crate::host::{Delivered, Host, HostIo};
use crate::limit::{FlowLimit, FlowLimitError, FlowLimitStats};
use crate::link::MONITORED;
use crate::lossless::{Credits, Deadlock, FlowControl, Pauses, fault_check};
use crate::net::{
    ARRIVE, ARRIVE_CREDITED, CALL, CONVERGE, CREDIT, DEADLOCK_WATCH, Event, FAULT, HELD, HELD_CALL,
    LATE, Net, OUTPUT_WAKE, PAUSE, RING, RING_OUT, ROOM, SHAPED, TIMER,
};
use crate::ring::{RingConfig, RingError, RingSample, RingStats, RingStep};
use crate::routing::{CircuitStats, Circuits, RoutingConfig};
use crate::slab::CE;
use crate::stats::{LinkSample, LinkStats, Monitor, Tap, TapWhat, Totals};
use crate::topo::{HostId, LinkId, Ps, Topology, TopologyError};
use std::marker::PhantomData;

/// Settings of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldConfig {
    /// Seed of all random streams.
    pub seed: u64,
    /// Bytes that a stalled host's card holds before it drops.
    pub host_hold_bytes: u64,
    /// Width of the event queue's slots, log2 of picoseconds; `None` = chosen from the topology.
    /// Affects speed, never results.
    pub slot_shift: Option<u32>,
    /// Whether events are processed node by node within windows of the shortest link's delay, in
    /// which no node can affect another. The memory of a host or switch is then fetched once per
    /// window, not once per event. Each node sees the same events either way. Within a window,
    /// however, time restarts for each node, so a [`Tap`] or state shared among hosts sees events
    /// out of order.
    pub windows: bool,
    /// Protection of queues against overflow.
    pub flow_control: FlowControl,
    /// Routing algorithm of the switches.
    pub routing: RoutingConfig,
}

impl WorldConfig {
    /// Default settings: 4 MiB held for a stalled host, queues that drop, ECMP.
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            host_hold_bytes: 4 << 20,
            slot_shift: None,
            windows: false,
            flow_control: FlowControl::Drop,
            routing: RoutingConfig::Ecmp,
        }
    }
}

/// A network and the programs on its hosts. A world is single-threaded; several can run in
/// parallel.
pub struct World<P, H> {
    net: Net<P>,
    hosts: Vec<H>,
    payload: PhantomData<P>,
}

impl<P, H> std::fmt::Debug for World<P, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.net.fmt(f)
    }
}

impl<P: Clone, H: Host<P>> World<P, H> {
    /// A world at time 0; `host` creates the program of each host.
    ///
    /// # Errors
    /// If the topology cannot be simulated, see [`Topology::validate`], or does not suit the
    /// routing or the flow control of `config`.
    pub fn new(
        topology: Topology,
        config: WorldConfig,
        host: impl FnMut(HostId) -> H,
    ) -> Result<Self, TopologyError> {
        topology.validate()?;
        let hosts = (0..topology.hosts()).map(HostId).map(host).collect();
        Ok(Self { net: Net::new(topology, config)?, hosts, payload: PhantomData })
    }

    /// Present time.
    pub const fn now(&self) -> Ps {
        self.net.now
    }

    /// The network's shape, as built.
    pub const fn topology(&self) -> &Topology {
        &self.net.topo
    }

    /// The programs, indexed by [`HostId`].
    pub fn hosts(&self) -> &[H] {
        &self.hosts
    }

    /// One program, to read or change between events. To send from it, use [`World::with_host`].
    pub fn host_mut(&mut self, host: HostId) -> &mut H {
        &mut self.hosts[host.0 as usize]
    }

    /// Calls `f` as the program of a host at the present time: to post work, send, or set the
    /// timer.
    pub fn with_host<R>(
        &mut self,
        host: HostId,
        act: impl FnOnce(&mut H, &mut HostIo<'_, P>) -> R,
    ) -> R {
        let mut io = HostIo::new(&mut self.net, host);
        act(&mut self.hosts[host.0 as usize], &mut io)
    }

    /// Schedules a call of [`Host::on_call`] of `host` with `token` at a time (now, if that time is
    /// past).
    ///
    /// # Panics
    /// If the host does not exist.
    pub fn call_at(&mut self, at: Ps, host: HostId, token: u64) {
        assert!((host.0 as usize) < self.hosts.len(), "host {} does not exist", host.0);
        self.net.call_schedule(at, host, token);
    }

    /// Schedules a fault at a time (now, if that time is past).
    ///
    /// # Errors
    /// If the fault is not possible in this network; see [`Fault::check`].
    pub fn fault_at(&mut self, at: Ps, fault: Fault) -> Result<(), FaultError> {
        self.fault_check(&fault)?;
        self.net.fault_schedule(at, fault);
        Ok(())
    }

    /// Applies a fault at once.
    ///
    /// # Errors
    /// Like [`World::fault_at`].
    pub fn fault_now(&mut self, fault: Fault) -> Result<(), FaultError> {
        self.fault_check(&fault)?;
        self.net.fault_apply(fault);
        Ok(())
    }

    fn fault_check(&self, fault: &Fault) -> Result<(), FaultError> {
        fault.check(&self.net.topo)?;
        if let Fault::HostDrain { host, .. } = fault
            && !self.net.rings.as_ref().is_some_and(|r| r.drains(*host))
        {
            let text = format!("host {} has no ring that drains at a rate: give it one", host.0);
            return Err(FaultError::new(text));
        }
        if self.net.lossless.is_some() { fault_check(fault) } else { Ok(()) }
    }

    /// Schedules all faults of a plan, or none if one is refused.
    ///
    /// # Errors
    /// The first fault that is not possible in this network.
    pub fn plan(&mut self, plan: &FaultPlan) -> Result<(), FaultError> {
        plan.events.iter().try_for_each(|(_, fault)| self.fault_check(fault))?;
        for (at, fault) in &plan.events {
            self.net.fault_schedule(*at, *fault);
        }
        Ok(())
    }

    /// Time of the next event; `None` if no event is left.
    pub fn next_event_at(&mut self) -> Option<Ps> {
        self.net.wheel.next_time()
    }

    /// Processes one event. Returns false if there is none.
    pub fn step(&mut self) -> bool {
        self.events_run(Ps::MAX, 1) == 1
    }

    /// Processes all events up to and including `end` and advances time to it. Returns their
    /// number.
    pub fn run_until(&mut self, end: Ps) -> u64 {
        let n = self.events_run(end, u64::MAX);
        self.net.now = self.net.now.max(end);
        n
    }

    /// Processes events until none is left, for worlds whose hosts fall silent. Time stays at the
    /// last event. Returns the number of events.
    pub fn run_to_end(&mut self) -> u64 {
        self.events_run(Ps::MAX, u64::MAX)
    }

    /// Processes at most `events` events up to `end`; time stays at the last one. Returns their
    /// number; fewer than `events` means that none is left before `end`.
    pub fn events_run(&mut self, end: Ps, events: u64) -> u64 {
        if self.deadlock().is_some() {
            return 0;
        }
        let mut n = 0;
        let mut latest = self.net.now;
        while n < events || self.net.wheel.in_window() {
            let Some(entry) = self.net.wheel.pop_until(end) else { break };
            if self.net.wheel.opened() {
                self.net.look_ahead(&self.hosts);
            }
            self.net.now = entry.time;
            latest = latest.max(entry.time);
            self.dispatch(entry.event);
            n += 1;
        }
        self.net.now = latest;
        self.net.totals.events += n;
        n
    }

    #[inline]
    fn dispatch(&mut self, event: Event) {
        let id = event.id();
        match event.kind() {
            ARRIVE => {
                if let Some(host) = self.net.arrive(event) {
                    self.deliver(host, Some(id), event.b);
                }
            }
            LATE => {
                if let Some(host) = self.net.arrive_late(event) {
                    self.deliver(host, Some(id), event.b);
                }
            }
            TIMER => {
                if self.net.timer_due(id) {
                    let mut io = HostIo::new(&mut self.net, HostId(id));
                    let now = io.now();
                    self.hosts[id as usize].on_timer(now, &mut io);
                }
            }
            HELD | ARRIVE_CREDITED..=SHAPED => self.dispatch_other(event),
            _ => self.dispatch_rare(event),
        }
    }

    /// Processes events of stalled hosts and of networks with credits. A separate function keeps
    /// the frequent cases small.
    #[inline(never)]
    fn dispatch_other(&mut self, event: Event) {
        let id = event.id();
        match event.kind() {
            ARRIVE_CREDITED => {
                if let Some(host) = self.net.credited_arrive(event) {
                    self.deliver(host, Some(id), event.b);
                }
            }
            OUTPUT_WAKE => self.net.output_woken(id),
            CREDIT => self.net.credit_due(event),
            HELD => {
                if self.net.lossless.is_some() && !self.net.stalled(id) {
                    self.net.host_takes(event.b);
                }
                self.deliver(id, None, event.b);
            }
            ROOM if self.net.stalled(id) => self.net.room_hold(event),
            ROOM => {
                let mut io = HostIo::new(&mut self.net, HostId(id));
                let now = io.now();
                self.hosts[id as usize].on_room(now, &mut io);
            }
            DEADLOCK_WATCH => self.net.deadlock_check(),
            PAUSE => self.net.pause_due(event),
            SHAPED => self.net.limit_due(event),
            RING => self.ring_due(id),
            RING_OUT => self.hand_over(id, Some(self.net.last_link(id)), event.b),
            kind => unreachable!("event kind {kind}"),
        }
    }

    #[cold]
    fn dispatch_rare(&mut self, event: Event) {
        match event.kind() {
            CALL | HELD_CALL => {
                if self.net.call_hold(event) {
                    return;
                }
                if let Some(token) = self.net.calls.take(event.b) {
                    let mut io = HostIo::new(&mut self.net, HostId(event.id()));
                    let now = io.now();
                    self.hosts[event.id() as usize].on_call(now, token, &mut io);
                }
            }
            FAULT => {
                if let Some(fault) = self.net.faults.take(event.b) {
                    self.net.fault_apply(fault);
                }
            }
            CONVERGE => {
                if let Some(links) = self.net.converges.take(event.b) {
                    self.net.converge(&links);
                }
            }
            kind => unreachable!("event kind {kind}"),
        }
    }

    /// Processes a ring's due event.
    fn ring_due(&mut self, host: u32) {
        if !self.net.ring_woken(host) {
            return;
        }
        while let Some(step) = self.net.ring_next(host) {
            match step {
                RingStep::Out(packet, 0) => {
                    self.hand_over(host, Some(self.net.last_link(host)), packet);
                }
                RingStep::Out(packet, after) => {
                    let at = self.net.now.saturating_add(after);
                    self.net.schedule(at, Event::new(RING_OUT, host, packet));
                }
                RingStep::Call => {
                    let mut io = HostIo::new(&mut self.net, HostId(host));
                    let now = io.now();
                    self.hosts[host as usize].on_ring(now, &mut io);
                }
            }
        }
    }

    /// Delivers a packet to its host or to the host's ring; `link` = the last link, `None` if the
    /// packet was held.
    #[inline]
    fn deliver(&mut self, host: u32, link: Option<u32>, packet: u32) {
        if self.net.rings.is_some()
            && let Some(link) = link
            && self.net.ring_takes(host, link, packet)
        {
            return;
        }
        self.hand_over(host, link, packet);
    }

    /// Delivers a packet to its host.
    #[inline]
    fn hand_over(&mut self, host: u32, link: Option<u32>, packet: u32) {
        let net = &mut self.net;
        let waited_ps = if net.rings.is_some() { net.ring_waited(host) } else { 0 };
        if net.packet_hold(host, link, packet) {
            return;
        }
        if net.tap.is_some() {
            net.tap_call(TapWhat::Delivered, None, packet);
        }
        let register_max = net.register_max(packet);
        let (h, payload) = net.slab.remove(packet);
        if link.is_none() {
            net.hosts[host as usize].held_bytes -= u64::from(h.bytes);
        }
        net.totals.delivered += 1;
        net.totals.delivered_bytes += u64::from(h.bytes);
        let what = u64::from(h.bytes) << 32 | u64::from(h.corrupt) << 16 | u64::from(h.flags);
        let who = u64::from(h.src) << 32 | u64::from(h.dst);
        let ports = u64::from(h.sport) << 16 | u64::from(h.dport);
        let hash = &mut net.hosts[host as usize].hash;
        *hash = fold(*hash, [net.now, who, what, h.sent_ps ^ ports << 32]);
        let delivered = Delivered {
            src: HostId(h.src),
            sport: h.sport,
            dport: h.dport,
            bytes: h.bytes,
            ce: h.flags & CE != 0,
            corrupt: h.corrupt,
            sent_ps: h.sent_ps,
            waited_ps,
            register_max,
            payload,
        };
        let now = net.now;
        net.ring_open(h.bytes);
        let mut io = HostIo::new(net, HostId(host));
        self.hosts[host as usize].on_packet(now, delivered, &mut io);
        self.net.ring_close();
    }

    /// Counters of the whole network.
    pub fn totals(&self) -> Totals {
        Totals { in_flight: self.net.slab.live(), ..self.net.totals }
    }

    /// Counters of a link.
    pub fn link_stats(&self, link: LinkId) -> LinkStats {
        let hot = &self.net.links[link.0 as usize];
        let cold = &self.net.cold[link.0 as usize];
        let queue = self.net.profiles[hot.profile as usize].ps_to_bytes(hot.backlog_max_ps);
        LinkStats {
            packets: hot.packets,
            bytes: hot.bytes,
            queue_bytes_max: cold.queue_bytes_max.max(queue),
            marked: cold.marked,
            drops: cold.drops,
        }
    }

    /// Calls `see` with the state of every link at the time `at`, which must be at or after
    /// [`World::now`] and not after the next event. Begins new intervals for
    /// [`LinkSample::queue_bytes_max`]. Does not influence the run, and costs nothing per packet.
    pub fn links_sample(&mut self, at: Ps, mut see: impl FnMut(LinkId, LinkSample)) {
        for (i, hot) in self.net.links.iter_mut().enumerate() {
            let profile = &self.net.profiles[hot.profile as usize];
            let backlog_ps = hot.busy_until.saturating_sub(at);
            let waiting = |ll: &crate::lossless::Lossless| ll.waiting_bytes(i as u32);
            let waiting = self.net.lossless.as_deref().map_or(0, waiting);
            // With credits, waiting packets are not yet counted by the link.
            let on_wire = profile.ps_to_bytes(backlog_ps);
            let queue_bytes = on_wire + waiting;
            let sample = LinkSample {
                sent_bytes: hot.bytes.saturating_sub(on_wire),
                packets: hot.packets,
                queue_bytes,
                queue_bytes_max: profile.ps_to_bytes(hot.backlog_max_ps),
            };
            let whole = &mut self.net.cold[i].queue_bytes_max;
            *whole = sample.queue_bytes_max.max(*whole);
            hot.backlog_max_ps = backlog_ps;
            see(LinkId(i as u32), sample);
        }
    }

    /// Gives a host a ring between its card and its memory. To be called before packets arrive;
    /// earlier packets count as written.
    ///
    /// # Errors
    /// If the host does not exist or has a ring already, if the ring's size or rate is out of
    /// range, or if the network has credits.
    pub fn ring_set(&mut self, host: HostId, config: RingConfig) -> Result<(), RingError> {
        self.net.ring_set(host, config)
    }

    /// Counters of a host's ring; `None` without a ring.
    pub fn ring_stats(&self, host: HostId) -> Option<RingStats> {
        self.net.ring_stats(host)
    }

    /// Calls `see` with the state of every ring, as [`World::links_sample`] does for links.
    pub fn rings_sample(&mut self, at: Ps, see: impl FnMut(HostId, RingSample)) {
        self.net.rings_sample(at, see);
    }

    /// Limits the rate of every flow (addresses and ports) at its sender's card; replaces an
    /// earlier limit. To be called before packets are sent.
    ///
    /// # Errors
    /// If the rate is 0 or above that of a host's link, if the burst is 0, or if the network is
    /// lossless.
    pub fn flow_limit_set(&mut self, limit: FlowLimit) -> Result<(), FlowLimitError> {
        self.net.flow_limit_set(limit)
    }

    /// Counters of a host's card that limits its flows; `None` without a limit.
    pub fn flow_limit_stats(&self, host: HostId) -> Option<FlowLimitStats> {
        self.net.flow_limit_stats(host)
    }

    /// The deadlock that ended the run, if any; no event is left after it.
    pub fn deadlock(&self) -> Option<&Deadlock> {
        self.net.lossless.as_ref()?.deadlock.as_ref()
    }

    /// Accounting of the input buffer at the end of a link; `None` without credits or if the lane
    /// does not exist.
    pub fn credits(&self, link: LinkId, lane: u8) -> Option<Credits> {
        let ll = self.net.lossless.as_ref().filter(|ll| u32::from(lane) < ll.config.lanes)?;
        Some(ll.credits(link.0, lane))
    }

    /// Pauses of a link and the filling of the buffer at its end; `None` without priority flow
    /// control.
    pub fn pauses(&self, link: LinkId) -> Option<Pauses> {
        let pfc = self.net.lossless.as_ref()?.pfc.as_ref()?;
        Some(pfc.pauses(link.0, self.net.now))
    }

    /// Counts every packet in every buffer and compares the counts with the credit accounting.
    ///
    /// # Errors
    /// The first buffer whose accounting is wrong.
    pub fn credits_check(&self) -> Result<(), String> {
        self.net.lossless.as_ref().map_or(Ok(()), |ll| ll.check())
    }

    /// The register of a link; 0 without credits.
    pub fn register(&self, link: LinkId) -> i64 {
        self.net.lossless.as_ref().map_or(0, |ll| ll.registers.value(link.0))
    }

    /// Flows on links and entries in switches; `None` without circuits.
    pub fn circuits(&self) -> Option<&Circuits> {
        self.net.router.circuits().map(|c| c.circuits())
    }

    /// Counters of circuits.
    pub fn circuit_stats(&self) -> CircuitStats {
        self.net.router.circuits().map_or_else(CircuitStats::default, |c| c.stats())
    }

    /// Hash of every delivery so far, in each host's order: time, sender, receiver, content. Equal
    /// runs have equal hashes, whatever the machine and the number of threads.
    pub fn run_hash(&self) -> u64 {
        let fold = |hash: u64, word: u64| fold(hash, [word, 0, 0, 0]);
        self.net.hosts.iter().fold(self.net.seed, |hash, host| fold(hash, host.hash))
    }

    /// Records links over time from now on, in intervals of `bucket_ps`; replaces an earlier
    /// monitor.
    pub fn monitor(&mut self, links: Vec<LinkId>, bucket_ps: Ps) {
        for link in self.net.monitor.links().to_vec() {
            self.net.flag_one(link, MONITORED, false);
        }
        for link in &links {
            self.net.flag_one(*link, MONITORED, true);
        }
        self.net.monitor = Monitor::new(links, bucket_ps);
    }

    /// The recorded intervals of the watched links.
    pub const fn monitored(&self) -> &Monitor {
        &self.net.monitor
    }

    /// Sets or removes the observer of packets.
    pub fn tap_set(&mut self, tap: Option<Box<dyn Tap<P> + Send>>) {
        self.net.tap = tap;
    }

    /// Removes the observer of packets, so that another one can hand on to it.
    pub fn tap_take(&mut self) -> Option<Box<dyn Tap<P> + Send>> {
        self.net.tap.take()
    }
}

/// Folds four words into the run hash; their multiplications are independent of each other.
#[inline]
const fn fold(hash: u64, words: [u64; 4]) -> u64 {
    let a =
        words[0].wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ words[1].wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let b =
        words[2].wrapping_mul(0xA076_1D64_78BD_642F) ^ words[3].wrapping_mul(0xE703_7ED1_A0B4_28DB);
    (hash.rotate_left(7) ^ a ^ b.rotate_left(32)).wrapping_mul(0x8EBC_6AF0_9C88_C6E3)
}
