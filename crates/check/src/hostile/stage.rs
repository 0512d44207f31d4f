//! The members of a hostile world and the loop that moves them.

use super::jobs::{Board, Flow};
use super::liar::Liar;
use super::mutate::mutate;
use super::net::{Act, Event, Gram, Net};
use super::peer::Peer;
use super::plan::{BYTES_PER_US, DELAY_NS, Mode, Plan, SILENCE_NS, ip_of};
use crate::class::Class;
use crate::draw::Draw;
use crate::emit::brief;
use crate::ledger::Oracle;
use crate::packet::CABLE_BYTES;
use crate::scenario::stream;
use crate::trace::Trace;
use srd_core::config::PORT_BASE_DEFAULT;
use srd_core::wire::{self, AckBlock, Flags};
use srd_core::{Endpoint, Opcode, Time};
use std::net::IpAddr;

/// A host that has a busy socket turns this often.
const TURN_NS: u64 = 5_000;
/// Events after which a world is stuck in a loop: a hundred times what the largest needs.
const EVENTS_MAX: u64 = 3_000_000;
/// Events between two looks at what is believed.
const BELIEF_EACH: u64 = 64;
/// See the module.
pub(super) struct Stage<'a> {
    pub plan: &'a Plan,
    pub net: Net,
    pub peers: Vec<Peer>,
    pub liars: Vec<Liar>,
    /// Members whose packets are changed on the way.
    pub mutants: Vec<usize>,
    pub board: Board,
    pub(super) draw: Draw,
    pub now: u64,
    /// The hostile side is left out.
    pub(super) alone: bool,
    words: u64,
    /// Bytes that it has sent since its last turn.
    pub(super) hostile_bytes: u64,
    /// Words of the hostile side so far.
    pub said: u64,
    /// Members that die.
    pub doomed: Vec<usize>,
    /// Places for reads at the victim that they held when they died.
    pub dead_reads: u32,
    /// Bytes sent to them since.
    pub to_dead_bytes: u64,
    /// Packets sent to the dead in the last stretch.
    pub to_dead_at_last: u64,
    pub trace: Option<Box<Trace>>,
    rails: usize,
    /// Cables of each host.
    cables: usize,
}

impl<'a> Stage<'a> {
    pub fn new(plan: &'a Plan, seed: u64, bytes: &[u8], alone: bool) -> Self {
        let draw = Draw::with_bytes(seed, stream::HOSTILE, 2, bytes);
        let rails = if plan.class == Class::Rails { 2 } else { 1 };
        let cables = if plan.rail_down.is_some() { 2 } else { rails };
        let mut s = Self {
            plan,
            net: Net::new(cables * (plan.honest + 3 + plan.dead_hosts()), BYTES_PER_US, DELAY_NS),
            peers: Vec::new(),
            liars: Vec::new(),
            mutants: Vec::new(),
            board: Board {
                count_from: plan.dies_ns(),
                load_until: plan.load_ns,
                rail_down: plan.rail_down.map_or((0, 0), |down| down.span()),
                ..Board::default()
            },
            draw,
            now: 1000,
            alone,
            words: u64::from(plan.words),
            hostile_bytes: 0,
            said: 0,
            doomed: Vec::new(),
            dead_reads: 0,
            to_dead_bytes: 0,
            to_dead_at_last: 0,
            trace: None,
            rails,
            cables,
        };
        s.cast();
        s
    }

    pub(super) fn peer_add(&mut self, host: usize, rail: usize, slot: u8) -> usize {
        let id = self.peers.len();
        let place = (host * self.cables + rail, ip_of(host, rail));
        self.peers.push(Peer::new(self.plan, id, place, slot, self.now));
        id
    }

