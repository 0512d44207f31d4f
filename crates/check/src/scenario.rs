//! A world as data: everything that follows from a seed before the run.

use crate::class::{Class, Classes};
use crate::crowd;
use crate::denial::{self, Order};
use crate::draw::Draw;
use crate::faults;
use crate::focus;
use crate::hostile;
use crate::packet::ip_of;
#[cfg(feature = "sealed")]
use crate::sealed;
use crate::shards;
use crate::workload::{Profile, Workload};
use srd_core::EngineConfig;
use srd_core::config::{Integrity, PathPolicy, RatePolicy};
use srd_core::time::Span;
use srd_fabric::{Ecn, Fault, LeafSpine, MS, NS, Port, Ps, Topology, US, back_to_back, dumbbell};

/// Restrictions that a shrinker sets. The rest of the world stays as it is, because each part draws
/// from its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Permitted classes.
    pub classes: Classes,
    /// Most hosts.
    pub hosts: u32,
    /// Most messages of one engine.
    pub messages: u32,
    /// Most faults of one class.
    pub faults: u32,
}

/// Classes that are run only when asked for by name (`--with`).
const AWAITED: u64 = hostile::AWAITED.0 | crowd::AWAITED.0;

impl Limits {
    /// No restriction.
    pub const NONE: Self =
        Self { classes: Classes::ALL, hosts: u32::MAX, messages: u32::MAX, faults: u32::MAX };
    /// No restriction except for known failures of the engine.
    pub const USUAL: Self = Self { classes: Classes(Classes::ALL.0 & !AWAITED), ..Self::NONE };
}

impl core::fmt::Display for Limits {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let most = |n: u32| if n == u32::MAX { "all".to_owned() } else { format!("at most {n}") };
        let (hosts, messages) = (most(self.hosts), most(self.messages));
        let faults = most(self.faults);
        write!(f, "{hosts} hosts, {messages} messages per engine, {faults} faults per class")
    }
}

/// Behaviour of the machines around the engines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine {
    /// Packets per poll.
    pub batch: usize,
    /// Most that timers fire late.
    pub late_ps: Ps,
    /// Longest time that arriving packets wait before the engine gets them (0 = none).
    pub hold_ps: Ps,
    /// Capacity of the receive queue in packets.
    pub hold_max: usize,
    /// Share of refused packets that are dropped instead of kept, in percent.
    pub refuse_drop: u64,
    /// Completions are polled in application steps only.
    pub lazy_poll: bool,
    /// Depth of completion queues.
    pub cq_depth: u32,
    /// Depth of send queues.
    pub sq_depth: u32,
    /// Depth of receive queues.
    pub rq_depth: u32,
    /// Queue pairs per engine.
    pub qps: u32,
    /// `rnr_retry` of queue pairs.
    pub rnr_retry: u8,
    /// Invalid requests, in percent.
    pub bad: u64,
    /// Completion slots are returned in batches of this size.
    pub release_batch: u32,
    /// Largest clock drift in either direction, in parts per million.
    pub drift_ppm: u64,
}

/// An incident of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incident {
    /// Killed and restarted.
    Restart {
        /// The engine's slot.
        slot: u8,
        /// It closes its contexts first.
        gentle: bool,
    },
    /// Old packets arrive again.
    Stale {
        /// The engine's slot.
        slot: u8,
        /// Number of packets.
        packets: u32,
    },
    /// Forged packets of a stranger arrive.
    Garbage {
        /// The engine's slot.
        slot: u8,
        /// Number of packets.
        packets: u32,
    },
    /// The clock leaps ahead.
    Leap {
        /// The engine's slot.
        slot: u8,
        /// Length of the leap.
        by_ns: u64,
    },
    /// An operator denies and allows paths.
    Deny {
        /// The engine's slot.
        slot: u8,
        /// What is denied.
        order: Order,
    },
}

