//! Overload: what one to thousands of senders lose for ever before one bottleneck.

use super::crowd::{Bottleneck, Crowd};
use crate::config::EngineConfig;
use crate::path::Sample;
use crate::time::Span;
use core::net::{IpAddr, Ipv4Addr};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const MTU: u16 = 4096;
/// Bytes per second of 1 Gb/s.
const GBIT: u64 = 125_000_000;
/// Buffer of the queue, and depth of the policer's bucket.
const ROOM: u64 = 256 << 10;
/// Noise of each packet.
const NOISE: Span = Span(500);
/// Packets of each sender until a crowd has settled, and while it is measured.
const TURNS: u64 = 400;
/// Most packets that reach the bottleneck until a crowd has settled, and while it is measured.
const SETTLE_MAX: u64 = 4_000_000;
/// See [`SETTLE_MAX`].
const PACKETS_MAX: u64 = 1_000_000;

/// What a crowd does after it has had time to settle.
#[derive(Debug)]
struct Steady {
    /// Packets that the bottleneck dropped, and packets sent again, per thousand.
    lost_permille: u64,
    again_permille: u64,
    used_percent: u64,
    /// Jain's index of fairness in thousandths.
    jain_permille: u64,
    /// What the least sender got, in percent of an equal share.
    least_percent: u64,
    wait_us: u64,
    wait_us_max: u64,
}

/// `n` senders with this base RTT settle for [`TURNS`] packets of each, and are measured for as
/// many; for at least 100 base RTTs and 20 ms.
fn steady(config: &EngineConfig, n: usize, rate: u64, base: Span, kind: Bottleneck) -> Steady {
    let mut crowd = Crowd::new(&vec![base; n], config, rate, kind, NOISE);
    settled(&mut crowd, rate, base)
}

/// Lets a crowd settle, and measures it for as long.
fn settled(crowd: &mut Crowd, rate: u64, base: Span) -> Steady {
    let n = crowd.senders.iter().filter(|s| !s.left).count() as u64;
    let turn = n * u64::from(MTU) * 1_000_000_000 / rate;
    let span = Span((TURNS * turn).max(100 * base.0).max(20_000_000));
    crowd.run(span, SETTLE_MAX);
    measured(crowd, rate, span)
}

/// What a crowd does for so long.
fn measured(crowd: &mut Crowd, rate: u64, span: Span) -> Steady {
    crowd.counters_reset();
    let began = crowd.now;
    crowd.run(span, PACKETS_MAX);
    let could = u128::from(rate) * u128::from(crowd.now.since(began).0) / 1_000_000_000;
    let there = || crowd.senders.iter().filter(|s| !s.left);
    let n = there().count() as u64;
    let each = || there().map(|s| u128::from(s.delivered));
    let sum = each().sum::<u128>().max(1);
    let squares = each().map(|d| d * d).sum::<u128>().max(1);
    let sent: u64 = crowd.senders.iter().map(|s| s.sent).sum();
    let again: u64 = crowd.senders.iter().map(|s| s.again).sum();
    Steady {
        lost_permille: crowd.dropped * 1000 / crowd.offered.max(1),
        again_permille: again * 1000 / sent.max(1),
        used_percent: (sum * 100 / could.max(1)) as u64,
        jain_permille: (sum * sum * 1000 / (u128::from(n) * squares)) as u64,
        least_percent: (each().min().unwrap_or(0) * 100 * u128::from(n) / sum) as u64,
        wait_us: crowd.wait_ns / (crowd.offered - crowd.dropped).max(1) / 1000,
        wait_us_max: crowd.wait_ns_max / 1000,
    }
}

fn simulated(line: u64, base: Span) -> EngineConfig {
    EngineConfig::simulated(LOCAL, 0, MTU, line, base)
}

fn sockets(line: u64) -> EngineConfig {
    let mut config = EngineConfig::sockets(LOCAL, 0, MTU);
    config.line_set(line);
    config
}

#[test]
fn a_few_senders_lose_nothing_in_a_shallow_buffer() {
    let base = Span::from_us(10);
    for n in [1, 8] {
        let config = simulated(10 * GBIT, base);
        let s = steady(&config, n, 10 * GBIT, base, Bottleneck::Queue(ROOM));
        assert_eq!((s.lost_permille, s.again_permille), (0, 0), "{n} senders: {s:?}");
        assert!(s.used_percent >= 95 && s.jain_permille >= 950, "{n} senders: {s:?}");
    }
}

