//! Application patterns: steps run one after the other, and completion is that of all steps.

use crate::common::{cases, run_text, spec};
use srd_lab::run;
use std::path::Path;

const NETWORK: &str = "shape = \"k-ary-n-tree\"\nk = 2\nn = 3";

#[test]
fn the_steps_of_an_allreduce_wait_for_each_other() {
    let text = spec(NETWORK, "pattern = \"allreduce\"\nbytes = 20_000", "measure.phase = true");
    for transport in ["", "transport = \"tcp\"\n"] {
        let r = run_text(&format!("{transport}{text}"), 1);
        assert_eq!((r.unfinished(), r.flows.len()), (0, 3 * 8), "{transport}");
        // Three steps of 20,000 B at 100 Gb/s are 4.8 us and three paths of at least four links of
        // 1 us; flows count from their own start.
        let step = |i: usize| r.fct_ps[0][8 * i..8 * (i + 1)].iter().flatten().max().copied();
        let sum: u64 = (0..3).filter_map(step).sum();
        let whole = r.phase_ps.expect("all flows ended");
        assert!(whole > 3 * (1_600_000 + 2_000_000), "{transport}: {whole}");
        // TCP's flows end at the receiver, where the next step begins.
        assert!(transport.is_empty() || whole >= sum - sum / 20, "{whole}, {sum}");
    }
}

#[test]
fn permutations_are_superposed_and_sizes_spread() {
    let workload = "pattern = \"permutations\"\npermutations = 3\nbytes = 5_000\nbytes_spread = 16";
    let r = run_text(&spec(NETWORK, workload, ""), 7);
    assert_eq!((r.flows.len(), r.unfinished()), (24, 0));
    for host in 0..8 {
        assert_eq!(r.flows.iter().filter(|f| f.src.0 == host).count(), 3);
        assert_eq!(r.flows.iter().filter(|f| f.dst.0 == host).count(), 3);
    }
    let times: Vec<u64> = r.flows.iter().map(|f| f.bytes / 5_000).collect();
    assert!(r.flows.iter().all(|f| f.bytes % 5_000 == 0));
    assert!(times.iter().all(|t| (1..=16).contains(t)) && times.iter().max() > times.iter().min());
}

#[test]
fn what_is_missing_or_too_much_is_named() {
    for (workload, field) in [
        ("pattern = \"permutations\"", "workload.permutations"),
        ("pattern = \"permutations\"\npermutations = 0", "workload.permutations"),
        ("pattern = \"halo\"\nbytes_spread = 0", "workload.bytes_spread"),
        ("pattern = \"allreduce\"\nbytes_spread = 0", "workload.bytes_spread"),
    ] {
        let spec = &cases(&spec(NETWORK, workload, ""))[0];
        let e = run(spec, Path::new("."), 1).expect_err(workload);
        assert!(e.contains(field), "{workload}: {e}");
    }
    let three = "shape = \"k-ary-n-tree\"\nk = 3\nn = 2";
    let spec = &cases(&spec(three, "pattern = \"allreduce\"", ""))[0];
    assert!(run(spec, Path::new("."), 1).expect_err("9 hosts").contains("power of two"));
}