    /// Makes members and their work.
    fn cast(&mut self) {
        let plan = self.plan;
        for rail in 0..self.rails {
            let victim = self.peer_add(0, rail, 0);
            for h in 1..=plan.honest {
                let other = self.peer_add(h, rail, 0);
                // A member that comes in the middle of a flood must get in by its own Opens: the
                // victim asks nobody until the load has ended.
                let late = plan.class == Class::Flood && h > 1;
                let (ours, theirs) = if late { (plan.load_ns, plan.load_ns / 3) } else { (0, 0) };
                self.flow_add(victim, other, 2, true).start_at = ours;
                self.flow_add(other, victim, 2, true).start_at = theirs;
            }
        }
        match plan.class {
            Class::Liar if !self.alone => self.cast_liar(),
            Class::Dead => self.cast_dead(),
            Class::RailDown => self.cast_joined(),
            Class::Busy => {
                // A peer that does not exist: this must be told, however busy the socket is.
                let flow = self.flow_add(0, usize::MAX, 1, false);
                (flow.must_end, flow.left) = (true, 1);
                self.peers[0].busy_until = u64::MAX;
                self.peers[0].lag_ns = plan.lag_ns;
            }
            Class::Late => {
                self.board.flows.clear();
                let receives = core::mem::take(&mut self.peers[0].receives);
                let flow = self.flow_add(1, 0, plan.late_messages, true);
                (flow.ops, flow.left, flow.len) = (&[Opcode::Send], plan.late_messages, 64);
                // More verdicts, and more kinds of them, than an acknowledgment has room for.
                if self.draw.percent(60) {
                    let flow = &mut self.board.flows[0];
                    (flow.faulty, flow.honest, flow.must_end) = (true, false, true);
                    flow.left = plan.late_messages;
                    // What is tried again tells of what was refused before: often nothing is.
                    self.peers[0].receives = if self.draw.percent(70) { receives } else { 0 };
                }
                self.net.at(plan.load_ns * 2, Event::Act(Act::Receives));
            }
            Class::Flood => self.words *= 6,
            Class::Narrow => self.cast_narrow(),
            _ => {}
        }
        if !self.alone && matches!(plan.class, Class::Liar | Class::Flood) {
            self.net.at(self.now, Event::Act(Act::Hostile));
        }
        self.net.at(plan.load_ns / 3, Event::Act(Act::Begin));
        self.net.at(self.now, Event::Act(Act::Begin));
    }

    fn cast_liar(&mut self) {
        let plan = self.plan;
        let (host, slot) = if plan.shares_address { (1, 7) } else { (plan.honest + 1, 0) };
        self.net.guest = (!plan.shares_address).then_some(host);
        if plan.mode == Mode::Mutant {
            let mutant = self.peer_add(host, 0, slot);
            self.mutants.push(mutant);
            self.flow_add(0, mutant, 3, false);
            self.flow_add(mutant, 0, 3, false);
            return;
        }
        for slot in slot..slot + plan.liar_slots {
            let at = Endpoint { ip: ip_of(host, 0), port: PORT_BASE_DEFAULT + u16::from(slot) };
            let manner = (plan.mode, plan.claims);
            let mut liar = Liar::new(at, host, manner, plan.config.mtu, &mut self.draw);
            liar.leaves_out = plan.leaves_out;
            liar.target = (self.peers[0].other.qpn.0, self.peers[0].other.key.0);
            self.liars.push(liar);
            self.peers[0].ah(self.now, at.ip);
        }
        if plan.claims {
            // Each word is one packet without content.
            self.words *= 6;
        }
        // Now and then more at once than any window of its holds.
        let depth = self.draw.pick(&[3, 40, 40]);
        self.flow_add(0, usize::MAX - 1, depth, false);
    }

