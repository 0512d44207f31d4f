//! What a measurement sends, counts and concludes, compared with simpler implementations.

use srd_testbed::bench::Outcome;
use srd_testbed::bench::block::{
    self, BLOCKS_MAX, BUCKET_NS, BlockHead, FlowRx, FlowStats, HEADER_BYTES,
};
use srd_testbed::bench::contender::{Contender, Load, Side};
use srd_testbed::bench::protocol::{Counted, Order, Report, Run, SendFlow, Watched};
use srd_testbed::bench::table::{max, mean, percentile};
use srd_testbed::paths::{PortPath, table};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Pseudorandom numbers (xorshift) with a fixed seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[test]
fn a_block_with_any_bit_flipped_is_damaged() {
    let mut draw = Draw(1);
    for _ in 0..500 {
        let head = BlockHead {
            flow: draw.below(1 << 32) as u32,
            run: draw.below(1 << 32) as u32,
            number: draw.below(BLOCKS_MAX),
            due_ns: draw.below(u64::MAX),
        };
        let len = HEADER_BYTES + draw.below(200) as usize;
        let mut bytes = vec![0; len];
        block::fill(&mut bytes, &head);
        assert_eq!(block::check(&bytes), Some(head));
        if len < HEADER_BYTES + 8 {
            continue;
        }
        // The pattern does not cover the due time, which does not affect correctness.
        let bit = draw.below(16 * 8 + (len - HEADER_BYTES) as u64 * 8) as usize;
        let bit = if bit < 16 * 8 { bit } else { bit + 8 * 8 };
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(block::check(&bytes), None, "{head:?}, bit {bit} of {len} bytes");
    }
}

#[test]
fn blocks_of_other_flows_runs_and_numbers_differ_in_every_part() {
    let body = |flow, run, number| {
        let mut bytes = vec![0; 88];
        block::fill(&mut bytes, &BlockHead { flow, run, number, due_ns: 0 });
        bytes.split_off(HEADER_BYTES)
    };
    let base = body(1, 1, 1);
    for other in [body(2, 1, 1), body(1, 2, 1), body(1, 1, 2)] {
        // A part of another block in this one would be detected at any position.
        let words = base.chunks(8).zip(other.chunks(8));
        assert!(words.clone().all(|(a, b)| a != b), "{base:?} {other:?}");
    }
    let numbers: BTreeSet<Vec<u8>> = (0..1000).map(|n| body(1, 1, n)).collect();
    assert_eq!(numbers.len(), 1000);
}

#[test]
fn numbers_beyond_the_bound_are_refused() {
    let mut bytes = vec![0; 64];
    for (number, taken) in [(BLOCKS_MAX - 1, true), (BLOCKS_MAX, false), (u64::MAX, false)] {
        block::fill(&mut bytes, &BlockHead { flow: 0, run: 1, number, due_ns: 0 });
        assert_eq!(block::check(&bytes).is_some(), taken, "{number}");
    }
    for len in 0..HEADER_BYTES {
        assert_eq!(block::check(&vec![0; len]), None, "{len} bytes");
    }
}

/// Expected statistics of a receiver, computed with sets instead of bitmaps.
#[derive(Default)]
struct Account {
    run: u32,
    start: u64,
    seen: BTreeSet<u64>,
    twice: u64,
    arrivals: Vec<u64>,
    late: u64,
    buckets: BTreeMap<u64, u32>,
}

impl Account {
    fn begin(&mut self, run: u32, start: u64) {
        if run != self.run {
            *self = Self { run, ..Self::default() };
        }
        self.start = start;
    }

    fn take(&mut self, head: &BlockHead, bytes: u32, now: u64) {
        if head.run > self.run {
            self.begin(head.run, head.due_ns);
        }
        if head.run < self.run {
            return;
        }
        if !self.seen.insert(head.number) {
            self.twice += 1;
            return;
        }
        self.arrivals.push(now);
        self.late = self.late.max(now - head.due_ns);
        *self.buckets.entry((now - self.start) / BUCKET_NS).or_default() += bytes;
    }

