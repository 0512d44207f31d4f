//! Spraying over paths avoids queues inside the network, but not the queue before a receiver with
//! many senders.

use crate::common::{run_text, spec};
use srd_lab::RunResult;

const NETWORK: &str = "shape = \"leaf-spine\"\nleaves = 4\nspines = 4\nhosts_per_leaf = 4\n\
    buffer_bytes = 2_000_000";
/// A fixed window of one bandwidth-delay product, so that rate control does not hide the effect of
/// paths.
const FIXED: &str = "[engine]\ncredits = false\nrate_policy = \"fixed\"\nfixed_gbps = 100.0\n\
    fixed_inflight_bytes = 140_000\npath_policy = ";

fn run(workload: &str, policy: &str) -> RunResult {
    let text = spec(NETWORK, workload, "[measure]\nobserve = true\n");
    let r = run_text(&format!("{text}{FIXED}\"{policy}\"\n"), 1);
    assert_eq!((r.unfinished(), r.failures), (0, 0), "{policy}");
    r
}

/// Largest queue in bytes on links between switches, in either direction.
fn core_queue(r: &RunResult) -> u64 {
    let tiers = &r.observation.as_ref().unwrap().tiers;
    let inside = tiers.iter().filter(|t| t.links > 0 && !t.name.contains("host"));
    let queues = inside.flat_map(|t| &t.intervals).map(|i| i.queue_max);
    queues.max().expect("there are links between switches")
}

/// A permutation at full load: no two senders share a receiver, so all queues are inside the
/// network.
#[test]
fn spraying_relieves_the_switches_inside() {
    let work = "pattern = \"permutation\"\nbytes = 2_000_000";
    let one = core_queue(&run(work, "ecmp"));
    for policy in ["oblivious", "srd"] {
        let sprayed = core_queue(&run(work, policy));
        assert!(sprayed * 3 < one, "{policy}: {sprayed} bytes, {one} on one path");
    }
}

/// Three senders with four flows each into one host. The last link is the only one that they
/// certainly share; all bytes in flight that it cannot hold queue there, on any paths.
#[test]
fn spraying_does_nothing_against_incast() {
    let work = "pattern = \"incast\"\nsenders = 3\nflows_per_pair = 4\nbytes = 500_000";
    let one = run(work, "ecmp").last_hop_bytes_max;
    // Three windows, less the bytes on their way to the last switch and back.
    assert!((200_000..420_000).contains(&one), "{one} bytes on one path");
    for policy in ["oblivious", "srd"] {
        let sprayed = run(work, policy).last_hop_bytes_max;
        assert!(sprayed * 10 > one * 9, "{policy}: {sprayed} bytes, {one} on one path");
    }
}
