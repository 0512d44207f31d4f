//! The network of a hostile world: every host has a cable of equal speed to one switch, which loses
//! packets only if a port's buffer is full. Other faults of networks belong to `world.rs`; packets
//! that narrow paths lose (`narrow.rs`) never enter this network.

use crate::packet::CABLE_BYTES;
use crate::schedule::Schedule;
use srd_core::Endpoint;
use std::net::IpAddr;

/// A datagram in flight, with what the checker knows about it.
#[derive(Clone, Debug)]
pub(super) struct Gram {
    /// UDP payload.
    pub bytes: Vec<u8>,
    /// Source address in its IP header.
    pub src: IpAddr,
    /// Destination.
    pub dst: Endpoint,
    /// Path that it takes.
    pub path: u8,
    /// Index of the member whose engine made it; `None`: a liar or a stranger made it.
    pub honest: Option<usize>,
    /// The job that its payload belongs to.
    pub job: Option<u32>,
    /// Bits were flipped in the network.
    pub damaged: bool,
    /// When it was queued in the socket.
    pub waits_since: Option<u64>,
}

/// An event.
#[derive(Debug)]
pub(super) enum Event {
    /// A datagram arrives at its host.
    Arrive(Gram),
    /// A member's timer fires.
    Wake(usize),
    /// An action of the world.
    Act(Act),
}

/// Actions of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The hostile side takes a turn.
    Hostile,
    /// Members die.
    Die,
    /// Delayed flows start.
    Begin,
    /// Delayed receives are posted.
    Receives,
    /// A periodic small job.
    Tick,
    /// Absent members start.
    Come,
}

/// The network of a hostile world.
#[derive(Debug)]
pub(super) struct Net {
    events: Schedule<Event>,
    /// When each host's cable becomes free: to the switch, and from it.
    up_free: Vec<u64>,
    down_free: Vec<u64>,
    delay_ns: u64,
    /// Bytes per microsecond on each cable.
    bytes_per_us: u64,
    /// Longest queue of a port, in ns of its cable's rate.
    queue_ns_max: u64,
    /// Datagrams dropped by a full port buffer.
    pub dropped: u64,
    /// Datagrams carried.
    pub carried: u64,
    /// Bytes of datagrams that no honest member sent.
    pub strange_bytes: u64,
    /// The host of a dishonest member without an honest one beside it, and the bytes that others
    /// send there: what it requested, and their jobs with it.
    pub guest: Option<usize>,
    pub guest_bytes: u64,
}

impl Net {
    /// A network of `hosts` cables with a delay of `delay_ns` between hosts.
    pub fn new(hosts: usize, bytes_per_us: u64, delay_ns: u64) -> Self {
        Self {
            events: Schedule::new(),
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

    /// Schedules an event.
    pub fn at(&mut self, at: u64, event: Event) {
        self.events.at(at, event);
    }

    /// The next event before `end`.
    pub fn next(&mut self, end: u64) -> Option<(u64, Event)> {
        self.events.next(end)
    }

    /// Sends a datagram from host `from` to host `to`.
    pub fn send(&mut self, now: u64, from: usize, to: usize, gram: Gram) {
        let bytes = gram.bytes.len() as u64 + CABLE_BYTES;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::endpoint_of;

    /// A datagram of `len` bytes from host 0 to host `to`.
    fn gram(to: u32, len: usize) -> Gram {
        let dst = endpoint_of(to, 0);
        let (bytes, src) = (vec![0; len], endpoint_of(0, 0).ip);
        Gram {
            bytes,
            src,
            dst,
            path: 0,
            honest: Some(0),
            job: None,
            damaged: false,
            waits_since: None,
        }
    }

    /// When the datagrams arrive.
    fn arrivals(net: &mut Net) -> Vec<u64> {
        let next = || net.next(u64::MAX).map(|(at, e)| (at, matches!(e, Event::Arrive(_))));
        core::iter::from_fn(next).inspect(|(_, a)| assert!(a)).map(|(at, _)| at).collect()
    }

    #[test]
    fn events_come_in_order_of_time_and_then_of_scheduling() {
        let mut net = Net::new(2, 1000, 100);
        for (at, member) in [(30, 0), (10, 1), (30, 2), (20, 3)] {
            net.at(at, Event::Wake(member));
        }
        let mut seen = Vec::new();
        while let Some((at, Event::Wake(member))) = net.next(30) {
            seen.push((at, member));
        }
        assert_eq!(seen, [(10, 1), (20, 3), (30, 0), (30, 2)]);
        net.at(31, Event::Act(Act::Die));
        assert!(net.next(30).is_none(), "later than the end");
        assert!(matches!(net.next(31), Some((31, Event::Act(Act::Die)))), "and not forgotten");
    }

    #[test]
    fn a_datagram_takes_the_time_of_two_cables_and_the_delay() {
        // 1000 bytes with its frame take 1000 ns on a cable of 1000 bytes per us.
        let mut net = Net::new(3, 1000, 600);
        net.send(0, 0, 1, gram(1, 1000 - CABLE_BYTES as usize));
        net.send(0, 0, 2, gram(2, 1000 - CABLE_BYTES as usize));
        let at = arrivals(&mut net);
        assert_eq!(at.len(), 2);
        assert_eq!(at[1] - at[0], 1000, "both share the cable to the switch");
        assert!(at[0] >= 1000 + 600, "one cable and the delay at least: {at:?}");
        assert_eq!((net.carried, net.dropped), (2, 0));
    }

    #[test]
    fn a_port_whose_buffer_is_full_drops() {
        // Nine hosts send at once to one: eight ninths of it wait at its port.
        let mut net = Net::new(10, 10, 0);
        for from in 1..10 {
            for _ in 0..40 {
                net.send(0, from, 0, gram(0, 934));
            }
        }
        assert!(net.dropped > 0, "more than the buffer holds");
        assert_eq!(net.carried + net.dropped, 9 * 40);
        let carried = net.carried;
        let at = arrivals(&mut net);
        assert_eq!(at.len() as u64, carried, "what is carried arrives");
        assert!(at.is_sorted() && at.windows(2).all(|w| w[1] - w[0] >= 100_000), "one by one");
    }
}