    fn check(&self, stats: &FlowStats, bytes: u32) {
        assert_eq!(stats.blocks, self.seen.len() as u64);
        assert_eq!(stats.bytes, stats.blocks * u64::from(bytes));
        assert_eq!(stats.duplicated, self.twice);
        assert_eq!(stats.late_ns, self.late);
        assert_eq!(stats.last_ns, self.arrivals.last().copied().unwrap_or(0));
        let mut before = self.start;
        let mut gap = 0;
        for now in &self.arrivals {
            gap = gap.max(now - before);
            before = *now;
        }
        assert_eq!(stats.gap_ns, gap);
        let buckets: BTreeMap<u64, u32> =
            (0..).zip(&stats.buckets).filter(|(_, b)| **b > 0).map(|(at, b)| (at, *b)).collect();
        assert_eq!(buckets, self.buckets);
    }
}

#[test]
fn receiver_statistics_agree_with_sets() {
    const BYTES: u32 = 700;
    for seed in 1..=50 {
        let mut draw = Draw(seed);
        let (mut rx, mut account) = (FlowRx::new(3), Account::default());
        let (mut now, mut run) = (1_000_000, 1);
        for _ in 0..400 {
            now += draw.below(8_000_000);
            match draw.below(40) {
                0 => {
                    run += 1;
                    rx.begin(run, now);
                    account.begin(run, now);
                }
                kind => {
                    // Mostly of this run, sometimes of the previous or next one.
                    let of = match kind {
                        1 => run - 1,
                        2 => run + 1,
                        _ => run,
                    };
                    run = run.max(of);
                    let due_ns = now - draw.below(900_000);
                    let number = draw.below(300);
                    let head = BlockHead { flow: 3, run: of, number, due_ns };
                    rx.take(&head, BYTES as usize, now);
                    account.take(&head, BYTES, now);
                }
            }
            account.check(&rx.stats(), BYTES);
            assert_eq!(rx.blocks(), account.seen.len() as u64);
        }
    }
}

fn flow(flow: u32, last_ns: u64, late_ns: u64, buckets: &[u32]) -> FlowStats {
    let bytes = buckets.iter().map(|b| u64::from(*b)).sum();
    let buckets = buckets.to_vec();
    FlowStats { flow, bytes, last_ns, late_ns, buckets, ..FlowStats::default() }
}

#[test]
fn throughput_covers_the_requested_time() {
    let out = Outcome {
        start_ns: 5_000_000,
        flows: vec![
            flow(0, 35_000_000, 2_000_000, &[1000, 2000, 3000]),
            flow(1, 15_000_000, 9_000_000, &[500]),
        ],
        ..Outcome::default()
    };
    assert_eq!(out.bytes(), 6500);
    let rate = |from, to| out.bits_per_sec(from, to);
    // Buckets of 10 ms: 1,500 bytes in the first, 2,000 in the second.
    assert_eq!(rate(0, 10), 1500.0 * 8.0 * 100.0);
    assert_eq!(rate(10, 20), 2000.0 * 8.0 * 100.0);
    assert_eq!(rate(0, 30), 6500.0 * 8.0 / 0.03);
    assert_eq!(rate(30, 50), 0.0, "after the end nothing comes");
    assert_eq!(rate(20, 50), 3000.0 * 8.0 / 0.03);
    assert_eq!(out.fct_ms(), [30.0, 10.0], "from the start of the run");
    assert_eq!(out.late_ms(), 9.0);
}

#[test]
fn each_kind_of_error_counts() {
    assert!(!Outcome::default().is_wrong());
    let wrong = [
        Outcome { lost: 1, ..Outcome::default() },
        Outcome { duplicated: 1, ..Outcome::default() },
        Outcome { damaged: 1, ..Outcome::default() },
        Outcome { failed: 1, ..Outcome::default() },
    ];
    assert!(wrong.iter().all(Outcome::is_wrong));
    assert_eq!(Outcome::default().late_ms(), 0.0, "of no flow");
}

fn load(bytes: u64, bits_per_sec: u64) -> Load {
    let time = Duration::from_millis(300);
    Load { bytes, time, bits_per_sec, block_bytes: 8900, limit: Duration::ZERO }
}

