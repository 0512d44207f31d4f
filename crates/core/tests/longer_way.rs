//! The way to the peer becomes longer, on all paths at once: rule CC-49.

use crate::common::*;
use srd_core::*;

/// Messages of 1,000 bytes that wait for their completion at a time.
const DEEP: usize = 256;

/// Two hosts on sockets with 10 Gb/s, `delay_us` apart.
fn pair(seed: u64, credits: bool, delay_us: u64) -> Pair {
    let config = |i| {
        let mut c = EngineConfig::sockets(ip(i), 0, 1024);
        c.line_set(1_250_000_000);
        c.rate.credits = credits;
        c
    };
    let mut p = Pair::with(seed, vec![config(0), config(1)]);
    (p.net.faults.delay_ns, p.net.faults.jitter_ns) = (delay_us * 1_000, 2_000);
    p
}

/// Messages done in `span`, with [`DEEP`] at a time.
fn done_in(p: &mut Pair, span: Span) -> usize {
    let (end, mut under_way, mut done) = (p.net.now + span, 0, 0);
    loop {
        let ends = p.net.hosts[0].done.drain(..);
        let ended = ends.inspect(|c| assert_eq!(c.status, Status::Ok)).count();
        (under_way, done) = (under_way - ended, done + ended);
        p.net.hosts[1].done.clear();
        p.net.hosts[1].received.clear();
        while under_way < DEEP && p.net.now < end {
            p.net.hosts[1].recv(p.qp[1], 1, 1000);
            p.send(0, 1, vec![1; 1000]).unwrap();
            under_way += 1;
        }
        if under_way == 0 {
            return done;
        }
        assert!(p.net.step(), "what was posted ends");
    }
}

/// Round trips of 100 us become 3 or 10 times longer. As long as the former least round trip is
/// remembered, up to ten seconds, that would be a queue, which sending less does not shorten.
#[test]
fn a_longer_way_is_no_queue() {
    for (times, credits) in [(3, true), (3, false), (10, true), (10, false)] {
        for seed in 1..=3 {
            let mut p = pair(seed, credits, 50);
            done_in(&mut p, Span::from_ms(20));
            p.net.faults.delay_ns *= times;
            done_in(&mut p, Span::from_ms(200));
            let done = done_in(&mut p, Span::from_ms(200));
            // 256 messages in each round trip.
            let most = DEEP * 2_000 / times as usize;
            assert!(done > most * 9 / 10, "times {times}, credits {credits}, seed {seed}: {done}");
        }
    }
}
