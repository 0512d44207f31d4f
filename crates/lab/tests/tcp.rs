//! TCP in the lab: the workloads, rounds, series and faults of SRD.

use crate::common::{cases, run_text, spec};
use srd_lab::{Detail, run};
use std::path::Path;

const FAT_TREE: &str = "shape = \"fat-tree\"\nk = 4";
const TCP: &str = "transport = \"tcp\"";

fn pair(bytes: u64, more: &str) -> String {
    spec(FAT_TREE, &format!("pattern = \"pairs\"\npairs = 1\nbytes = {bytes}\n{more}"), TCP)
}

#[test]
fn one_flow_alone_takes_its_floor_once_its_window_is_open() {
    // 10 segments of 8948 B fill half a round trip; with 20 MB the slow start hardly counts.
    let text = pair(20_000_000, "").replace(TCP, &format!("{TCP}\ntcp.mss = 8948"));
    let r = run_text(&text, 1);
    assert_eq!((r.unfinished(), r.drops.total(), r.tally.retransmitted), (0, 0, 0));
    let over = r.summary.over_floor.max;
    assert!((1.0..1.03).contains(&over), "{over}");
    // 2236 segments with 90 bytes of headers each, at 80 ps per byte, and the one-way delay.
    let wire = (20_000_000 + 2236 * 90) * 80;
    let way = r.floor_ps[0] - wire;
    assert!(way < r.base_rtt_ps, "{way}");
    assert_eq!(r.ideal_ps[0], 20_000_000 * 80);
}

#[test]
fn a_cold_start_costs_a_handshake() {
    let warm = run_text(&pair(4_000, ""), 1).fct_ps[0][0].unwrap();
    let cold = run_text(&pair(4_000, "warm_bytes = 0"), 1).fct_ps[0][0].unwrap();
    let rtt = run_text(&pair(4_000, ""), 1).base_rtt_ps;
    let more = cold - warm;
    assert!(more > rtt / 2 && more < 2 * rtt, "{more} ps more, round trip {rtt}");
}

#[test]
fn series_hold_every_byte_of_every_flow() {
    let work = "pattern = \"incast\"\nsenders = 3\nflows_per_pair = 2\nbytes = 300_000\nrounds = 2";
    let measure = "[measure]\ngoodput_us = 20\nflows = true\n";
    for transport in ["srd", "tcp"] {
        let text = spec(FAT_TREE, work, &format!("transport = \"{transport}\"")) + measure;
        let r = run_text(&text, 2);
        assert_eq!(r.unfinished(), 0);
        assert_eq!(r.flow_goodput.len(), 6);
        let of_flow: Vec<u64> = r.flow_goodput.iter().map(|f| f.iter().sum()).collect();
        // TCP's streams include the warm-up bytes.
        let warm = if transport == "tcp" { 4_096 } else { 0 };
        assert_eq!(of_flow, vec![2 * 300_000 + warm; 6], "{transport}");
        let all: u64 = r.goodput.iter().sum();
        assert!(all >= of_flow.iter().sum::<u64>(), "{transport}: {all}");
    }
}

#[test]
fn a_black_hole_costs_tcp_a_timeout_and_srd_round_trips() {
    let network = "shape = \"leaf-spine\"\nleaves = 2\nspines = 4\nhosts_per_leaf = 4";
    let work = "pattern = \"leaf-pairs\"\npairs = 4\nflows_per_pair = 4\nbytes = 500_000";
    let fault = "fault = [{ kind = \"spine-hole\", at_us = 350, spine = 1, routing_us = 20000 }]";
    let worst = |transport: &str| {
        let top = format!("transport = \"{transport}\"\n{fault}");
        let r = run_text(&spec(network, work, &top), 1);
        assert_eq!(r.unfinished(), 0, "{transport}");
        (*r.fct_ps[0].iter().flatten().max().unwrap(), r)
    };
    let (srd, _) = worst("srd");
    let (tcp, r) = worst("tcp");
    let Detail::Tcp { counters, .. } = &r.detail else { panic!("it ran TCP") };
    assert!(counters.timeouts > 0);
    assert!(tcp > 50_000_000_000, "{tcp} ps: no timeout of 50 ms");
    assert!(srd < 1_000_000_000, "{srd} ps");
}

#[test]
fn processes_of_a_host_have_contexts_of_their_own() {
    let work = "pattern = \"incast\"\nsenders = 2\nflows_per_pair = 6\nbytes = 50_000";
    for (engine, contexts) in [("", 2), ("[engine]\nsenders_per_host = 3\n", 6)] {
        let r = run_text(&(spec(FAT_TREE, work, "") + engine), 1);
        assert_eq!((r.unfinished(), r.failures), (0, 0));
        // A context counts at both ends.
        assert_eq!(r.srd_counters().unwrap().contexts_opened, 2 * contexts, "{engine}");
    }
}

#[test]
fn packets_that_come_early_wait_or_are_dropped() {
    let work = "pattern = \"permutation\"\nbytes = 200_000";
    let text = spec(FAT_TREE, work, "") + "[measure]\norder = true\n";
    let any = run_text(&text, 1).order.unwrap();
    assert!(any.early > 0 && any.wait_us_max > 0.0 && any.dropped == 0, "{any:?}");
    let drop = run_text(&(text + "[engine]\norder = \"drop\"\n"), 1);
    assert_eq!(drop.unfinished(), 0);
    let order = drop.order.unwrap();
    assert!(order.dropped > 0 && order.wait_us_max == 0.0, "{order:?}");
}

#[test]
fn what_tcp_does_not_have_is_refused() {
    let work = "pattern = \"pairs\"\npairs = 1";
    for (rest, part) in [
        ("[measure]\norder = true\n", "measure.order"),
        ("[tcp]\ncc = \"vegas\"\n", "tcp.cc"),
        ("[tcp]\nrto_floor_ms = 0\n", "rto_min"),
    ] {
        let text = spec(FAT_TREE, work, TCP) + rest;
        let e = run(&cases(&text)[0], Path::new("."), 1).unwrap_err();
        assert!(e.contains(part), "{rest}: {e}");
    }
    let loaded = spec(FAT_TREE, &format!("{work}\nbackground_pairs = 2"), TCP);
    let e = run(&cases(&loaded)[0], Path::new("."), 1).unwrap_err();
    assert!(e.contains("background_pairs"), "{e}");
}