/// A world.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed that it was made from.
    pub seed: u64,
    /// Choices of a fuzzer, if any.
    pub bytes: Vec<u8>,
    /// Restrictions.
    pub limits: Limits,
    /// Plan of a hostile world; it uses only `config` and `classes` of the other fields.
    pub hostile: Option<hostile::Plan>,
    /// Plan of a sealed world; it uses only `classes` of the other fields.
    #[cfg(feature = "sealed")]
    pub sealed: Option<Box<sealed::Plan>>,
    /// Plan of a crowded world; it uses only `classes` of the other fields.
    pub crowd: Option<Box<crowd::Plan>>,
    /// Kind of applications.
    pub workload: Workload,
    /// Parameters of the applications.
    pub profile: Profile,
    /// Active classes of faults.
    pub classes: Classes,
    /// Faults and incidents planned per class; permanent faults have none.
    pub planned: [u32; Class::COUNT],
    /// The network.
    pub topology: Topology,
    /// Hosts that run engines.
    pub hosts: u32,
    /// Slots of each host's engines.
    pub slots: Vec<u8>,
    /// Whether the engines of a host are the shards of one device.
    pub sharded: bool,
    /// Behaviour of the machines.
    pub machine: Machine,
    /// Configuration that all engines start from.
    pub config: EngineConfig,
    /// End of the fault phase.
    pub heal_at: Ps,
    /// Faults of the network.
    pub faults: Vec<(Ps, Fault)>,
    /// Faults of machines: when, which host, what.
    pub incidents: Vec<(Ps, u32, Incident)>,
}

/// Payload of the packets that pass narrow paths.
const MTU_LEAST: u16 = 384;

/// Bytes of a packet beside its payload: headers of Ethernet, IP, UDP and SRD with the largest
/// acknowledgment block of an ordinary packet.
const HEADERS_BYTES: u64 = 200;

/// Fault phase of a world with narrow paths: ten rounds of probes whose waits double from a few
/// timeouts on.
const NARROW_PS: Ps = 100 * MS;

/// Random streams of a seed.
pub(crate) mod stream {
    pub const SHAPE: u64 = 1;
    pub const KNOBS: u64 = 2;
    pub const CLASSES: u64 = 3;
    pub const FAULT: u64 = 4;
    pub const APP: u64 = 5;
    pub const ENGINE: u64 = 6;
    pub const MACHINE: u64 = 7;
    /// A number for which no seed of the corpus at that time became another world.
    pub const FOCUS: u64 = 11;
    /// Chosen in the same way as `FOCUS`.
    pub const HOSTILE: u64 = 36;
    pub const INTEGRITY: u64 = 37;
    pub const NARROW: u64 = 38;
    pub const HOST: u64 = 39;
    /// Chosen in the same way as `FOCUS`: no seed of the corpus has a sealed world.
    #[cfg(feature = "sealed")]
    pub const SEALED: u64 = 40;
    /// Chosen in the same way as `FOCUS`.
    pub const BURST: u64 = 140;
    /// Chosen in the same way as `FOCUS`: no seed of the corpus has denied paths.
    pub const DENIAL: u64 = 145;
    /// Chosen in the same way as `FOCUS`: no seed of the corpus has devices of several shards.
    pub const SHARDS: u64 = 849;
    /// Chosen in the same way as `FOCUS`: no seed of the corpus has joined rails.
    pub const JOINED: u64 = 1013;
    /// Chosen in the same way as `FOCUS`: no seed of the corpus has a crowded world.
    pub const CROWD: u64 = 855;
}

impl Scenario {
    /// The world of a seed.
    pub fn from_seed(seed: u64, limits: Limits) -> Self {
        Self::build(seed, &[], limits)
    }

