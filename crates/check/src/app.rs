//! The application of an engine: posts requests, keeps receives posted, makes and destroys objects.

use crate::class::Class;
use crate::cover::Cover;
use crate::draw::Draw;
use crate::ledger::{Ledger, NO_CREDIT, Oracle, Region, Req, ReqState};
use crate::node::Node;
use crate::packet::{host_of, ip_of};
use crate::scenario::{Scenario, stream};
use crate::shards::Command;
use srd_core::{
    AhId, Completion, CompletionKind, MrKey, Opcode, PostRefusal, QpModify, QpState, QpType, Qpn,
    RecvHandle, RecvRequest, SendRequest, Status,
};
use srd_fabric::{NS, Ps, US};

/// State of an application.
#[derive(Debug)]
pub struct App {
    /// Source of its random choices.
    pub draw: Draw,
    /// Messages still to be posted.
    pub left: u32,
    /// Time of the next step.
    pub next_at: Ps,
    /// Next `wr_id`.
    pub wr_id: u64,
    /// Steps so far.
    pub steps: u32,
    /// No receives are posted before this time.
    pub starve_until: Ps,
}

impl App {
    /// The application of engine `id`.
    pub fn new(s: &Scenario, id: u16, host: u32) -> Self {
        let quarter = s.bytes.len() / 4;
        let k = usize::from(id % 4);
        let bytes = &s.bytes[k * quarter..(k + 1) * quarter];
        let mut draw = Draw::with_bytes(s.seed, stream::APP, u64::from(id), bytes);
        let quiet = s.profile.incast && host == 0;
        let left = if quiet { s.profile.messages / 8 } else { s.profile.messages };
        let next_at = draw.below(s.profile.pause_ns) * NS;
        Self { draw, left, next_at, steps: 0, wr_id: 0, starve_until: 0 }
    }
}

impl Node {
    /// One step of the application.
    pub fn app_step(&mut self, s: &Scenario, led: &mut Ledger) {
        // Sometimes objects are destroyed before their completions are polled.
        if led.calm || !s.classes.has(Class::Churn) || self.app.draw.percent(60) {
            self.poll(s, led);
        }
        // Return all completion slots, so that none is withheld for ever.
        self.engine.cq_release(self.cq, self.mirror.unreleased);
        self.mirror.unreleased = 0;
        if led.now >= s.heal_at {
            led.calm = true;
        }
        // After its last message an application only keeps receives posted.
        let idle = led.calm || self.app.left == 0;
        let pause = self.app.draw.range(1, s.profile.pause_ns) * NS;
        self.app.next_at = led.now + if idle { pause.max(300 * US) } else { pause };
        self.receives_fill(s, led);
        let steady = s.profile.steady && self.host == 0;
        let churns = s.classes.has(Class::Churn) && !led.calm && !steady;
        if churns && self.app.draw.percent(s.profile.churn) {
            self.churn(s, led);
        }
        if self.app.left > 0 && !led.calm {
            let burst = self.app.draw.range(1, u64::from(s.profile.burst)) as u32;
            for _ in 0..burst.min(self.app.left) {
                self.app.left -= 1;
                self.message_post(s, led);
            }
        }
        self.app.steps += 1;
        if self.app.steps.is_multiple_of(4) {
            self.accounts_check(led);
        }
    }

    /// Keeps receives posted, except before `starve_until`.
    pub fn receives_fill(&mut self, s: &Scenario, led: &mut Ledger) {
        if s.classes.has(Class::Rnr) && !led.calm {
            if led.now < self.app.starve_until {
                return;
            }
            if self.app.draw.percent(30) {
                self.app.starve_until = led.now + self.app.draw.range(1, 800) * 1_000 * NS;
            }
        }
        // Half of the completion queue is for sends: if receives or sends could fill it alone, two
        // engines could wait for each other for ever.
        let share = s.machine.cq_depth / 2 / (s.machine.qps + 1);
        let most = s.profile.receives.min(s.machine.rq_depth).min(share.max(1));
        let qpns: Vec<Qpn> = self.mirror.qps.iter().map(|q| q.qpn).collect();
        for qpn in qpns {
            for _ in 0..most {
                let full = self.mirror.qp(qpn).is_none_or(|q| q.receives.len() as u32 >= most);
                if full || !self.receive_post(s, led, qpn) {
                    break;
                }
            }
        }
    }

