//! Special cases of the law of congestion that the lab's network cannot show: hosts that halt, and
//! sockets that overflow. `srd lab run guards` has the others.

use crate::common::overload::{Load, Overload};
use crate::common::*;
use srd_core::guards::Guard;
use srd_core::*;
use std::ops::RangeInclusive;

const BYTES: usize = 1000;
const BATCH: usize = 500;
const BATCHES: usize = 4;

/// Sends batches of messages between hosts under a load, over the seeds given. How long that took
/// in all, in us, and how many packets were sent twice.
fn transfer(load: Load, off: Option<Guard>, seeds: RangeInclusive<u64>) -> (u64, u64) {
    let (mut us, mut copies) = (0, 0);
    for seed in seeds {
        let configs = (1..=2).map(|i| {
            let mut c = config(i);
            c.guards = off.map_or(c.guards, |g| c.guards.without(g));
            c
        });
        let mut p = Pair::with(seed, configs.collect());
        p.net.overload = Some(Overload::new(load, seed, 2));
        let start = p.net.now;
        for _ in 0..BATCHES {
            let statuses = p.batch(BATCH, BYTES, Span::from_secs(20));
            assert_eq!(statuses.len(), BATCH, "seed {seed}: completions in time");
        }
        us += p.net.now.since(start).0 / 1000;
        copies += p.net.hosts[0].engine.counters().retrans_pkts;
    }
    (us, copies)
}

/// Hosts that halt for up to 6 ms: what they take of round trips is covered by longer timers and
/// more bytes in flight, so that less is sent twice, and nothing takes longer for it. (Single
/// transfers differ by a factor of two from seed to seed: three of them say nothing of the time.)
#[test]
fn the_delay_of_hosts_is_covered() {
    let ms = Span::from_ms;
    let late = Load { halt_max: ms(6), run_max: ms(1), socket_bytes: 100 << 20, ..Load::default() };
    let with = transfer(late, None, 1..=160);
    let without = transfer(late, Some(Guard::HostDelay), 1..=160);
    println!("{} us, {} without; {} copies, {} without", with.0, without.0, with.1, without.1);
    assert!(with.0 < without.0, "{} us, {} without", with.0, without.0);
    assert!(with.1 * 3 < without.1 * 2, "{} copies, {} without", with.1, without.1);
}

/// Host 1 only receives, and all return paths that its acknowledgments take in turn die at once. It
/// cannot tell which path is dead, since nothing comes back from any: what the sender asks again is
/// answered on any other path. How many of the messages complete.
fn done_after_return_paths_die(off: Option<Guard>, seed: u64) -> usize {
    let configs = (1..=2).map(|i| {
        let mut c = config(i);
        c.guards = off.map_or(c.guards, |g| c.guards.without(g));
        c
    });
    let mut p = Pair::with(seed, configs.collect());
    assert_eq!(p.batch(BATCH, BYTES, Span::from_ms(100)).len(), BATCH, "seed {seed}: all is well");
    let before = p.net.hosts[1].paths_used;
    p.batch(BATCH, BYTES, Span::from_ms(100));
    let used = |path: &u8| {
        let path = usize::from(*path);
        p.net.hosts[1].paths_used[path] > before[path]
    };
    let black: Vec<u8> = (0..=u8::MAX).filter(used).collect();
    assert!((4..32).contains(&black.len()), "seed {seed}: acknowledgments took {black:?}");
    p.net.faults.black_paths = black;
    let statuses = p.batch(BATCH, BYTES, Span::from_secs(1));
    statuses.iter().filter(|s| **s == Status::Ok).count()
}

/// Without it, a receiver whose return paths die together is not heard again, in some seeds.
#[test]
fn a_missed_acknowledgment_is_repeated_on_any_path() {
    let mut lost = 0;
    for seed in 1..=20 {
        let with = done_after_return_paths_die(None, seed);
        let without = done_after_return_paths_die(Some(Guard::AckRepeat), seed);
        println!("seed {seed}: {with} messages, {without} without");
        assert_eq!(with, BATCH, "seed {seed}");
        lost += usize::from(without < BATCH);
    }
    assert!(lost > 0, "messages fail without it for some seed");
}
