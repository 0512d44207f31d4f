//! Flows at random times: equal arrivals for all transports, sizes, hosts and loads.

use crate::common::{cases, run_text};
use srd_lab::{RunResult, check, run};
use std::path::PathBuf;

const FAT: &str = "shape = \"fat-tree\"\nk = 4";

fn text(network: &str, poisson: &str, rest: &str) -> String {
    format!(
        "name = \"test\"\ntitle = \"test\"\ntime_ms_max = 5_000\n{rest}\n[network]\n{network}\n\
         [workload]\npattern = \"poisson\"\npoisson = {{ {poisson} }}\n"
    )
}

/// Runs a spec with a distribution in a file, in a folder of the test's own.
fn run_with_file(name: &str, cdf: &str, network: &str, poisson: &str) -> Result<RunResult, String> {
    let folder: PathBuf =
        std::env::temp_dir().join(format!("srd-lab-load-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("own.cdf"), cdf).unwrap();
    let spec = &cases(&text(network, &format!("sizes = \"own.cdf\", {poisson}"), ""))[0];
    let result = check(spec).and_then(|()| run(spec, &folder, 1));
    std::fs::remove_dir_all(&folder).unwrap();
    result
}

#[test]
fn all_transports_see_the_same_arrivals() {
    let poisson = "sizes = \"web-search\", load = 0.4, warmup_us = 100, window_us = 300";
    let of = |rest: &str, seed| run_text(&text(FAT, poisson, rest), seed);
    let srd = of("", 1);
    for rest in [
        "engine.defaults = \"sockets\"",
        "host = \"quiet\"",
        "transport = \"tcp\"",
        "transport = \"tcp\"\ntcp.cc = \"dctcp\"",
    ] {
        let other = of(rest, 1);
        assert_eq!(other.flows, srd.flows, "{rest}");
        let (a, b) = (srd.open_loop.as_ref().unwrap(), other.open_loop.as_ref().unwrap());
        assert_eq!((a.slowdowns.len(), a.offered), (b.slowdowns.len(), b.offered), "{rest}");
        assert_eq!((other.unfinished(), other.failures, b.undone), (0, 0, 0), "{rest}");
    }
    assert_ne!(of("", 2).flows, srd.flows);
    assert_eq!(of("", 1).hash, srd.hash);
}

/// Fair sharing without queues is the bound of all that share fairly, and is the same for all.
#[test]
fn the_fluid_optimum_of_arrivals_is_below_every_transport() {
    let poisson = "sizes = \"web-search\", load = 0.6, warmup_us = 100, window_us = 500";
    let of = |rest: &str| {
        let r = run_text(&text(FAT, poisson, &format!("measure.fluid = true\n{rest}")), 1);
        r.open_loop.unwrap()
    };
    let median = |pairs: &[(u64, f64)]| {
        let mut all: Vec<f64> = pairs.iter().map(|(_, s)| *s).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let (srd, tcp) = (of(""), of("transport = \"tcp\""));
    assert_eq!(srd.fluid.len(), srd.slowdowns.len());
    for r in [&srd, &tcp] {
        assert!(median(&r.fluid) < median(&r.slowdowns), "{r:?}");
    }
    // Headers differ, and completion counts an acknowledgment or not: 3 % and 5 us.
    let (a, b) = (median(&srd.fluid), median(&tcp.fluid));
    assert!((a - b).abs() < 0.5, "{a} {b}");
}

#[test]
fn a_lone_flow_now_and_then_has_no_slowdown() {
    // Flows of one size, at a load at which flows rarely coincide.
    let r = run_with_file("one", "1500 1", FAT, "load = 0.001, window_us = 2_000").unwrap();
    let load = r.open_loop.unwrap();
    assert!(load.slowdowns.len() > 100, "{}", load.slowdowns.len());
    // 12 links of 1 us and 6 serialisation times of a packet, relative to 10.1 us.
    for (bytes, slowdown) in &load.slowdowns {
        assert_eq!(*bytes, 1_500);
        assert!((0.3..1.6).contains(slowdown), "{slowdown}");
    }
}

#[test]
fn two_hosts_nearly_full_and_slow_links_end_too() {
    let back = "shape = \"back-to-back\"";
    let cdf = "1 0\n20000 0.7\n200000 1";
    let r = run_with_file("two", cdf, back, "load = 0.99, window_us = 3_000").unwrap();
    assert_eq!((r.unfinished(), r.failures), (0, 0));
    let pairs: Vec<(u32, u32)> = r.flows.iter().map(|f| (f.src.0, f.dst.0)).collect();
    assert!(pairs.contains(&(0, 1)) && pairs.contains(&(1, 0)));
    let slow = format!("{FAT}\nlink_gbps = 0.1");
    let r = run_with_file("slow", cdf, &slow, "load = 0.5, window_us = 100_000").unwrap();
    assert_eq!((r.unfinished(), r.failures), (0, 0));
    assert!(r.open_loop.unwrap().offered > 0.2);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let ok = "sizes = \"web-search\", load = 0.4";
    for (poisson, rest, part) in [
        ("sizes = \"web-search\", load = 40", "", "workload.poisson.load = 40: give a share"),
        ("sizes = \"web-search\", load = 0.4, hosts = 17", "", "the network has 16; give 2 to 16"),
        ("sizes = \"there.cdf\", load = 0.4", "", "one of web-search, data-mining"),
        (ok, "workload.rounds = 2", "workload.rounds: pattern = \"poisson\""),
        (ok, "workload.flows_per_pair = 2", "workload.flows_per_pair: pattern"),
        (ok, "transport = \"copa\"", "is for transport = \"srd\", \"tcp\", \"rc\" or \"ue\""),
        (ok, "transport = \"tcp\"\nhost = \"quiet\"", "host = \"quiet\": kernel and thread of SRD"),
        (ok, "host = \"loud\"", "host = \"loud\": ./loud:"),
    ] {
        // Keys of tables that the text defines later are in the case.
        let spec = text(FAT, poisson, "") + &format!("[[cases]]\ncase = \"a\"\n{rest}\n");
        let spec = &cases(&spec)[0];
        let e = check(spec).and_then(|()| run(spec, ".".as_ref(), 1).map(|_| ())).unwrap_err();
        assert!(e.contains(part), "{poisson} {rest}: {e}");
    }
    let incast = "name = \"t\"\ntitle = \"t\"\n[network]\nshape = \"back-to-back\"\n[workload]\n";
    let missing = format!("{incast}pattern = \"poisson\"\n");
    let e = check(&cases(&missing)[0]).unwrap_err();
    assert!(e.contains("workload.poisson is missing"), "{e}");
    let needless = format!("{incast}pattern = \"permutation\"\npoisson = {{ {ok} }}\n");
    let e = check(&cases(&needless)[0]).unwrap_err();
    assert!(e.contains("workload.poisson: only workload.pattern = \"poisson\""), "{e}");
}

/// A host that sends and receives at line rate always has more to send than its card holds. Its
/// acknowledgments and grants leave in time all the same.
#[test]
fn a_full_card_holds_up_no_acknowledgment() {
    let folder = std::env::temp_dir().join(format!("srd-lab-load-card-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut flows = String::from("Nodes 3\nConnections 22\n");
    flows += "0->1 id 1 start 0 size 20000000\n1->0 id 2 start 0 size 20000000\n";
    for i in 0..20 {
        flows += &format!("2->0 id {} start {} size 1000\n", 3 + i, 300 + 50 * i);
    }
    std::fs::write(folder.join("both-ways.cm"), flows).unwrap();
    for engine in ["sockets", "datacenter"] {
        let text = format!(
            "name = \"test\"\ntitle = \"test\"\ntime_ms_max = 100\n[network]\n\
             shape = \"leaf-spine\"\nleaves = 1\nspines = 1\nhosts_per_leaf = 3\n[engine]\n\
             defaults = \"{engine}\"\n[workload]\npattern = \"cm\"\n\
             file = \"both-ways.cm\"\nunit = \"us\"\n"
        );
        let r = run(&cases(&text)[0], &folder, 1).unwrap();
        assert_eq!((r.unfinished(), r.failures), (0, 0), "{engine}");
        assert_eq!(r.flows.len(), 22, "{engine}");
        // The small ones take up to 17 times their floor if only an idle card lets timers fire.
        assert!(r.summary.over_floor.max < 2.0, "{engine}: {:?}", r.summary.over_floor);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
