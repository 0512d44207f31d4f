//! The program on a host and its interface to the network.

use crate::lossless::RegisterOp;
use crate::net::Net;
use crate::ring::{RingFull, RingPut, RingState};
use crate::topo::{HostId, Ps};

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// Destination.
    pub dst: HostId,
    /// Source port: the entropy that ECMP hashes.
    pub sport: u16,
    /// Destination port, also part of the hash.
    pub dport: u16,
    /// Bytes on the wire including all headers, at most [`PACKET_BYTES_MAX`].
    pub bytes: u32,
    /// Whether the packet is ECN-capable, so that switches may mark it.
    pub ect: bool,
}

/// A flow with a circuit, from [`HostIo::flow_open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub(crate) u32);

/// Instructions of a packet to switches. A tag adds no bytes: [`Outbound::bytes`] includes the
/// fields that it would take on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// The flow whose circuit the packet sets up or follows. `None`: default route.
    pub flow: Option<FlowId>,
    /// Whether it is the last packet of its flow, which frees the circuit as it passes.
    pub last: bool,
    /// Operation on the registers of the links that it passes.
    pub register: Option<RegisterOp>,
}

/// Largest packet in bytes; with it all arithmetic fits 64 bits.
pub const PACKET_BYTES_MAX: u32 = 1 << 20;

/// A packet that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered<P> {
    /// Sender.
    pub src: HostId,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Bytes on the wire.
    pub bytes: u32,
    /// Whether it was marked "congestion experienced".
    pub ce: bool,
    /// 0 = intact; otherwise the packet was damaged, and the random value chooses the damage.
    pub corrupt: u16,
    /// When the sender's card received it, ps.
    pub sent_ps: Ps,
    /// How long it was in this host's ring before its program saw it, ps
    /// ([`Placement::Host`](crate::Placement)); a real host knows this from the kernel's arrival
    /// stamp.
    pub waited_ps: Ps,
    /// Largest register on its path, if it was sent with a [`RegisterOp`]; otherwise 0.
    pub register_max: i64,
    /// The sender's payload.
    pub payload: P,
}

/// The program on a host. Called one event at a time; it sees the network only through `io`.
pub trait Host<P> {
    /// Handles an arriving packet.
    fn on_packet(&mut self, now: Ps, packet: Delivered<P>, io: &mut HostIo<'_, P>);
    /// The timer set with [`HostIo::timer_set`] is due; it is off during the call.
    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, P>);
    /// A call scheduled with [`crate::World::call_at`] is due.
    fn on_call(&mut self, now: Ps, token: u64, io: &mut HostIo<'_, P>);
    /// No packet waits in the card any more; called after [`HostIo::room_want`] returned false.
    fn on_room(&mut self, _now: Ps, _io: &mut HostIo<'_, P>) {}
    /// The host's ring has written the number of bytes requested with [`HostIo::rx_ring_call`].
    fn on_ring(&mut self, _now: Ps, _io: &mut HostIo<'_, P>) {}
}

/// A host's access to the network during a call.
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

    /// Hands a packet to the card, which sends it after the packets before it.
    ///
    /// # Errors
    /// The payload, if the card's queue is full; the packet is then neither sent nor counted.
    ///
    /// # Panics
    /// If `out.dst` does not exist or `out.bytes` is 0 or above [`PACKET_BYTES_MAX`].
    #[inline]
    pub fn send(&mut self, out: Outbound, payload: P) -> Result<(), P> {
        self.net.send(self.host, out, payload)
    }

    /// Like [`HostIo::send`], with instructions to switches. Only networks with
    /// [`FlowControl::Credits`](crate::FlowControl) follow them; others ignore the tag.
    ///
    /// # Errors
    /// Like [`HostIo::send`].
    ///
    /// # Panics
    /// Like [`HostIo::send`], and if the packet is larger than an input buffer.
    pub fn send_tagged(&mut self, out: Outbound, tag: Tag, payload: P) -> Result<(), P> {
        self.net.send_tagged(self.host, out, tag, payload)
    }

    /// Opens a flow to `dst`. Packets sent with its id ([`Tag::flow`]) take one circuit in order;
    /// the first sets it up, the last ([`Tag::last`]) frees it. In a network without circuits the
    /// id is ignored.
    pub fn flow_open(&mut self, dst: HostId) -> FlowId {
        self.net.flow_open(self.host, dst)
    }

    /// Returns whether no packet waits in the card (one may still be on its way out). If one does,
    /// [`Host::on_room`] is called as soon as none does. In a network without credits the card is
    /// never blocked and the result is always true; use [`HostIo::nic_free_at`] there.
    pub fn room_want(&mut self) -> bool {
        self.net.room_want(self.host)
    }

    /// When the card will have sent all its packets (at or before now if it is idle); in a network
    /// with credits, the earliest possible time.
    pub fn nic_free_at(&self) -> Ps {
        self.net.nic_free_at(self.host)
    }

    /// Bytes that the card has not yet sent.
    pub fn nic_backlog_bytes(&self) -> u64 {
        self.net.nic_backlog_bytes(self.host)
    }

    /// State of this host's ring, if it has one and the program is on the card
    /// ([`Placement::Card`](crate::Placement)).
    pub fn rx_ring(&self) -> Option<RingState> {
        self.net.ring_state(self.host)
    }

    /// State of this host's ring, if it has one, wherever the program is. For a program behind a
    /// socket, this is what it can ask its kernel about the receive buffer.
    pub fn rx_ring_waiting(&self) -> Option<RingState> {
        self.net.ring_waiting(self.host)
    }

    /// Puts the packet of this [`Host::on_packet`] into the ring. Without a ring, or behind one,
    /// the packet counts as written now.
    ///
    /// # Errors
    /// If there is no room; the packet is lost and counted as
    /// [`DropReason::HostFull`](crate::DropReason).
    ///
    /// # Panics
    /// If called twice for a packet, or outside of [`Host::on_packet`].
    pub fn rx_ring_put(&mut self) -> Result<RingPut, RingFull> {
        self.net.ring_put(self.host)
    }

    /// Requests a call of [`Host::on_ring`] at the time when the ring has written this many bytes
    /// ([`RingState::written_bytes`]), which must have entered it. Replaces an earlier request;
    /// `None` cancels it. The time is adjusted when the ring's rate changes.
    pub fn rx_ring_call(&mut self, written_bytes: Option<u64>) {
        self.net.ring_call_set(self.host, written_bytes);
    }

    /// Sets this host's only timer, replacing its time; a time in the past means now. Moving the
    /// timer later, the frequent case, costs two stores.
    #[inline]
    pub fn timer_set(&mut self, at: Ps) {
        self.net.timer_set(self.host, at);
    }

    /// Sets the timer if the new time is earlier.
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