    fn receive_post(&mut self, s: &Scenario, led: &mut Ledger, qpn: Qpn) -> bool {
        self.app.wr_id += 1;
        let short = !led.calm && s.machine.bad > 0 && self.app.draw.percent(3);
        let len = if short { 16 } else { u32::from(s.config.mtu) + 40 };
        let wr = RecvRequest { wr_id: self.app.wr_id | 1 << 63, len };
        let reserved = self.mirror.reserved();
        let (cq_depth, rq_depth) = (self.mirror.cq_depth, s.machine.rq_depth);
        let posted = self.engine.post_recv(qpn, &wr);
        let Some(q) = self.mirror.qp(qpn) else { return false };
        let right = match posted {
            Ok(h) => {
                let twice = q.receives.iter().any(|r| r.0 == h.index);
                q.receives.push_back((h.index, wr.wr_id, len));
                !twice && h.qp == qpn && q.state.posts_recv()
            }
            Err(PostRefusal::BadState) => !q.state.posts_recv(),
            Err(PostRefusal::QueueFull) => q.receives.len() as u32 == rq_depth,
            Err(PostRefusal::CqFull) => reserved == cq_depth,
            Err(_) => false,
        };
        led.require(right, Oracle::Post, || format!("{qpn:?}: {wr:?}: {posted:?}"));
        posted.is_ok()
    }

    /// Posts one message to a random engine.
    fn message_post(&mut self, s: &Scenario, led: &mut Ledger) {
        if self.mirror.sends + 1 >= self.mirror.cq_depth / 2 {
            return;
        }
        let slots = s.slots.len() as u64;
        let engines = u64::from(s.hosts) * slots;
        let d = &mut self.app.draw;
        let mut to =
            if s.profile.incast && self.host != 0 { d.below(slots) } else { d.below(engines) };
        if to == u64::from(self.id) && d.percent(90) {
            to = (to + 1) % engines;
        }
        self.message_post_to(s, led, to as u16);
    }

    /// Posts one message to engine `to`.
    pub fn message_post_to(&mut self, s: &Scenario, led: &mut Ledger, to: u16) {
        let d = &mut self.app.draw;
        let kind = d.weighted(&s.profile.ops);
        let datagram = kind == 5;
        let op = match kind {
            0 => Opcode::Send,
            1 => Opcode::SendImm,
            2 => Opcode::Write,
            3 => Opcode::WriteImm,
            4 => Opcode::Read,
            _ => d.pick(&[Opcode::Send, Opcode::SendImm]),
        };
        let rdma = matches!(op, Opcode::Write | Opcode::WriteImm | Opcode::Read);
        let mtu = u64::from(s.config.mtu);
        let mut len = match d.weighted(&s.profile.lens) {
            0 => 0,
            1 => d.range(1, 64),
            2 => mtu - d.below(3),
            3 => d.range(1, 5) * mtu + d.below(3) - 1,
            _ => d.range(8, 60) * mtu,
        };
        if !rdma {
            len = len.min(mtu);
        }
        let Some((dst_qpn, qkey)) = self.target(led, to, datagram) else { return };
        let region = self.region_of(s, led, to, op);
        let (rkey, raddr) = match region {
            Some(r) if rdma => {
                len = len.min(r.len);
                (r.key, r.addr + self.app.draw.below(r.len - len + 1))
            }
            None if rdma => (0, 0),
            _ => (0, 0),
        };
        let imm = self.app.draw.bits() as u32;
        self.app.wr_id += 1;
        let mut wr = SendRequest {
            wr_id: self.app.wr_id,
            op,
            ah: srd_core::AhId(0),
            dst_qpn,
            qkey,
            len: len as u32,
            rkey,
            raddr,
            imm,
        };
        let host = u32::from(to) / s.slots.len() as u32;
        let ip = ip_of(host);
        let now = self.clock.read(led.now);
        let ah = self.mirror.ahs.iter().find(|a| a.1 == ip).map(|a| a.0);
        if ah.is_none() && s.sharded {
            return self.orders.push(Command::HandleNew(ip));
        }
        let Some(ah) = ah.or_else(|| self.ah_add(now, ip)) else { return };
        wr.ah = ah;
        if !led.calm && self.app.draw.percent(s.machine.bad) {
            self.spoil(&mut wr, region);
        }
        let kind = if datagram { QpType::Ud } else { QpType::Srd };
        let own: Vec<Qpn> =
            self.mirror.qps.iter().filter(|q| q.kind == kind).map(|q| q.qpn).collect();
        if own.is_empty() {
            return;
        }
        let qpn = self.app.draw.pick(&own);
        self.post(s, led, qpn, wr);
    }

