//! The program on a host and its interface to the network.

use crate::lossless::RegisterOp;
use crate::net::Net;
use crate::ring::{RingFull, RingPut, RingState};
use crate::topo::{HostId, Ps};
use std::fmt;

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
    /// Calls [`Host::fetch`] for the memory outside of the program itself that its next calls will
    /// need.
    fn look_ahead(&self) {}
    /// Asks the processor to fetch memory that will be needed soon, where large networks do not fit
    /// its caches. Used with [`WorldConfig::windows`](crate::WorldConfig::windows); affects speed,
    /// never results.
    #[inline]
    fn fetch(_at: *const u8, _bytes: usize)
    where
        Self: Sized,
    {
    }
}

/// What a program can do in its network. The network itself offers it, and so does a host that owns
/// several programs, to each of them ([`HostIo::within`]); every method does what the method of
/// [`HostIo`] with its name describes.
#[allow(missing_docs, clippy::missing_errors_doc, reason = "described at HostIo")]
pub trait HostNet<P> {
    fn now(&self) -> Ps;
    fn send(&mut self, out: Outbound, payload: P) -> Result<(), P>;
    fn send_tagged(&mut self, out: Outbound, tag: Tag, payload: P) -> Result<(), P>;
    fn flow_open(&mut self, dst: HostId) -> FlowId;
    fn room_want(&mut self) -> bool;
    fn nic_free_at(&self) -> Ps;
    fn nic_backlog_bytes(&self) -> u64;
    fn rx_ring(&self) -> Option<RingState>;
    fn rx_ring_waiting(&self) -> Option<RingState>;
    fn rx_ring_put(&mut self) -> Result<RingPut, RingFull>;
    fn rx_ring_call(&mut self, written_bytes: Option<u64>);
    fn timer_set(&mut self, at: Ps);
    fn timer(&self) -> Ps;
}

/// Who answers a program's calls.
enum Access<'a, P> {
    /// The network.
    Net(&'a mut Net<P>),
    /// A host that owns the program.
    Within(&'a mut dyn HostNet<P>),
}

/// Asks the network, or the host that stands for it.
macro_rules! ask {
    ($access:expr, $net:ident => $direct:expr, $name:ident($($arg:expr),*)) => {
        match $access {
            Access::Net($net) => $direct,
            Access::Within(owner) => owner.$name($($arg),*),
        }
    };
}

/// A host's access to the network during a call.
pub struct HostIo<'a, P> {
    access: Access<'a, P>,
    host: HostId,
}

impl<P> fmt::Debug for HostIo<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostIo").field("host", &self.host).field("now", &self.now()).finish()
    }
}

impl<'a, P> HostIo<'a, P> {
    pub(crate) const fn new(net: &'a mut Net<P>, host: HostId) -> Self {
        Self { access: Access::Net(net), host }
    }

    /// Access for a program that another host owns, which answers its calls. With it a host can run
    /// programs whose packets have other payloads than its own.
    pub const fn within(owner: &'a mut dyn HostNet<P>, host: HostId) -> Self {
        Self { access: Access::Within(owner), host }
    }

    /// This host.
    pub const fn host(&self) -> HostId {
        self.host
    }

    /// Present time.
    pub fn now(&self) -> Ps {
        ask!(&self.access, net => net.now, now())
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
        ask!(&mut self.access, net => net.send(self.host, out, payload), send(out, payload))
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
        let host = self.host;
        ask!(&mut self.access, net => net.send_tagged(host, out, tag, payload),
            send_tagged(out, tag, payload))
    }

    /// Opens a flow to `dst`. Packets sent with its id ([`Tag::flow`]) take one circuit in order;
    /// the first sets it up, the last ([`Tag::last`]) frees it. In a network without circuits the
    /// id is ignored.
    pub fn flow_open(&mut self, dst: HostId) -> FlowId {
        ask!(&mut self.access, net => net.flow_open(self.host, dst), flow_open(dst))
    }

    /// Returns whether no packet waits in the card (one may still be on its way out). If one does,
    /// [`Host::on_room`] is called as soon as none does. In a network without credits the card is
    /// never blocked and the result is always true; use [`HostIo::nic_free_at`] there.
    pub fn room_want(&mut self) -> bool {
        ask!(&mut self.access, net => net.room_want(self.host), room_want())
    }

    /// When the card will have sent all its packets (at or before now if it is idle); in a network
    /// with credits, the earliest possible time.
    pub fn nic_free_at(&self) -> Ps {
        ask!(&self.access, net => net.nic_free_at(self.host), nic_free_at())
    }

    /// Bytes that the card has not yet sent.
    pub fn nic_backlog_bytes(&self) -> u64 {
        ask!(&self.access, net => net.nic_backlog_bytes(self.host), nic_backlog_bytes())
    }

    /// State of this host's ring, if it has one and the program is on the card
    /// ([`Placement::Card`](crate::Placement)).
    pub fn rx_ring(&self) -> Option<RingState> {
        ask!(&self.access, net => net.ring_state(self.host), rx_ring())
    }

    /// State of this host's ring, if it has one, wherever the program is. For a program behind a
    /// socket, this is what it can ask its kernel about the receive buffer.
    pub fn rx_ring_waiting(&self) -> Option<RingState> {
        ask!(&self.access, net => net.ring_waiting(self.host), rx_ring_waiting())
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
        ask!(&mut self.access, net => net.ring_put(self.host), rx_ring_put())
    }

    /// Requests a call of [`Host::on_ring`] at the time when the ring has written this many bytes
    /// ([`RingState::written_bytes`]), which must have entered it. Replaces an earlier request;
    /// `None` cancels it. The time is adjusted when the ring's rate changes.
    pub fn rx_ring_call(&mut self, written_bytes: Option<u64>) {
        let host = self.host;
        ask!(&mut self.access, net => net.ring_call_set(host, written_bytes),
            rx_ring_call(written_bytes));
    }

    /// Sets this host's only timer, replacing its time; a time in the past means now. Moving the
    /// timer later, the frequent case, costs two stores.
    #[inline]
    pub fn timer_set(&mut self, at: Ps) {
        ask!(&mut self.access, net => net.timer_set(self.host, at), timer_set(at));
    }

    /// Sets the timer if the new time is earlier.
    #[inline]
    pub fn timer_set_earlier(&mut self, at: Ps) {
        if at < self.timer() {
            self.timer_set(at);
        }
    }

    /// Turns the timer off.
    pub fn timer_clear(&mut self) {
        self.timer_set(Ps::MAX);
    }

    /// When the timer is due; [`Ps::MAX`] if it is off.
    pub fn timer(&self) -> Ps {
        ask!(&self.access, net => net.timer(self.host), timer())
    }
}