/// A crowd that overflows its buffer finds a queue at which nobody loses, and all are nearly equal.
#[test]
fn a_crowd_loses_nothing_and_is_fair() {
    let base = Span::from_us(10);
    for n in [8, 17, 64, 512] {
        let s = steady(&sockets(10 * GBIT), n, 10 * GBIT, base, Bottleneck::Queue(ROOM));
        assert!(s.lost_permille <= 10 && s.used_percent >= 95, "{n} senders: {s:?}");
        assert!(s.jain_permille >= 900 && s.least_percent >= 25, "{n} senders: {s:?}");
    }
}

/// The same where the queue is the longer part of a round trip, and with one sender alone.
#[test]
fn few_senders_behind_a_slow_link_lose_nothing() {
    let base = Span::from_ms(20);
    for n in [1, 8] {
        let s = steady(&sockets(10 * GBIT), n, GBIT / 10, base, Bottleneck::Queue(ROOM));
        assert!(s.lost_permille <= 10 && s.used_percent >= 95, "{n} senders: {s:?}");
        assert!(s.jain_permille >= 800, "{n} senders: {s:?}");
    }
}

/// Those who stay take over, and become equal.
#[test]
fn who_stays_in_a_crowd_takes_over() {
    let (rate, base) = (10 * GBIT, Span::from_us(10));
    let mut crowd = Crowd::new(&[base; 64], &sockets(rate), rate, Bottleneck::Queue(ROOM), NOISE);
    settled(&mut crowd, rate, base);
    crowd.senders.iter_mut().skip(4).for_each(|s| s.left = true);
    crowd.run(Span::from_ms(4), PACKETS_MAX);
    let soon = measured(&mut crowd, rate, Span::from_ms(4));
    assert!(soon.used_percent >= 95 && soon.lost_permille <= 10, "{soon:?}");
    crowd.run(Span::from_ms(8), PACKETS_MAX);
    let later = measured(&mut crowd, rate, Span::from_ms(4));
    assert!(later.jain_permille >= 950 && later.lost_permille <= 10, "{later:?}");
}

/// The base RTT may be that of a small packet. What a full one takes longer on slow links stays
/// whatever is sent, and is no queue.
#[test]
fn the_own_time_of_a_packet_is_no_queue() {
    let (rate, small, own) = (GBIT, Span::from_us(40), Span::from_us(200));
    let buffer = Bottleneck::Queue(48 << 10);
    let mut crowd = Crowd::new(&[small + own; 8], &sockets(rate), rate, buffer, NOISE);
    for s in &mut crowd.senders {
        let (back, claimed, ce, full) = (Span::ZERO, Span::ZERO, false, false);
        let sample = Sample { rtt: small, back, sent: crowd.now, claimed, ce, full };
        s.context.awake(crowd.now).on_sample(0, &sample);
    }
    let all = settled(&mut crowd, rate, small + own);
    assert!(all.used_percent >= 95, "{all:?}");
    crowd.senders.iter_mut().skip(1).for_each(|s| s.left = true);
    crowd.run(Span::from_ms(10), PACKETS_MAX);
    let one = measured(&mut crowd, rate, Span::from_ms(10));
    assert!(one.used_percent >= 95 && one.lost_permille <= 10, "{one:?}");
}

/// Losses that come at any delay are no full buffer, and slow nobody down.
#[test]
fn losses_at_random_are_no_full_buffer() {
    for base in [Span::from_us(10), Span::from_us(100), Span::from_ms(20)] {
        let rate = 10 * GBIT;
        let endless = Bottleneck::Queue(1 << 30);
        let mut crowd = Crowd::new(&[base], &sockets(rate), rate, endless, NOISE);
        crowd.random_permille = 10;
        let s = settled(&mut crowd, rate, base);
        assert!(s.used_percent >= 95, "{base:?}: {s:?}");
    }
}

