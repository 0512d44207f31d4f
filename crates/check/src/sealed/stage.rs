//! The members of a sealed world, their requests, and the loop that moves them.

use super::attack::Attacker;
use super::member::{Member, QKEY, REGION_AT, REGION_BYTES, Sink, content, salt_of};
use super::network::{Gram, Network};
use super::plan::{Plan, TICK_NS};
use crate::cover::Cover;
use crate::draw::Draw;
use crate::ledger::{Oracle, Violation, fold};
use crate::scenario::stream;
use crate::trace::Trace;
use srd_core::{AsyncEvent, CompletionKind, Endpoint, Opcode, SendRequest, Status, Time, WrHandle};
use srd_fabric::NS;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Packets per poll.
const BATCH: usize = 16;
/// Events after which a world is stuck in a loop: some fifty times what the largest needs.
const EVENTS_MAX: u64 = 2_000_000;
/// All operations.
const OPS: [Opcode; 4] = [Opcode::Send, Opcode::Write, Opcode::WriteImm, Opcode::Read];

/// A request.
#[derive(Debug)]
pub(super) struct Job {
    pub from: usize,
    pub to: usize,
    pub op: Opcode,
    pub len: u32,
    raddr: u64,
    pub posted_at: u64,
    placed: Cover,
    /// Immediates and messages that arrived.
    arrived: u32,
    pub ended: Option<(u64, Status)>,
    /// Its engine was killed.
    pub orphan: bool,
}

/// Requests of one member to another, a few at a time.
#[derive(Debug)]
struct Flow {
    from: usize,
    to: usize,
    left: u32,
    open: u32,
    from_ns: u64,
}

/// See the module.
pub(super) struct Stage<'a> {
    pub plan: &'a Plan,
    seed: u64,
    pub members: Vec<Member>,
    pub network: Network,
    attacker: Attacker,
    pub draw: Draw,
    pub now: u64,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    grams: rustc_hash::FxHashMap<u64, Gram>,
    order: u64,
    pub jobs: Vec<Job>,
    flows: Vec<Flow>,
    /// By sender and receiver: when a request first succeeded that was posted after the last
    /// restart of either of them (0: from the start). Until then the one may have a context that
    /// the other has lost.
    renewed: Vec<Vec<u64>>,
    /// When each member was restarted last.
    restarted: Vec<u64>,
    pub restarts: u64,
    /// Datagrams that the present life of a member has taken: member, life, datagram.
    pub taken: rustc_hash::FxHashSet<(usize, u32, u64)>,
    /// Pairs of which the first was told that the second refuses it, and those of which the first
    /// has refused the second.
    pub told: Vec<(usize, Endpoint)>,
    pub denied: Vec<(usize, Endpoint)>,
    pub received: u64,
    pub forged: u64,
    pub hash: u64,
    pub wrong: Option<Violation>,
    pub trace: Option<Box<Trace>>,
}

impl<'a> Stage<'a> {
    pub fn new(plan: &'a Plan, seed: u64, trace: bool) -> Self {
        let now = 1_000;
        let mut draw = Draw::new(seed, stream::SEALED, 1);
        let members = (0..plan.members).map(|id| Member::new(plan, seed, id, 0, now)).collect();
        let pairs = (0..plan.members).flat_map(|a| (0..plan.members).map(move |b| (a, b)));
        let late = |d: &mut Draw, from: usize, to: usize| match plan.answers_lost[0] {
            _ if plan.answers_lost_ns.is_some() => {
                plan.answers_lost_ns.map_or(0, |at| at[0]) + d.below(300_000)
            }
            // Its third Open, which begins a handshake of its own, meets the fourth of the other.
            1.. if from < to && d.percent(50) => 380_000 + d.below(40_000),
            1.. if from < to => d.below(1_000_000),
            _ if d.percent(70) => 0,
            _ => d.below(plan.load_ns / 2),
        };
        let flows = pairs
            .filter(|(a, b)| a != b || draw.percent(10))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(from, to)| {
                let from_ns = now + late(&mut draw, from, to);
                Flow { from, to, left: plan.requests, open: 0, from_ns }
            })
            .collect();
        Self {
            plan,
            seed,
            members,
            network: Network::default(),
            attacker: Attacker::new(seed),
            draw,
            now,
            heap: BinaryHeap::new(),
            grams: rustc_hash::FxHashMap::default(),
            order: 0,
            jobs: Vec::new(),
            flows,
            renewed: vec![vec![0; plan.members]; plan.members],
            restarted: vec![0; plan.members],
            restarts: 0,
            taken: rustc_hash::FxHashSet::default(),
            told: Vec::new(),
            denied: Vec::new(),
            received: 0,
            forged: 0,
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

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        let at = self.now * 1000;
        if let Some(trace) = &mut self.trace {
            trace.line(at, text());
        }
    }