    /// The world of a byte string: its bytes decide first, a seed derived from them the rest.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let fold = |h: u64, &b: &u8| (h.rotate_left(5) ^ u64::from(b)).wrapping_mul(0x9E37_79B9);
        let seed = bytes.iter().fold(bytes.len() as u64, fold);
        Self::build(seed, bytes, Limits::USUAL)
    }

    fn build(seed: u64, bytes: &[u8], limits: Limits) -> Self {
        let quarter = bytes.len() / 4;
        let part = |k: usize| &bytes[k * quarter..(k + 1) * quarter];
        let mut shape = Draw::with_bytes(seed, stream::SHAPE, 0, part(0));
        let mut knobs = Draw::with_bytes(seed, stream::KNOBS, 0, part(1));
        let mut swarm = Draw::with_bytes(seed, stream::CLASSES, 0, part(2));
        let workload = shape.pick(&Workload::ALL);
        let workload = focus::draw(seed).unwrap_or(workload);
        let mut profile = workload.profile();
        profile.messages = profile.messages.min(limits.messages);
        let classes = classes_draw(&mut swarm, workload).and(limits.classes);
        let link = link_draw(&mut knobs, classes);
        let (topology, hosts) = topology_draw(&mut shape, workload, link);
        let hosts = hosts.min(limits.hosts.max(2));
        let two = profile.two_slots || shape.percent(15);
        let second = shape.pick(&[1, 1, 7, 255]);
        let slots = if two { vec![0, second] } else { vec![0] };
        let slots = focus::slots(workload, slots);
        let shards = shards::draw(seed);
        let slots = shards::slots(shards, workload, slots);
        let mut config = config_draw(&mut knobs, workload, &link);
        focus::config(seed, workload, &mut config);
        config.integrity = focus::integrity_draw(seed);
        config.burst_packets = focus::burst_draw(seed).unwrap_or(config.burst_packets);
        config.rate.host_policy = crate::host::policy_draw(seed);
        config.path.rails = focus::rails_draw(seed).unwrap_or(config.path.rails);
        let machine = machine_draw(&mut knobs, classes, workload);
        let heal_at = shape.range(2, 8) * MS;
        let heal_at = narrow(seed, classes, &mut config).unwrap_or(heal_at);
        if config.mtu_search {
            // There are requests when the size is found, with messages long enough to be segmented.
            profile.messages = (8 * profile.messages).min(limits.messages);
        }
        let mut s = Self {
            seed,
            bytes: part(3).to_vec(),
            limits,
            hostile: None,
            #[cfg(feature = "sealed")]
            sealed: None,
            crowd: None,
            workload,
            profile,
            classes,
            planned: [0; Class::COUNT],
            topology,
            hosts,
            slots,
            sharded: shards.is_some(),
            machine,
            config,
            heal_at,
            faults: Vec::new(),
            incidents: Vec::new(),
        };
        if let Some(plan) = hostile::draw(seed, bytes, limits.classes) {
            s.classes = Classes::default().with(plan.class).and(limits.classes);
            s.planned[plan.class as usize] = 1;
            s.workload = Workload::Hostile;
            s.bytes = bytes.to_vec();
            s.hostile = Some(plan);
            return s;
        }
        #[cfg(feature = "sealed")]
        if let Some(plan) = sealed_draw(seed, bytes, limits.classes) {
            s.classes = Classes::SEALED;
            s.planned[Class::Sealed as usize] = 1;
            s.workload = Workload::Sealed;
            s.sealed = Some(Box::new(plan));
            return s;
        }
        if let Some(plan) = crowd_draw(seed, bytes, limits) {
            s.classes = Classes::default().with(plan.class());
            s.planned[plan.class() as usize] = 1;
            s.workload = Workload::Bottleneck;
            s.hosts = plan.hosts();
            s.crowd = Some(Box::new(plan));
            return s;
        }
        faults::plan(&mut s);
        denial::plan(&mut s);
        s
    }

    /// Configuration of one engine.
    pub fn config_of(&self, host: u32, slot: u8) -> EngineConfig {
        let mut c = self.config.clone();
        c.ip = ip_of(host);
        c.slot = slot;
        // The shards of a device are configured alike.
        let own = if self.sharded { 0 } else { slot };
        c.engines_of_device = if self.sharded { self.slots.len() as u32 } else { 1 };
        let id = u64::from(host) << 8 | u64::from(own);
        let mut d = Draw::new(self.seed, stream::KNOBS, 1 + id);
        // Engines may have different configurations.
        if d.percent(15) {
            c.window = d.pick(&[16, 64, 256]);
        }
        if d.percent(10) {
            c.mtu = d.pick(&[64, 128, 256]);
        }
        if d.percent(5) {
            c.rdma_read = false;
        }
        if d.percent(5) {
            c.rdma_write = false;
        }
        if d.percent(10) {
            c.rate.credits = false;
        }
        let mut d = Draw::new(self.seed, stream::INTEGRITY, 1 + id);
        if c.integrity == Integrity::On && d.percent(15) {
            c.integrity = Integrity::Handshakes;
        }
        c
    }

    /// Describes the world as lines of text, as the head of a trace.
    pub fn describe(&self) -> Vec<String> {
        if let Some(plan) = &self.hostile {
            return vec![format!("{plan:?}")];
        }
        #[cfg(feature = "sealed")]
        if let Some(plan) = &self.sealed {
            return vec![format!("{plan:?}")];
        }
        if let Some(plan) = &self.crowd {
            return vec![format!("{plan:?}")];
        }
        let us = |ps: Ps| ps as f64 / US as f64;
        let mut out = vec![format!(
            "{:?} for {:.0} us, then calm; everything must end within {:.0} us, and {:.1} for each \
             packet where one at a time may leave",
            self.workload,
            us(self.heal_at),
            us(self.settle_ps(0)),
            us(self.settle_ps(1) - self.settle_ps(0)),
        )];
        let engines = (0..self.hosts).flat_map(|h| self.slots.iter().map(move |&slot| (h, slot)));
        for (id, (host, slot)) in engines.enumerate() {
            let c = self.config_of(host, slot);
            out.push(format!(
                "engine {id}: {} slot {slot}, mtu {}, window {}, {:?} paths {}, rate {:?}{}",
                c.ip,
                c.mtu,
                c.window,
                c.path.policy,
                c.path.paths,
                c.rate.policy,
                if c.rate.credits { " with credits" } else { "" }
            ));
        }
        if self.sharded {
            out.push("the engines of a host are the shards of one device".to_owned());
        }
        out.push(format!("{:?}", self.machine));
        let faults = self.faults.iter().map(|(at, f)| (*at, format!("{f:?}")));
        let incidents = self.incidents.iter().map(|(at, h, i)| (*at, format!("host {h}: {i:?}")));
        let mut planned: Vec<(Ps, String)> = faults.chain(incidents).collect();
        planned.sort_by_key(|p| p.0);
        let line = |(at, what): (Ps, String)| format!("fault at {:.3} us: {what}", us(at));
        out.extend(planned.into_iter().map(line));
        out
    }

    /// Time after healing within which every request must end, with `packets` still to be sent: the
    /// longest silence that an engine tolerates, the longest interval between its retries, and the
    /// time for all packets at the lowest rate.
    pub fn settle_ps(&self, packets: u64) -> Ps {
        let l = &self.config.loss;
        let ns = l.unresponsive_after.0.max(l.unreachable_after.0) + 8 * l.rto_max.0;
        let one_by_one = packets * self.round_trip_ps();
        // To an adaptive rate, hosts that hold packets back look like queues of the network.
        let held = self.machine.hold_ps > 0 && self.config.rate.policy == RatePolicy::Srd;
        let slow = held || self.is_slow() || self.is_slow_search();
        // Nothing is faster than the rate itself; the rest is for what goes twice.
        let at_rate = packets * self.packet_ps();
        2 * ns * NS + 20 * MS + at_rate + if slow { one_by_one } else { 0 }
    }

    /// Time of one packet of the smallest size at the rate of an engine.
    fn packet_ps(&self) -> Ps {
        let r = &self.config.rate;
        let rate = match r.policy {
            RatePolicy::Fixed => r.rate_fixed_bytes_per_sec.min(r.line_bytes_per_sec),
            RatePolicy::Srd => r.line_bytes_per_sec,
        };
        (self.least_mtu() + HEADERS_BYTES) * 1_000_000_000_000 / rate
    }

    /// Payload of the packets of the engine with the smallest MTU, which cuts its own requests and
    /// the answers to them.
    pub fn least_mtu(&self) -> u64 {
        let engines = (0..self.hosts).flat_map(|h| self.slots.iter().map(move |&slot| (h, slot)));
        let mtu = engines.map(|(h, slot)| self.config_of(h, slot).mtu).min().unwrap_or(64);
        u64::from(if self.config.mtu_search { mtu.min(MTU_LEAST) } else { mtu })
    }

    /// Whether engines that search for a smaller size may fall to one packet per round trip: on a
    /// slow wire a large packet's serialization time exceeds that of the small packets behind the
    /// minimum RTT by more than the queueing delay that an adaptive rate tolerates. Other worlds
    /// have an eighth of the messages and so end in time.
    fn is_slow_search(&self) -> bool {
        let (c, r) = (&self.config, &self.config.rate);
        let own_ns = 4 * u64::from(c.mtu) * 1_000_000_000 / r.line_bytes_per_sec;
        c.mtu_search && r.policy == RatePolicy::Srd && own_ns > r.target_min.0
    }

    /// Whether engines may fall to one packet per round trip: if the cap is small, if timers run in
    /// ticks, or if timers that fire before the answer can arrive bring every sender to the lowest
    /// rate.
    fn is_slow(&self) -> bool {
        let r = &self.config.rate;
        let capped = r.policy == RatePolicy::Fixed
            && r.inflight_fixed_bytes < 4 * u64::from(self.config.mtu).max(500);
        capped || self.config.loss.reorder_min == Span(0) || self.machine.late_ps > 0
    }

    /// Longest round trip without queues: propagation, eight serializations, the acknowledgment
    /// delay, both receive queues, and a timer tick on either side.
    fn round_trip_ps(&self) -> Ps {
        let (c, m) = (&self.config, &self.machine);
        let wire = 8 * (u64::from(c.mtu) + 200) * 1_000_000_000 / c.rate.line_bytes_per_sec;
        let ack = c.ack.delay_max.max(c.ack.delay_requested).0;
        (c.rate.rtt_initial.0 + wire + ack) * NS + 2 * (m.hold_ps + m.late_ps)
    }
}

