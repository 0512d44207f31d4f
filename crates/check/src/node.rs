//! One engine with its memory and objects, and what the oracles know of it.

use crate::app::App;
use crate::deaf::Deaf;
use crate::draw::Draw;
use crate::host::{Newest, Ring};
use crate::ledger::{Ledger, Oracle, Public, Region, ReqState};
use crate::mirror::{Mirror, MrModel, QpModel};
use crate::packet::Pkt;
use crate::recorder::Recorder;
use crate::scenario::{Scenario, stream};
use crate::shards::{Command, RegionPlan};
use rustc_hash::FxHashMap;
use srd_core::wire::{AckBlock, Verdict};
use srd_core::{
    Access, AhId, CqId, Endpoint, Engine, EngineConfig, MrKey, PathMask, PdId, QpInit, QpModify,
    QpState, QpType, Rng, Time,
};
use srd_fabric::{Fault, Ps, US};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// Verdicts of an engine on one peer's packets, for the acknowledgment oracle.
#[derive(Debug, Default)]
pub struct Judgments {
    /// Tag in the peer's packets.
    pub tag: u32,
    /// Verdict of each PSN.
    pub verdicts: FxHashMap<u32, Verdict>,
    /// Verdicts other than OK that the peer may not know yet.
    pub owed: Vec<(u32, Verdict)>,
    /// Last cumulative acknowledgment sent.
    pub cum: Option<u32>,
    /// The peer's lower window edge.
    pub una: u32,
    /// Time of the first verdict since the last acknowledgment.
    pub unsaid_since: Option<Ps>,
}

/// How long an acknowledgment may be delayed.
#[derive(Debug, Default)]
pub struct AckDeadline {
    /// Longest delay: the configured one plus the lateness of timers.
    most_ps: Ps,
    /// Periods in which the host stands still: from, to.
    stalls: Vec<(Ps, Ps)>,
    /// When the NIC last refused a packet; the engine is not polled then.
    pub refused_at: Ps,
}

impl AckDeadline {
    fn new(s: &Scenario, cfg: &EngineConfig, host: u32) -> Self {
        let delay_ns = cfg.ack.delay_max.max(cfg.ack.delay_requested).0;
        // One percent for clock drift; timers are checked once per tick.
        let most_ps = delay_ns * 1_010 + 2 * s.machine.late_ps + 2 * US;
        let stall = |&(at, f): &(Ps, Fault)| match f {
            Fault::HostStall { host: h, for_ps } if h.0 == host => Some((at, at + for_ps)),
            _ => None,
        };
        Self { most_ps, stalls: s.faults.iter().filter_map(stall).collect(), refused_at: 0 }
    }

    /// Whether a packet judged at `since` should have been acknowledged by `now`.
    pub fn is_missed(&self, since: Ps, now: Ps) -> bool {
        let stalled = || self.stalls.iter().any(|s| s.0 <= now && s.1 >= since);
        now > since + self.most_ps && self.refused_at < since && !stalled()
    }
}

/// Token bucket of the pacing oracle, one per address.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Bytes that may leave now.
    pub room: f64,
    /// Time of the last refill, by the engine's clock.
    pub at: Time,
}

/// A machine's clock: random start, drift, leaps ahead.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin_ns: u64,
    origin_ps: Ps,
    ppm: i64,
}

impl Clock {
    /// A clock that shows `origin_ns` at time zero.
    pub fn new(origin_ns: u64, ppm: i64) -> Self {
        Self { origin_ns, origin_ps: 0, ppm }
    }
    /// Its value at `now`.
    pub fn read(&self, now: Ps) -> Time {
        if self.ppm == 0 {
            return Time(self.origin_ns + (now - self.origin_ps) / 1000);
        }
        let ps = i128::from(now - self.origin_ps);
        let ns = ps * (1_000_000 + i128::from(self.ppm)) / 1_000_000_000;
        Time(self.origin_ns + ns as u64)
    }
    /// When its value is at least `t`.
    pub fn when(&self, t: Time) -> Ps {
        if self.ppm == 0 {
            return self.origin_ps + t.0.saturating_sub(self.origin_ns).saturating_mul(1000);
        }
        let ns = i128::from(t.0.saturating_sub(self.origin_ns));
        let ps = (ns * 1_000_000_000).div_euclid(1_000_000 + i128::from(self.ppm)) as u64;
        self.origin_ps + ps + 1_000
    }
    /// Leaps ahead.
    pub fn leap(&mut self, now: Ps, by_ns: u64) {
        *self = Self { origin_ns: self.read(now).0 + by_ns, origin_ps: now, ppm: self.ppm };
    }
}