    pub fn member_at(&self, at: Endpoint) -> Option<usize> {
        self.members.iter().position(|m| m.at == at)
    }

    /// Whether requests between two members must succeed that were under way from `since` on.
    fn is_sound(&self, a: usize, b: usize, since: u64) -> bool {
        // Who reads the tags of a context without a seal can end it.
        let honest = self.plan.is_guarded(a, b) && !self.is_of_liar(a, b);
        self.renewed[a][b] <= since && honest && self.plan.can_meet(a, b)
    }

    /// Whether the liar is one of two members.
    pub fn is_of_liar(&self, a: usize, b: usize) -> bool {
        self.plan.liar && [a, b].contains(&(self.plan.members - 1))
    }

    /// From the first event to the last.
    pub fn run(&mut self) {
        let end = self.plan.end_ns();
        let mut last = self.plan.rounds_ns().collect::<Vec<_>>();
        last.reverse();
        let (mut tick, mut acts) = (self.now + TICK_NS, self.plan.restarts.clone());
        acts.reverse();
        let mut events = 0;
        for id in 0..self.members.len() {
            self.turn(id);
        }
        while self.now < end && self.wrong.is_none() {
            let arrival = self.heap.peek().map_or(u64::MAX, |e| e.0.0);
            let timer = self.members.iter().map(|m| m.engine.next_timeout().0).min();
            let act = acts.last().map_or(u64::MAX, |a| a.0);
            let step = self.ring_next();
            let post = self.flows.iter().filter(|f| self.is_waiting(f)).map(|f| f.from_ns);
            let post = post.min().unwrap_or(u64::MAX);
            let probe = last.last().copied().unwrap_or(u64::MAX);
            let all = [arrival, timer.unwrap_or(u64::MAX), tick, act, step, post, probe, end];
            self.now = all.into_iter().min().unwrap_or(end).max(self.now);
            events += 1;
            if events > EVENTS_MAX {
                self.fail(Oracle::Loop, format!("{events} events and no end"));
            }
            if self.now >= tick {
                tick += TICK_NS;
                let renews = self.plan.renews;
                self.members.iter_mut().for_each(|m| m.tick(self.now, renews));
            }
            if self.now >= act {
                let (_, id) = acts.pop().expect("the one that is due");
                self.restart(id);
            }
            self.rings_step();
            if self.now >= probe {
                last.pop();
                self.last_post();
            }
            while let Some(&Reverse((at, id))) = self.heap.peek()
                && at <= self.now
                && self.wrong.is_none()
            {
                self.heap.pop();
                let gram = self.grams.remove(&id).expect("on its way");
                if let Some(to) = self.member_at(gram.dst) {
                    self.arrive(to, gram);
                    self.turn(to);
                }
            }
            for id in 0..self.members.len() {
                let due = self.members[id].engine.next_timeout() <= Time(self.now);
                let post = |f: &Flow| f.from == id && f.from_ns <= self.now && self.is_waiting(f);
                if due || self.flows.iter().any(post) {
                    self.turn(id);
                }
            }
        }
        self.now = end;
    }

    /// Whether a flow may post another request later.
    fn is_waiting(&self, f: &Flow) -> bool {
        f.left > 0 && f.open < self.plan.depth && self.now < self.plan.load_ns
    }

