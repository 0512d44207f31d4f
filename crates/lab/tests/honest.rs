//! In a simulation every peer is honest, so statements of peers on transmissions are never refused.

use crate::common;

/// Links at a quarter of their rate delay packets for eight round trips: they count as lost, their
/// copies are acknowledged, and hundreds of packets leave before the first ones are echoed. Among
/// many flows in both directions, acknowledgments use most transmission numbers.
#[test]
fn no_echo_is_refused() {
    let slow =
        "fault = [{ kind = \"slow-links\", links = \"down-first\", count = 8, percent = 25 }]";
    let fat = "shape = \"fat-tree\"\nk = 8";
    let tree = "shape = \"k-ary-n-tree\"\nk = 4\nn = 3\nlink_delay_ns = 100\n\
        buffer_bytes = 66_592\necn_bytes_min = 13_318\necn_bytes_max = 53_273";
    let one_way = "pattern = \"permutation\"\nbytes = 1_000_000";
    let both_ways = "pattern = \"permutations\"\npermutations = 16\nbytes = 262_144";
    let one_path = "engine.path_policy = \"ecmp\"";
    for (network, workload, case) in [(fat, one_way, slow), (tree, both_ways, one_path)] {
        let text = common::spec(network, workload, "time_ms_max = 2_000");
        let text = format!("{text}\n[[cases]]\ncase = \"all\"\n{case}\n");
        for seed in 1..=2 {
            let r = common::run_text(&text, seed);
            let n = r.srd_counters().unwrap();
            assert_eq!((r.unfinished(), r.failures, n.echoes_refused), (0, 0, 0), "seed {seed}");
            assert!(n.retrans_pkts > 100, "seed {seed}: nothing was lost");
        }
    }
}
