//! Figures that documents state and that follow from the code.

use srd_core::path::PathState;
use srd_core::{ContextState, EngineConfig, QpState};
use std::collections::BTreeSet;
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

/// A move of a state machine: its event, and the states before and after.
type Move = (String, String, String);

/// The moves of a machine, from its drawing: `  From -> To [label="event"];`.
fn moves_drawn(dot: &str) -> BTreeSet<Move> {
    let edge = |line: &str| {
        let (from, rest) = line.trim().split_once(" -> ")?;
        let (to, label) = rest.split_once(" [label=\"")?;
        Some((label.split('"').next()?.into(), from.to_lowercase(), to.to_lowercase()))
    };
    dot.lines().filter_map(edge).collect()
}

/// The moves in a row of a table: `| `event` | from, from | to | ...`, where `from` may be "all" or
/// "all but" one. `states`: all of the machine.
fn moves_told(row: &str, states: &[String]) -> Vec<Move> {
    let mut cells = row.split('|').map(str::trim).skip(1);
    let mut cell = || cells.next().unwrap_or_default().to_lowercase();
    let (event, from, to) = (cell(), cell(), cell());
    let from: Vec<String> = match from.strip_prefix("all") {
        Some("") => states.to_vec(),
        Some(but) => states.iter().filter(|s| but.trim() != format!("but {s}")).cloned().collect(),
        None => from.split(", ").map(String::from).collect(),
    };
    from.into_iter().map(|f| (event.replace('`', ""), f, to.clone())).collect()
}

/// The tables of states name every move of the machines, and no other.
#[test]
fn tables_of_states_are_those_of_the_machines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let machines = [
        (
            "**Context**",
            ContextState::dot(),
            ContextState::ALL.iter().map(|s| s.name().to_lowercase()).collect::<Vec<_>>(),
        ),
        (
            "**Path**",
            PathState::dot(),
            PathState::ALL.iter().map(|s| s.name().to_lowercase()).collect::<Vec<_>>(),
        ),
        (
            "**Queue pair**",
            QpState::dot(),
            QpState::ALL.iter().map(|s| s.name().to_lowercase()).collect::<Vec<_>>(),
        ),
    ];
    for (title, dot, states) in machines {
        let (_, section) = text.split_once(title).expect("a section for each machine");
        let rows = section.lines().skip_while(|l| !l.starts_with("| `"));
        let rows = rows.take_while(|l| l.starts_with("| `"));
        let told: BTreeSet<Move> = rows.flat_map(|row| moves_told(row, &states)).collect();
        let drawn = moves_drawn(&dot);
        assert!(!drawn.is_empty(), "{title}: the drawing has moves");
        assert_eq!(told, drawn, "{title} in ARCHITECTURE.md beside the machine");
    }
}