    /// When the next host changes its key file. Each step has reached all before the next.
    fn ring_next(&self) -> u64 {
        let Some(steps) = self.plan.rotation else { return u64::MAX };
        let due = |(id, m): (usize, &Member)| Some(steps.get(m.step)? + 20_000 * id as u64);
        self.members.iter().enumerate().filter_map(due).min().unwrap_or(u64::MAX)
    }

    fn rings_step(&mut self) {
        let Some(steps) = self.plan.rotation else { return };
        for id in 0..self.members.len() {
            let step = self.members[id].step;
            if steps.get(step).is_some_and(|at| at + 20_000 * id as u64 <= self.now) {
                self.note(|| format!("member {id} takes step {} of a new key", step + 1));
                self.members[id].ring_step(self.plan, self.seed, id, step + 1, self.now);
                self.turn(id);
            }
        }
    }

    fn restart(&mut self, id: usize) {
        self.note(|| format!("member {id} starts a new life"));
        // In half of the cases it says goodbye.
        if self.draw.percent(50) {
            self.members[id].engine.shutdown();
            self.send_all(id);
        }
        for job in self.jobs.iter_mut().filter(|j| j.from == id && j.ended.is_none()) {
            job.orphan = true;
        }
        for flow in self.flows.iter_mut().filter(|f| f.from == id) {
            flow.open = 0;
        }
        let life = self.members[id].life + 1;
        self.members[id] = Member::new(self.plan, self.seed, id, life, self.now);
        self.restarted[id] = self.now;
        for other in 0..self.members.len() {
            (self.renewed[id][other], self.renewed[other][id]) = (u64::MAX, u64::MAX);
        }
        self.restarts += 1;
        self.turn(id);
    }

    /// A member does all that it can now.
    pub fn turn(&mut self, id: usize) {
        for _ in 0..64 {
            let sent = self.send_all(id);
            let ended = self.completions(id);
            let posted = self.work_post(id);
            if !sent && !ended && !posted {
                return;
            }
        }
        self.fail(Oracle::Loop, format!("member {id} does not become idle"));
    }

    fn send_all(&mut self, id: usize) -> bool {
        let now = Time(self.now);
        let mut any = false;
        for _ in 0..1_000 {
            let lies =
                self.plan.liar && id + 1 == self.plan.members && self.now < self.plan.load_ns;
            let m = &mut self.members[id];
            if m.engine.next_timeout() > now {
                return any;
            }
            m.engine.handle_timeout(now);
            let mut out = Vec::new();
            let Member { engine, layer, ring, wrs, .. } = m;
            let lie = lies.then_some(&mut self.draw);
            let mut sink = Sink { layer, ring, wrs, lie, out: &mut out, wrong: None };
            let n = engine.poll_transmit(now, BATCH, &mut sink);
            let wrong = sink.wrong.take();
            if let Some(what) = wrong {
                self.fail(Oracle::Destroyed, what);
            }
            any |= n > 0;
            for left in out {
                self.leave(id, left);
            }
            if n > BATCH {
                self.fail(Oracle::Limits, format!("{n} packets for a batch of {BATCH}"));
            }
        }
        self.fail(Oracle::Loop, format!("member {id} is never done with its timers"));
        any
    }