    /// A queue pair of engine `to` and its key.
    fn target(&mut self, led: &Ledger, to: u16, datagram: bool) -> Option<(Qpn, u32)> {
        let all = &led.public[usize::from(to)].qps;
        let fit: Vec<(Qpn, u32)> =
            all.iter().filter(|q| q.2 == datagram).map(|q| (q.0, q.1)).collect();
        (!fit.is_empty()).then(|| self.app.draw.pick(&fit))
    }

    /// A region of engine `to` that permits the operation; sometimes one that does not.
    fn region_of(&mut self, s: &Scenario, led: &Ledger, to: u16, op: Opcode) -> Option<Region> {
        use srd_core::Access;
        let wrong = !led.calm && self.app.draw.percent(s.machine.bad);
        let need = match op {
            _ if wrong => 0,
            Opcode::Read => Access::REMOTE_READ,
            _ => Access::REMOTE_WRITE,
        };
        let all = &led.public[usize::from(to)].regions;
        let fit: Vec<Region> = all.iter().copied().filter(|r| r.access.allows(need)).collect();
        (!fit.is_empty()).then(|| self.app.draw.pick(&fit))
    }

    /// Makes a request invalid.
    fn spoil(&mut self, wr: &mut SendRequest, region: Option<Region>) {
        match self.app.draw.below(5) {
            0 => wr.qkey ^= 1,
            1 => wr.dst_qpn.0 ^= 0x80,
            2 => wr.rkey ^= 1 << 25,
            3 => {
                if let Some(r) = region {
                    wr.raddr = (r.addr + r.len).saturating_sub(u64::from(wr.len) / 2);
                }
            }
            _ => wr.raddr = wr.raddr.wrapping_sub(1 << 30),
        }
    }

