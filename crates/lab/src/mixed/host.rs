//! A host that owns the stacks of several transports: each has its packets, its timer and its queue
//! at the card, as if it were alone.

use super::card::Card;
use super::packet::{Mixable, MixedPacket};
use crate::observe::{Counted, Resent};
use crate::rival::RivalHost;
use crate::server::SrdServer;
use crate::tcp::TcpLabHost;
use srd_fabric::{
    Delivered, FlowId, Host, HostId, HostIo, HostNet, Outbound, Ps, RingFull, RingPut, RingState,
    Tag,
};
use srd_rivals::rc::RcHost;
use srd_rivals::ue::UeHost;

/// A transport's part of a host.
#[allow(missing_docs, reason = "one for each transport")]
pub enum Stack {
    Srd(Box<SrdServer>),
    Tcp(Box<TcpLabHost>),
    Rc(Box<RivalHost<RcHost>>),
    Ue(Box<RivalHost<UeHost>>),
}

/// What happens to a stack.
enum Event {
    Packet(Delivered<MixedPacket>),
    Timer,
    Call(u64),
    Room,
    Ring,
}

/// A host with the stacks of all groups, in the order of the groups.
pub struct MixedHost {
    stacks: Vec<Stack>,
    /// When each stack's timer is due.
    due: Vec<Ps>,
    /// Group and the group's own token of each call, by the token in this world.
    calls: Vec<(usize, u64)>,
    card: Card,
}

impl MixedHost {
    /// A host. `card`: with one queue for each stack.
    pub fn new(stacks: Vec<Stack>, card: Card) -> Self {
        Self { due: vec![Ps::MAX; stacks.len()], stacks, calls: Vec::new(), card }
    }

    /// The stack of a group.
    pub fn stack(&self, group: usize) -> &Stack {
        &self.stacks[group]
    }

    /// Translates the token of a group's call to one of this world. The round, in the upper half,
    /// stays.
    pub fn token(&mut self, group: usize, token: u64) -> u64 {
        self.calls.push((group, token & 0xFFFF_FFFF));
        (self.calls.len() - 1) as u64 | token >> 32 << 32
    }

    fn act(&mut self, k: usize, event: Event, io: &mut HostIo<'_, MixedPacket>) {
        let mut lane = Lane { io, card: &mut self.card, due: &mut self.due[k], group: k };
        match &mut self.stacks[k] {
            Stack::Srd(host) => enter(&mut **host, &mut lane, event),
            Stack::Tcp(host) => enter(&mut **host, &mut lane, event),
            Stack::Rc(host) => enter(&mut **host, &mut lane, event),
            Stack::Ue(host) => enter(&mut **host, &mut lane, event),
        }
    }

    /// Serves the card, and sets the host's timer for whoever is next.
    fn settle(&mut self, io: &mut HostIo<'_, MixedPacket>) {
        let room_at = self.card.serve(io);
        match self.due.iter().copied().min().unwrap_or(Ps::MAX).min(room_at) {
            Ps::MAX => io.timer_clear(),
            at => io.timer_set(at),
        }
    }

    fn act_all(&mut self, event: fn() -> Event, io: &mut HostIo<'_, MixedPacket>) {
        for k in 0..self.stacks.len() {
            self.act(k, event(), io);
        }
        self.settle(io);
    }
}

/// Calls a stack with an event of its own.
fn enter<Q: Mixable, H: Host<Q>>(host: &mut H, lane: &mut Lane<'_, '_>, event: Event) {
    let (id, now) = (lane.io.host(), lane.io.now());
    let mut io = HostIo::within(lane, id);
    match event {
        Event::Packet(p) => {
            let packet = Delivered {
                src: p.src,
                sport: p.sport,
                dport: p.dport,
                bytes: p.bytes,
                ce: p.ce,
                corrupt: p.corrupt,
                sent_ps: p.sent_ps,
                waited_ps: p.waited_ps,
                register_max: p.register_max,
                payload: Q::pick(p.payload.of),
            };
            host.on_packet(now, packet, &mut io);
        }
        Event::Timer => host.on_timer(now, &mut io),
        Event::Call(token) => host.on_call(now, token, &mut io),
        Event::Room => host.on_room(now, &mut io),
        Event::Ring => host.on_ring(now, &mut io),
    }
}