    /// A datagram goes onto the network, past the attacker.
    fn leave(&mut self, id: usize, left: super::member::Left) {
        let to = self.member_at(left.dst);
        self.network.leave(self.plan, (id, self.members[id].life), to, &left, self.now);
        if let Some((oracle, what)) = self.network.wrong.take() {
            self.fail(oracle, what);
        }
        self.order += 1;
        let (src, dst, job) = (self.members[id].at.ip, left.dst, left.job);
        let (bytes, order, at) = (left.bytes, self.order, self.now);
        let gram = Gram { bytes, src, dst, honest: Some(id), id: order, at, job };
        let at = self.draw.below(1 << 32) as usize;
        self.network.remember(&gram, at);
        let calm = self.now >= self.plan.calm_ns();
        if !calm && self.draw.below(1000) < self.plan.doubles {
            self.travel(gram.clone());
        }
        let lost = self.network.loses_answer(self.plan, id, to, &gram, self.now);
        if lost || !calm && self.draw.below(1000) < self.plan.loss {
            return;
        }
        let occasion = !calm && self.draw.below(self.plan.attack_each) == 0;
        if !occasion || self.plan.threats.is_empty() {
            return self.travel(gram);
        }
        let places: Vec<Endpoint> = self.members.iter().map(|m| m.at).collect();
        let made = self.attacker.act(self.plan, &places, &self.network, gram);
        for gram in made {
            self.forged += u64::from(gram.honest.is_none());
            self.travel(gram);
        }
    }

    fn travel(&mut self, gram: Gram) {
        self.order += 1;
        let calm = self.now >= self.plan.calm_ns();
        let jitter = if calm { 0 } else { self.draw.below(self.plan.jitter_ns + 1) };
        self.heap.push(Reverse((self.now + self.plan.delay_ns + jitter, self.order)));
        self.grams.insert(self.order, gram);
    }

    fn completions(&mut self, id: usize) -> bool {
        let mut any = false;
        let cq = self.members[id].cq;
        while let Some(c) = self.members[id].engine.cq_poll(cq) {
            any = true;
            self.members[id].engine.cq_release(cq, 1);
            let CompletionKind::Send(WrHandle(h), op) = c.kind else {
                self.members[id].receive_used();
                continue;
            };
            let job = self.members[id].wrs.get_mut(h as usize).and_then(Option::take);
            match job {
                Some(job) => self.ended(job, op, c.status),
                None => self.fail(Oracle::Completion, format!("{c:?} without a request")),
            }
        }
        self.members[id].receives_fill();
        while let Some(event) = self.members[id].engine.poll_event() {
            self.note(|| format!("member {id}: {event:?}"));
            if let AsyncEvent::SealRefused(peer, _) = event {
                self.told.push((id, peer));
            }
        }
        any
    }

    fn ended(&mut self, id: u32, op: Opcode, status: Status) {
        let now = self.now;
        self.hash = fold(self.hash, u64::from(id) << 8 | status as u64, now);
        self.note(|| format!("request {id} ends with {status:?}"));
        let job = &mut self.jobs[id as usize];
        let twice = job.ended.replace((now, status)).is_some() || job.orphan || job.op != op;
        let whole = job.placed.total() == u64::from(job.len);
        let (from, to, since) = (job.from, job.to, job.posted_at);
        let sound = self.is_sound(from, to, since);
        let refused = !self.plan.can_meet(from, to) && self.plan.hides(from, Some(to));
        let liar = self.is_of_liar(from, to);
        let renewed = &mut self.renewed[from][to];
        let anew = since >= self.restarted[from].max(self.restarted[to]);
        if *renewed == u64::MAX && anew && status == Status::Ok {
            *renewed = now;
        }
        let job = &self.jobs[id as usize];
        let wrong = if twice {
            Some(Oracle::Completion)
        } else if sound && status != Status::Ok || refused && status != Status::LocalUnreachRemote {
            Some(Oracle::Verdict)
        } else if status == Status::Ok && !whole && !liar {
            Some(Oracle::CompletionAfterPlacement)
        } else {
            None
        };
        if let Some(oracle) = wrong {
            let what = format!("request {id} ended with {status:?}: {job:?}");
            self.fail(oracle, what);
        }
        let flow = self.flows.iter_mut().find(|f| (f.from, f.to) == (from, to));
        let flow = flow.expect("each request has a flow");
        flow.open = flow.open.saturating_sub(1);
        flow.from_ns = flow.from_ns.max(now + self.plan.pause_ns);
    }

    /// Keeps the flows of a member full.
    fn work_post(&mut self, id: usize) -> bool {
        let mut any = false;
        for f in 0..self.flows.len() {
            while self.flows[f].from == id
                && self.flows[f].from_ns <= self.now
                && self.is_waiting(&self.flows[f])
                && self.post(f)
            {
                any = true;
            }
        }
        any
    }

