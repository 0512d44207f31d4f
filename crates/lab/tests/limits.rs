//! Limits of single flows at their senders' cards, for every transport.

use crate::common::{cases, run_text, spec};
use srd_lab::{RunResult, check, run};
use std::path::Path;

const BYTES: u64 = 40_000_000;

/// One transfer of 40 MB with a limit of 5 Gb/s per flow.
fn limited(rest: &str) -> RunResult {
    let work = format!("pattern = \"incast\"\nsenders = 1\nbytes = {BYTES}");
    let network = "shape = \"fat-tree\"\nk = 4\nflow_gbps = 5.0";
    let r = run_text(&spec(network, &work, rest), 1);
    assert_eq!(r.unfinished(), 0, "{rest}");
    r
}

/// Payload per time of the only flow in Gb/s.
fn gbps(r: &RunResult) -> f64 {
    8e3 * BYTES as f64 / r.fct_ps[0][0].unwrap() as f64
}

/// Whatever the transport, no flow gets more than its tokens.
#[test]
fn every_transport_is_limited_by_its_number_of_flows() {
    for (rest, flows) in [
        ("transport = \"tcp\"", 1),
        ("transport = \"tcp\"\ntcp.subflows = 8", 8),
        ("transport = \"rc\"\nrc.recovery = \"irn\"", 1),
        ("engine.paths = 1", 1),
        ("engine.paths = 4", 4),
    ] {
        let r = limited(rest);
        let limits = r.limits.unwrap();
        assert_eq!(limits.flows, flows, "{rest}: {limits:?}");
        assert!(limits.waited > 0, "{rest}: {limits:?}");
        // At most the first burst and the tokens since; headers are 0.5 % of payload or more.
        let ps = r.fct_ps[0][0].unwrap() as f64;
        let tokens = flows as f64 * (64_000.0 + 5e9 / 8e12 * ps);
        assert!(BYTES as f64 * 1.005 < tokens, "{rest}: {} Gb/s", gbps(&r));
        assert!(gbps(&r) > 0.93 * 5.0 * flows as f64, "{rest}: {} Gb/s", gbps(&r));
    }
}

/// Many paths are many flows: together they fill the link.
#[test]
fn the_paths_of_one_transfer_fill_the_line() {
    let r = limited("engine.paths = 64");
    assert!(gbps(&r) > 95.0, "{} Gb/s", gbps(&r));
    assert!(r.limits.unwrap().flows <= 64);
    let free = spec(
        "shape = \"fat-tree\"\nk = 4",
        &format!("pattern = \"incast\"\nsenders = 1\nbytes = {BYTES}"),
        "engine.paths = 64",
    );
    assert_eq!(run_text(&free, 1).limits, None);
}

#[test]
fn limits_that_are_not_possible_are_refused_with_the_field() {
    let work = "pattern = \"incast\"\nsenders = 1";
    for (network, rest, want) in [
        ("flow_gbps = 0.0", "", "network.flow_gbps = 0 must be at least 0.001, and at most 100"),
        ("flow_gbps = -5.0", "", "network.flow_gbps = -5 must be"),
        ("flow_gbps = nan", "", "network.flow_gbps = NaN must be"),
        ("flow_gbps = 40.0\nlink_gbps = 25.0", "", "at most 25, the rate of a host's link"),
        (
            "flow_gbps = 5.0\nflow_control = \"pfc\"",
            "transport = \"rc\"",
            "network.flow_gbps: a card with limits drops",
        ),
    ] {
        let text = spec(&format!("shape = \"fat-tree\"\nk = 4\n{network}"), work, rest);
        let spec = &cases(&text)[0];
        for e in [check(spec).unwrap_err(), run(spec, Path::new("."), 1).unwrap_err()] {
            assert!(e.contains(want), "{network}: {e}");
        }
    }
}
