//! Recordings for Perfetto: read back and compared with the run's results.

use crate::common::{cases, spec};
use serde_json::Value;
use srd_lab::{RunResult, run};
use std::collections::BTreeMap;
use std::path::Path;

const NETWORK: &str = "shape = \"leaf-spine\"\nleaves = 2\nspines = 4\nhosts_per_leaf = 4";
const WORK: &str = "pattern = \"leaf-pairs\"\npairs = 2\nbytes = 2_000_000";
/// A spine that loses everything from 350 us on.
const HOLE: &str = "[[fault]]\nkind = \"hole\"\nat = \"spine1\"\nat_us = 350\n";

/// A run with its recording as JSON.
fn recorded(network: &str, work: &str, rest: &str) -> (RunResult, Value) {
    let mut case = cases(&spec(network, work, rest)).remove(0);
    let plain = run(&case, Path::new("."), 1).unwrap();
    assert!(plain.timeline.is_none());
    case.measure.timeline = true;
    let result = run(&case, Path::new("."), 1).unwrap_or_else(|e| panic!("{e}: {rest}"));
    // A recording changes nothing.
    assert_eq!((result.hash, &result.fct_ps), (plain.hash, &plain.fct_ps), "{rest}");
    let mut file = Vec::new();
    let left_out = result.timeline.as_ref().unwrap().write(&mut file).unwrap();
    assert_eq!(left_out, 0);
    (result, serde_json::from_slice(&file).unwrap())
}

fn events<'a>(json: &'a Value, phase: &'a str) -> impl Iterator<Item = &'a Value> {
    json["traceEvents"].as_array().unwrap().iter().filter(move |e| e["ph"] == phase)
}

/// Name of the track of each event.
fn tracks(json: &Value) -> BTreeMap<(u64, u64), String> {
    let names = events(json, "M").filter(|e| e["name"] == "thread_name");
    names
        .map(|e| {
            let key = (e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap());
            (key, e["args"]["name"].as_str().unwrap().to_owned())
        })
        .collect()
}

fn track_of<'a>(tracks: &'a BTreeMap<(u64, u64), String>, e: &Value) -> &'a str {
    &tracks[&(e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap())]
}

/// Begin and end in ns.
fn times(e: &Value) -> (u64, u64) {
    let ns = |v: &Value| (v.as_f64().unwrap() * 1e3).round() as u64;
    (ns(&e["ts"]), ns(&e["ts"]) + ns(&e["dur"]))
}

/// Slices of a row do not overlap, and nothing is after the end of the run.
fn well_formed(json: &Value, end_ns: u64) {
    let tracks = tracks(json);
    let mut rows: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for e in events(json, "X") {
        let (from, to) = times(e);
        assert!(!track_of(&tracks, e).is_empty());
        let row = (e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap());
        let before = rows.insert(row, to).unwrap_or(0);
        assert!(before <= from && from <= to && to <= end_ns + 1, "{before} {from} {to} {end_ns}");
    }
    for e in events(json, "i") {
        assert!(!track_of(&tracks, e).is_empty() && times_of(e) <= end_ns + 1, "{e}");
    }
}

fn times_of(e: &Value) -> u64 {
    (e["ts"].as_f64().unwrap() * 1e3).round() as u64
}

