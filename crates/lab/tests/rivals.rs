//! RoCEv2 and Ultra Ethernet in the lab: refusals, determinism, anchors, deadlocks, victims.

use crate::common::{cases, run_text, spec};
use srd_lab::spec::SpecFile;
use srd_lab::{RunResult, check, figures, jobs_of, run, run_all};
use std::path::Path;

const FAT_TREE: &str = "shape = \"fat-tree\"\nk = 8";
const SMALL: &str = "shape = \"fat-tree\"\nk = 4";
const PFC: &str = "flow_control = \"pfc\"";
const PERMUTATION: &str = "pattern = \"permutation\"\nbytes = 2_000_000";

fn all_done(r: &RunResult) {
    assert_eq!((r.unfinished(), r.deadlock.as_deref()), (0, None));
}

/// Figures of the public simulators for this workload, to within 5 % (docs/rivals.md).
#[test]
fn ultra_ethernet_is_where_its_own_simulator_is() {
    let incast = "pattern = \"incast\"\nsenders = 4\nflows_per_pair = 12\nbytes = 2_000_000";
    for (cc, workload, anchor_us) in [
        ("nscc", incast, 7_839.0),
        ("rccc", incast, 7_889.0),
        ("nscc", PERMUTATION, 200.0),
        ("rccc", PERMUTATION, 201.0),
    ] {
        let text = spec(FAT_TREE, workload, &format!("transport = \"ue\"\nue.cc = \"{cc}\""));
        let r = run_text(&text, 1);
        all_done(&r);
        let max_us = r.summary.fct_us.max;
        let off = max_us / anchor_us - 1.0;
        assert!(off.abs() < 0.05, "{cc}: {max_us} us, {anchor_us} us in its simulator");
        assert!(r.summary.over_floor.max >= 1.0, "nothing beats its floor");
    }
}

#[test]
fn pauses_make_roce_lossless_and_are_told_by_tier() {
    let incast = "pattern = \"incast\"\nsenders = 4\nflows_per_pair = 4\nbytes = 1_000_000";
    let rest = "transport = \"rc\"\nrc.dcqcn = false";
    let r = run_text(&spec(&format!("{SMALL}\n{PFC}"), incast, rest), 1);
    all_done(&r);
    assert_eq!((r.drops.total(), r.tally.retransmitted, r.tally.timeouts), (0, 0, 0));
    let pauses = r.pauses.as_ref().expect("pauses");
    assert!(pauses.tiers.iter().any(|t| t.name == "host->leaf" && t.paused_ps > 0), "{pauses:?}");
    let text = figures(&[r], false);
    assert!(text.contains("pauses of links") && text.contains("host->leaf"), "{text}");
    // Where full queues drop, the same senders lose packets.
    let r = run_text(&spec(SMALL, incast, rest), 1);
    all_done(&r);
    assert!(r.drops.total() > 0 && r.pauses.is_none());
}

#[test]
fn a_circle_of_pauses_ends_the_run_and_is_named() {
    let ring = "shape = \"ring\"\nswitches = 5\nflow_control = \"pfc\"";
    let workload = "pattern = \"shift\"\nshift = 2\nbytes = 5_000_000";
    let r = run_text(&spec(ring, workload, "transport = \"rc\"\nrc.dcqcn = false"), 1);
    let text = r.deadlock.clone().expect("five links wait for each other");
    assert!(text.contains("leaf0->leaf1") && text.contains("leaf4->leaf0"), "{text}");
    assert_eq!(r.unfinished(), 5);
    assert!(r.end_ps < 1_300_000_000, "{} ps: started at 300 us", r.end_ps);
    let open = "shape = \"ring\"\nswitches = 5";
    all_done(&run_text(&spec(open, workload, "transport = \"rc\"\nrc.recovery = \"irn\""), 1));
}

#[test]
fn victims_share_leaves_but_no_host_with_the_incast() {
    let workload = "pattern = \"incast\"\nsenders = 3\nvictims = 2\nbytes = 200_000";
    let network = "shape = \"leaf-spine\"\nleaves = 4\nspines = 4\nhosts_per_leaf = 4";
    let r = run_text(&spec(network, workload, "transport = \"ue\""), 1);
    all_done(&r);
    let ends: Vec<(u32, u32)> = r.flows.iter().map(|f| (f.src.0, f.dst.0)).collect();
    assert_eq!(ends, [(4, 0), (8, 0), (12, 0), (5, 1), (9, 2)]);
    assert!(figures(&[r], false).contains("flows beside an incast"));
}

