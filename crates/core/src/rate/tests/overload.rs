//! Overload: what one to thousands of senders lose for ever before one bottleneck.

use super::crowd::{Bottleneck, Crowd};
use crate::config::EngineConfig;
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
/// Most packets of a run.
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

/// `n` senders with this base RTT settle for `turns` packets of each, and are measured for as many;
/// for at least 100 base RTTs and 20 ms.
fn steady(config: &EngineConfig, n: u64, rate: u64, base: Span, kind: Bottleneck) -> Steady {
    const TURNS: u64 = 100;
    let mut crowd = Crowd::new(&vec![base; n as usize], config, rate, kind, NOISE);
    let turn = n * u64::from(MTU) * 1_000_000_000 / rate;
    let span = Span((TURNS * turn).max(100 * base.0).max(20_000_000));
    crowd.run(span, PACKETS_MAX);
    crowd.counters_reset();
    let began = crowd.now;
    crowd.run(span, PACKETS_MAX);
    let could = u128::from(rate) * u128::from(crowd.now.since(began).0) / 1_000_000_000;
    let each = || crowd.senders.iter().map(|s| u128::from(s.delivered));
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

/// The table of docs/congestion.md, "Overload".
#[test]
#[ignore = "a table of two minutes"]
fn table() {
    let line = 10 * GBIT;
    let show = |name: &str, config: &EngineConfig, n, mbit, base_us, kind| {
        let rate = mbit * GBIT / 1000;
        let s = steady(config, n, rate, Span::from_us(base_us), kind);
        println!(
            "{name:9} {mbit:6} Mb/s {base_us:6} us {kind:?} {n:5} senders: lost {:4}, again {:4}, \
             Jain {:4} per thousand; used {:3} %, least {:3} %; wait {} us, at most {}",
            s.lost_permille,
            s.again_permille,
            s.jain_permille,
            s.used_percent,
            s.least_percent,
            s.wait_us,
            s.wait_us_max
        );
    };
    for n in [1, 8, 64, 512, 4096] {
        let base = Span::from_us(10);
        show("simulated", &simulated(line, base), n, 10_000, 10, Bottleneck::Queue(ROOM));
        show("sockets", &sockets(line), n, 10_000, 10, Bottleneck::Queue(ROOM));
    }
    for n in [1, 8, 64] {
        show("sockets", &sockets(line), n, 100, 20_000, Bottleneck::Queue(ROOM));
        for base_us in [10, 1000, 20_000] {
            show("sockets", &sockets(line), n, 1000, base_us, Bottleneck::Policer(ROOM));
        }
    }
}