#[test]
fn paced_runs_offer_the_requested_rate() {
    for (rate, block) in [(10_000_000_u64, 8900_u32), (1_000_000, 1400), (200_000_000, 8900)] {
        let run = load(0, rate).run(7, block, 1000);
        assert_eq!((run.run, run.start_ns, run.blocks), (7, 1000, 0));
        assert_eq!(run.length(), Duration::from_millis(300));
        let per_second = 1e9 / run.pace_ns as f64 * f64::from(block) * 8.0;
        assert!((per_second / rate as f64 - 1.0).abs() < 1e-3, "{per_second} instead of {rate}");
    }
    assert_eq!(load(0, 0).run(1, 8900, 0).pace_ns, 0, "as fast as possible");
}

#[test]
fn the_last_block_makes_up_the_sum() {
    let mut draw = Draw(9);
    for _ in 0..1000 {
        let bytes = HEADER_BYTES as u64 + draw.below(3_000_000);
        let block = HEADER_BYTES as u32 + draw.below(9000) as u32;
        let run = load(bytes, 0).run(1, block, 0);
        let sizes: Vec<u32> = (0..run.blocks).map(|n| run.bytes_of(n)).collect();
        let sum: u64 = sizes.iter().map(|s| u64::from(*s)).sum();
        assert!(sizes.iter().all(|s| (HEADER_BYTES as u32..=block).contains(s)));
        // The sum may exceed the requested bytes, but by less than one header.
        assert!((bytes..bytes + HEADER_BYTES as u64).contains(&sum), "{bytes} in {block}: {sum}");
    }
}

#[test]
fn runs_begin_after_their_orders_arrive() {
    let now = block::now_ns();
    let start = Side::start_ns();
    assert!(start > now + 10_000_000, "workers receive the order before the run begins");
    assert!(start < now + 10_000_000_000);
}