    /// From the first event to the last.
    pub fn run(&mut self) {
        let end = self.plan.end_ns();
        let last_stretch = end - SILENCE_NS;
        for id in 0..self.peers.len() {
            self.peers[id].receives_fill();
            for other in 0..self.peers.len() {
                let ip = self.peers[other].at.ip;
                self.peers[id].ah(self.now, ip);
            }
        }
        let mut events = 0;
        while let Some((at, event)) = self.net.next(end) {
            self.now = at;
            match event {
                Event::Arrive(g) => self.arrive(g),
                Event::Wake(id) if self.peers[id].wake_at == at => self.turn(id),
                Event::Wake(_) => {}
                Event::Act(act) => self.act(act),
            }
            if at < last_stretch {
                self.to_dead_at_last = 0;
            }
            events += 1;
            if events % BELIEF_EACH == 0 {
                super::belief_check(self);
            }
            if events > EVENTS_MAX {
                self.board.fail(at, Oracle::Loop, format!("{events} events and no end"));
            }
            if self.board.wrong.is_some() {
                return;
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, mut g: Gram) {
        if let Some(trace) = &mut self.trace {
            let mut ack = AckBlock::default();
            let line = match wire::parse(&g.bytes, &mut ack) {
                Ok((p, _)) => brief(&p),
                Err(e) => format!("{e}"),
            };
            let (at, who) = (self.now * 1000, g.honest.map_or("liar".into(), |h| h.to_string()));
            trace.line(at, format!("{} slot {} < {who}: {line}", g.dst.ip, g.dst.port - 18_700));
            trace.packet(at, &super::datagram(&g));
        }
        if let Some(k) = self.liars.iter().position(|l| l.at == g.dst) {
            self.liars[k].hear(&mut self.draw, &g.bytes);
            return self.liar_flush(k);
        }
        let Some(id) = self.peers.iter().position(|p| p.at == g.dst) else { return };
        if !self.peers[id].alive {
            self.to_dead_at_last += u64::from(g.honest == Some(0));
            return;
        }
        let more = self.peers[id].busy_until > self.now;
        if more && g.waits_since.is_none() {
            g.waits_since = Some(self.now);
            return self.net.at(self.now + self.plan.lag_ns, Event::Arrive(g));
        }
        self.peers[id].deliver(self.now, &mut self.board, &g, more);
        self.turn(id);
    }

    /// A member does all that it can now.
    fn turn(&mut self, id: usize) {
        if !self.peers[id].alive {
            return;
        }
        let now = self.now;
        for _ in 0..4 {
            let any = self.peers[id].pump(now, &mut self.board);
            self.flush(id);
            self.sizes_check();
            let posted = self.work_post(id);
            if !any && !posted {
                break;
            }
        }
        let p = &mut self.peers[id];
        let due = if p.busy_until > now { now + TURN_NS } else { p.due(now) };
        if due != p.wake_at && due != u64::MAX {
            p.wake_at = due;
            self.net.at(due, Event::Wake(id));
        }
    }

    /// What a member has sent goes onto the network.
    fn flush(&mut self, id: usize) {
        let host = self.peers[id].host;
        let out = core::mem::take(&mut self.peers[id].out);
        let mutant = self.mutants.contains(&id);
        for (dst, mut gram) in out {
            if mutant {
                if self.draw.percent(30) {
                    mutate(&mut self.draw, &mut gram.bytes);
                    self.said += 1;
                }
                gram.honest = None;
            }
            if self.plan.class == Class::Damage && self.draw.below(1000) < self.plan.damage {
                self.damage(&mut gram);
            }
            // Timers have something to do only where something is lost.
            if self.plan.class == Class::Busy && self.draw.percent(3) {
                continue;
            }
            if self.cut(id) {
                continue;
            }
            self.dead_bytes_count(&gram);
            let Some(to) = self.host_of(dst.ip) else { continue };
            if let Some(n) = &self.plan.narrow {
                let (now, bytes) = (self.now, gram.bytes.len());
                if let Some((len, most)) = n.refuses(now, host, bytes) {
                    let engine = &mut self.peers[id].engine;
                    engine.path_too_long(Time(now), dst.ip, len, Some(most));
                    continue;
                }
                if n.loses(now, (host, to), bytes, &mut self.draw) {
                    continue;
                }
            }
            let (mut host, mut to) = (host, to);
            if let Some(down) = &self.plan.rail_down {
                if down.loses(self.now, (host / 2, to / 2), gram.path) {
                    continue;
                }
                host += usize::from(gram.path % 2);
                to += usize::from(gram.path % 2);
            }
            self.net.send(self.now, host, to, gram);
        }
    }

    /// The second rail is cut for a while in the middle.
    fn cut(&self, id: usize) -> bool {
        let third = (self.plan.load_ns / 3).min(SILENCE_NS / 2);
        let on = self.now >= third && self.now < 2 * third;
        self.rails == 2 && !self.alone && on && self.peers[id].host % 2 == 1
    }

    fn damage(&mut self, g: &mut Gram) {
        let before = g.bytes.clone();
        self.said += 1;
        // The bit that takes the checksum away, or any.
        let flips = if self.draw.percent(50) {
            g.bytes[1] ^= Flags::CHECKED;
            0
        } else {
            self.draw.range(1, 3)
        };
        for _ in 0..flips {
            let head = self.draw.percent(70);
            let most = if head { g.bytes.len().min(80) } else { g.bytes.len() };
            let at = self.draw.below(most as u64) as usize;
            g.bytes[at] ^= 1 << self.draw.below(8);
        }
        g.damaged = g.bytes != before;
    }

    fn host_of(&self, ip: IpAddr) -> Option<usize> {
        let of_peer = self.peers.iter().find(|p| p.at.ip == ip).map(|p| p.host);
        of_peer.or_else(|| self.liars.iter().find(|l| l.at.ip == ip).map(|l| l.host))
    }

    fn liar_flush(&mut self, k: usize) {
        self.liars[k].turn(self.now);
        let (at, host, dst) = (self.liars[k].at, self.liars[k].host, self.peers[0].at);
        let out: Vec<Vec<u8>> = self.liars[k].out().collect();
        for bytes in out {
            let parts = &mut self.liars[k].uncounted;
            self.said += u64::from(*parts == 0);
            *parts = parts.saturating_sub(1);
            if self.said > 4 * self.words {
                return;
            }
            self.hostile_bytes += bytes.len() as u64 + CABLE_BYTES;
            let gram = Gram {
                bytes,
                src: at.ip,
                dst,
                path: 0,
                honest: None,
                job: None,
                damaged: false,
                waits_since: None,
            };
            self.net.send(self.now, host, 0, gram);
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Hostile => {
                if self.said > self.words || self.now > self.plan.load_ns {
                    return;
                }
                if self.plan.class == Class::Flood {
                    self.flood();
                } else {
                    self.lie();
                }
                // Links that are full of junk are nobody's to mend.
                let wire_ns = self.hostile_bytes * 1000 / BYTES_PER_US;
                let fair = wire_ns * 100 / self.plan.share;
                let pause = match self.plan.class {
                    Class::Flood => fair + self.plan.pause_ns / 16,
                    _ => fair.max(self.plan.pause_ns),
                };
                self.hostile_bytes = 0;
                self.net.at(self.now + pause, Event::Act(Act::Hostile));
            }
            Act::Die => self.die(),
            Act::Receives => {
                self.peers[0].receives = 4096;
                self.peers[0].receives_fill();
                self.turn(0);
            }
            Act::Begin | Act::Tick => {
                for id in 0..self.peers.len() {
                    self.turn(id);
                }
                let each_ns = self.plan.narrow.as_ref().map_or(0, |n| n.each_ns);
                if act == Act::Tick && self.now < self.plan.load_ns {
                    self.net.at(self.now + each_ns, Event::Act(act));
                }
            }
            Act::Come => {
                for id in 1..self.peers.len() {
                    self.peers[id].alive = true;
                    self.turn(id);
                }
            }
        }
    }

    fn lie(&mut self) {
        for k in 0..self.liars.len() {
            self.liars[k].act(&mut self.draw);
            self.liar_flush(k);
        }
        // Whoever works with a liar gives up some of its work.
        if self.draw.percent(2) {
            self.peers[0].other_renew(self.now, &mut self.board);
            for l in &mut self.liars {
                l.target = (self.peers[0].other.qpn.0, self.peers[0].other.key.0);
            }
            let board = &mut self.board;
            for f in board.flows.iter_mut().filter(|f| f.from == 0 && !f.honest) {
                f.open = 0;
            }
            self.turn(0);
        }
    }

    /// Bytes and pieces that compared flows finished while throughput counts; of two rails, those
    /// of the one that is never cut.
    pub fn bytes_kept(&self) -> (u64, u64) {
        let counts = |f: &&Flow| {
            f.compared && (self.rails == 1 || self.peers[f.from].host.is_multiple_of(2))
        };
        let flows = self.board.flows.iter().filter(counts);
        flows.fold((0, 0), |sum, f| (sum.0 + f.bytes, sum.1 + f.pieces))
    }

    /// Packets that engines sent again.
    pub fn copies(&self) -> u64 {
        self.peers.iter().map(|p| p.engine.counters().retrans_pkts).sum()
    }
}
