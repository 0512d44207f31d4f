//! A sender beside transports of another law at one bottleneck, round trip by round trip.

use super::*;
use crate::guards::Guard;

/// Base round trip, and the delays of two full buffers, in ns.
const TRIP: u64 = 60_000;
const FULL: u64 = 60_000;
const DEEP: u64 = 240_000;
/// Queueing delay in ns from which on switches mark.
const MARKS: u64 = 10_000;
const PACKET: u64 = 4_096;

const LINK: Link = Link {
    line: LINE,
    line_known: true,
    base_ns: TRIP,
    base_known: true,
    srtt_ns: TRIP,
    host_bytes: 0,
    burst: PACKET,
    known_ns: TRIP + FULL,
    target_ns: 45_000,
    unsure_ns: 1_000,
    mtu: PACKET,
    credited: true,
    guards: Guards::ALL,
};

/// What others do.
#[derive(Clone, Copy, PartialEq)]
enum Others {
    /// Windows that grow by a packet of each of four flows per round trip, and lose 30 % when the
    /// buffer overflows.
    Fill,
    /// So many bytes in flight, whatever happens.
    Stand(u64),
}

struct Bottleneck {
    rate: SrdRate,
    link: Link,
    /// Delay of the full buffer in ns.
    full_ns: u64,
    /// Bytes of others in flight.
    others: u64,
    queue_ns: u64,
    /// Bytes delivered of the sender and of the others.
    delivered: [u64; 2],
}

impl Bottleneck {
    fn new(guards: Guards, full_ns: u64) -> Self {
        let link = Link { guards, known_ns: TRIP + full_ns, ..LINK };
        Self { rate: SrdRate::new(LINE), link, full_ns, others: 0, queue_ns: 0, delivered: [0; 2] }
    }

    fn trip(&mut self, others: Others) {
        let ns = TRIP + self.queue_ns;
        self.link.srtt_ns = ns;
        let rate = self.rate.rate();
        let own = Link::bytes(rate, ns).min(self.rate.inflight_max(&self.link)).max(PACKET);
        let (all, room) = (own + self.others, Link::bytes(LINE, TRIP + self.full_ns));
        let lost = all.saturating_sub(room);
        self.queue_ns = (all.min(room) * 1_000_000_000 / LINE).saturating_sub(TRIP);
        let missing = own * lost / all;
        let queue = self.queue_ns;
        let acked = own - missing;
        let moved = Link::bytes(LINE, ns).min(all - lost);
        self.delivered[0] += moved * own / all;
        self.delivered[1] += moved * self.others / all;
        let marked = queue > MARKS;
        self.rate.on_round(
            &self.link,
            &Round {
                queue_ns: Some(queue),
                median_ns: queue.max(u64::from(marked) * self.link.target_ns),
                shared_ns: queue,
                most_ns: queue,
                delivered: Link::rate(acked, ns),
                sent: Link::rate(own, ns),
                packets: acked / PACKET,
                lost_permille: (missing * 1000 / own) as u32,
                full: true,
                ns,
                acked,
                missing,
                marked,
                marked_all: marked,
                ..Round::default()
            },
        );
        self.others = match others {
            Others::Stand(bytes) => bytes,
            Others::Fill if lost > 0 => self.others * 7 / 10,
            Others::Fill => self.others + 4 * PACKET,
        };
    }

    /// The sender's share of what was delivered in so many round trips, in percent.
    fn share(&mut self, trips: usize, others: Others) -> u64 {
        self.delivered = [0; 2];
        for _ in 0..trips {
            self.trip(others);
        }
        let [own, theirs] = self.delivered;
        own * 100 / (own + theirs).max(1)
    }
}

#[test]
fn a_part_of_the_link_is_left_beside_rivals_that_fill_the_buffer() {
    let mut b = Bottleneck::new(Guards::ALL, FULL);
    b.share(1_000, Others::Fill);
    let share = b.share(4_000, Others::Fill);
    // One flow of five: a fifth would be equal.
    assert!((10..=40).contains(&share), "{share} %");
    let mut b = Bottleneck::new(Guards::ALL.without(Guard::Rivals), FULL);
    b.share(1_000, Others::Fill);
    let share = b.share(4_000, Others::Fill);
    assert!(share < 5, "without the rule {share} %");
}

#[test]
fn a_queue_that_others_keep_whatever_is_marked_is_not_yielded_to() {
    // A bandwidth-delay product and a half, as BBR keeps it in a deep buffer.
    let stands = Others::Stand(Link::bytes(LINE, TRIP + FULL / 2));
    let share = |guards| {
        let mut b = Bottleneck::new(guards, DEEP);
        b.share(1_000, stands);
        b.share(1_000, stands)
    };
    let (with, without) = (share(Guards::ALL), share(Guards::ALL.without(Guard::Rivals)));
    assert!(with >= 10, "{with} %");
    assert!(without < 3, "without the rule {without} %");
}

#[test]
fn the_law_is_in_force_again_when_the_rivals_are_gone() {
    let mut b = Bottleneck::new(Guards::ALL, FULL);
    b.share(3_000, Others::Fill);
    assert!(b.rate.is_contested(), "the buffer is filled");
    b.share(500, Others::Stand(0));
    assert!(!b.rate.is_contested(), "nobody fills it");
    let share = b.share(100, Others::Stand(Link::bytes(LINE, TRIP) / 10));
    assert!(share >= 80 && b.queue_ns <= 2 * LINK.target_ns, "{share} %, {} ns", b.queue_ns);
}
