//! COPA's transport in the lab: the workloads, rounds, faults, series and reports of other
//! transports.

use crate::common::{cases, run_text, spec};
use srd_lab::spec::{SpecFile, embedded};
use srd_lab::{RunResult, jobs_of, page, run, run_all, series_csv};
use std::path::Path;

const PAIR: &str = "shape = \"dumbbell\"\nleft = 2\nright = 2\nlink_gbps = 400\n\
                    link_delay_ns = 1_054\necn_bytes_min = 0\nbuffer_bytes = 1_300_000";

fn text(workload: &str, top: &str) -> String {
    let rest = format!("transport = \"copa\"\n{top}");
    spec(PAIR, &format!("{workload}\nwarm_bytes = 0"), &rest)
}

const ONE: &str = "pattern = \"leaf-pairs\"\npairs = 1\nbytes = 8_000_000";

#[test]
fn a_put_takes_its_floor_and_a_get_the_way_back() {
    for verb in ["put", "get"] {
        let top = format!("copa = {{ verb = \"{verb}\" }}");
        let r = run_text(&text(ONE, &top), 1);
        assert_eq!((r.unfinished(), r.drops.total(), r.tally.retransmitted), (0, 0, 0));
        // 1,954 packets with 90 bytes of headers each, at 20 ps per byte, and a round trip; the
        // last packet is short, and acknowledgments have COPA's size.
        let wire = (8_000_000 + 1_954 * 90) * 20;
        assert_eq!(r.floor_ps[0], wire + r.base_rtt_ps, "{verb}");
        let over = r.fct_ps[0][0].unwrap() as f64 / r.floor_ps[0] as f64;
        assert!((0.999..1.002).contains(&over), "{verb}: {over}");
        assert!((6_490_000..6_510_000).contains(&r.base_rtt_ps));
    }
}

#[test]
fn the_ring_of_a_get_is_its_readers() {
    let top = "copa = { verb = \"get\", policy = \"stream\", recovery = \"selective\" }\n\
               host = { drain_gbps = 200, ring_bytes = 100_000 }";
    let r = run_text(&text(ONE, top), 1);
    assert_eq!((r.unfinished(), r.rings.len(), r.rings[0].host.0), (0, 1, 0));
    assert!(r.drops.at_hosts() > 0);
    // A get ends when the last byte is in memory, so not before the drain permits.
    assert!(r.summary.over_floor.min > 0.99, "{:?}", r.summary.over_floor);
    let least = 8_000_000.0 * 8.0 / 200.0 / 1e3;
    assert!(r.summary.fct_us.min > least, "{} us", r.summary.fct_us.min);
}

#[test]
fn rounds_and_series_hold_every_byte_and_watching_changes_nothing() {
    let work =
        "pattern = \"leaf-pairs\"\npairs = 2\nflows_per_pair = 2\nbytes = 400_000\nrounds = 3";
    let top = "host = { drain_gbps = 200, ring_bytes = 500_000 }";
    let plain = text(work, top) + "[measure]\ngoodput_us = 10\n";
    let r = run_text(&plain, 2);
    assert_eq!((r.unfinished(), r.fct_ps.len(), r.goodput.iter().sum::<u64>()), (0, 3, 4_800_000));
    let mut watched = cases(&plain).remove(0);
    watched.measure.observe = true;
    let w = run(&watched, Path::new("."), 2).unwrap();
    assert_eq!(w.hash, r.hash);
    let o = w.observation.as_ref().unwrap();
    assert_eq!(o.intervals.iter().map(|i| i.bytes).sum::<u64>(), 4_800_000);
    assert_eq!(o.rings.len(), 2);
    assert!(series_csv(std::slice::from_ref(&w)).contains(",ring2,depth_max_bytes,"));
}

#[test]
fn flows_recover_from_faults_of_network_and_host() {
    let fault = "fault = [{ kind = \"down\", at = \"leaf0-leaf1\", at_us = 330, for_us = 40 },\n\
                 { kind = \"loss\", at = \"core\", at_us = 0, prob = 0.005 },\n\
                 { kind = \"host-slow\", host = 2, at_us = 350, percent = 20, for_us = 60 },\n\
                 { kind = \"host-stall\", host = 3, at_us = 310, for_us = 30 }]";
    for copa in ["", "recovery = \"selective\"", "policy = \"aimd\"", "initiator = \"clocked\""] {
        let top =
            format!("copa = {{ {copa} }}\nhost = {{ drain_gbps = 300, ring_bytes = 200_000 }}");
        let work = "pattern = \"leaf-pairs\"\npairs = 2\nbytes = 3_000_000";
        let r = run_text(&text(work, &format!("{fault}\n{top}")), 3);
        assert_eq!(r.unfinished(), 0, "{copa}");
        assert!(r.tally.retransmitted > 0, "{copa}");
    }
}

/// Runs the cases of an experiment whose names contain `part`, with flows of `bytes`.
fn cases_of(name: &str, part: &str, bytes: u64) -> Vec<RunResult> {
    let mut file = SpecFile::parse(embedded(name).unwrap(), Path::new("."), false).unwrap();
    file.cases.retain(|c| c.case.contains(part));
    assert!(!file.cases.is_empty(), "{name} has no case {part}");
    for case in &mut file.cases {
        case.workload.bytes = bytes;
    }
    run_all(&jobs_of(&file, None), 2, &|_| ()).unwrap()
}

fn goodput(r: &RunResult) -> f64 {
    1.0 - r.rings[0].idle_share()
}

fn lost_percent(r: &RunResult) -> f64 {
    let c = &r.copa().unwrap().counters;
    100.0 * c.full as f64 / c.data_sent as f64
}