impl Host<MixedPacket> for MixedHost {
    fn on_packet(
        &mut self,
        _: Ps,
        packet: Delivered<MixedPacket>,
        io: &mut HostIo<'_, MixedPacket>,
    ) {
        self.act(packet.payload.group.into(), Event::Packet(packet), io);
        self.settle(io);
    }

    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, MixedPacket>) {
        for k in 0..self.stacks.len() {
            if self.due[k] <= now {
                self.due[k] = Ps::MAX;
                self.act(k, Event::Timer, io);
            }
        }
        self.settle(io);
    }

    fn on_call(&mut self, _: Ps, token: u64, io: &mut HostIo<'_, MixedPacket>) {
        let (k, own) = self.calls[(token & 0xFFFF_FFFF) as usize];
        self.act(k, Event::Call(own | token >> 32 << 32), io);
        self.settle(io);
    }

    fn on_room(&mut self, _: Ps, io: &mut HostIo<'_, MixedPacket>) {
        self.act_all(|| Event::Room, io);
    }

    fn on_ring(&mut self, _: Ps, io: &mut HostIo<'_, MixedPacket>) {
        self.act_all(|| Event::Ring, io);
    }
}

impl Counted for MixedHost {
    fn resent(&self) -> Resent {
        let of = |stack: &Stack| match stack {
            Stack::Srd(host) => host.resent(),
            Stack::Tcp(host) => host.resent(),
            Stack::Rc(host) => host.resent(),
            Stack::Ue(host) => host.resent(),
        };
        self.stacks.iter().map(of).fold(Resent::default(), Resent::plus)
    }

    fn path_packets(&self, sum: &mut Vec<u64>) {
        for stack in &self.stacks {
            if let Stack::Srd(host) = stack {
                host.path_packets(sum);
            }
        }
    }
}

/// One stack's access to the network.
struct Lane<'a, 'b> {
    io: &'a mut HostIo<'b, MixedPacket>,
    card: &'a mut Card,
    due: &'a mut Ps,
    group: usize,
}

impl<Q: Mixable> HostNet<Q> for Lane<'_, '_> {
    fn now(&self) -> Ps {
        self.io.now()
    }

    fn send(&mut self, out: Outbound, payload: Q) -> Result<(), Q> {
        HostNet::<Q>::send_tagged(self, out, Tag::default(), payload)
    }

    fn send_tagged(&mut self, out: Outbound, tag: Tag, payload: Q) -> Result<(), Q> {
        let packet = MixedPacket { group: self.group as u8, of: payload.mix() };
        let sent = self.card.send(self.group, (out, tag, packet), self.io);
        sent.map_err(|back| Q::pick(back.of))
    }

    fn flow_open(&mut self, dst: HostId) -> FlowId {
        self.io.flow_open(dst)
    }

    fn room_want(&mut self) -> bool {
        self.io.room_want()
    }

    fn nic_free_at(&self) -> Ps {
        self.card.free_at(self.group, self.io)
    }

    fn nic_backlog_bytes(&self) -> u64 {
        self.card.backlog_bytes(self.group, self.io.now())
    }

    fn rx_ring(&self) -> Option<RingState> {
        self.io.rx_ring()
    }

    fn rx_ring_waiting(&self) -> Option<RingState> {
        self.io.rx_ring_waiting()
    }

    fn rx_ring_put(&mut self) -> Result<RingPut, RingFull> {
        self.io.rx_ring_put()
    }

    fn rx_ring_call(&mut self, written_bytes: Option<u64>) {
        self.io.rx_ring_call(written_bytes);
    }

    fn timer_set(&mut self, at: Ps) {
        *self.due = at;
    }

    fn timer(&self) -> Ps {
        *self.due
    }
}