#[test]
fn the_seed_decides_and_threads_do_not() {
    let text = "name = \"t\"\ntitle = \"t\"\nseeds = 2\n[network]\nshape = \"fat-tree\"\nk = 4\n\
                [workload]\npattern = \"permutation\"\nbytes = 300_000\n\
                [[cases]]\ncase = \"rc\"\ntransport = \"rc\"\nnetwork.flow_control = \"pfc\"\n\
                [[cases]]\ncase = \"irn\"\ntransport = \"rc\"\nrc.recovery = \"irn\"\n\
                fault = [{ kind = \"core-loss\", prob = 0.01 }]\n\
                [[cases]]\ncase = \"credits\"\ntransport = \"rc\"\n\
                network = { flow_control = \"credits\", input_bytes = 40_000 }\n\
                [[cases]]\ncase = \"ib\"\ntransport = \"rc\"\nrc.ib_cc = true\n\
                network = { flow_control = \"credits\", input_bytes = 40_000 }\n\
                [[cases]]\ncase = \"bbr\"\ntransport = \"tcp\"\ntcp.cc = \"bbr\"\n\
                [[cases]]\ncase = \"mptcp\"\ntransport = \"tcp\"\n\
                tcp = { cc = \"lia\", subflows = 8 }\n\
                [[cases]]\ncase = \"nscc\"\ntransport = \"ue\"\n\
                [[cases]]\ncase = \"rccc\"\ntransport = \"ue\"\nue.cc = \"rccc\"\n\
                fault = [{ kind = \"core-loss\", prob = 0.01 }]\n";
    let file = SpecFile::parse(text, Path::new("."), false).unwrap();
    let jobs = jobs_of(&file, None);
    let hashes = |r: &[RunResult]| r.iter().map(|r| r.hash).collect::<Vec<_>>();
    let one = run_all(&jobs, 1, &|_| ()).unwrap();
    assert_eq!(hashes(&one), hashes(&run_all(&jobs, 2, &|_| ()).unwrap()));
    let mut distinct = hashes(&one);
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 16);
    one.iter().for_each(all_done);
}

#[test]
fn what_cannot_be_is_refused_before_anything_runs() {
    let rc = "transport = \"rc\"";
    for (network, workload, rest, part) in [
        (
            format!("{SMALL}\n{PFC}\npfc_headroom_bytes = 9_000"),
            PERMUTATION,
            rc,
            "pfc_headroom_bytes",
        ),
        (format!("{SMALL}\n{PFC}\npfc_xon_bytes = 90_000"), PERMUTATION, rc, "pfc_xon_bytes"),
        (format!("{SMALL}\n{PFC}\npfc_xoff_bytes = 1_000"), PERMUTATION, rc, "pfc_xoff_bytes"),
        (format!("{SMALL}\npfc_xoff_bytes = 60_000"), PERMUTATION, rc, "pfc_xoff_bytes"),
        (format!("{SMALL}\n{PFC}"), PERMUTATION, "", "transport = \"srd\" runs over \"drop\""),
        (format!("{SMALL}\n{PFC}"), PERMUTATION, "transport = \"ue\"", "runs over \"drop\""),
        (SMALL.into(), PERMUTATION, "transport = \"rc\"\nrc.ack_timeout = 32", "ack_timeout = 32"),
        (SMALL.into(), PERMUTATION, "transport = \"ue\"\nue.entropies = 7", "entropies = 7"),
        (SMALL.into(), PERMUTATION, "transport = \"rc\"\nrc.ib_cc = true", "rc.ib_cc"),
        (SMALL.into(), PERMUTATION, "transport = \"tcp\"\ntcp.cc = \"lia\"", "subflows"),
        (format!("{SMALL}\necn_prob_max = 2"), PERMUTATION, rc, "ecn_prob_max"),
        (format!("{SMALL}\nswitches = 3"), PERMUTATION, rc, "switches"),
    ] {
        let text = spec(&network, workload, rest);
        let e = check(&cases(&text)[0]).expect_err(part);
        assert!(e.contains(part), "{text}\n{e}");
    }
}

/// The paper's reason against RoCE: pauses stop flows that share no congested link with the incast.
#[test]
fn flows_beside_an_incast_wait_where_links_are_paused() {
    let file = SpecFile::load("headofline", true).unwrap();
    let beside = |case: &str| {
        let found = file.cases.iter().find(|c| c.case == case);
        let spec = found.unwrap_or_else(|| panic!("no case {case}"));
        let r = run(spec, Path::new("."), 1).unwrap();
        all_done(&r);
        let first = r.flows.len() - spec.workload.victims as usize;
        let over = r.fct_ps[0][first..].iter().zip(&r.floor_ps[first..]);
        over.map(|(fct, floor)| fct.unwrap() as f64 / *floor as f64).fold(0.0, f64::max)
    };
    let (paused, srd) = (beside("RC over pauses"), beside("SRD"));
    assert!(paused > 3.0, "{paused}");
    assert!((1.0..1.1).contains(&srd), "{srd}");
}
