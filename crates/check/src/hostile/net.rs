//! The network of a hostile world: every host has a cable of one speed to one switch that never
//! loses a packet unless a port's buffer is full. Faults of networks are the other worlds' matter;
//! what narrow ways lose (`narrow.rs`) never comes here.

use srd_core::Endpoint;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;

/// A datagram on its way, with what the checker knows of it beyond its bytes.
#[derive(Clone, Debug)]
pub(super) struct Gram {
    /// UDP payload.
    pub bytes: Vec<u8>,
    /// Address that its IP header names as its source.
    pub src: IpAddr,
    /// Where it goes.
    pub dst: Endpoint,
    /// Number of the member that sent it as its engine made it; `None`: a liar or a stranger did.
    pub honest: Option<usize>,
    /// The piece of work that its payload belongs to.
    pub job: Option<u32>,
    /// Bits were flipped on the way.
    pub damaged: bool,
    /// When it came to a socket in which it then waited.
    pub waits_since: Option<u64>,
}

/// What happens at a time.
#[derive(Debug)]
pub(super) enum Event {
    /// A datagram is at its host.
    Arrive(Gram),
    /// A member asked to be woken.
    Wake(usize),
    /// The world does something of its own.
    Act(Act),
}

/// What the world does by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The hostile side takes a turn.
    Hostile,
    /// Members die.
    Die,
    /// Work that was to begin now begins.
    Begin,
    /// Receives are posted at last.
    Receives,
    /// A little work, again and again.
    Tick,
    /// Members that were absent are there.
    Come,
}

/// Bytes of Ethernet, IPv4 and UDP around each datagram, with preamble and gap.
const FRAME_BYTES: u64 = 66;

/// See the module.
#[derive(Debug)]
pub(super) struct Net {
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    slots: Vec<Option<Event>>,
    free: Vec<usize>,
    order: u64,
    /// When each host's cable is free: towards the switch, and back.
    up_free: Vec<u64>,
    down_free: Vec<u64>,
    delay_ns: u64,
    /// Bytes per microsecond on each cable.
    bytes_per_us: u64,
    /// Longest queue of a port, in ns of its cable.
    queue_ns_max: u64,
    /// Datagrams that found a port's buffer full.
    pub dropped: u64,
    /// Datagrams carried.
    pub carried: u64,
    /// Bytes on cables of datagrams that no honest member sent.
    pub strange_bytes: u64,
    /// The host of a member that is not honest, where no honest one is, and the bytes on its cable
    /// that others send there: what it has asked for, and work that others have with it.
    pub guest: Option<usize>,
    pub guest_bytes: u64,
}

impl Net {
    /// `hosts` cables; `delay_ns` from one host to another.
    pub fn new(hosts: usize, bytes_per_us: u64, delay_ns: u64) -> Self {
        Self {
            heap: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            order: 0,
            up_free: vec![0; hosts],
            down_free: vec![0; hosts],
            delay_ns,
            bytes_per_us,
            queue_ns_max: 2_000_000,
            dropped: 0,
            carried: 0,
            strange_bytes: 0,
            guest: None,
            guest_bytes: 0,
        }
    }

    /// Something happens at `at`.
    pub fn at(&mut self, at: u64, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.order += 1;
        self.heap.push(Reverse((at, self.order, slot)));
    }

    /// The next event until `end`.
    pub fn next(&mut self, end: u64) -> Option<(u64, Event)> {
        let &Reverse((at, _, slot)) = self.heap.peek()?;
        if at > end {
            return None;
        }
        self.heap.pop();
        self.free.push(slot);
        Some((at, self.slots[slot].take()?))
    }

    /// Sends a datagram from host `from` to host `to`.
    pub fn send(&mut self, now: u64, from: usize, to: usize, gram: Gram) {
        let bytes = gram.bytes.len() as u64 + FRAME_BYTES;
        let wire_ns = bytes * 1000 / self.bytes_per_us;
        let leaves = self.up_free[from].max(now) + wire_ns;
        self.up_free[from] = leaves;
        let at_port = leaves + self.delay_ns / 2;
        let start = self.down_free[to].max(at_port);
        if start - at_port > self.queue_ns_max {
            self.dropped += 1;
            return;
        }
        self.down_free[to] = start + wire_ns;
        self.carried += 1;
        if gram.honest.is_none() {
            self.strange_bytes += bytes;
        } else if self.guest == Some(to) {
            self.guest_bytes += bytes;
        }
        let at = start + wire_ns + self.delay_ns / 2;
        self.at(at, Event::Arrive(gram));
    }
}
