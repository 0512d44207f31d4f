//! The program on a host, and what it may ask of the network.

use crate::lossless::RegisterOp;
use crate::net::Net;
use crate::ring::{RingFull, RingPut, RingState};
use crate::topo::{HostId, Ps};

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// To whom.
    pub dst: HostId,
    /// Source port: the entropy that ECMP hashes.
    pub sport: u16,
    /// Destination port, hashed too.
    pub dport: u16,
    /// Bytes on the wire with all headers, at most [`PACKET_BYTES_MAX`].
    pub bytes: u32,
    /// Whether switches may mark it (ECN-capable).
    pub ect: bool,
}

/// A flow that has a circuit, from [`HostIo::flow_open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub(crate) u32);

/// What switches do with a packet besides carrying it. It takes no bytes of its own: what the
/// fields would take on the wire is part of [`Outbound::bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Its flow, whose circuit it sets up or follows. `None`: it goes by default.
    pub flow: Option<FlowId>,
    /// It is the last packet of its flow: it frees the circuit as it passes.
    pub last: bool,
    /// It reads and changes the registers of the links that it passes.
    pub register: Option<RegisterOp>,
}

/// Largest packet: keeps all arithmetic within 64 bits.
pub const PACKET_BYTES_MAX: u32 = 1 << 20;

/// A packet that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered<P> {
    /// Who sent it.
    pub src: HostId,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Bytes on the wire.
    pub bytes: u32,
    /// Marked "congestion experienced".
    pub ce: bool,
    /// 0 = intact; otherwise damaged on the way, and the value is random: it chooses the damage.
    pub corrupt: u16,
    /// When it was handed to the sender's card.
    pub sent_ps: Ps,
    /// Largest register of the links that it passed, if it was sent with a [`RegisterOp`]; else 0.
    pub register_max: i64,
    /// What the sender put in.
    pub payload: P,
}

/// Number of stages of [`Host::look_ahead`].
pub const LOOK_AHEAD_STAGES: u32 = 5;

