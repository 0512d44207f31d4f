//! State of a host for its peers.

use crate::common::{run_text, spec};
use srd_lab::{SrdObjects, figures};

fn ring(engine: &str, peers: u32) -> String {
    let work = format!("pattern = \"ring\"\npeers = {peers}\nbytes = 4096\nwarm_bytes = 0");
    let network = "shape = \"leaf-spine\"\nleaves = 4\nspines = 2\nhosts_per_leaf = 2";
    spec(network, &work, engine)
}

/// One queue pair for sending and one for receiving serve any number of peers.
#[test]
fn queue_pairs_do_not_grow_with_peers() {
    for peers in [1, 3, 7] {
        let r = run_text(&ring("engine.qp_shared = true", peers), 1);
        assert_eq!((r.unfinished(), r.failures), (0, 0));
        let want = SrdObjects { queue_pairs: 2, peers: u64::from(peers) };
        assert_eq!(r.srd_objects(), want);
    }
}

/// The number of queue pairs is counted from the host's objects: one per flow is visible.
#[test]
fn queue_pairs_of_a_host_are_counted() {
    let mut r = run_text(&ring("engine.qp_shared = false", 3), 1);
    assert_eq!(r.srd_objects(), SrdObjects { queue_pairs: 4, peers: 3 });
    r.spec.name = "scale".into();
    let text = figures(&[r], false);
    let row = text.lines().last().unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[1..], ["8", "3", "3", "4", "6", "6"], "{text}");
}
