//! The members of a crowded world and the loop that moves them.

use super::member::{Goal, Member};
use super::net::{Event, Gram, Net};
use super::plan::{PACKETS, Plan};
use crate::draw::Draw;
use crate::ledger::{Oracle, Violation, fold};
use crate::packet::host_of;
use crate::scenario::stream;
use crate::trace::Trace;
use srd_core::config::PORT_BASE_DEFAULT;
use srd_fabric::NS;
use std::net::IpAddr;

/// Events after which a world is stuck in a loop: ten times what the largest needs.
const EVENTS_MAX: u64 = 20_000_000;
/// Bytes of the largest datagram.
const DATAGRAM_MAX: usize = 1 << 16;

/// Counts since the world began.
#[derive(Clone, Debug, Default)]
struct Counts {
    at: u64,
    delivered: Vec<u64>,
    offered: u64,
    dropped: u64,
}

/// What happened while the world was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub ns: u64,
    /// Bytes of each sender that were placed.
    pub delivered: Vec<u64>,
    /// Datagrams that reached the bottleneck, and of these, datagrams that it dropped.
    pub offered: u64,
    pub dropped: u64,
}

impl Measured {
    /// Datagrams that the bottleneck dropped, per thousand.
    pub fn lost_permille(&self) -> u64 {
        self.dropped * 1000 / self.offered.max(1)
    }

    /// Bytes of all senders per second.
    pub fn rate(&self) -> u64 {
        let bytes: u128 = self.delivered.iter().map(|&d| u128::from(d)).sum();
        (bytes * 1_000_000_000 / u128::from(self.ns.max(1))) as u64
    }

    /// Jain's index of fairness, per thousand.
    pub fn jain_permille(&self) -> u64 {
        let each = || self.delivered.iter().map(|&d| u128::from(d));
        let (sum, squares) = (each().sum::<u128>(), each().map(|d| d * d).sum::<u128>());
        (sum * sum * 1000 / (self.delivered.len() as u128 * squares).max(1)) as u64
    }

    /// What the least sender got, in percent of an equal part.
    pub fn least_percent(&self) -> u64 {
        let sum: u128 = self.delivered.iter().map(|&d| u128::from(d)).sum();
        let least = u128::from(self.delivered.iter().copied().min().unwrap_or(0));
        (least * 100 * self.delivered.len() as u128 / sum.max(1)) as u64
    }
}

impl core::fmt::Display for Measured {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{} of {} datagrams were dropped ({} per thousand), {} bytes per second arrived in {} \
             us; Jain's index is {} per thousand, the least sender has {} % of an equal part",
            self.dropped,
            self.offered,
            self.lost_permille(),
            self.rate(),
            self.ns / 1000,
            self.jain_permille(),
            self.least_percent(),
        )
    }
}

/// See the module.
pub(super) struct Stage<'a> {
    plan: &'a Plan,
    pub net: Net,
    /// The receiver, then the senders.
    pub members: Vec<Member>,
    goal: Goal,
    /// Requests that a sender keeps outstanding.
    depth: u64,
    now: u64,
    delivered: Vec<u64>,
    since: Counts,
    /// What was measured: before the bottleneck changed, and after.
    pub measured: Vec<Measured>,
    /// All requests were posted.
    over: bool,
    buffer: Vec<u8>,
    pub packets: u64,
    pub received: u64,
    pub hash: u64,
    /// The first violation.
    pub wrong: Option<Violation>,
    pub trace: Option<Box<Trace>>,
}

impl<'a> Stage<'a> {
    pub fn new(plan: &'a Plan, trace: bool) -> Self {
        let per = plan.engines_per_host;
        let hosts = plan.hosts() as usize;
        let mut draw = Draw::new(plan.seed, stream::CROWD, 1);
        let mut members = vec![Member::new(plan, 0, 0)];
        members
            .extend((0..plan.senders()).map(|k| Member::new(plan, 1 + k / per, (k % per) as u8)));
        let begins: Vec<u64> = plan.bases_ns.iter().map(|&b| 1 + draw.below(b)).collect();
        let mut net = Net::new(plan, hosts, draw);
        for (k, at) in begins.into_iter().enumerate() {
            net.at(at, Event::Begin(k));
        }
        for (k, at) in plan.ends_ns().into_iter().enumerate() {
            net.at(at, Event::Phase(k));
        }
        Self {
            plan,
            net,
            goal: members[0].goal(),
            depth: plan.depth(),
            members,
            now: 0,
            delivered: vec![0; plan.senders()],
            since: Counts::default(),
            measured: Vec::new(),
            over: false,
            buffer: vec![0; DATAGRAM_MAX],
            packets: 0,
            received: 0,
            hash: 0,
            wrong: None,
            trace: trace.then(Box::default),
        }
    }

    /// Records a violation; only the first is kept.
    #[cold]
    pub fn fail(&mut self, oracle: Oracle, what: String) {
        self.wrong.get_or_insert(Violation { oracle, at: self.now * NS, what });
    }

