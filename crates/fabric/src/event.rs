//! Contents of the event queue.

use crate::host::PACKET_BYTES_MAX;
use crate::slab::{CE, ECT};

/// Position of the event kind in the top bits of the first word.
pub(crate) const KIND_SHIFT: u32 = 27;
/// The rest of the first word: a link, a host or unused.
pub(crate) const ID_MASK: u32 = (1 << KIND_SHIFT) - 1;
/// A packet reaches the end of a link: link, packet.
pub(crate) const ARRIVE: u32 = 0;
/// A delayed packet reaches the end of a link: link, packet.
pub(crate) const LATE: u32 = 1;
/// A packet held for a stalled host: host, packet.
pub(crate) const HELD: u32 = 2;
/// A host's timer: host.
pub(crate) const TIMER: u32 = 3;
/// A call from outside: host, index in `calls`.
pub(crate) const CALL: u32 = 4;
/// A fault: index in `faults`.
pub(crate) const FAULT: u32 = 5;
/// Routing learns of changed links: index in `converges`.
pub(crate) const CONVERGE: u32 = 6;
/// A call held for a stalled host: like [`CALL`].
pub(crate) const HELD_CALL: u32 = 7;
/// Like [`ARRIVE`], in a network with credits: link, packet.
pub(crate) const ARRIVE_CREDITED: u32 = 8;
/// An output with credits may be free: link.
pub(crate) const OUTPUT_WAKE: u32 = 9;
/// A credit returns to the sender of a link: link, lane; bytes in `size`.
pub(crate) const CREDIT: u32 = 10;
/// A host's card has room again: host.
pub(crate) const ROOM: u32 = 11;
/// A deadlock search is due.
pub(crate) const DEADLOCK_WATCH: u32 = 12;
/// A host's ring has written a packet, or the number of bytes for which its card waits: host.
pub(crate) const RING: u32 = 13;
/// A packet that left a ring is in memory: host, packet.
pub(crate) const RING_OUT: u32 = 14;
/// A PAUSE (1) or RESUME (0) frame reaches the sender of a link: link; 1 or 0.
pub(crate) const PAUSE: u32 = 15;
/// A packet that waited for the limit of its flow may leave: the host's link, packet.
pub(crate) const SHAPED: u32 = 16;

/// An event: kind and id, a second number, and for packets the values that a hop needs, so that the
/// packet itself is not accessed until it is delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    pub a: u32,
    pub b: u32,
    pub dst: u32,
    /// Hash of addresses and ports.
    pub hash: u32,
    /// Bytes on the wire; number of switches passed from bit [`HOPS_SHIFT`]; header flags from bit
    /// [`FLAGS_SHIFT`].
    pub size: u32,
    /// The node that the event affects, for a packet the end of the link: a host below the number
    /// of hosts, otherwise a switch.
    pub to: u32,
}

/// Position of the number of switches passed in [`Event::size`].
pub(crate) const HOPS_SHIFT: u32 = 22;
/// Position of the flags in [`Event::size`].
pub(crate) const FLAGS_SHIFT: u32 = 30;
const _: () = assert!(PACKET_BYTES_MAX < 1 << HOPS_SHIFT && (ECT | CE) >> (32 - FLAGS_SHIFT) == 0);

impl Event {
    #[inline]
    pub const fn new(kind: u32, id: u32, b: u32) -> Self {
        Self { a: kind << KIND_SHIFT | id, b, dst: 0, hash: 0, size: 0, to: id }
    }
    /// This event as one of another kind.
    pub const fn of_kind(self, kind: u32, id: u32) -> Self {
        Self { a: kind << KIND_SHIFT | id, ..self }
    }
    /// The node that the event affects; `None`: the whole network.
    pub fn node(&self) -> Option<u32> {
        let whole = matches!(self.kind(), FAULT | CONVERGE | DEADLOCK_WATCH);
        (!whole).then_some(self.to)
    }
    #[inline]
    pub const fn kind(self) -> u32 {
        self.a >> KIND_SHIFT
    }
    #[inline]
    pub const fn id(self) -> u32 {
        self.a & ID_MASK
    }
    /// Bytes on the wire.
    #[inline]
    pub const fn bytes(self) -> u32 {
        self.size & ((1 << HOPS_SHIFT) - 1)
    }
    /// Number of switches passed.
    #[inline]
    pub const fn hops(self) -> u8 {
        (self.size >> HOPS_SHIFT) as u8
    }
    /// Flags of the packet's header.
    #[inline]
    pub const fn flags(self) -> u8 {
        (self.size >> FLAGS_SHIFT) as u8
    }
    #[inline]
    pub const fn flags_set(&mut self, flags: u8) {
        self.size = self.size & ((1 << FLAGS_SHIFT) - 1) | (flags as u32) << FLAGS_SHIFT;
    }
}
