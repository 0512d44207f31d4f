//! What the network sees of packets: order, repair, paths, for every transport.

use crate::common::{cases, run_text, spec};
use srd_lab::{RunResult, TraceOutcome, check};

const CREDITS: &str = "\nflow_control = \"credits\"\ninput_bytes = 65536";

/// One transfer of 4 MB between two leaves with eight spines, or eight side by side.
fn traced(pairs: u32, network: &str, rest: &str) -> (RunResult, TraceOutcome) {
    let network =
        format!("shape = \"leaf-spine\"\nleaves = 2\nspines = 8\nhosts_per_leaf = 8{network}");
    let work = format!("pattern = \"leaf-pairs\"\npairs = {pairs}\nbytes = 4_000_000");
    let r = run_text(&spec(&network, &work, &format!("measure.trace = true\n{rest}")), 1);
    assert_eq!(r.unfinished(), 0, "{rest}");
    let trace = r.trace.clone().unwrap();
    (r, trace)
}

/// A connection keeps to one path, and SRD spreads over the spines.
#[test]
fn paths_of_a_flow_are_counted_in_the_network() {
    for (network, rest, paths) in [
        ("", "transport = \"tcp\"", 1..=1),
        (CREDITS, "transport = \"rc\"\nrc.dcqcn = false", 1..=1),
        ("", "engine.path_policy = \"ecmp\"", 1..=1),
        // Hashes of 64 ports rarely leave out a spine.
        ("", "engine.paths = 64", 6..=8),
    ] {
        let (_, trace) = traced(1, network, rest);
        assert!(paths.contains(&trace.paths.unwrap()), "{rest}: {:?}", trace.paths);
        assert_eq!(trace.paths_all, Some(8), "{rest}");
        assert_eq!(trace.lost, 0, "{rest}");
    }
    let (_, several) = traced(2, "", "");
    assert_eq!(several.paths, None);
}

/// Every lost part arrives in the end, and not before the loss. A trace changes nothing.
#[test]
fn every_loss_is_repaired_once() {
    let loss = "[[fault]]\nkind = \"core-loss\"\nat_us = 300\nprob = 0.01\n";
    for (network, rest) in [
        ("", "transport = \"tcp\""),
        ("", "transport = \"ue\""),
        ("", ""),
        (CREDITS, "transport = \"rc\"\nrc.dcqcn = false"),
        ("", "transport = \"rc\"\nrc.recovery = \"irn\""),
    ] {
        let settings = format!("{rest}\n{loss}");
        let (r, trace) = traced(8, network, &settings);
        assert!(trace.lost > 50, "{rest}: {}", trace.lost);
        assert_eq!(trace.repairs_us.len() as u64, trace.lost, "{rest}");
        // A lost packet of one path is missed where later ones overtake it.
        assert!(trace.early >= trace.waits_us.len() as u64 && trace.early > 0, "{rest}");
        let base_us = r.base_rtt_ps as f64 / 1e6;
        let least = trace.repairs_us.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least > base_us / 2.0, "{rest}: {least} us, base RTT {base_us} us");
        let network =
            format!("shape = \"leaf-spine\"\nleaves = 2\nspines = 8\nhosts_per_leaf = 8{network}");
        let work = "pattern = \"leaf-pairs\"\npairs = 8\nbytes = 4_000_000";
        let untraced = run_text(&spec(&network, work, &settings), 1);
        assert_eq!(untraced.hash, r.hash, "{rest}: the trace changed the run");
    }
}

/// On one path without a loss everything comes in order.
#[test]
fn one_path_without_loss_keeps_the_order() {
    let (_, trace) = traced(1, CREDITS, "transport = \"rc\"\nrc.dcqcn = false");
    assert_eq!((trace.early, trace.waits_us.len(), trace.packets), (0, 0, 977));
}

/// A trace follows each byte once, and belongs to one transport.
#[test]
fn traces_that_make_no_sense_are_refused() {
    for (work, rest, word) in [
        ("pattern = \"permutation\"\nrounds = 2", "", "workload.rounds = 1"),
        ("pattern = \"permutation\"", "engine.verb = \"send\"", "measure.trace"),
        ("pattern = \"permutation\"", "transport = \"copa\"", "measure.trace"),
    ] {
        let text = spec("shape = \"back-to-back\"", work, &format!("measure.trace = true\n{rest}"));
        let error = check(&cases(&text)[0]).expect_err(rest);
        assert!(error.contains(word), "{error}");
    }
}
