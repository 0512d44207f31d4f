//! The network of a crowded world: a port at each host, and one bottleneck before the receiver.

use super::plan::{JITTER_NS, Kind, LIFTED_TIMES, Plan};
use crate::draw::Draw;
use crate::packet::CABLE_BYTES;
use crate::schedule::Schedule;
use srd_core::Endpoint;
use std::net::IpAddr;

/// A datagram. Payload has no bytes, only a length.
#[derive(Clone, Debug)]
pub(super) struct Gram {
    /// The headers.
    pub head: Vec<u8>,
    /// Bytes of the UDP payload.
    pub len: usize,
    /// Address in the IP header.
    pub src: IpAddr,
    pub dst: Endpoint,
    /// The sender that it comes from or goes to.
    pub sender: usize,
    /// It goes to the receiver, so that it passes the bottleneck.
    pub forth: bool,
    /// A switch has marked it.
    pub ce: bool,
}

/// An event.
#[derive(Debug)]
pub(super) enum Event {
    /// A datagram reaches the bottleneck.
    Bottleneck(Gram),
    /// A datagram arrives at its host.
    Arrive(Gram),
    /// A member's timer fires.
    Wake(usize),
    /// A sender has its first requests.
    Begin(usize),
    /// A phase ends.
    Phase(usize),
}

/// The network.
#[derive(Debug)]
pub(super) struct Net {
    events: Schedule<Event>,
    kind: Kind,
    /// Bytes per second of the bottleneck, and of every port.
    rate: u64,
    line: u64,
    /// When each port becomes free, in ns.
    ports: Vec<u64>,
    /// When the queue of the bottleneck will be empty, in ns.
    empty_at: u64,
    /// Tokens of the policer in bytes, and since when.
    tokens: u64,
    tokens_at: u64,
    /// Whether the bottleneck has changed: a policer is faster, a switch marks no more.
    pub changed: bool,
    draw: Draw,
    /// Datagrams that reached the bottleneck, and of these, datagrams that it dropped.
    pub offered: u64,
    pub dropped: u64,
    pub marked: u64,
}

/// Time of so many bytes in ns.
fn time_of(bytes: u64, rate: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate)) as u64
}

impl Net {
    pub fn new(plan: &Plan, hosts: usize, draw: Draw) -> Self {
        let tokens = match plan.kind {
            Kind::Policer { bytes } | Kind::Lifted { bytes } => bytes,
            _ => 0,
        };
        Self {
            events: Schedule::new(),
            kind: plan.kind,
            rate: plan.rate,
            line: plan.line(),
            ports: vec![0; hosts],
            empty_at: 0,
            tokens,
            tokens_at: 0,
            changed: false,
            draw,
            offered: 0,
            dropped: 0,
            marked: 0,
        }
    }

    /// Schedules an event.
    pub fn at(&mut self, at: u64, event: Event) {
        self.events.at(at, event);
    }

    /// The next event until `end`.
    pub fn next(&mut self, end: u64) -> Option<(u64, Event)> {
        self.events.next(end)
    }

    /// Sends a datagram from the port of `host`; half of `base_ns` is the way to the bottleneck, or
    /// from the receiver to the sender.
    pub fn send(&mut self, now: u64, host: usize, base_ns: u64, gram: Gram) {
        let bytes = gram.len as u64 + CABLE_BYTES;
        let leaves = self.ports[host].max(now) + time_of(bytes, self.line);
        self.ports[host] = leaves;
        let at = leaves + base_ns / 2 + self.draw.below(JITTER_NS);
        let event = if gram.forth { Event::Bottleneck(gram) } else { Event::Arrive(gram) };
        self.at(at, event);
    }

    /// A datagram reaches the bottleneck. `base_ns`: as above; the other half is the way to the
    /// receiver.
    pub fn bottleneck(&mut self, now: u64, base_ns: u64, mut gram: Gram) {
        let bytes = gram.len as u64 + CABLE_BYTES;
        self.offered += 1;
        let leaves = match self.kind {
            Kind::Policer { bytes: room } | Kind::Lifted { bytes: room } => {
                let rate = if self.changed { LIFTED_TIMES * self.rate } else { self.rate };
                self.police(now, bytes, rate, room)
            }
            Kind::Buffer { bytes: room } => self.queue(now, bytes, room),
            Kind::Marks => {
                gram.ce = !self.changed;
                self.marked += u64::from(gram.ce);
                self.queue(now, bytes, u64::MAX)
            }
            Kind::BadLink { permille } if self.draw.below(1000) < permille => None,
            Kind::BadLink { .. } => self.queue(now, bytes, u64::MAX),
        };
        match leaves {
            Some(leaves) => self.at(leaves + base_ns / 2, Event::Arrive(gram)),
            None => self.dropped += 1,
        }
    }

    /// When a packet has left the queue; `None`: it does not fit.
    fn queue(&mut self, now: u64, bytes: u64, room: u64) -> Option<u64> {
        let wait = self.empty_at.saturating_sub(now);
        let waiting = u128::from(wait) * u128::from(self.rate) / 1_000_000_000;
        if waiting + u128::from(bytes) > u128::from(room) {
            return None;
        }
        self.empty_at = now + wait + time_of(bytes, self.rate);
        Some(self.empty_at)
    }

    /// When a packet has passed the policer; `None`: there are not enough tokens.
    fn police(&mut self, now: u64, bytes: u64, rate: u64, room: u64) -> Option<u64> {
        let more = u128::from(now - self.tokens_at) * u128::from(rate) / 1_000_000_000;
        if more > 0 {
            self.tokens = room.min(self.tokens.saturating_add(more as u64));
            self.tokens_at = now;
        }
        self.tokens = self.tokens.checked_sub(bytes)?;
        Some(now)
    }
}

#[cfg(test)]
#[path = "net_tests.rs"]
mod tests;
