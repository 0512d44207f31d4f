//! A host: its engines, the NIC and queues around them, and faults of the host.

use crate::draw::Draw;
use crate::ledger::{Ledger, Oracle};
use crate::node::Node;
use crate::packet::{Datagram, FRAME_BYTES, Pkt, endpoint_of, host_of, ip_of};
use crate::scenario::{Incident, Scenario, stream};
use crate::shards::{Command, Commands};
use srd_core::config::{Integrity, PORT_BASE_DEFAULT};
use srd_core::wire::{
    self, Backlog, Body, CloseCode, Features, Flags, Header, Message, OpenParams, Packet,
};
use srd_core::{Opcode, QpType, SendRequest, Time};
use srd_fabric::{Delivered, Host, HostId, HostIo, NS, Outbound, Ps, US};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Old packets that a machine can replay.
const PAST_MAX: usize = 48;
/// Tokens of [`Host::on_call`] beyond the incidents of the scenario.
const CALM: u64 = 1 << 32;
/// New requests that must succeed; the low byte is the round.
const PROBE: u64 = 1 << 33;

/// A host of a world.
pub struct Machine {
    scenario: Rc<Scenario>,
    led: Rc<RefCell<Ledger>>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) draw: Draw,
    /// Commands on the way to its device's shards.
    pub(crate) commands: Commands,
    past: VecDeque<Pkt>,
    out: Vec<Pkt>,
    /// Packets between engines of this host: time, packet.
    inner: VecDeque<(Ps, Pkt)>,
}

impl Machine {
    /// The machine of host `h`.
    pub fn new(scenario: Rc<Scenario>, led: Rc<RefCell<Ledger>>, h: HostId) -> Self {
        let mut nodes: Vec<Node> = Vec::new();
        if h.0 < scenario.hosts {
            let per_host = scenario.slots.len() as u16;
            for (k, &slot) in scenario.slots.iter().enumerate() {
                let id = h.0 as u16 * per_host + k as u16;
                let first = nodes.first().filter(|_| scenario.sharded);
                let node = Node::new(&scenario, &mut led.borrow_mut(), id, (h.0, slot), first);
                nodes.push(node);
            }
        }
        let draw = Draw::new(scenario.seed, stream::MACHINE, u64::from(h.0));
        let (past, inner) = (VecDeque::new(), VecDeque::new());
        let commands = Commands::default();
        Self { scenario, led, nodes, draw, commands, past, out: Vec::new(), inner }
    }

