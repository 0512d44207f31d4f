//! Figures that documents state and that follow from the code.

use srd_core::EngineConfig;
use std::fs;
use std::path::Path;

/// 1234567 as "1,234,567".
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|g| str::from_utf8(g).unwrap()).collect();
    groups.join(",")
}

/// What one peer makes an engine hold at most, and all that may be.
#[test]
fn documents_state_the_memory_of_one_peer() {
    let cfg = EngineConfig::sockets("10.0.0.1".parse().unwrap(), 0, 8192);
    let of_peer = cfg.peer_bytes_max();
    let giga = |peers: u32| format!("{:.1} GB", of_peer as f64 * f64::from(peers) / 1e9);
    let all = [grouped(of_peer), giga(cfg.inbound_per_prefix_max), giga(cfg.contexts_max)];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for document in ["SECURITY.md", "docs/reliability.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        for figure in &all {
            assert!(text.contains(figure.as_str()), "{document} does not state {figure}");
        }
    }
}
