//! State of a host for its peers, counted in runs.

use crate::common::{run_text, spec};
use srd_lab::{HostState, RunResult, figures};

/// A job of `hosts` hosts with two under each leaf; every process sends to all of the others.
fn all_to_all(hosts: u32, processes: u32, engine: &str) -> RunResult {
    let work = format!(
        "pattern = \"ring\"\npeers = {}\nprocesses_per_host = {processes}\nbytes = 4096\n\
         warm_bytes = 0",
        hosts - 1
    );
    let network =
        format!("shape = \"leaf-spine\"\nleaves = {}\nspines = 2\nhosts_per_leaf = 2", hosts / 2);
    let r = run_text(&spec(&network, &work, engine), 1);
    assert_eq!((r.unfinished(), r.failures), (0, 0));
    r
}

/// A reliable connection and TCP need (N - 1) p^2 ends in a host, SRD and a reliable datagram p
/// queue pairs, whatever N is. A datagram's contexts are between hosts.
#[test]
fn queue_pairs_grow_with_peers_for_connections_only() {
    for (hosts, p) in [(2, 1), (4, 1), (8, 1), (4, 3), (6, 2)] {
        let (peers, pairs) = (u64::from(hosts - 1), u64::from((hosts - 1) * p * p));
        let counted = |settings: &str| {
            let HostState { queue_pairs, contexts, peers: known, bytes } =
                all_to_all(hosts, p, settings).state;
            assert_eq!(known, peers, "{settings}");
            assert!(bytes > 100 * contexts, "{bytes} bytes of {contexts} contexts: {settings}");
            (queue_pairs, contexts)
        };
        let p = u64::from(p);
        assert_eq!(counted("engine.qp_shared = true"), (p, pairs));
        assert_eq!(counted("transport = \"tcp\""), (pairs, pairs));
        assert_eq!(counted("transport = \"ue\""), (pairs, pairs));
        let rc = "transport = \"rc\"\nrc.dcqcn = false";
        assert_eq!(counted(rc), (pairs, pairs));
        assert_eq!(counted(&format!("{rc}\nrc.outstanding = 1")), (p, peers));
    }
}

/// Bytes are of what exists: those of a reliable connection are in proportion to its ends.
#[test]
fn bytes_of_connections_are_in_proportion_to_their_number() {
    let bytes = |hosts, p| all_to_all(hosts, p, "transport = \"rc\"\nrc.dcqcn = false").state.bytes;
    let one = bytes(2, 1);
    assert_eq!((bytes(4, 1), bytes(4, 2), bytes(8, 3)), (3 * one, 12 * one, 63 * one));
}

/// Without sharing, each flow has a queue pair of its own beside the one that receives.
#[test]
fn queue_pairs_of_a_host_are_counted() {
    let mut r = all_to_all(4, 1, "engine.qp_shared = false");
    assert_eq!((r.state.queue_pairs, r.state.contexts, r.state.peers), (4, 3, 3));
    r.spec.name = "scale".into();
    let text = figures(&[r.clone()], false);
    let row = text.lines().last().unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    let bytes = r.state.bytes.to_string();
    assert_eq!(cells[1..7], ["4", "3", "1", "4", "3", bytes.as_str()], "{text}");
}
