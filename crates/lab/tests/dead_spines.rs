//! Spines that fail one after another under light load. Every lost packet is the last of its path
//! for milliseconds, so timers and the paths of probes and acknowledgments decide.

use crate::common;
use srd_lab::{jobs_of, run_all};

/// Two flows in each direction between two hosts, with a message every few milliseconds each, on
/// the slow links of a namespace fabric.
const SPEC: &str = r#"
name = "dead-spines"
title = "one spine after another swallows packets"
seeds = 40
time_ms_max = 20_000

[network]
shape = "leaf-spine"
leaves = 2
spines = 4
hosts_per_leaf = 1
link_gbps = 0.2
# slow wires

[workload]
pattern = "ring"
peers = 1
flows_per_pair = 2
bytes = 8900
rounds = 600
barrier_us = 4_000

[[cases]]
case = "holes"
fault = [
  { kind = "spine-hole", at_us = 300_000, spine = 0, until_us = 800_000 },
  { kind = "spine-hole", at_us = 1_100_000, spine = 3, until_us = 1_600_000 },
  { kind = "spine-hole", at_us = 1_900_000, spine = 1, until_us = 2_400_000 },
  { kind = "spine-hole", at_us = 2_700_000, spine = 2, until_us = 3_200_000 },
  { kind = "spine-hole", at_us = 3_500_000, spine = 0, until_us = 4_000_000 },
]
"#;

/// 10 ms are a few timeouts in a row. Before probes and repeated acknowledgments left the eight
/// paths over which acknowledgments rotate, the slowest message took a third of a second.
#[test]
fn nothing_waits_for_long() {
    let file = common::file_on_slow_wires(SPEC);
    let results = run_all(&jobs_of(&file, None), 2, &|_| ()).unwrap();
    for (seed, r) in (1..).zip(&results) {
        assert_eq!((r.unfinished(), r.failures), (0, 0), "seed {seed}");
        assert!(r.drops.total() > 100, "seed {seed}: the holes were not in the way");
        let worst_ps = r.fct_ps.iter().flatten().flatten().max().unwrap();
        let worst_ms = worst_ps / 1_000_000_000;
        assert!(worst_ms < 60, "seed {seed}: {worst_ms} ms");
    }
}