/// The plan of a sealed world, from a stream of its own: all other seeds keep their worlds. Byte
/// strings of a fuzzer make none.
#[cfg(feature = "sealed")]
fn sealed_draw(seed: u64, bytes: &[u8], allowed: Classes) -> Option<sealed::Plan> {
    if !allowed.has(Class::Sealed) || !bytes.is_empty() { None } else { sealed::draw(seed) }
}

/// The plan of a crowded world, from a stream of its own: all other seeds keep their worlds. Byte
/// strings of a fuzzer make none.
fn crowd_draw(seed: u64, bytes: &[u8], limits: Limits) -> Option<crowd::Plan> {
    // One host receives.
    let senders_max = u64::from(limits.hosts.max(2)) - 1;
    let plan = if bytes.is_empty() { crowd::draw(seed, senders_max) } else { None };
    plan.filter(|p| limits.classes.has(p.class()))
}

/// The links of a world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub bits_per_s: u64,
    pub delay_ps: Ps,
    buffer: u64,
    ecn: Ecn,
}

fn link_draw(d: &mut Draw, classes: Classes) -> Links {
    let bits_per_s = d.pick(&[1_000_000_000, 10_000_000_000, 100_000_000_000]);
    let buffer = if classes.has(Class::Overflow) { d.range(4, 16) << 10 } else { 4 << 20 };
    let ecn = if d.percent(60) { Ecn::step(buffer / 3) } else { Ecn::OFF };
    Links { bits_per_s, delay_ps: d.range(200, 3_000) * NS, buffer, ecn }
}