    /// From the first event until all requests have ended.
    pub fn run(&mut self) {
        let end = self.plan.ends_ns()[3] + self.plan.drain_ns();
        let mut events = 0;
        while self.wrong.is_none() && !(self.over && self.open() == 0) {
            let Some((at, event)) = self.net.next(end) else { break };
            self.now = at;
            match event {
                Event::Bottleneck(gram) => {
                    let base_ns = self.plan.bases_ns[gram.sender];
                    self.net.bottleneck(at, base_ns, gram);
                }
                Event::Arrive(gram) => self.arrive(&gram),
                Event::Wake(id) if self.members[id].wake_at == at => self.turn(id),
                Event::Wake(_) => {}
                Event::Begin(sender) => self.turn(1 + sender),
                Event::Phase(k) => self.phase(k),
            }
            events += 1;
            if events > EVENTS_MAX {
                self.fail(Oracle::Loop, format!("{events} events without an end"));
            }
        }
        let open = self.open();
        if open > 0 {
            self.fail(Oracle::Liveness, format!("{open} requests have not ended"));
        }
    }

    /// Requests that have not ended.
    fn open(&self) -> u64 {
        self.members.iter().map(|m| m.posted - m.ended).sum()
    }

    /// The sender with an address.
    fn sender_at(&self, ip: IpAddr, port: u16) -> Option<usize> {
        let (hosts, per) = (self.plan.senders() as u32 + 1, self.plan.engines_per_host);
        let host = host_of(ip, hosts)?.checked_sub(1)? as usize;
        let slot = usize::from(port.checked_sub(PORT_BASE_DEFAULT)?);
        Some(host * per + slot).filter(|&k| slot < per && k < self.plan.senders())
    }

    fn arrive(&mut self, gram: &Gram) {
        let id = if gram.forth { 0 } else { 1 + gram.sender };
        self.received += 1;
        match self.members[id].deliver(self.now, gram, &mut self.buffer) {
            Ok(bytes) if gram.forth => self.delivered[gram.sender] += bytes,
            Ok(0) => {}
            Ok(_) => self.fail(Oracle::Placement, format!("a sender places {gram:?}")),
            Err(what) => self.fail(Oracle::Judgment, what),
        }
        self.hash = fold(self.hash, self.now, gram.len as u64);
        self.turn(id);
    }

    /// Lets a member do all it can now.
    fn turn(&mut self, id: usize) {
        let (now, len) = (self.now, PACKETS * self.plan.mtu());
        loop {
            if id > 0 && !self.over {
                let m = &mut self.members[id];
                while m.posted - m.ended < self.depth && m.post(now, self.goal, len) {}
            }
            let ended = self.members[id].ended;
            if let Err(what) = self.members[id].pump(now) {
                self.fail(Oracle::Completion, what);
            }
            if self.members[id].ended == ended || self.over {
                break;
            }
        }
        self.carry(id);
        let m = &mut self.members[id];
        let due = m.due(now);
        if due != m.wake_at {
            m.wake_at = due;
            if due != u64::MAX {
                self.net.at(due, Event::Wake(id));
            }
        }
    }

    /// Hands the packets of a member to the network.
    fn carry(&mut self, id: usize) {
        let mut out = core::mem::take(&mut self.members[id].out);
        for mut gram in out.drain(..) {
            self.packets += 1;
            gram.forth = id > 0;
            let to = self.sender_at(gram.dst.ip, gram.dst.port);
            match if id > 0 { Some(id - 1) } else { to } {
                Some(sender) => gram.sender = sender,
                None => {
                    self.fail(Oracle::Window, format!("a packet to nobody: {gram:?}"));
                    continue;
                }
            }
            let base_ns = self.plan.bases_ns[gram.sender];
            self.net.send(self.now, self.members[id].host, base_ns, gram);
        }
        self.members[id].out = out;
    }

    fn counts(&self) -> Counts {
        let delivered = self.delivered.clone();
        let (offered, dropped) = (self.net.offered, self.net.dropped);
        Counts { at: self.now, delivered, offered, dropped }
    }

    /// A phase of [`Plan::ends_ns`] ends.
    fn phase(&mut self, k: usize) {
        if k.is_multiple_of(2) {
            self.since = self.counts();
        } else {
            self.measure();
            self.net.changed = self.plan.recover_ns > 0;
        }
        if k == 3 {
            self.over = true;
        }
    }

    fn measure(&mut self) {
        let (from, to) = (&self.since, self.counts());
        if to.at == from.at {
            return;
        }
        let measured = Measured {
            ns: to.at - from.at,
            delivered: to.delivered.iter().zip(&from.delivered).map(|(a, b)| a - b).collect(),
            offered: to.offered - from.offered,
            dropped: to.dropped - from.dropped,
        };
        if let Some(trace) = &mut self.trace {
            trace.line(self.now * 1000, measured.to_string());
            for (k, (bytes, m)) in measured.delivered.iter().zip(&self.members[1..]).enumerate() {
                let contexts = m.engine.context_stats();
                let Some(c) = contexts.first() else { continue };
                let (rate, rtt, least) = (c.rate_bytes_per_sec, c.srtt_ns, c.rtt_ns_min);
                let (inflight, most) = (c.inflight_bytes, c.inflight_bytes_max);
                let text = format!(
                    "sender {k}: {bytes} bytes arrived; {rate} bytes per second, srtt {rtt} ns, \
                     least {least} ns, {inflight} bytes of {most} in flight, credit {:?}",
                    c.credit_bytes
                );
                trace.line(self.now * 1000, text);
            }
        }
        self.measured.push(measured);
    }
}