    /// Posts a request and checks the result.
    pub fn post(&mut self, s: &Scenario, led: &mut Ledger, qpn: Qpn, wr: SendRequest) {
        let now = self.clock.read(led.now);
        let posted = self.engine.post_send(now, qpn, &wr);
        self.observed(led);
        let live = self.wrs.iter().flatten().count() as u32;
        let reserved = self.mirror.reserved();
        let (cq_depth, sq_depth, wrs_max) =
            (self.mirror.cq_depth, s.machine.sq_depth, self.cfg.wrs_max);
        let mtu = u32::from(self.cfg.mtu);
        let known = self.mirror.ahs.iter().find(|a| a.0 == wr.ah).map(|a| a.1);
        let Some(q) = self.mirror.qp(qpn) else { return };
        let rdma = !matches!(wr.op, Opcode::Send | Opcode::SendImm);
        let right = match posted {
            Ok(_) => {
                let fits = rdma || wr.len <= mtu;
                q.state.posts_send() && known.is_some() && reserved < cq_depth && fits
            }
            Err(PostRefusal::BadState) => !q.state.posts_send(),
            Err(PostRefusal::QueueFull) => q.sends >= sq_depth,
            Err(PostRefusal::CqFull) => reserved == cq_depth,
            Err(PostRefusal::NoRoom) => live >= wrs_max || self.cfg.contexts_max < 64,
            Err(PostRefusal::BadLength) => wr.len > mtu && !rdma,
            Err(PostRefusal::BadAh) => known.is_none(),
            Err(_) => false,
        };
        led.require(right, Oracle::Post, || format!("{qpn:?}: {wr:?}: {posted:?}"));
        let Ok(h) = posted else { return };
        let (datagram, rnr_retry) = (q.kind == QpType::Ud, q.rnr_retry);
        q.sends += 1;
        self.mirror.sends += 1;
        let host = known.and_then(|ip| host_of(ip, s.hosts));
        let slot = s.slots.iter().position(|&k| k == wr.dst_qpn.slot());
        let dst = host.zip(slot).map(|(h, k)| (h as usize * s.slots.len() + k) as u16);
        let req = led.reqs.len() as u32;
        led.tally.requests += 1;
        led.reqs.push(Req {
            owner: self.id,
            epoch: self.epoch,
            at: led.now,
            qpn,
            wr,
            datagram,
            dst,
            rnr_retry,
            state: ReqState::Live,
            placed: Cover::default(),
            verdicts: 0,
            rnr: 0,
            delivered: 0,
            region_gone: false,
            calm: led.calm,
            credit: None,
        });
        let id = self.id;
        led.note(|| format!("engine {id} posts request {req} as {h:?}: {qpn:?} {wr:?}"));
        if self.wrs.len() <= h.0 as usize {
            self.wrs.resize(h.0 as usize + 1, None);
        }
        let before = self.wrs[h.0 as usize].replace(req);
        led.require(before.is_none(), Oracle::Post, || format!("{h:?} was given out twice"));
    }

    /// Destroys or changes an object while it is in use.
    fn churn(&mut self, s: &Scenario, led: &mut Ledger) {
        let now = self.clock.read(led.now);
        let qpns: Vec<Qpn> = self.mirror.qps.iter().map(|q| q.qpn).collect();
        led.tally.churned += 1;
        match self.app.draw.weighted(&[4, 1, 1, 3, 1]) {
            0 if !qpns.is_empty() => {
                let qpn = self.app.draw.pick(&qpns);
                self.qp_remove(led, qpn);
                self.qp_add(s, led, now, QpType::Srd);
            }
            1 => {
                let regions = &led.public[usize::from(self.id)].regions;
                let keys: Vec<u32> = regions.iter().map(|r| r.key).collect();
                if keys.is_empty() {
                    return;
                }
                let key = MrKey(self.app.draw.pick(&keys));
                led.note(|| format!("region {:x} goes", key.0));
                if s.sharded {
                    let plan = self.region_draw();
                    self.orders.push(Command::RegionGone(key));
                    return self.orders.push(Command::RegionNew(plan));
                }
                self.region_leave(led, key);
                led.public[usize::from(self.id)].regions.retain(|r| r.key != key.0);
                self.mr_add(led);
            }
            2 => {
                let all = self.mirror.ahs.clone();
                if all.is_empty() {
                    return;
                }
                let (ah, ip) = self.app.draw.pick(&all);
                if s.sharded {
                    self.orders.push(Command::HandleGone(ah));
                } else {
                    self.handle_leave(led, ah);
                }
                if self.app.draw.percent(70) {
                    if s.sharded {
                        self.orders.push(Command::HandleNew(ip));
                    } else {
                        self.ah_add(now, ip);
                    }
                }
            }
            3 if !qpns.is_empty() => {
                let qpn = self.app.draw.pick(&qpns);
                self.qp_fail(led, qpn);
                self.poll(s, led);
                self.qp_remove(led, qpn);
                self.qp_add(s, led, now, QpType::Srd);
            }
            _ if !qpns.is_empty() => {
                let qpn = self.app.draw.pick(&qpns);
                self.qp_drain(led, qpn);
            }
            _ => {}
        }
        self.observed(led);
    }