    /// After the attacks each pair exchanges a last message.
    fn last_post(&mut self) {
        for f in 0..self.flows.len() {
            self.flows[f].left = 1;
            self.post(f);
            self.flows[f].left = 0;
        }
        for id in 0..self.members.len() {
            self.turn(id);
        }
    }

    fn post(&mut self, f: usize) -> bool {
        let (from, to) = (self.flows[f].from, self.flows[f].to);
        let mtu = u32::from(self.plan.config.mtu);
        let op = self.draw.pick(&OPS);
        let most = if op == Opcode::Send { mtu } else { mtu * self.plan.packets };
        let len = 1 + self.draw.below(u64::from(most)) as u32;
        let raddr = match op {
            Opcode::Send => 0,
            _ => REGION_AT + self.draw.below(REGION_BYTES - u64::from(len)),
        };
        let (dst, peer) = (self.members[to].at, (self.members[to].qpn, self.members[to].key));
        let number = self.jobs.len() as u32;
        let m = &mut self.members[from];
        let wr = SendRequest {
            wr_id: u64::from(number),
            op,
            ah: m.ah(dst.ip),
            dst_qpn: peer.0,
            qkey: QKEY,
            len,
            rkey: if op == Opcode::Send { 0 } else { peer.1.0 },
            raddr,
            imm: number,
        };
        let Ok(h) = m.engine.post_send(Time(self.now), m.qpn, &wr) else { return false };
        let k = h.0 as usize;
        if m.wrs.len() <= k {
            m.wrs.resize(k + 1, None);
        }
        let used = m.wrs[k].replace(number).is_some();
        if used {
            self.fail(Oracle::Post, format!("{h:?} was returned twice"));
        }
        self.note(|| format!("member {from} posts request {number}, {op:?} of {len} to {to}"));
        self.jobs.push(Job {
            from,
            to,
            op,
            len,
            raddr,
            posted_at: self.now,
            placed: Cover::default(),
            arrived: 0,
            ended: None,
            orphan: false,
        });
        let flow = &mut self.flows[f];
        flow.open += 1;
        flow.left -= 1;
        true
    }

    /// Checks bytes that an engine places: of the right request, at the right place, once.
    pub fn placed(&mut self, id: usize, gram: &Gram, place: &srd_core::Placement, bytes: &[u8]) {
        use srd_core::Target;
        let job = match place.target {
            Target::Wr(h) => self.members[id].wrs.get(h.0 as usize).copied().flatten(),
            _ => gram.job,
        };
        // What a liar says, and what others answer to it.
        let from_liar = self.is_of_liar(gram.honest.unwrap_or(id), id);
        let Some(j) = job else {
            if !from_liar {
                self.fail(Oracle::Placement, format!("member {id}: {place:?} of no request"));
            }
            return;
        };
        if from_liar {
            return;
        }
        self.hash = fold(self.hash, u64::from(j), place.offset);
        let job = &mut self.jobs[j as usize];
        let (base, right) = match place.target {
            Target::Wr(_) => (0, job.op == Opcode::Read && id == job.from),
            Target::Region(_) => (job.raddr, job.op != Opcode::Read && id == job.to),
            Target::Recv(_) => (0, job.op == Opcode::Send && id == job.to),
        };
        let at = place.offset.wrapping_sub(base);
        let (salt, first) =
            if job.op == Opcode::Read { (0, job.raddr + at) } else { (salt_of(j), at) };
        let same = bytes.iter().zip(first..).all(|(&b, at)| b == content(salt, at));
        let fits = at + bytes.len() as u64 <= u64::from(job.len);
        let once = fits && job.placed.add(at as u32, bytes.len() as u32);
        job.arrived += 1;
        if !(right && same && once && place.len as usize == bytes.len()) {
            let what = format!("member {id}: {place:?} for request {j}: {job:?}");
            self.fail(Oracle::Placement, what);
        }
    }
}