fn topology_draw(d: &mut Draw, w: Workload, l: Links) -> (Topology, u32) {
    let nic = Port::new(l.bits_per_s, l.delay_ps).buffer(1 << 20);
    let port = Port::new(l.bits_per_s, l.delay_ps).buffer(l.buffer).ecn(l.ecn);
    let many =
        matches!(w, Workload::AllToAll | Workload::Incast | Workload::Crowd | Workload::GiveUp);
    match if many { 2 } else { d.below(8) } {
        0 => (back_to_back(nic), 2),
        1 => (dumbbell(1, 1, nic, port, port), 2),
        _ => {
            let hosts_per_leaf = if many { 2 } else { d.pick(&[1, 1, 2]) as u32 };
            let shape = LeafSpine {
                leaves: 2,
                spines: d.range(2, 4) as u32,
                hosts_per_leaf,
                cables_per_spine: d.range(1, 2) as u32,
                nic,
                edge: port,
                uplink: port,
            };
            (shape.build(), 2 * hosts_per_leaf)
        }
    }
}

fn classes_draw(d: &mut Draw, w: Workload) -> Classes {
    let density = d.pick(&[0, 6, 12, 12, 25, 40]);
    let mut set = Classes::default();
    for &c in &Class::ALL[..Class::ORDINARY] {
        if d.percent(density) {
            set = set.with(c);
        }
    }
    let set = focus::classes(set, w);
    match w {
        Workload::Rnr => set.with(Class::Rnr),
        // Spikes reorder packets, so that segments of a cancelled write arrive after the Cancel.
        Workload::Churn => set.with(Class::Churn).with(Class::Spike),
        Workload::Restart => set.with(Class::Restart).with(Class::Stale),
        Workload::Stall => set.with(Class::HostStall),
        Workload::Incast => set.with(Class::Overflow),
        _ => set,
    }
}