#[test]
fn the_slides_curves_have_their_shape() {
    for r in cases_of("copa", "dup-ack, selective", 40_000_000) {
        let (h, q) = (r.spec.labels[1].as_str(), r.spec.labels[2].as_str());
        let (lost, good) = (lost_percent(&r), goodput(&r));
        // One packet less than the required room: see docs/copa.md.
        let short = h == "host 50 %" && q == "1 BDP";
        if matches!(q, "1 BDP" | "1.5 BDP" | "2 BDP" | "4 BDP") && !short {
            assert_eq!((r.drops.total(), r.tally.retransmitted), (0, 0), "{h}, {q}");
        }
        if short {
            assert!((0.5..2.0).contains(&lost), "{lost}");
        }
        if matches!(q, "1.5 BDP" | "2 BDP" | "4 BDP") {
            assert!(good >= 0.995, "{h}, {q}: {good}");
        }
    }
    for r in cases_of("copa", "stream, selective, host 70 %, 0", 40_000_000) {
        assert!((lost_percent(&r) - 30.0).abs() < 0.5, "{}", lost_percent(&r));
    }
}

#[test]
fn the_gain_is_in_what_the_host_takes_when_it_recovers() {
    for r in cases_of("copa-recovery", "selective, 30 RTT", 60_000_000) {
        let good = goodput(&r);
        match r.spec.labels[0].as_str() {
            "aimd, selective" => assert!((0.6..0.9).contains(&good), "{good}"),
            name => assert!(good > 0.99, "{name}: {good}"),
        }
    }
}

#[test]
fn healthy_hosts_get_what_they_get_without_the_slow_one() {
    for pattern in ["two pairs", "permutation of 8"] {
        for policy in ["dup-ack, selective", "dup-ack clocked, selective"] {
            let of = |slow: &str| {
                cases_of("copa-multi", &format!("{pattern}, {slow}, {policy}"), 20_000_000)
                    .remove(0)
            };
            let (with, without) = (of("host 3 slow"), of("all fast"));
            let mut healthy = 0;
            for ((f, a), b) in with.flows.iter().zip(&with.fct_ps[0]).zip(&without.fct_ps[0]) {
                if f.dst.0 != 3 {
                    let share = b.unwrap() as f64 / a.unwrap() as f64;
                    assert!(share >= 0.98, "{pattern}, {policy}: {share}");
                    healthy += 1;
                }
            }
            assert_eq!(healthy, with.flows.len() - 1);
        }
    }
}

/// SRD with the receiver's budget, transport on the card: nothing is lost at the host, it is kept
/// busy, its ring stays short, and no path is blamed.
#[test]
fn srd_keeps_a_slow_host_busy_and_loses_nothing() {
    for (host, ring) in [("host 50 %", "1 BDP"), ("host 80 %", "2 BDP"), ("host 60 %", "1 BDP")] {
        for r in cases_of("copa-srd", &format!("unicast, card, {host}, {ring}, budget"), 40_000_000)
        {
            let stats = &r.rings[0].stats;
            let (dropped, p99) = (stats.dropped, stats.depth_bytes_p99);
            assert_eq!((r.unfinished(), dropped), (0, 0), "{:?}", r.spec.labels);
            let limit = r.spec.host.as_ref().unwrap().ring_bytes;
            assert!(p99 <= limit / 2 + 324_850 / 4, "{host}, {ring}: {p99} B");
            let over = r.summary.over_floor.max;
            assert!(over < 1.0 / 0.97, "{host}, {ring}: {over}");
            let counters = &r.srd_counters().unwrap();
            assert_eq!((counters.paths_retired, counters.retrans_pkts), (0, 0));
        }
    }
}

#[test]
fn with_hosts_that_keep_up_the_signal_changes_nothing() {
    let of = |policy: &str| {
        cases_of("copa-srd", &format!("victims, card, all fast, {policy}"), 2_000_000).remove(0)
    };
    let (off, budget, stop_go) = (of("off"), of("budget"), of("stop-go"));
    assert_eq!(off.hash, budget.hash);
    assert_eq!(off.hash, stop_go.hash);
}

#[test]
fn the_page_has_the_slides_two_figures_for_each_host() {
    let mut results = cases_of("copa", "dup-ack clocked, selective, host 80 %", 2_000_000);
    results.extend(cases_of("copa", "window 1, host 80 %", 2_000_000));
    let page = page(&results, "srd lab run copa");
    for title in ["Drops over host bandwidth", "Goodput over host bandwidth"] {
        assert!(page.contains(&format!("{title}, host at 80 % of its link")), "{title}");
    }
    let table = srd_lab::figures(&results, false);
    let grid = table.split("goodput over host bandwidth\n").nth(1).unwrap();
    assert!(grid.trim_start().starts_with("0.25 BDP  0.5 BDP"), "{grid}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    for (top, words) in [
        ("copa = { policy = \"window\", window = 0 }", "copa.window = 0"),
        ("copa = { threshold = 2.0 }", "copa.threshold = 2"),
        ("copa = { policy = \"stream\", threshold = 0.5 }", "leave it out"),
        ("host = { placement = \"host\" }", "host.placement = \"host\": COPA's transport is on"),
        ("host = { ring_bytes = 4_185 }", "holds no packet of 4186 B"),
        ("measure = { order = true }", "not for transport = \"copa\""),
    ] {
        let mut cases = cases(&text(ONE, top));
        let e = srd_lab::check(&cases.remove(0)).unwrap_err();
        assert!(e.contains(words), "{top}: {e}");
    }
    let other = text(ONE, "copa = {}").replace("transport = \"copa\"", "transport = \"tcp\"");
    let e = srd_lab::check(&cases(&other).remove(0)).unwrap_err();
    assert!(e.contains("copa: these are settings of transport = \"copa\""), "{e}");
}
