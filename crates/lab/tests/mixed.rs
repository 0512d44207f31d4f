//! Several transports in one network: results per group, independence of groups that share nothing,
//! determinism, refusals.

use crate::common::run_text;
use srd_lab::spec::SpecFile;
use srd_lab::{RunResult, check, jobs_of, run_all};
use std::path::Path;

const HEAD: &str = "name = \"test\"\ntitle = \"test\"\ntime_ms_max = 2_000\n\
    [network]\nshape = \"leaf-spine\"\nleaves = 4\nspines = 4\nhosts_per_leaf = 4\n";

/// Every transport that can be mixed, in its own defaults.
const TRANSPORTS: [(&str, &str); 8] = [
    ("SRD", "transport = \"srd\""),
    ("CUBIC", "transport = \"tcp\""),
    ("BBR", "transport = \"tcp\"\ntcp.cc = \"bbr\""),
    ("DCTCP", "transport = \"tcp\"\ntcp.cc = \"dctcp\""),
    ("MPTCP", "transport = \"tcp\"\ntcp = { cc = \"dctcp\", subflows = 8 }"),
    ("RC", "transport = \"rc\""),
    ("IRN", "transport = \"rc\"\nrc.recovery = \"irn\""),
    ("NSCC", "transport = \"ue\""),
];

fn group(name: &str, settings: &str, workload: &str) -> String {
    format!("[[workload.also]]\nname = \"{name}\"\n{settings}\n{workload}\n")
}

/// A permutation of SRD with one of every transport beside it.
fn everyone() -> String {
    let flows = "pattern = \"permutation\"\nbytes = 500_000";
    let first = format!("seeds = 2\n{HEAD}[workload]\nname = \"first\"\n{flows}\nrounds = 2\n");
    first + &TRANSPORTS.map(|(name, settings)| group(name, settings, flows)).concat()
}

#[test]
fn all_transports_share_a_network_and_each_has_its_results() {
    let file = SpecFile::parse(&everyone(), Path::new("."), false).unwrap();
    check(&file.cases[0]).unwrap();
    let jobs = jobs_of(&file, None);
    let one = run_all(&jobs, 1, &|_| ()).unwrap();
    let two = run_all(&jobs, 2, &|_| ()).unwrap();
    let hashes = |r: &[RunResult]| r.iter().map(|r| (r.seed, r.hash)).collect::<Vec<_>>();
    assert_eq!(hashes(&one), hashes(&two), "threads do not matter");
    assert_ne!(one[0].hash, one[1].hash, "seeds do");
    let names: Vec<&str> = one.iter().step_by(2).map(|r| r.spec.case.as_str()).collect();
    let mut want = vec!["first"];
    want.extend(TRANSPORTS.map(|(name, _)| name));
    assert_eq!(names, want, "groups in order, the seeds of each together");
    for r in &one {
        assert_eq!((r.unfinished(), r.fct_ps.len(), r.flows.len()), (0, 2, 16), "{}", r.spec.case);
        assert!(r.summary.over_floor.median > 1.0, "{}: others take their share", r.spec.case);
    }
    let of = |name: &str| one.iter().find(|r| r.spec.case == name).unwrap();
    assert!(of("RC").rival().is_some() && of("SRD").srd_counters().is_some());
    assert!(one.iter().all(|r| r.mtu() == 4_096), "groups are level, as cases are");
    assert_ne!(of("SRD").flows, of("first").flows, "groups draw their own permutations");
}