    /// Destroys an address handle.
    pub(crate) fn handle_leave(&mut self, led: &mut Ledger, ah: AhId) {
        led.note(|| format!("{ah:?} goes"));
        let now = self.clock.read(led.now);
        let done = self.engine.ah_destroy(now, ah);
        // Its requests end here and return their credits before their completions are polled.
        for id in self.wrs.iter().flatten() {
            let r = &mut led.reqs[*id as usize];
            r.credit = if r.wr.ah == ah { Some(NO_CREDIT) } else { r.credit };
        }
        self.mirror.ahs.retain(|a| a.0 != ah);
        led.require(done.is_ok(), Oracle::Post, || format!("{ah:?}: {done:?}"));
    }

    /// Destroys a queue pair with all its outstanding requests.
    pub fn qp_remove(&mut self, led: &mut Ledger, qpn: Qpn) {
        led.note(|| format!("{qpn:?} goes"));
        let now = self.clock.read(led.now);
        let done = self.engine.qp_destroy(now, qpn);
        led.require(done.is_ok(), Oracle::Post, || format!("{qpn:?}: {done:?}"));
        self.mirror.qps.retain(|q| q.qpn != qpn);
        led.public[usize::from(self.id)].qps.retain(|q| q.0 != qpn);
        self.events(led);
        self.purged(led, qpn);
        self.reserved_check(led);
    }

    /// Moves a queue pair to the error state: receives are flushed in order.
    fn qp_fail(&mut self, led: &mut Ledger, qpn: Qpn) {
        led.note(|| format!("{qpn:?} fails"));
        let now = self.clock.read(led.now);
        let to = QpModify { state: Some(QpState::Err), ..QpModify::default() };
        let done = self.engine.qp_modify(now, qpn, to);
        led.require(done.is_ok(), Oracle::Post, || format!("{qpn:?}: {done:?}"));
        let Some(q) = self.mirror.qp(qpn) else { return };
        q.state = QpState::Err;
        let flushed: Vec<_> = q.receives.drain(..).collect();
        for (index, wr_id, _) in flushed {
            let completion = Completion {
                wr_id,
                status: Status::Flushed,
                kind: CompletionKind::Recv(RecvHandle { qp: qpn, index }),
                qpn,
                byte_len: 0,
                imm: None,
                src_qpn: Qpn(0),
                src_ah: srd_core::AhId::UNKNOWN,
                src_ip: None,
            };
            self.mirror.expected.push_back(crate::mirror::Expected { completion, request: None });
        }
    }

    /// Moves a queue pair to SQD, or back to RTS.
    fn qp_drain(&mut self, led: &mut Ledger, qpn: Qpn) {
        let now = self.clock.read(led.now);
        let Some(q) = self.mirror.qp(qpn) else { return };
        let to = if q.state == QpState::Sqd { QpState::Rts } else { QpState::Sqd };
        q.state = to;
        let m = QpModify { state: Some(to), ..QpModify::default() };
        let done = self.engine.qp_modify(now, qpn, m);
        led.require(done.is_ok(), Oracle::Post, || format!("{qpn:?} to {to:?}: {done:?}"));
    }

    /// Moves all queue pairs in SQD back to RTS.
    pub fn undrain(&mut self, led: &mut Ledger) {
        let all: Vec<Qpn> =
            self.mirror.qps.iter().filter(|q| q.state == QpState::Sqd).map(|q| q.qpn).collect();
        for qpn in all {
            self.qp_drain(led, qpn);
        }
    }
}
