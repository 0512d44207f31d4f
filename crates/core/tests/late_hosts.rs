//! Hosts that come to a halt for milliseconds, a hundred round trips of the network: what a
//! transport in a process must live with and one on a network card need not.

use crate::common::overload::{Load, Overload};
use crate::common::puppet::Puppet;
use crate::common::*;
use srd_core::*;

/// Bytes of each message, messages of a batch, and batches one after another.
const BYTES: usize = 1000;
const BATCH: usize = 500;
const BATCHES: usize = 40;

/// Sends all messages; how long it took, and the host that sent them.
fn transfer(seed: u64, load: Option<Load>) -> (Span, Pair) {
    let mut p = Pair::new(seed);
    p.net.overload = load.map(|l| Overload::new(l, seed, 2));
    let start = p.net.now;
    for _ in 0..BATCHES {
        let statuses = p.batch(BATCH, BYTES, Span::from_secs(5));
        assert_eq!(statuses, [Status::Ok; BATCH], "seed {seed}");
    }
    (p.net.now.since(start), p)
}

/// The median over paths of the smoothed round-trip time, in ns.
fn rtt_ns(p: &Pair) -> u64 {
    let stats = p.net.hosts[0].engine.path_stats(p.net.hosts[1].ip);
    let mut rtts: Vec<u64> =
        stats.iter().map(|s| s.rtt_ns_smoothed).filter(|rtt| *rtt > 0).collect();
    rtts.sort_unstable();
    rtts[rtts.len() / 2]
}

/// Both hosts halt for up to 3 ms and run for up to 1 ms in between; nothing is lost. What packets
/// wait for in a socket is no queue of the network: round-trip times stay those of the network, and
/// next to nothing is sent twice.
#[test]
fn the_wait_for_a_late_host_is_not_taken_for_the_network() {
    let late = Load {
        halt_max: Span::from_ms(3),
        run_max: Span::from_ms(1),
        socket_bytes: 100 << 20,
        ..Load::default()
    };
    for seed in 1..=5 {
        let (quick, idle) = transfer(seed, None);
        let (slow, busy) = transfer(seed, Some(late));
        assert!(slow.0 > quick.0 * 2, "seed {seed}: the halts were not in the way");
        let (rtt_idle, rtt_busy) = (rtt_ns(&idle), rtt_ns(&busy));
        // Halts last 1.5 ms on average, 150 times as long.
        assert!(rtt_busy < rtt_idle * 2, "seed {seed}: {rtt_idle} ns, then {rtt_busy}");
        let counters = busy.net.hosts[0].engine.counters();
        let copies = counters.retrans_pkts;
        assert!(
            copies * 20 <= (BATCH * BATCHES) as u64,
            "seed {seed}: {copies} copies of all packets"
        );
    }
}

/// A host whose processor serves many others answers each message 20 ms after it arrived, and says
/// so. It was asked a dozen times for each of them, because timers covered only 4 ms of that wait,
/// and those of a stalled peer none: with 1,000 such peers on a processor, the answers to probes
/// were all that it did.
#[test]
fn a_host_that_answers_late_is_not_asked_before_it_can_answer() {
    const MESSAGES: u32 = 200;
    let late = Load { wait: Span::from_ms(20), socket_bytes: 100 << 20, ..Load::default() };
    for seed in 1..=5 {
        let mut p = Pair::new(seed);
        p.net.overload = Some(Overload::new(late, seed, 2));
        for _ in 0..MESSAGES {
            assert_eq!(p.batch(1, BYTES, Span::from_secs(5)), [Status::Ok], "seed {seed}");
        }
        let c = p.net.hosts[0].engine.counters();
        let more = c.probe_pkts + c.retrans_pkts;
        // Copies of lone packets do not wait for hosts, and are limited.
        assert!(more * 4 <= u64::from(MESSAGES), "seed {seed}: {more} packets more than messages");
    }
}

/// Timers cover long waits only where these are the rule. One of 20 ms among short ones must not
/// delay the copy of a lost message by more than one of 5 ms does: both are covered up to 4 ms.
#[test]
fn one_long_wait_among_short_ones_is_not_the_rule() {
    const RTT: Span = Span::from_us(10);
    let (short, long) = (Span::from_us(100), Span::from_ms(20));
    let asks_after = |waits: &[(u32, Span)]| {
        let mut cfg = config(0);
        // Copies of lone packets do not wait for hosts.
        cfg.loss.hedge_min = Span::from_secs(1);
        let mut p = Puppet::new(cfg, |_| {});
        for &(n, wait) in waits {
            (0..n).for_each(|_| p.echoed(RTT, wait));
        }
        p.post(Opcode::Write, 100);
        p.listen();
        p.heard.clear();
        p.quiet_for()
    };
    let usual = asks_after(&[(40, short)]);
    assert!(usual < Span::from_ms(1), "waits of 0.1 ms: {usual:?}");
    let medium = asks_after(&[(32, short), (1, Span::from_ms(5)), (8, short)]);
    let once = asks_after(&[(32, short), (1, long), (8, short)]);
    assert_eq!(once, medium, "the long wait is none of the rule");
    assert!(once < Span::from_ms(5), "one wait of 20 ms: {once:?}");
    let always = asks_after(&[(40, long)]);
    assert!(always > long && always < long.scale(3, 1), "where 20 ms are the rule: {always:?}");
}