/// An engine and its surroundings.
pub struct Node {
    /// Index in the ledger.
    pub id: u16,
    /// Host and slot.
    pub host: u32,
    /// Slot on the host.
    pub slot: u8,
    /// Incarnation.
    pub epoch: u32,
    /// The engine.
    pub engine: Engine<Recorder>,
    /// Its configuration.
    pub cfg: EngineConfig,
    /// Its clock.
    pub clock: Clock,
    /// Model of its objects.
    pub mirror: Mirror,
    /// Request of each handle.
    pub wrs: Vec<Option<u32>>,
    /// Verdicts by peer.
    pub judgments: FxHashMap<Endpoint, Judgments>,
    /// Contexts created per peer in this incarnation; PSNs start anew with each.
    pub contexts: FxHashMap<Endpoint, u32>,
    /// How often all requests to a peer may have ended at once; credits are recounted each time.
    pub engagements: FxHashMap<Endpoint, u32>,
    /// When each peer was last heard, by the engine's clock.
    pub heard: FxHashMap<Endpoint, Time>,
    /// Peers that take no packet.
    pub deaf: Deaf,
    /// Pacing by address.
    pub buckets: FxHashMap<IpAddr, Bucket>,
    /// Protection domains.
    pub pds: Vec<PdId>,
    /// The completion queue.
    pub cq: CqId,
    /// Its application.
    pub app: App,
    /// Packets refused by the NIC.
    pub refused: VecDeque<Pkt>,
    /// Packets waiting for the engine: arrival, CE, packet.
    pub held: VecDeque<(Ps, bool, Pkt)>,
    /// Datagrams dropped by the full receive queue.
    pub queue_drops: u32,
    /// Packets passed to the engine; packets emitted by it; bytes emitted.
    pub counts: (u64, u64, u64),
    /// Scratch block for parsing.
    pub ack: AckBlock,
    /// Scratch buffer for parsing.
    pub buffer: Vec<u8>,
    /// Placements delayed by [`Tamper::CopyLate`](crate::ledger::Tamper::CopyLate).
    pub late: Vec<(u32, u32, u32)>,
    /// Time of an engine's timer that fires late.
    pub wake_at: Ps,
    /// Limit on the delay of its acknowledgments.
    pub ack_deadline: AckDeadline,
    /// What waits in front of its memory.
    pub ring: Ring,
    /// By peer: its newest acknowledgment.
    pub newest: FxHashMap<Endpoint, Newest>,
    /// Denied paths by address.
    pub denied: BTreeMap<IpAddr, PathMask>,
    /// Commands for all shards of its device, if it is a shard.
    pub(crate) orders: Vec<Command>,
}

impl Node {
    /// Creates an engine with its usual objects; those of a shard are the objects of the first
    /// shard of its device.
    pub fn new(
        s: &Scenario,
        led: &mut Ledger,
        id: u16,
        (host, slot): (u32, u8),
        first: Option<&Self>,
    ) -> Self {
        let cfg = s.config_of(host, slot);
        let mut d = Draw::new(s.seed, stream::ENGINE, u64::from(id));
        let origin = d.pick(&[1, 1_000_000_000, 68_700_000_000, 1 << 50]) + d.below(1_000_000);
        let ppm = d.below(2 * s.machine.drift_ppm + 1) as i64 - s.machine.drift_ppm as i64;
        let clock = Clock::new(origin, ppm);
        let app = App::new(s, id, host);
        let engine = Self::engine(s, &cfg, id, 0, clock.read(0), led.trace.is_some());
        let ack_deadline = AckDeadline::new(s, &cfg, host);
        let ring = Ring::draw(s, &cfg, id);
        let mut node = Self {
            id,
            host,
            slot,
            epoch: 0,
            engine,
            cfg,
            clock,
            mirror: Mirror::default(),
            wrs: Vec::new(),
            judgments: FxHashMap::default(),
            contexts: FxHashMap::default(),
            engagements: FxHashMap::default(),
            heard: FxHashMap::default(),
            deaf: Deaf::default(),
            buckets: FxHashMap::default(),
            pds: Vec::new(),
            cq: CqId(0),
            app,
            refused: VecDeque::new(),
            held: VecDeque::new(),
            queue_drops: 0,
            counts: (0, 0, 0),
            ack: AckBlock::default(),
            buffer: vec![0; 4096],
            late: Vec::new(),
            wake_at: Ps::MAX,
            ack_deadline,
            ring,
            newest: FxHashMap::default(),
            denied: BTreeMap::new(),
            orders: Vec::new(),
        };
        node.furnish(s, led, first);
        node
    }