#[test]
fn counters_of_processes_add_up() {
    let of = |n: u64, rtt: u64| Counted {
        tx_packets: n,
        retransmitted: 2 * n,
        spurious: 3 * n,
        probes: 11 * n,
        timeouts: 4 * n,
        stalls: 5 * n,
        paths_retired: 6 * n,
        duplicates_dropped: 7 * n,
        socket_drops: 8 * n,
        memory_bytes: 9 * n,
        rate_bits_per_sec: 10 * n,
        srtt_ns: rtt,
        rtt_ns_min: rtt / 2,
    };
    let mut sum = of(100, 40);
    sum.add(&of(1, 80));
    let want = Counted {
        memory_bytes: 900,
        rate_bits_per_sec: 1000,
        srtt_ns: 80,
        rtt_ns_min: 40,
        ..of(101, 0)
    };
    assert_eq!(sum, want, "counts are summed; of other values the largest is kept");
    sum.add(&of(0, 10));
    assert_eq!(sum, want, "the lowest RTT is that of the peer with the largest smoothed RTT");
    let since = of(150, 70).since(&of(100, 40));
    let now = of(150, 70);
    let want = Counted {
        memory_bytes: now.memory_bytes,
        rate_bits_per_sec: now.rate_bits_per_sec,
        srtt_ns: 70,
        rtt_ns_min: 35,
        ..of(50, 0)
    };
    assert_eq!(since, want);
    let text = of(1_000_000, 2_000_000).text();
    for part in ["1000000 packets", "2000000 retransmitted", "4000000 timeouts", "RTT 2.00 ms"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn orders_and_reports_pass_the_pipe_as_one_line_each() {
    let run = Run {
        run: 1,
        start_ns: 2,
        block_bytes: 3,
        blocks: 4,
        last_bytes: 5,
        stop_ns: 6,
        pace_ns: 7,
    };
    let send = vec![SendFlow { flow: 1, ip: "fd00::1".parse().unwrap(), qpn: 9, ping: true }];
    let orders = [
        Order::Flows { send, receive: vec![1, 2] },
        Order::Go(run),
        Order::Collect,
        Order::Counters,
        Order::Watch { from_ns: 1, until_ns: 2 },
        Order::Times,
        Order::Explain,
        Order::Quit,
    ];
    for order in orders {
        let line = serde_json::to_string(&order).unwrap();
        assert!(!line.contains('\n'), "{line}");
        let back: Order = serde_json::from_str(&line).unwrap();
        assert_eq!(format!("{back:?}"), format!("{order:?}"));
    }
    let mut watched = Watched::default();
    (0..100).for_each(|n| watched.waits.add(n * n * n));
    let reports = [
        Report::Ready { qpn: 3, mtu: 8936 },
        Report::Sent { blocks: vec![(1, 2)], failed: 3, why: "a\nb".into() },
        Report::Received { flows: vec![flow(1, 2, 3, &[4])], damaged: 5 },
        Report::Counters(Counted::default()),
        Report::Times(watched),
        Report::Failed("two\nlines".into()),
    ];
    for report in reports {
        let line = serde_json::to_string(&report).unwrap();
        assert!(!line.contains('\n'), "a text of two lines is encoded in one: {line}");
        let back: Report = serde_json::from_str(&line).unwrap();
        if let (Report::Times(back), Report::Times(times)) = (&back, &report) {
            assert_eq!(back.waits, times.waits);
        }
        assert_eq!(format!("{back:?}"), format!("{report:?}"));
    }
}

#[test]
fn contenders_are_known_by_name() {
    let known = [
        "srd",
        "srd-processes",
        "srd-one-path",
        "srd-no-credits",
        "srd-processes-no-credits",
        "srd-one-path-no-credits",
        "srd-off",
        "srd-stop-go",
        "srd-budget-no-credits",
        "srd-processes-budget",
        "cubic",
        "cubic-50ms",
        "bbr",
        "bbr-50ms",
        "reno",
        "reno-50ms",
        "mptcp",
        "mptcp-50ms",
        "cubic-v6",
        "cubic-v6-50ms",
    ];
    for name in known {
        let contender = Contender::parse(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(contender.name(), name);
        assert_eq!(contender.is_srd(), name.starts_with("srd"), "{name}");
    }
    for name in ["", "tcp", "srd-50ms", "cubic-no-credits", "srd-v6", "mptcp-v6", "SRD", "srd-"] {
        let error = Contender::parse(name).expect_err(name);
        assert!(error.is_usage() && error.to_string().contains("cubic-v6"), "{name}: {error}");
    }
}

#[test]
fn percentiles_are_among_the_values_and_in_order() {
    let mut draw = Draw(4);
    for n in [1, 2, 3, 10, 101] {
        let mut values: Vec<f64> = (0..n).map(|_| draw.below(1000) as f64 - 500.0).collect();
        let all = values.clone();
        let shares = [0.0, 0.25, 0.5, 0.75, 0.99, 1.0];
        let got = shares.map(|s| percentile(&mut values, s));
        assert!(got.iter().all(|v| all.contains(v)), "{got:?}");
        assert!(got.windows(2).all(|w| w[0] <= w[1]), "{got:?}");
        assert_eq!(got[0], all.iter().copied().fold(f64::INFINITY, f64::min));
        assert_eq!(got[5], all.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    }
    assert_eq!((mean(&[]), max(&[]), percentile(&mut [], 0.5)), (0.0, 0.0, 0.0));
    assert_eq!((mean(&[1.0, 2.0, 6.0]), max(&[1.0, 6.0, 2.0])), (3.0, 6.0));
}

#[test]
fn mispredicted_ports_are_listed() {
    let row = |port, predicted, seen| PortPath { port, predicted, seen };
    let rows = [
        row(40_000, 0, Some(0)),
        row(40_001, 1, Some(1)),
        row(40_002, 0, Some(0)),
        row(40_003, 1, Some(0)),
        row(40_004, 2, None),
    ];
    let (text, right) = table(&rows, 3);
    assert!(!right);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["s0", "2", "ports", "40000", "40002"]
    );
    assert!(lines[3].starts_with("3 of 5 ports as predicted"), "{text}");
    assert_eq!(lines[4], "port 40003: predicted s1, took s0");
    assert!(lines[5].contains("40004: predicted s2, none of the uplinks took all"), "{text}");
    let (text, right) = table(&rows[..3], 2);
    assert!(right && text.lines().count() == 3, "{text}");
}