fn config_draw(d: &mut Draw, w: Workload, l: &Links) -> EngineConfig {
    let rtt = Span((8 * l.delay_ps / NS).max(2_000));
    let mtu = d.pick(&[64, 128, 256, 1024]);
    let line = l.bits_per_s / 8 / d.pick(&[1, 1, 1, 4]);
    let mut c = EngineConfig::simulated(ip_of(0), 0, mtu, line, rtt);
    c.window = d.pick(&[16, 16, 64, 256, 4096]);
    c.burst_packets = d.pick(&[1, 1, 2, 8]);
    c.open_padded_len = if d.percent(50) { c.open_padded_len } else { 0 };
    c.wrs_max = d.pick(&[8, 64, 1024]);
    c.reads_per_context_max = d.pick(&[1, 2, 16]);
    c.reads_max = d.pick(&[2, 4096]);
    c.write_imms_per_context_max = d.pick(&[1, 2, 16]);
    c.contexts_max = if w == Workload::Crowd { d.range(2, 7) as u32 } else { 64 };
    c.rx_budget_bytes = d.pick(&[u32::MAX, u32::MAX, 4096, 65_536]);
    c.idle_after = Span::from_us(d.pick(&[20, 200, 2_000]));
    c.reuse_delay = Span::from_us(d.pick(&[100, 1_000, 5_000]));
    c.rdma_needs_ah = d.percent(80);
    if d.percent(50) {
        c.psn_start = Some(u32::MAX - d.below(80) as u32);
    }
    if d.percent(50) {
        let wrap = d.pick(&[1 << 32, 1 << 31, 1 << 16]);
        c.tx_num_start = Some(wrap - d.below(100));
    }
    c.path.policy = d.pick(&[
        PathPolicy::Srd,
        PathPolicy::Srd,
        PathPolicy::Oblivious,
        PathPolicy::Ecmp,
        PathPolicy::RttP2c,
    ]);
    c.path.paths = d.pick(&[1, 2, 8, 64, 256]);
    c.path.live_min = d.pick(&[1, 2, 4]).min(c.path.paths);
    c.path.probe_first = Span::from_us(d.pick(&[50, 500]));
    c.path.probe_max = Span::from_ms(d.pick(&[2, 10]));
    if d.percent(30) {
        c.rate.policy = RatePolicy::Fixed;
        c.rate.rate_fixed_bytes_per_sec = (line / d.pick(&[1, 2, 10])).max(12_500_000);
        c.rate.inflight_fixed_bytes = d.pick(&[1, 2_000, 20_000, 1 << 20]);
    }
    c.rate.credits = d.percent(30);
    c.rate.burst_bytes = u32::from(mtu) * d.pick(&[1, 2, 16]);
    let tiny = d.percent(30);
    if tiny {
        c.loss.rto_min = Span(rtt.0 / 4);
        c.loss.tlp_min = Span(rtt.0 / 8);
        c.loss.reorder_min = Span(0);
    }
    c.loss.rto_max = Span::from_us(d.pick(&[200, 1_000, 4_000])).max(rtt);
    // Bytes queued by a fixed rate above the network's must drain before a timeout; otherwise every
    // packet is retransmitted for ever, as with any sender that ignores feedback.
    let queued = l.bits_per_s / 8 * c.loss.rto_max.0 / 1_000_000_000 / 8;
    c.rate.inflight_fixed_bytes = c.rate.inflight_fixed_bytes.min(queued);
    // The silence limit is longer than the timers that would end the silence.
    let patience = c.loss.rto_max.scale(5, 1);
    c.loss.unresponsive_after = Span::from_ms(d.pick(&[3, 10, 30])).max(patience);
    c.loss.unreachable_after = Span::from_ms(d.pick(&[3, 10, 30])).max(patience);
    c.ack.every = d.pick(&[1, 2, 8, 64]);
    c.ack.delay_max = Span::from_us(d.pick(&[0, 5, 50]));
    c.ack.delay_requested = Span::from_us(d.pick(&[0, 0, 5]));
    c.rnr.delay_first = Span::from_us(d.pick(&[1, 20]));
    c.rnr.delay_max = Span::from_us(d.pick(&[50, 500]));
    c
}