/// Two groups that share neither links nor hosts: each has the times that it has alone.
#[test]
fn groups_that_share_nothing_do_not_touch_each_other() {
    let own = "pattern = \"incast\"\nsenders = 3\nflows_per_pair = 2\nbytes = 700_000";
    let star = "name = \"test\"\ntitle = \"test\"\ntime_ms_max = 2_000\n[network]\n\
        shape = \"leaf-spine\"\nleaves = 1\nspines = 1\nhosts_per_leaf = 8\n";
    for (name, settings) in TRANSPORTS {
        let alone = run_text(&format!("{settings}\n{star}[workload]\n{own}\n"), 1);
        // The incast is from hosts 2, 4 and 6 to host 0; the other group is from 1 to 3.
        let cm = std::env::temp_dir().join(format!("srd-mixed-{}-{name}.cm", std::process::id()));
        std::fs::write(&cm, "Nodes 8\nConnections 1\n1->3 id 1 start 0 size 300000\n").unwrap();
        let other = format!("pattern = \"cm\"\nunit = \"ps\"\nfile = \"{}\"", cm.display());
        let text = format!("{settings}\n{star}[workload]\n{own}\n") + &group("far", "", &other);
        let beside = run_text(&text, 1);
        std::fs::remove_file(&cm).unwrap();
        assert_eq!(beside.also.len(), 1, "{name}");
        assert_eq!(beside.also[0].unfinished(), 0, "{name}");
        for (a, b) in alone.fct_ps[0].iter().zip(&beside.fct_ps[0]) {
            let (a, b) = (a.unwrap() as f64, b.unwrap() as f64);
            assert!((a / b - 1.0).abs() < 1e-3, "{name}: {a} alone, {b} beside nobody");
        }
        assert_eq!(alone.floor_ps, beside.floor_ps, "{name}");
    }
}

/// One host sends with two transports: its card serves both in turn, by bytes.
#[test]
fn transports_of_a_host_share_its_card() {
    let pair = "pattern = \"pairs\"\npairs = 1\nendless = true\nbytes = 100_000_000_000";
    let head = "name = \"test\"\ntitle = \"test\"\ntime_ms_max = 6\nmeasure.goodput_us = 1_000\n\
        [network]\nshape = \"leaf-spine\"\nleaves = 1\nspines = 1\nhosts_per_leaf = 4\n";
    let text = format!("transport = \"ue\"\n{head}[workload]\n{pair}\n")
        + &group("SRD", "transport = \"srd\"", pair);
    let r = run_text(&text, 1);
    let gbps = |r: &RunResult| {
        let steady: u64 = r.goodput.iter().skip(2).take(3).sum();
        steady as f64 * 8.0 / 3e6
    };
    let (ue, srd) = (gbps(&r), gbps(&r.also[0]));
    assert!(ue + srd > 90.0, "{ue} and {srd} Gb/s of 100");
    assert!(ue > 20.0 && srd > 20.0, "{ue} and {srd} Gb/s");
}

#[test]
fn a_group_may_start_later_and_need_not_end() {
    let text =
        format!(
            "{HEAD}[workload]\nname = \"elephants\"\npattern = \"shift\"\nshift = 4\n\
         bytes = 100_000_000_000\nendless = true\nrounds = 3\nbarrier_us = 50\n"
        ) + &group("mice", "", "pattern = \"shift\"\nshift = 4\nbytes = 10_000\nstart_us = 900");
    let r = run_text(&text, 1);
    assert!(r.end_ps < 20_000_000_000, "the mice end the run: {} ps", r.end_ps);
    let mice = &r.also[0];
    assert_eq!((mice.fct_ps.len(), mice.unfinished()), (3, 0));
    assert_eq!((r.fct_ps.len(), r.fct_ps[0].len()), (1, 16));
    assert!(r.fct_ps[0].iter().all(Option::is_none), "elephants start once and do not end");
    assert!(r.end_ps > 900_000_000 + 2 * 50_000_000, "three rounds from 900 us on");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let flows = "pattern = \"permutation\"";
    let first = format!("{HEAD}[workload]\n{flows}\n");
    for (text, part) in [
        (group("a", "transport = \"copa\"", flows), "\"copa\" has its network alone"),
        (group("a", "transport = \"saa\"", flows), "\"saa\" has its network alone"),
        (group("SRD", "", flows), "two groups are named \"SRD\""),
        (group("a", "transport = \"tcp\"\ntcp.cc = \"vegas\"", flows), "group 2: tcp.cc"),
        (group("a", "", "pattern = \"incast\"\nrounds = 2"), "workload.also.rounds"),
        (group("a", "", "pattern = \"incast\"\nbites = 2"), "bites"),
        (group("a", "", "bytes = 2"), "pattern"),
        (format!("[measure]\norder = true\n{}", group("a", "", flows)), "measure.order"),
        (group("a", "engine.hue = 3", flows), "hue"),
        (group("a", "", "pattern = \"goal\"\nfile = \"a.goal\""), "has its network alone"),
    ] {
        let parsed = SpecFile::parse(&format!("{first}{text}"), Path::new("."), false);
        let e = parsed.and_then(|f| check(&f.cases[0])).unwrap_err();
        assert!(e.contains(part), "{text}: {e}");
    }
    let named = format!("{HEAD}[workload]\nname = \"alone\"\n{flows}\n");
    let file = SpecFile::parse(&named, Path::new("."), false).unwrap();
    let e = check(&file.cases[0]).unwrap_err();
    assert!(e.contains("workload.name"), "{e}");
}

