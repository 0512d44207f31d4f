//! Small messages with pauses between two hosts, while one of two spines is unusable: an elephant
//! flow fills its queue, it is a black hole, or both spines lose packets. The delay of a message
//! depends on the choice of its path, and on how soon a missing packet is copied.

use crate::common;
use srd_lab::{jobs_of, run_all};

const SPEC: &str = r#"
name = "beside-elephant"
title = "8 B each way every 200 us"
seeds = 20
time_ms_max = 20_000

[network]
shape = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 2
link_gbps = 0.4
core_gbps = 0.2
# slow wires

[workload]
pattern = "leaf-pairs"
pairs = 1
both_ways = true
flows_per_pair = 1
bytes = 8
rounds = 1000
barrier_us = 200
start_us = 5_000
background_window_bytes = 160_000
background_bytes = 100_000_000_000

[[cases]]
case = "idle"
[[cases]]
case = "elephant"
workload.background_pairs = 1
[[cases]]
case = "overflowing elephant"
workload.background_pairs = 1
workload.background_window_bytes = 240_000
[[cases]]
case = "hole"
fault = [ { kind = "spine-hole", at_us = 50_000, spine = 0, until_us = 1_500_000 } ]
[[cases]]
case = "loss"
fault = [ { kind = "core-loss", at_us = 0, prob = 0.01 } ]
"#;

/// Upper bounds of p99, p99.85 and p99.99 for each case, in us. Without disturbance, a message and
/// its acknowledgment take 53 us; docs/congestion.md has the measured values. The bounds permit
/// other draws, but not one message in 660 behind a queue of 6 ms. (Each of the 40 flows meets the
/// elephant once before it knows: 36 to 42 of 40,000 messages, so that p99.9 is either.)
const BOUNDS: [(&str, [u64; 3]); 5] = [
    ("idle", [60, 60, 60]),
    ("elephant", [80, 300, 6_500]),
    ("overflowing elephant", [80, 300, 9_000]),
    ("hole", [80, 300, 6_500]),
    ("loss", [300, 1_000, 3_000]),
];
/// Timer retransmissions per thousand messages in cases almost without losses.
const COPIES_PERMILLE: u64 = 10;

/// Before lone packets kept to paths known to be fast and probes measured slow ones, p99 was 5.8 ms
/// beside the elephant and 6.5 ms in a network with a black hole.
#[test]
fn one_in_a_thousand_waits_no_longer_than_a_copy_takes() {
    let file = common::file_on_slow_wires(SPEC);
    for (case, bounds) in BOUNDS {
        let jobs = jobs_of(&file, None).into_iter().filter(|j| j.spec.case == case);
        let results = run_all(&jobs.collect::<Vec<_>>(), 2, &|_| ()).unwrap();
        let mut us = Vec::new();
        let (mut copies, mut lost) = (0, 0);
        for r in &results {
            assert_eq!((r.unfinished(), r.failures), (0, 0), "{case}");
            us.extend(r.fct_ps.iter().flatten().flatten().map(|ps| ps / 1_000_000));
            copies += r.tally.tail_probes;
            lost += r.drops.total();
        }
        us.sort_unstable();
        let at = |per_10_000: usize| us[us.len() * per_10_000 / 10_000];
        let got = [at(9_900), at(9_985), at(9_999)];
        println!("{case}: {got:?} us, {copies} copies, {lost} lost, of {}", us.len());
        assert!(got.iter().zip(bounds).all(|(got, bound)| *got <= bound), "{case}: {got:?} us");
        if case != "loss" {
            assert!(copies * 1000 <= us.len() as u64 * COPIES_PERMILLE, "{case}: {copies} copies");
        } else {
            assert!(lost > 100, "{case}: only {lost} lost");
        }
    }
}