#[test]
fn messages_paths_and_losses_of_a_dead_spine_are_in_the_recording() {
    let (r, json) = recorded(NETWORK, WORK, HOLE);
    assert_eq!(r.unfinished(), 0);
    well_formed(&json, r.end_ps / 1000);
    let tracks = tracks(&json);
    let slices = |part: &'static str| {
        let tracks = &tracks;
        events(&json, "X").filter(move |e| track_of(tracks, e).starts_with(part))
    };
    // Flows: the completion times of the result.
    let mut took: Vec<u64> = slices("flows").map(|e| times(e).1 - times(e).0).collect();
    let mut fct: Vec<u64> = r.fct_ps.iter().flatten().map(|t| t.unwrap() / 1000).collect();
    took.sort_unstable();
    fct.sort_unstable();
    assert!(took.iter().zip(&fct).all(|(a, b)| a.abs_diff(*b) <= 1), "{took:?} {fct:?}");
    assert_eq!(took.len(), fct.len());
    // Messages: all bytes of the flows, each within its flow.
    let messages: Vec<_> = slices("queue pair").filter(|e| e["args"]["flow"] == 0).collect();
    let bytes: u64 = messages.iter().map(|e| e["args"]["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, 2_000_000);
    let flow = slices("flows").find(|e| e["name"].as_str().unwrap().starts_with("flow 0")).unwrap();
    let (begin, end) = times(flow);
    for e in messages {
        assert!(times(e).0 >= begin && times(e).1 <= end && e["args"]["status"] == "ok", "{e}");
    }
    // Paths: as many packets as were sent again, and as were lost.
    let named = |name: &'static str| {
        events(&json, "i").filter(move |e| e["name"].as_str().unwrap().starts_with(name))
    };
    assert_eq!(named("sent again").count() as u64, r.tally.retransmitted);
    assert_eq!(named("dropped by the network").count() as u64, r.drops.total());
    assert!(named("sent again on another path").count() > 0 && r.drops.total() > 0);
    for e in named("dropped by the network") {
        assert!(track_of(&tracks, e).contains(": path "), "{e}");
        assert!(e["args"]["where"].as_str().unwrap().contains("spine1"), "{e}");
    }
    let counters = r.srd_counters().unwrap();
    let state = |to: &'static str| named("state").filter(move |e| e["args"]["to"] == to).count();
    assert_eq!(state("retired") as u64 > 0, counters.paths_retired > 0);
    assert!(slices("to host").any(|e| e["name"] == "retired"));
    assert!(slices("to host").any(|e| e["name"] == "in flight"));
    // Counters: each has values, and a window is never below what one packet needs.
    for part in ["window (bytes)", "in flight (bytes)", "rate (Mb/s)", "smoothed RTT (us)"] {
        let of = |e: &&Value| e["name"].as_str().unwrap().ends_with(part);
        assert!(events(&json, "C").filter(of).count() > 10, "{part}");
    }
    let of = |e: &&Value| e["name"].as_str().unwrap().ends_with("RTT of each packet (us)");
    let rtts = events(&json, "C").filter(of).map(|e| e["args"]["value"].as_f64().unwrap());
    let least = rtts.fold(f64::INFINITY, f64::min);
    assert!(least > 1.0 && least < r.base_rtt_ps as f64 / 1e6 * 2.0, "{least}");
}

/// Hosts that are models of real ones are sampled in their turns.
#[test]
fn windows_and_rates_of_modelled_hosts_are_in_the_recording() {
    let (r, json) = recorded(NETWORK, WORK, "host = \"quiet\"");
    well_formed(&json, r.end_ps / 1000);
    for part in ["window (bytes)", "in flight (bytes)", "rate (Mb/s)", "smoothed RTT (us)"] {
        let of = |e: &&Value| e["name"].as_str().unwrap().ends_with(part);
        let n = events(&json, "C").filter(of).count();
        assert!(n > 1, "{part}: {n}");
    }
}

/// Of other transports flows and losses are known; a mixed world has all of its groups.
#[test]
fn every_transport_has_flows_and_losses() {
    let loss = "[[fault]]\nkind = \"core-loss\"\nat_us = 300\nprob = 0.01\n";
    for rest in ["transport = \"tcp\"", "transport = \"ue\"", "measure.trace = true"] {
        let (r, json) = recorded(NETWORK, WORK, &format!("{rest}\n{loss}"));
        well_formed(&json, r.end_ps / 1000);
        let flows = events(&json, "X").filter(|e| e["name"].as_str().unwrap().starts_with("flow "));
        assert_eq!(flows.count(), 2, "{rest}");
        let drops = events(&json, "i").filter(|e| e["name"] == "dropped by the network");
        assert_eq!((drops.count() as u64, r.drops.total() > 0), (r.drops.total(), true), "{rest}");
    }
    let also = "\n[[workload.also]]\nname = \"other\"\ntransport = \"tcp\"\n\
                pattern = \"leaf-pairs\"\npairs = 1\nbytes = 100_000";
    let (r, json) = recorded(NETWORK, &format!("{WORK}{also}"), "");
    well_formed(&json, r.end_ps / 1000);
    let flows = events(&json, "X").filter(|e| e["name"].as_str().unwrap().starts_with("flow "));
    assert_eq!(flows.count(), 3);
    assert!(events(&json, "X").any(|e| e["name"] == "in flight"));
}
