//! Runs whose results follow from arithmetic.

use crate::common;
use crate::common::{run_text, spec};

/// Completion time of one flow alone over its floor.
fn alone(network: &str, bytes: u64, rest: &str) -> f64 {
    let pair = "pattern = \"pairs\"\npairs = 1";
    let r = run_text(&spec(network, &format!("{pair}\nbytes = {bytes}"), rest), 1);
    assert_eq!((r.unfinished(), r.failures, r.drops.total()), (0, 0, 0));
    assert_eq!(r.tally.retransmitted, 0, "nothing is lost, nothing is sent twice");
    r.summary.over_floor.max
}

const FAT_TREE: &str = "shape = \"fat-tree\"\nk = 4";
const WIRE: &str = "shape = \"back-to-back\"";
const NO_CREDITS: &str = "engine.credits = false";

#[test]
fn one_flow_alone_takes_its_floor() {
    for network in [WIRE, FAT_TREE, "shape = \"back-to-back\"\nlink_gbps = 400.0"] {
        for bytes in [2_000_000, 20_000_000] {
            let over = alone(network, bytes, NO_CREDITS);
            assert!((0.9999..1.01).contains(&over), "{bytes} bytes over {network}: {over}");
        }
    }
}

#[test]
fn one_packet_takes_its_floor_to_a_thousandth() {
    // The acknowledgment has one echo and no bitmap word, some bytes less than the floor assumes.
    for bytes in [1, 100, 4096] {
        let over = alone(FAT_TREE, bytes, NO_CREDITS);
        assert!((0.995..1.001).contains(&over), "{bytes} bytes: {over}");
    }
}

#[test]
fn credits_cost_a_lone_sender_nothing() {
    // Credits of a single sender are not paced; the margin of two percent applies to several
    // senders.
    let over = alone(FAT_TREE, 20_000_000, "engine.credits = true");
    assert!((0.9999..1.001).contains(&over), "{over}");
}

#[test]
fn verbs_and_message_sizes_differ_by_their_headers_only() {
    let wide = [
        ("verb = \"write\"", 24),
        ("verb = \"write-imm\"", 32),
        ("verb = \"send\"", 12),
        ("verb = \"write\"\nmessage_bytes = 65_536", 24),
    ];
    for (engine, body) in wide {
        let text = spec(FAT_TREE, "pattern = \"pairs\"\npairs = 1\nbytes = 4_096_000", "");
        let r = run_text(&format!("{text}[engine]\n{engine}\ncredits = false\n"), 1);
        assert_eq!((r.unfinished(), r.failures), (0, 0), "{engine}");
        // 1,000 packets of 4096 + 24 + body + 66 bytes at 80 ps per byte, and the round trip.
        let floor = 1_000 * (4096 + 24 + body + 66) * 80 + r.base_rtt_ps;
        let slack = r.floor_ps[0].abs_diff(floor);
        assert!(slack < 20_000, "{engine}: floor {} instead of {floor}", r.floor_ps[0]);
        assert!(r.summary.over_floor.max < 1.01, "{engine}: {}", r.summary.over_floor.max);
    }
}

#[test]
fn equal_flows_share_a_host_and_end_together_at_the_floor() {
    let incast = "pattern = \"incast\"\nsenders = 3\nflows_per_pair = 2\nbytes = 1_000_000";
    let r = run_text(&spec(FAT_TREE, incast, ""), 3);
    let s = &r.summary;
    assert!(s.over_floor.max < 1.04 && s.max_over_min < 1.12, "{s:?}");
    // 6 flows of 245 packets at 80 ps per byte.
    let wire = 244 * 4210 + (1_000_000 - 244 * 4096 + 24 + 24 + 66);
    let floor = 6 * wire * 80;
    assert_eq!(r.floor_ps[0] - r.base_rtt_ps, floor);
}

#[test]
fn rounds_wait_for_the_last_flow_and_the_barrier() {
    let text = "pattern = \"pairs\"\npairs = 2\nbytes = 100_000\nrounds = 4\nbarrier_us = 7";
    let r = run_text(&spec(FAT_TREE, text, ""), 1);
    assert_eq!(r.fct_ps.len(), 4);
    let longest: u64 = r.fct_ps.iter().map(|f| f.iter().flatten().max().unwrap()).sum();
    assert_eq!(r.end_ps, 300_000_000 + longest + 3 * 7_000_000);
}

#[test]
fn a_cold_start_costs_one_round_trip_more() {
    let bytes = "pattern = \"pairs\"\npairs = 1\nbytes = 100_000";
    let warm = run_text(&spec(FAT_TREE, bytes, ""), 1);
    let cold = run_text(&spec(FAT_TREE, &format!("{bytes}\nwarm_bytes = 0"), ""), 1);
    let more = cold.fct_ps[0][0].unwrap() - warm.fct_ps[0][0].unwrap();
    assert!((4_000_000..20_000_000).contains(&more), "{more} ps");
}

#[test]
fn triggers_start_flows_one_after_the_other() {
    let folder = std::env::temp_dir().join(format!("srd-lab-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let matrix = "Nodes 4\nConnections 3\nTriggers 2\n\
        0->1 id 1 start 0 size 40960 send_done_trigger 1\n\
        1->2 id 2 trigger 1 size 40960 recv_done_trigger 2\n2->3 id 3 trigger 2 size 40960\n\
        trigger id 1 oneshot\ntrigger id 2 barrier count 1\n";
    std::fs::write(folder.join("chain.cm"), matrix).unwrap();
    let work = "pattern = \"cm\"\nfile = \"chain.cm\"\nunit = \"ps\"";
    let spec = &common::cases(&spec(FAT_TREE, work, ""))[0];
    let r = srd_lab::run(spec, &folder, 1).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(r.unfinished(), 0);
    let fct: Vec<u64> = r.fct_ps[0].iter().map(|f| f.unwrap()).collect();
    // The third flow starts when the second has arrived, before the sender of the second knows.
    let chain = r.end_ps - 300_000_000;
    assert!(chain < fct.iter().sum() && chain > fct[0] + fct[2], "{chain} {fct:?}");
}