    fn engine(
        s: &Scenario,
        cfg: &EngineConfig,
        id: u16,
        epoch: u32,
        now: Time,
        verbose: bool,
    ) -> Engine<Recorder> {
        let mut d =
            Draw::new(s.seed, stream::ENGINE, 1000 + u64::from(id) * 1000 + u64::from(epoch));
        let recorder = Recorder::new(cfg, verbose);
        // A random start unless the world chooses one. A peer in the middle of a handshake cannot
        // tell incarnations with the same first PSN apart.
        let psn_start = cfg.psn_start.map(|p| p.wrapping_sub(epoch << 20));
        let cfg = EngineConfig { psn_start, ..cfg.clone() };
        Engine::new(cfg, Rng::from_seed(d.bits()), now, recorder)
            .unwrap_or_else(|e| panic!("the scenario draws valid configurations: {e}"))
    }

    /// Creates the usual objects.
    fn furnish(&mut self, s: &Scenario, led: &mut Ledger, first: Option<&Self>) {
        let m = &s.machine;
        self.pds = (0..2).map(|_| self.engine.pd_create().expect("room for two")).collect();
        self.cq = self.engine.cq_create(m.cq_depth).expect("room for one");
        self.mirror = Mirror {
            cq_depth: m.cq_depth,
            serves: (self.cfg.rdma_read, self.cfg.rdma_write, self.cfg.rdma_needs_ah),
            ..Mirror::default()
        };
        led.public[usize::from(self.id)] =
            Public { epoch: self.epoch, window: self.cfg.window, ..Public::default() };
        let now = self.clock.read(led.now);
        for _ in 0..m.qps {
            self.qp_add(s, led, now, QpType::Srd);
        }
        if s.profile.ops[5] > 0 {
            self.qp_add(s, led, now, QpType::Ud);
        }
        if let Some(first) = first {
            return self.furnish_as(led, first);
        }
        for _ in 0..2 {
            self.mr_add(led);
        }
        for host in 0..s.hosts {
            self.ah_add(now, crate::packet::ip_of(host));
        }
    }

    /// Gives a shard the regions and handles of the first one.
    fn furnish_as(&mut self, led: &mut Ledger, first: &Self) {
        self.engine.region_keys_as(&first.engine);
        for r in led.public[usize::from(first.id)].regions.clone() {
            let pd = PdId(first.mirror.mrs[&r.key].pd);
            let plan = RegionPlan { addr: r.addr, len: r.len, access: r.access, pd };
            let region = self.region_enter(led, plan, Some(MrKey(r.key)));
            led.public[usize::from(self.id)].regions.extend(region);
        }
        for &(ah, ip) in &first.mirror.ahs {
            self.handle_enter(led, ip, Some(ah));
        }
    }