/// The program on a host. Called one event at a time; it sees the network only through `io`.
pub trait Host<P> {
    /// A packet arrived.
    fn on_packet(&mut self, now: Ps, packet: Delivered<P>, io: &mut HostIo<'_, P>);
    /// The timer set with [`HostIo::timer_set`] is due. It is off now.
    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, P>);
    /// A call scheduled from outside with [`crate::World::call_at`] is due.
    fn on_call(&mut self, now: Ps, token: u64, io: &mut HostIo<'_, P>);
    /// The card has put all that waited on the wire, after [`HostIo::room_want`] had said that
    /// something waits.
    fn on_room(&mut self, _now: Ps, _io: &mut HostIo<'_, P>) {}
    /// The host's ring has written as many bytes as [`HostIo::rx_ring_call`] asked for.
    fn on_ring(&mut self, _now: Ps, _io: &mut HostIo<'_, P>) {}
    /// Reads the state that a coming [`Host::on_packet`] (or, without a packet, a coming
    /// [`Host::on_timer`]) will need and returns anything made of it. Called for many hosts in a
    /// row shortly before their events come, first with stage 0, then with 1, up to
    /// [`LOOK_AHEAD_STAGES`], so that the processor fetches the memory of all of them at once: a
    /// stage may follow the pointers that the one before has read. For further packets of one host
    /// it is called with the last two stages only. Worth it where thousands of hosts do not fit the
    /// caches. Only for speed.
    fn look_ahead(&self, _stage: u32, _packet: Option<&P>) -> u64 {
        0
    }
}

/// What a host may ask of the network during a call.
#[derive(Debug)]
pub struct HostIo<'a, P> {
    pub(crate) net: &'a mut Net<P>,
    pub(crate) host: HostId,
}

impl<P> HostIo<'_, P> {
    /// This host.
    pub const fn host(&self) -> HostId {
        self.host
    }

    /// Present time.
    pub const fn now(&self) -> Ps {
        self.net.now
    }

    /// Hands a packet to the card, which sends it when those before it have left.
    ///
    /// # Errors
    /// Gives the payload back if the card's queue has no room; nothing was sent or counted.
    ///
    /// # Panics
    /// If `out.dst` does not exist or `out.bytes` is 0 or above [`PACKET_BYTES_MAX`].
    #[inline]
    pub fn send(&mut self, out: Outbound, payload: P) -> Result<(), P> {
        self.net.send(self.host, out, payload)
    }

    /// As [`HostIo::send`], for a packet with which switches do more than carry it. Only networks
    /// with [`FlowControl::Credits`](crate::FlowControl) do; others leave the tag aside.
    ///
    /// # Errors
    /// As [`HostIo::send`].
    ///
    /// # Panics
    /// As [`HostIo::send`], and if the packet is larger than an input buffer.
    pub fn send_tagged(&mut self, out: Outbound, tag: Tag, payload: P) -> Result<(), P> {
        self.net.send_tagged(self.host, out, tag, payload)
    }

    /// Begins a flow to `dst`. Its packets are sent with the number ([`Tag::flow`]) and take one
    /// circuit, in order; the first sets it up, the last ([`Tag::last`]) frees it. Without
    /// circuits in the network, the number means nothing.
    pub fn flow_open(&mut self, dst: HostId) -> FlowId {
        self.net.flow_open(self.host, dst)
    }

    /// True if no packet waits in the card (one may still be on its way out). If one does,
    /// [`Host::on_room`] is called as soon as none does. In a network without credits a card is
    /// never blocked: always true there; use [`HostIo::nic_free_at`].
    pub fn room_want(&mut self) -> bool {
        self.net.room_want(self.host)
    }

    /// When the card will have sent all it holds (at or before now if it is idle). In a network
    /// with credits: at the earliest.
    pub fn nic_free_at(&self) -> Ps {
        self.net.nic_free_at(self.host)
    }

    /// Bytes that the card has not sent yet.
    pub fn nic_backlog_bytes(&self) -> u64 {
        self.net.nic_backlog_bytes(self.host)
    }

    /// This host's ring, if it has one and is the card before it
    /// ([`Placement::Card`](crate::Placement)).
    pub fn rx_ring(&self) -> Option<RingState> {
        self.net.ring_state(self.host)
    }

    /// The packet of this [`Host::on_packet`] takes its place in the ring. A host without a ring,
    /// or behind one, has the packet in memory: it is written now.
    ///
    /// # Errors
    /// If there is no room: the packet is lost, and counted as
    /// [`DropReason::HostFull`](crate::DropReason).
    ///
    /// # Panics
    /// If called twice for a packet, or outside [`Host::on_packet`].
    pub fn rx_ring_put(&mut self) -> Result<RingPut, RingFull> {
        self.net.ring_put(self.host)
    }

    /// Asks for [`Host::on_ring`] when the ring has written so many bytes
    /// ([`RingState::written_bytes`]), which must have taken it; replaces what was asked for.
    /// `None`: asks for nothing. The moment follows the ring's rate as that changes.
    pub fn rx_ring_call(&mut self, written_bytes: Option<u64>) {
        self.net.ring_call_set(self.host, written_bytes);
    }

    /// Sets this host's one timer, replacing what was set; a time that has passed means now. Moving
    /// a timer later, the common case, costs two stores.
    #[inline]
    pub fn timer_set(&mut self, at: Ps) {
        self.net.timer_set(self.host, at);
    }

    /// Sets the timer only if that makes it earlier.
    #[inline]
    pub fn timer_set_earlier(&mut self, at: Ps) {
        if at < self.net.timer(self.host) {
            self.net.timer_set(self.host, at);
        }
    }

    /// Turns the timer off.
    pub fn timer_clear(&mut self) {
        self.net.timer_set(self.host, Ps::MAX);
    }

    /// When the timer is due; [`Ps::MAX`] if it is off.
    pub fn timer(&self) -> Ps {
        self.net.timer(self.host)
    }
}