    /// The engines of this host.
    pub fn nodes(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// Token of the call that announces the end of faults.
    pub const fn token_calm() -> u64 {
        CALM
    }
    /// Token of the call that posts the new requests of a round.
    pub const fn token_probe(round: u64) -> u64 {
        PROBE + round
    }

    /// Passes a packet to its engine, now or after a while in the receive queue.
    fn arrive(&mut self, led: &mut Ledger, now: Ps, ce: bool, d: &Pkt) {
        let m = &self.scenario.machine;
        let slot = d.dst.port.wrapping_sub(PORT_BASE_DEFAULT);
        let Some(node) = self.nodes.iter_mut().find(|n| u16::from(n.slot) == slot) else { return };
        if m.hold_ps == 0 {
            return node.deliver(led, ce, d, (now, 0));
        }
        if node.held.len() >= m.hold_max {
            node.queue_drops += 1;
            led.tally.overflowed += 1;
            return;
        }
        node.held.push_back((now, ce, d.clone()));
    }

    /// Lets every engine do what it can now, then sets the timer.
    fn pump(&mut self, now: Ps, io: &mut HostIo<'_, Pkt>) {
        let scenario = self.scenario.clone();
        let led = self.led.clone();
        let led = &mut *led.borrow_mut();
        led.now = now;
        for k in 0..self.nodes.len() {
            self.drain_held(&scenario, led, k, now);
            self.nodes[k].ring_tell(now, 0);
            self.engine_time(led, k, now);
            if self.nodes[k].app.next_at <= now {
                self.nodes[k].app_step(&scenario, led);
            }
            self.commands_run(led, false);
            self.send_all(&scenario, led, k, io);
            if !scenario.machine.lazy_poll {
                self.nodes[k].poll(&scenario, led);
            }
        }
        while self.inner.front().is_some_and(|p| p.0 <= now) {
            let Some((_, d)) = self.inner.pop_front() else { break };
            self.arrive(led, now, false, &d);
        }
        let at = self.wake_at(now, io);
        io.timer_set(at);
    }

    fn drain_held(&mut self, s: &Scenario, led: &mut Ledger, k: usize, now: Ps) {
        let node = &mut self.nodes[k];
        let due = node.held.front().is_some_and(|h| h.0 + s.machine.hold_ps <= now);
        while due && let Some((since, ce, d)) = node.held.pop_front() {
            let more = node.held.len();
            node.deliver(led, ce, &d, (since, more));
        }
    }

    fn engine_time(&mut self, led: &mut Ledger, k: usize, now: Ps) {
        let node = &mut self.nodes[k];
        let t = node.clock.read(now);
        let due = node.engine.next_timeout();
        // Also if there is something to send at once: that does not delay timers.
        if due <= t && node.wake_at <= now {
            node.engine.handle_timeout(t);
            node.observed(led);
            node.events(led);
        }
    }

    /// Sends all packets of engine `k`, as far as the NIC accepts them.
    fn send_all(&mut self, s: &Scenario, led: &mut Ledger, k: usize, io: &mut HostIo<'_, Pkt>) {
        for _ in 0..4096 {
            while let Some(d) = self.nodes[k].refused.pop_front() {
                if !self.send(led, k, io, d) {
                    return;
                }
            }
            let out = &mut self.out;
            let batch = s.machine.batch;
            if self.nodes[k].poll_transmit(led, (s.hosts, &s.slots), batch, out) == 0 {
                return;
            }
            let mut out = core::mem::take(&mut self.out);
            for d in out.drain(..) {
                self.nodes[k].refused.push_back(d);
            }
            self.out = out;
        }
        led.fail(Oracle::Liveness, format!("engine {k} sends endlessly at one instant"));
    }

    /// Passes one packet to the NIC. False: it is full; the packet waits or is dropped.
    fn send(&mut self, led: &mut Ledger, k: usize, io: &mut HostIo<'_, Pkt>, d: Pkt) -> bool {
        let bytes = FRAME_BYTES + d.head.len() as u32 + u32::from(d.tail_len);
        let Some(host) = host_of(d.dst.ip, self.scenario.hosts) else { return true };
        if host == io.host().0 {
            self.inner.push_back((led.now + US, d));
            return true;
        }
        let (sport, dport) = (d.sport, d.dst.port);
        let out = Outbound { dst: HostId(host), sport, dport, bytes, ect: true };
        match io.send(out, d) {
            Ok(()) => true,
            Err(d) => {
                led.tally.refused += 1;
                self.nodes[k].ack_deadline.refused_at = led.now;
                let dropped = self.draw.percent(self.scenario.machine.refuse_drop);
                if !dropped {
                    self.nodes[k].refused.push_front(d);
                }
                dropped
            }
        }
    }

    /// Time of this machine's next event.
    fn wake_at(&mut self, now: Ps, io: &HostIo<'_, Pkt>) -> Ps {
        let m = &self.scenario.machine;
        let inner = self.inner.front().map_or(Ps::MAX, |p| p.0);
        let mut at = inner.min(self.commands.due());
        for node in &mut self.nodes {
            at = at.min(node.app.next_at);
            if let Some(h) = node.held.front() {
                at = at.min(h.0 + m.hold_ps);
            }
            if !node.refused.is_empty() {
                node.ack_deadline.refused_at = now;
                at = at.min(io.nic_free_at().clamp(now + US, now + 50 * US));
                continue;
            }
            let due = match node.engine.next_timeout() {
                Time::NEVER => Ps::MAX,
                Time(0) => now + NS,
                t => {
                    let due = node.clock.when(t).max(now + NS);
                    // The first tick at or after `due`, whatever happens meanwhile.
                    if m.late_ps == 0 { due } else { due.next_multiple_of(m.late_ps) }
                }
            };
            node.wake_at = due.max(1);
            at = at.min(due);
        }
        at
    }

    /// Executes an incident of the scenario.
    fn incident(&mut self, led: &mut Ledger, now: Ps, what: Incident) {
        let scenario = self.scenario.clone();
        led.note(|| format!("incident {what:?}"));
        let slot = match what {
            Incident::Restart { slot, .. }
            | Incident::Stale { slot, .. }
            | Incident::Garbage { slot, .. }
            | Incident::Leap { slot, .. }
            | Incident::Deny { slot, .. } => slot,
        };
        let Some(k) = self.nodes.iter().position(|n| n.slot == slot) else { return };
        match what {
            Incident::Restart { gentle, .. } => {
                let all = if scenario.sharded { 0..self.nodes.len() } else { k..k + 1 };
                if gentle {
                    led.disturbed = true;
                    let hosts = (scenario.hosts, &scenario.slots[..]);
                    for node in &mut self.nodes[all] {
                        node.engine.shutdown();
                        node.poll_transmit(led, hosts, 64, &mut self.out);
                    }
                }
                if scenario.sharded {
                    self.device_restart(&scenario, led);
                } else {
                    self.nodes[k].restart(&scenario, led, None);
                }
                // Packets that had left the engine still leave the machine.
                self.nodes[k].refused.extend(self.out.drain(..));
            }
            Incident::Stale { packets, .. } => {
                for _ in 0..packets {
                    if self.past.is_empty() {
                        return;
                    }
                    let at = self.draw.below(self.past.len() as u64) as usize;
                    let d = self.past[at].clone();
                    led.tally.stale += 1;
                    self.arrive(led, now, false, &d);
                }
            }
            Incident::Garbage { packets, .. } => {
                // A forged Open can end a context that is still opening.
                led.disturbed = true;
                for _ in 0..packets {
                    let d = Rc::new(self.garbage(k));
                    led.tally.forged += 1;
                    self.arrive(led, now, false, &d);
                }
            }
            Incident::Leap { by_ns, .. } => {
                // The leap ends contexts that are half open.
                led.disturbed = true;
                led.tally.leaps += 1;
                self.nodes[k].clock.leap(now, by_ns);
            }
            Incident::Deny { order, .. } => self.nodes[k].deny(led, &order),
        }
    }

    /// A datagram of a stranger who knows the format and the addresses, but no tag.
    fn garbage(&mut self, k: usize) -> Datagram {
        let d = &mut self.draw;
        let s = &self.scenario;
        let from = d.below(u64::from(s.hosts)) as u32;
        let src = if d.percent(70) { ip_of(from) } else { ip_of(40_000) };
        let mut head;
        match d.below(4) {
            0 => head = (0..d.below(200)).map(|_| d.bits() as u8).collect(),
            1 if !self.past.is_empty() => {
                // A real packet, truncated or with another tag.
                let at = d.below(self.past.len() as u64) as usize;
                head = self.past[at].head.clone();
                if head.len() > 8 {
                    let tag = (d.bits() as u32).to_be_bytes();
                    head[4..8].copy_from_slice(&tag);
                    head.truncate(d.range(8, head.len() as u64) as usize);
                }
            }
            _ => {
                head = vec![0; wire::HEADERS_BYTES_MAX];
                let slot = d.pick(&s.slots);
                let checked = s.config.integrity != Integrity::Off;
                let n = wire::emit(&forgery(d, slot, checked), &mut head);
                head.truncate(n);
            }
        }
        Datagram {
            head,
            tail_len: 0,
            content: None,
            request: None,
            forged: true,
            src,
            dst: endpoint_of(self.nodes[k].host, self.nodes[k].slot),
            sport: 20_000,
        }
    }

    /// Posts new requests: a message to every engine.
    fn probe(&mut self, s: &Scenario, led: &mut Ledger, round: u64) {
        if s.sharded {
            // A host that has lost a handle gets it back from its device, in all shards.
            let ips = (0..s.hosts).map(ip_of).map(Command::HandleNew);
            self.nodes[0].orders.extend(ips);
            self.commands_run(led, true);
        }
        let engines = (s.hosts as usize * s.slots.len()) as u16;
        for node in &mut self.nodes {
            node.poll(s, led);
            node.undrain(led);
            let now = node.clock.read(led.now);
            let ready = |n: &Node| n.mirror.qps.iter().any(|q| q.kind == QpType::Srd);
            if !ready(node) {
                node.qp_add(s, led, now, QpType::Srd);
            }
            node.receives_fill(s, led);
            let own = node.id;
            for to in (0..engines).filter(|&to| to != own) {
                // Few at a time if the context table is small.
                if s.config.contexts_max < 64 && u64::from(to) % 4 != round % 4 {
                    continue;
                }
                let Some(q) = node.mirror.qps.iter().find(|q| q.kind == QpType::Srd) else { break };
                let qpn = q.qpn;
                let all = &led.public[usize::from(to)].qps;
                let Some(&(dst_qpn, qkey, _)) = all.iter().find(|q| !q.2) else { continue };
                let ip = ip_of(u32::from(to) / s.slots.len() as u32);
                let ah = node.mirror.ahs.iter().find(|a| a.1 == ip).map(|a| a.0);
                let Some(ah) = ah.or_else(|| node.ah_add(now, ip)) else { continue };
                node.app.wr_id += 1;
                let wr = SendRequest {
                    wr_id: node.app.wr_id,
                    op: Opcode::Send,
                    ah,
                    dst_qpn,
                    qkey,
                    len: 8,
                    rkey: 0,
                    raddr: 0,
                    imm: round as u32,
                };
                node.post(s, led, qpn, wr);
            }
        }
    }
}

/// A well-formed packet with false content.
fn forgery(d: &mut Draw, slot: u8, checked: bool) -> Packet<'static> {
    let word = d.bits() as u32;
    let msg = Message { src_qpn: 0, dst_qpn: 0, qkey: 0x11, msg_id: word };
    let params = OpenParams {
        tag: word | 1,
        incarnation: d.bits(),
        echo_tag: 0,
        psn_start: word,
        tx_num_start: d.bits() >> 1,
        window: d.pick(&[0, 16, 4096, u16::MAX]),
        mtu: d.pick(&[0, 64, 1024]),
        reads_max: 1,
        write_imms_max: 1,
        rx_budget: d.pick(&[0, u32::MAX]),
        features: Features(d.bits() as u32),
        cookie: d.bits(),
    };
    let body = match d.below(6) {
        0 => Body::Open(params),
        1 => Body::OpenAck(params),
        2 => Body::Challenge { echo_tag: word, cookie: d.bits() },
        3 => Body::Reset { echo_tag: word, code: CloseCode::UnknownTag, nonce: 0 },
        4 => Body::Send(msg),
        _ => Body::Close,
    };
    let dst_tag = if matches!(body, Body::Open(_)) { 0 } else { d.bits() as u32 };
    let header = Header {
        kind: body.kind(),
        flags: Flags(if checked { Flags::CHECKED } else { 0 }),
        backlog: Backlog(0),
        path: d.bits() as u8,
        slot,
        dst_tag,
        tx_num: word,
        timestamp: word,
        psn: word,
        una_delta: d.bits() as u16,
        ack_echo: d.bits() as u16,
    };
    Packet { header, ack: None, body, payload_len: 0 }
}

impl Host<Pkt> for Machine {
    fn on_packet(&mut self, now: Ps, p: Delivered<Pkt>, io: &mut HostIo<'_, Pkt>) {
        // A damaged datagram fails its checksum.
        if p.corrupt == 0 {
            let led = self.led.clone();
            let mut led = led.borrow_mut();
            led.now = now;
            self.arrive(&mut led, now, p.ce, &p.payload);
            if self.past.len() == PAST_MAX {
                self.past.pop_front();
            }
            self.past.push_back(p.payload);
        }
        self.pump(now, io);
    }

    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, Pkt>) {
        self.pump(now, io);
    }

    fn on_call(&mut self, now: Ps, token: u64, io: &mut HostIo<'_, Pkt>) {
        {
            let scenario = self.scenario.clone();
            let led = self.led.clone();
            let mut led = led.borrow_mut();
            led.now = now;
            if token >= PROBE {
                self.probe(&scenario, &mut led, token - PROBE);
            } else if token == CALM {
                led.calm = true;
                for node in &mut self.nodes {
                    node.undrain(&mut led);
                }
            } else if let Some(&(_, _, what)) = scenario.incidents.get(token as usize) {
                self.incident(&mut led, now, what);
            }
        }
        self.pump(now, io);
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