    /// Kills and restarts the engine; `first` as in [`Node::new`].
    pub fn restart(&mut self, s: &Scenario, led: &mut Ledger, first: Option<&Self>) {
        for req in &mut led.reqs {
            if req.owner == self.id && req.state == ReqState::Live {
                req.state = ReqState::Orphan;
            }
        }
        led.disturbed = true;
        led.tally.restarts += 1;
        self.epoch += 1;
        let (now, verbose) = (self.clock.read(led.now), led.trace.is_some());
        self.engine = Self::engine(s, &self.cfg, self.id, self.epoch, now, verbose);
        self.wrs.clear();
        self.judgments.clear();
        self.contexts.clear();
        self.heard.clear();
        self.deaf = Deaf::default();
        self.newest.clear();
        self.ring = Ring::draw(s, &self.cfg, self.id);
        self.buckets.clear();
        self.refused.clear();
        self.held.clear();
        self.late.clear();
        self.counts = (0, 0, 0);
        led.note(|| format!("engine {} starts life {}", self.id, self.epoch));
        self.deny_again(now);
        self.orders.clear();
        self.furnish(s, led, first);
    }

    /// Creates a queue pair and moves it to RTS.
    pub fn qp_add(&mut self, s: &Scenario, led: &mut Ledger, now: Time, kind: QpType) -> bool {
        let m = &s.machine;
        let unsolicited = self.app.draw.percent(20);
        let qkey = self.app.draw.pick(&[0x11, 0x22]);
        let rnr_retry = m.rnr_retry;
        let pd = self.pds[0];
        let init = QpInit {
            kind,
            pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            sq_depth: m.sq_depth,
            rq_depth: m.rq_depth,
            unsolicited_write_recv: unsolicited,
        };
        let Ok(qpn) = self.engine.qp_create(now, init) else { return false };
        let reused = self.mirror.qp(qpn).is_some();
        led.require(!reused, Oracle::Destroyed, || format!("{qpn:?} was returned twice"));
        let steps = [
            QpModify { state: Some(QpState::Init), qkey: Some(qkey), rnr_retry: None },
            QpModify { state: Some(QpState::Rtr), qkey: None, rnr_retry: None },
            QpModify { state: Some(QpState::Rts), qkey: None, rnr_retry: Some(rnr_retry) },
        ];
        for step in steps {
            let moved = self.engine.qp_modify(now, qpn, step);
            led.require(moved.is_ok(), Oracle::Post, || format!("{qpn:?}: {step:?}: {moved:?}"));
        }
        self.mirror.qps.push(QpModel {
            qpn,
            kind,
            state: QpState::Rts,
            qkey,
            pd: pd.0,
            receives: VecDeque::new(),
            unsolicited,
            rnr_retry,
            sends: 0,
        });
        led.public[usize::from(self.id)].qps.push((qpn, qkey, kind == QpType::Ud));
        true
    }

    /// Registers a region.
    pub fn mr_add(&mut self, led: &mut Ledger) {
        let plan = self.region_draw();
        let region = self.region_enter(led, plan, None);
        led.public[usize::from(self.id)].regions.extend(region);
    }

    /// Some region.
    pub(crate) fn region_draw(&mut self) -> RegionPlan {
        let d = &mut self.app.draw;
        let (addr, len) =
            (d.pick(&[0x1000, 1 << 40, u64::MAX - (1 << 20)]), d.pick(&[4096, 65_536]));
        let all = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE;
        let access = Access(d.pick(&[all, all, all, Access::REMOTE_READ, Access::REMOTE_WRITE]));
        let pd = if d.percent(5) { self.pds[1] } else { self.pds[0] };
        RegionPlan { addr, len, access, pd }
    }

    /// Notes a region that the engine has registered.
    pub(crate) fn region_known(
        &mut self,
        led: &mut Ledger,
        plan: RegionPlan,
        key: MrKey,
    ) -> Region {
        let RegionPlan { addr, len, access, pd } = plan;
        let id = led.regions.len() as u32;
        led.regions.push((self.id, key.0));
        let twice = self.mirror.mrs.insert(key.0, MrModel { id, addr, len, access, pd: pd.0 });
        led.require(twice.is_none(), Oracle::Destroyed, || format!("{key:?} was returned twice"));
        Region { owner: self.id, id, key: key.0, addr, len, access }
    }

    /// Creates an address handle if there is room.
    pub fn ah_add(&mut self, now: Time, ip: IpAddr) -> Option<AhId> {
        let ah = self.engine.ah_create(now, self.pds[0], ip).ok()?;
        self.mirror.ahs.push((ah, ip));
        Some(ah)
    }
}
