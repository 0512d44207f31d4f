//! Equal seeds give equal runs, independently of the number of threads; different seeds differ.

use srd_lab::spec::SpecFile;
use srd_lab::{RunResult, jobs_of, run_all, table};
use std::path::Path;

const SPEC: &str = "name = \"test\"\ntitle = \"test\"\nseeds = 3\ntime_ms_max = 5_000\n\
    [network]\nshape = \"fat-tree\"\nk = 4\nbuffer_bytes = 100_000\n\
    [workload]\npattern = \"permutation\"\nbytes = 300_000\njitter_ns = 5_000\n\
    [[cases]]\ncase = \"well\"\n[[cases]]\ncase = \"lossy\"\n\
    fault = [{ kind = \"core-loss\", prob = 0.01 }]\n\
    [[cases]]\ncase = \"TCP\"\ntransport = \"tcp\"\n\
    [[cases]]\ncase = \"TCP, lossy\"\ntransport = \"tcp\"\ntcp.mss = 1448\n\
    tcp.rto_floor_ms = 5\nfault = [{ kind = \"core-loss\", prob = 0.01 }]\n";

fn hashes(r: &[RunResult]) -> Vec<u64> {
    r.iter().map(|r| r.hash).collect()
}

#[test]
fn threads_do_not_change_results() {
    let file = SpecFile::parse(SPEC, Path::new("."), false).unwrap();
    let jobs = jobs_of(&file, None);
    assert_eq!(jobs.len(), 12);
    let one = run_all(&jobs, 1, &|_| ()).unwrap();
    let two = run_all(&jobs, 2, &|_| ()).unwrap();
    assert_eq!(hashes(&one), hashes(&two));
    assert_eq!(table(&one, false), table(&two, false));
    let mut distinct = hashes(&one);
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 12, "every seed is a run of its own");
    assert!(one.iter().all(|r| r.unfinished() == 0 && r.failures == 0));
    let lossy = one[3..6].iter().chain(&one[9..]);
    assert!(lossy.clone().all(|r| r.drops.total() > 0 && r.tally.retransmitted > 0));
}

#[test]
fn golden_table_of_a_small_run() {
    let file = SpecFile::parse(SPEC, Path::new("."), false).unwrap();
    let results = run_all(&jobs_of(&file, None), 1, &|_| ()).unwrap();
    // The hash, removed here, changes with every change of the protocol. The rest should change
    // rarely and be reviewed: SRD_LAB_BLESS=1 writes the file.
    let text: String = table(&results, false)
        .lines()
        .map(|l| l.rsplit_once("  ").map_or(l, |(left, _)| left).trim_end().to_string() + "\n")
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/small.txt");
    if std::env::var_os("SRD_LAB_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, golden, "if this is meant: SRD_LAB_BLESS=1 cargo test -p srd-lab");
}
