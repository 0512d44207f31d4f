//! Events: what the queue holds.

use crate::host::PACKET_BYTES_MAX;
use crate::slab::{CE, ECT};

/// What an event is, in the top bits of its first word.
pub(crate) const KIND_SHIFT: u32 = 28;
/// The rest of the first word: a link, a host or nothing.
pub(crate) const ID_MASK: u32 = (1 << KIND_SHIFT) - 1;
/// A packet reaches the end of a link: link, packet.
pub(crate) const ARRIVE: u32 = 0;
/// A delayed packet reaches the end of a link: link, packet.
pub(crate) const LATE: u32 = 1;
/// A packet held for a stalled host: host, packet.
pub(crate) const HELD: u32 = 2;
/// A host's timer: host.
pub(crate) const TIMER: u32 = 3;
/// A call from outside: host, place in `calls`.
pub(crate) const CALL: u32 = 4;
/// A fault: place in `faults`.
pub(crate) const FAULT: u32 = 5;
/// Routing notices changed links: place in `converges`.
pub(crate) const CONVERGE: u32 = 6;
/// A call held for a stalled host: as [`CALL`].
pub(crate) const HELD_CALL: u32 = 7;
/// As [`ARRIVE`], in a network with credits: link, packet.
pub(crate) const ARRIVE_CREDITED: u32 = 8;
/// An output with credits may be free: link.
pub(crate) const OUTPUT_WAKE: u32 = 9;
/// A sender hears of room at the far end of a link: link, lane; bytes in `size`.
pub(crate) const CREDIT: u32 = 10;
/// A host's card has room again: host.
pub(crate) const ROOM: u32 = 11;
/// Time to look for a deadlock.
pub(crate) const DEADLOCK_WATCH: u32 = 12;
/// A host's ring has written a packet, or what its card waits for: host.
pub(crate) const RING: u32 = 13;
/// A packet that left a ring is in memory: host, packet.
pub(crate) const RING_OUT: u32 = 14;

/// An event: kind and id, a second number, and for packets what a hop needs to know of them, so
/// that the packet itself rests in memory until it is delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    pub a: u32,
    pub b: u32,
    pub dst: u32,
    /// Hash of addresses and ports.
    pub hash: u32,
    /// Bytes on the wire; from [`HOPS_SHIFT`] on the switches passed; from [`FLAGS_SHIFT`] on the
    /// flags of its header.
    pub size: u32,
    /// The node it concerns, for a packet where the link ends: a host below the number of hosts,
    /// else a switch.
    pub to: u32,
}

/// Place of the switches passed in [`Event::size`].
pub(crate) const HOPS_SHIFT: u32 = 22;
/// Place of the flags.
pub(crate) const FLAGS_SHIFT: u32 = 30;
const _: () = assert!(PACKET_BYTES_MAX < 1 << HOPS_SHIFT && (ECT | CE) >> (32 - FLAGS_SHIFT) == 0);

impl Event {
    #[inline]
    pub const fn new(kind: u32, id: u32, b: u32) -> Self {
        Self { a: kind << KIND_SHIFT | id, b, dst: 0, hash: 0, size: 0, to: id }
    }
    /// The node it concerns; `None`: the whole network.
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
    /// Switches passed.
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