/// Changes of the command line reach every group where they are of its transport, and one group by
/// its name.
#[test]
fn the_command_line_changes_groups() {
    let load = |set: &[&str], sweep: &[&str]| {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_string()).collect::<Vec<_>>();
        SpecFile::load_with("coexist", true, &own(set), &own(sweep))
    };
    let file = load(&["transport = \"rc\"", "rc.ack_timeout = 10"], &[]).unwrap();
    for case in &file.cases {
        for group in std::iter::once(case).chain(&case.also) {
            assert_eq!(group.transport, srd_lab::spec::Transport::Rc, "{}", case.case);
            assert_eq!(group.rc.ack_timeout, Some(10), "{}", case.case);
        }
    }
    let file = load(&["workload.also.victims.bytes = 1_000", "workload.bytes = 7"], &[]).unwrap();
    for case in &file.cases {
        assert_eq!(case.workload.bytes, 7);
        let sizes: Vec<u64> = case.also.iter().map(|g| g.workload.bytes).collect();
        let named = case.also[0].workload.name.as_deref() == Some("victims");
        assert_eq!(sizes, [if named { 1_000 } else { 200_000_000_000 }], "{}", case.case);
    }
    let sweeps = ["workload.also.victims.engine.paths = 16, 64", "engine.mtu = 1_024, 4_096"];
    let file = load(&[], &sweeps).unwrap();
    let swept: Vec<_> = file.cases.iter().map(|c| (c.engine.mtu, c.also[0].engine.mtu)).collect();
    assert!(swept.chunks(2).all(|two| *two == [(1_024, 1_024), (4_096, 4_096)]), "{swept:?}");
    let paths: Vec<_> = file.cases.iter().take(4).map(|c| c.also[0].engine.paths).collect();
    assert_eq!(paths, [Some(16), Some(16), Some(64), Some(64)]);
    assert!(file.cases[0].case.ends_with("paths 16, mtu 1_024"), "{}", file.cases[0].case);
    let e = load(&["workload.also.mice.bytes = 3"], &[]).unwrap_err();
    assert!(e.contains("workload.also.mice") && e.contains("elephants") && e.contains("victims"));
}

/// Groups without names have those of their transports, and rows of their own.
#[test]
fn groups_without_names_are_told_apart() {
    let flows = "pattern = \"permutation\"\nbytes = 100_000";
    let nameless = |settings: &str| format!("[[workload.also]]\n{settings}\n{flows}\n");
    let text = format!("{HEAD}[workload]\n{flows}\n")
        + &nameless("transport = \"tcp\"")
        + &nameless("engine.paths = 4")
        + &group("SRD too", "", flows);
    let file = SpecFile::parse(&text, Path::new("."), false).unwrap();
    check(&file.cases[0]).unwrap();
    let results = run_all(&jobs_of(&file, None), 1, &|_| ()).unwrap();
    let names: Vec<&str> = results.iter().map(|r| r.spec.case.as_str()).collect();
    assert_eq!(names, ["SRD 1", "TCP", "SRD 3", "SRD too"]);
    let page = srd_lab::page(&results, "srd lab run x");
    assert!(names.iter().all(|name| page.contains(name)));
}
