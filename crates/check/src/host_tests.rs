//! The model of a host that is slower than its card.

use super::*;
use crate::class::Classes;
use crate::scenario::Limits;
use srd_fabric::{NS, US};

/// A ring that drains `rate` bytes per second, and is well after a second.
fn ring(rate: u64) -> Ring {
    Ring { rate, limit: 1 << 20, heal_at: 1_000_000 * US, ..Ring::default() }
}

#[test]
fn a_ring_drains_at_its_rate() {
    // A byte per ns.
    let mut r = ring(1_000_000_000);
    r.waiting = 10_000;
    r.drain(4 * US);
    assert_eq!(r.waiting, 6_000);
    r.drain(4 * US);
    assert_eq!(r.waiting, 6_000, "no time has passed");
    r.drain(9 * US);
    assert_eq!(r.waiting, 1_000);
    r.drain(20 * US);
    assert_eq!(r.waiting, 0, "no less than nothing waits");
}

#[test]
fn an_idle_host_saves_no_drain_for_later() {
    let mut r = ring(1_000_000_000);
    r.drain(50 * US);
    r.waiting = 3_000;
    r.drain(51 * US);
    assert_eq!(r.waiting, 2_000, "the 50 us before count for nothing");
}

#[test]
fn moments_shorter_than_a_byte_add_up() {
    // A byte per us, looked at each 300 ns: 12 looks are 3.6 us, of which no part is lost that
    // has not drained a byte.
    let mut r = ring(1_000_000);
    r.waiting = 100;
    let mut left = vec![];
    for look in 1..=12 {
        r.drain(look * 300 * NS);
        left.push(r.waiting);
    }
    assert_eq!(left, [100, 100, 100, 99, 99, 99, 99, 98, 98, 98, 98, 97]);
}

#[test]
fn a_host_is_well_when_the_faults_end() {
    let mut r = Ring { heal_at: 5 * US, ..ring(1) };
    r.waiting = 1 << 40;
    r.drain(5 * US - 1);
    assert_eq!(r.waiting, 1 << 40);
    r.drain(5 * US);
    assert_eq!(r.waiting, 0);
}

/// Half of the worlds have slow hosts; in these each engine's host is as slow as its own draw says.
#[test]
fn hosts_are_slow_in_half_of_the_worlds_and_each_for_itself() {
    let limits = Limits { classes: Classes::ORDINARY, ..Limits::NONE };
    let (mut slow, mut unlike) = (0, 0);
    for seed in 0..200 {
        let s = Scenario::from_seed(seed, limits);
        let draw = |id| Ring::draw(&s, &s.config, id);
        let (a, b) = (draw(0), draw(1));
        assert_eq!(a.rate == 0, b.rate == 0, "seed {seed}: all hosts of a world, or none");
        assert_eq!((a.rate, a.limit), (draw(0).rate, draw(0).limit), "seed {seed}: it replays");
        if a.rate == 0 {
            continue;
        }
        slow += 1;
        unlike += u32::from((a.rate, a.limit) != (b.rate, b.limit));
        let (line, mtu) = (s.config.rate.line_bytes_per_sec, u64::from(s.config.mtu));
        assert!((line / 100..=line).contains(&a.rate), "seed {seed}: {a:?}");
        assert!((2 * mtu..=32 * mtu).contains(&a.limit), "seed {seed}: {a:?}");
        assert_eq!(a.heal_at, s.heal_at, "seed {seed}");
    }
    assert!((60..140).contains(&slow), "{slow} of 200 worlds have slow hosts");
    assert!(unlike > slow / 2, "{unlike} of {slow} worlds have hosts of two kinds");
}