/// In some worlds whose cables drop large packets, all cables do, and engines search for the packet
/// size. Returns the duration of the search.
fn narrow(seed: u64, classes: Classes, c: &mut EngineConfig) -> Option<Ps> {
    let narrow = classes.has(Class::Mtu) && Draw::new(seed, stream::NARROW, 0).percent(50);
    if narrow {
        // Sizes below the minimum that every link carries are not searched for.
        let padding = if c.open_padded_len > 0 { 1024 - c.mtu } else { 0 };
        (c.mtu, c.mtu_search) = (1024, true);
        c.open_padded_len += padding;
    }
    narrow.then_some(NARROW_PS)
}

fn machine_draw(d: &mut Draw, classes: Classes, w: Workload) -> Machine {
    let mut m = Machine {
        batch: d.pick(&[1, 1, 4, 64]),
        cq_depth: 512,
        sq_depth: d.pick(&[4, 64, 256]) as u32,
        rq_depth: d.pick(&[8, 64]) as u32,
        qps: d.range(1, 3) as u32,
        rnr_retry: d.pick(&[7, 7, 7, 3]) as u8,
        bad: if d.percent(40) { d.pick(&[3, 15]) } else { 0 },
        release_batch: d.pick(&[1, 1, 8]) as u32,
        ..Machine::default()
    };
    if classes.has(Class::Rnr) || w == Workload::Rnr {
        m.rnr_retry = d.pick(&[7, 7, 0, 1, 6]) as u8;
    }
    if classes.has(Class::CqFull) {
        m.cq_depth = 2 * (m.qps + 1) + d.range(0, 12) as u32;
        m.lazy_poll = true;
    }
    if w == Workload::Churn && d.percent(60) {
        m.lazy_poll = true;
    }
    if classes.has(Class::Clock) {
        m.late_ps = d.range(1, 200) * US;
        m.drift_ppm = 200;
    }
    if classes.has(Class::Backpressure) {
        m.hold_ps = d.range(1, 40) * US;
        // Deeper than the minimum that a sender may have in flight in its smallest packets.
        m.hold_max = d.range(48, 128) as usize;
        m.refuse_drop = d.pick(&[0, 50]);
        m.batch = d.range(1, 5) as usize;
    }
    m
}