#[test]
fn senders_behind_a_policer_lose_next_to_nothing() {
    for (n, base_us) in [(1, 10), (1, 1000), (8, 1000), (1, 20_000), (3, 20_000)] {
        let (rate, base) = (GBIT, Span::from_us(base_us));
        let policer = Bottleneck::Policer(ROOM);
        let mut crowd = Crowd::new(&vec![base; n], &sockets(10 * GBIT), rate, policer, NOISE);
        for _ in 0..10 {
            settled(&mut crowd, rate, base);
        }
        let s = settled(&mut crowd, rate, base);
        assert!(s.lost_permille <= 40 && s.used_percent >= 85, "{n} senders, {base_us} us: {s:?}");
        assert!(s.least_percent >= 3, "{n} senders, {base_us} us: {s:?}");
    }
}

#[test]
fn random_loss_is_no_limit() {
    for (permille, used) in [(10, 95), (30, 90)] {
        let (rate, base) = (10 * GBIT, Span::from_us(10));
        let endless = Bottleneck::Queue(1 << 30);
        let mut crowd = Crowd::new(&[base], &sockets(rate), rate, endless, NOISE);
        crowd.random_permille = permille;
        for _ in 0..10 {
            let s = settled(&mut crowd, rate, base);
            assert!(s.used_percent >= used, "{permille} per thousand: {s:?}");
        }
    }
}

/// In a round with few packets each loss is a large share.
#[test]
fn what_a_bad_link_loses_does_not_slow_down_who_has_few_packets_per_round() {
    let (rate, base) = (GBIT / 2, Span::from_ms(1));
    let endless = Bottleneck::Queue(1 << 30);
    let mut crowd = Crowd::new(&[base; 2], &sockets(rate), rate, endless, NOISE);
    crowd.random_permille = 150;
    for _ in 0..400 {
        settled(&mut crowd, rate, base);
    }
    let mut used: Vec<_> = (0..9).map(|_| settled(&mut crowd, rate, base).used_percent).collect();
    used.sort_unstable();
    // A trial of the cap now and then costs more.
    assert!(used[4] >= 75, "{used:?}");
}

/// One row: name, senders as base RTTs, line and rate of the bottleneck, its kind.
fn row(name: &str, bases: &[Span], config: &EngineConfig, rate: u64, kind: Bottleneck) {
    let mut crowd = Crowd::new(bases, config, rate, kind, NOISE);
    let s = settled(&mut crowd, rate, bases[0]);
    println!(
        "{name:30} {:5} senders: lost {:4}, Jain {:4} per thousand; used {:3} %, least {:3} %; \
         wait {} us, at most {}",
        bases.len(),
        s.lost_permille,
        s.jain_permille,
        s.used_percent,
        s.least_percent,
        s.wait_us,
        s.wait_us_max
    );
}

/// The table of docs/congestion.md, "Overload".
#[test]
#[ignore = "a table of minutes"]
fn table() {
    let line = 10 * GBIT;
    let ten = Span::from_us(10);
    let queue = Bottleneck::Queue(ROOM);
    let policer = Bottleneck::Policer(ROOM);
    for n in [1, 8, 64, 512, 4096] {
        row("simulator, 10 Gb/s, 10 us", &vec![ten; n], &simulated(line, ten), line, queue);
    }
    for n in [1, 3, 8, 17, 64, 200, 512, 4096] {
        row("10 Gb/s, 10 us", &vec![ten; n], &sockets(line), line, queue);
    }
    for n in [3, 17, 200] {
        let bases = vec![Span::from_us(50); n];
        row("25 Gb/s, 50 us", &bases, &sockets(25 * GBIT), 25 * GBIT, queue);
    }
    row("40 Gb/s, 2 us", &[Span::from_us(2); 3], &sockets(40 * GBIT), 40 * GBIT, queue);
    for n in [1, 8, 64] {
        row("100 Mb/s, 20 ms", &vec![Span::from_ms(20); n], &sockets(line), GBIT / 10, queue);
    }
    for n in [16, 64] {
        let bases: Vec<_> = (0..n).map(|i| Span::from_us(40 - 10 * (i % 4))).collect();
        row("10 Gb/s, 10 to 40 us", &bases, &sockets(line), line, queue);
    }
    for n in [3, 17, 200] {
        let shallow = Bottleneck::Queue(32 << 10);
        row("10 Gb/s, 10 us, 32 KiB", &vec![ten; n], &sockets(line), line, shallow);
    }
    for us in [10, 1000, 20_000] {
        for n in [1, 8, 64] {
            let bases = vec![Span::from_us(us); n];
            row(&format!("policer, 1 Gb/s, {us} us"), &bases, &sockets(line), GBIT, policer);
        }
    }
}
