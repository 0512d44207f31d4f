//! Host models: their delays follow from the seed, and ideal hosts have none.

use crate::common::run_text;
use srd_lab::RunResult;

fn of(host: &str, engine: &str, workload: &str, seed: u64) -> RunResult {
    let text = format!(
        "name = \"test\"\ntitle = \"test\"\ntime_ms_max = 5_000\n{host}\n\
         [network]\nshape = \"fat-tree\"\nk = 4\n[engine]\ndefaults = \"sockets\"\n{engine}\n\
         [workload]\n{workload}\n"
    );
    run_text(&text, seed)
}

const PERMUTATION: &str = "pattern = \"permutation\"\nbytes = 300_000";
const INCAST: &str = "pattern = \"incast\"\nsenders = 4\nflows_per_pair = 12\nbytes = 65_536";

#[test]
fn an_ideal_host_is_a_host_without_a_model() {
    let (a, b) = (of("", "", PERMUTATION, 1), of("host = \"ideal\"", "", PERMUTATION, 1));
    assert_eq!((a.hash, &a.fct_ps), (b.hash, &b.fct_ps));
    assert_eq!((a.kernels(), b.kernels()), (None, None));
}

#[test]
fn what_a_model_adds_follows_from_the_seed() {
    let run = |host, seed| of(host, "", PERMUTATION, seed);
    let quiet = run("host = \"quiet\"", 1);
    assert_eq!(quiet.hash, run("host = \"quiet\"", 1).hash);
    let hashes = [
        quiet.hash,
        run("host = \"quiet\"", 2).hash,
        run("host = \"busy\"", 1).hash,
        run("host = \"ideal\"", 1).hash,
    ];
    for (i, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..i].contains(hash), "run {i} is as another: {hashes:x?}");
    }
}

#[test]
fn every_flow_ends_through_sockets_and_sends_are_segmented() {
    for host in ["host = \"quiet\"", "host = \"busy\""] {
        for (workload, seed) in [(PERMUTATION, 1), (INCAST, 2)] {
            let r = of(host, "", workload, seed);
            assert_eq!((r.unfinished(), r.failures), (0, 0), "{host}, {workload}, seed {seed}");
            let k = r.kernels().unwrap();
            assert!(k.received > k.receives, "{host}: a receive call takes several packets: {k:?}");
            assert!(k.sent > k.sends, "{host}: a send call sends several packets: {k:?}");
            assert!(k.waited_ps_max > 0, "{k:?}");
        }
    }
}

#[test]
fn twelve_engines_of_a_host_share_its_port() {
    let engine = "senders_per_host = 12\nreceivers_per_host = 12";
    for host in ["host = \"ideal\"", "host = \"quiet\""] {
        let r = of(host, engine, INCAST, 1);
        assert_eq!((r.unfinished(), r.failures), (0, 0), "{host}");
        // The receiver's single port carries all packets, whichever engine they are for.
        assert!(r.summary.over_floor.max >= 0.999, "{host}: {}", r.summary.over_floor.max);
    }
}

#[test]
fn a_socket_that_is_too_small_loses_packets_and_says_so() {
    let file = std::env::temp_dir().join(format!("srd-lab-noise-{}.txt", std::process::id()));
    let quiet = include_str!("../data/quiet.noise");
    let small: String = quiet
        .lines()
        .filter(|l| !l.starts_with("socket_bytes"))
        .map(|l| format!("{l}\n"))
        .collect();
    std::fs::write(&file, small + "socket_bytes 50=40000\n").unwrap();
    let r = of(&format!("host = \"{}\"", file.display()), "", INCAST, 1);
    std::fs::remove_file(&file).unwrap();
    assert_eq!((r.unfinished(), r.failures), (0, 0));
    assert!(r.tally.socket_drops > 0);
    assert_eq!(r.lost(), r.drops.total() + r.tally.socket_drops);
}
