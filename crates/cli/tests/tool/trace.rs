//! `srd trace`: traces for Perfetto, read back.

use crate::common::{Running, Scratch, Server, run, srd, until};
use serde_json::Value;
use std::collections::BTreeMap;

struct Trace {
    json: Value,
    tracks: BTreeMap<(u64, u64), String>,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

impl Trace {
    /// Reads a trace: no two slices of a row overlap, and each track has a name.
    fn read(file: &str) -> Self {
        let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let all = json["traceEvents"].as_array().unwrap();
        let key = |e: &Value| (number(&e["pid"]), number(&e["tid"]));
        let names = all.iter().filter(|e| e["name"] == "thread_name");
        let tracks = names.map(|e| (key(e), e["args"]["name"].as_str().unwrap().into())).collect();
        let trace = Self { json: json.clone(), tracks };
        let mut rows: BTreeMap<(u64, u64), f64> = BTreeMap::new();
        for e in trace.events("X") {
            let (ts, dur) = (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap());
            let end = rows.insert(key(e), ts + dur).unwrap_or(0.0);
            assert!(end <= ts + 0.0005 && dur >= 0.0, "{e} begins before {end}");
            assert!(trace.tracks.contains_key(&key(e)), "{e}");
        }
        trace
    }

    fn events(&self, phase: &'static str) -> impl Iterator<Item = &Value> {
        self.json["traceEvents"].as_array().unwrap().iter().filter(move |e| e["ph"] == phase)
    }

    /// Slices and instants of tracks whose names contain this text.
    fn on<'a>(&'a self, phase: &'static str, part: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events(phase)
            .filter(move |e| self.tracks[&(number(&e["pid"]), number(&e["tid"]))].contains(part))
    }

    /// Values of counters whose names end with this text.
    fn counter<'a>(&'a self, part: &'a str) -> impl Iterator<Item = f64> + 'a {
        let of = move |e: &&Value| e["name"].as_str().unwrap().ends_with(part);
        self.events("C").filter(of).map(|e| e["args"]["value"].as_f64().unwrap())
    }
}

/// Writes while most acknowledgments are lost: each message is a slice with all of its bytes, and
/// what is sent again is told.
#[test]
fn a_capture_becomes_a_trace() {
    let (server, scratch) =
        (Server::start(&["--fault-loss", "60%", "--fault-seed", "7"]), Scratch::new("trace"));
    let capture = scratch.path("c.pcapng");
    let perf =
        ["perf", "bw", "{}", "--op", "write", "--size", "40K", "--iters", "30", "--mtu", "4096"];
    server.run(&[&perf[..], &["--capture", &capture]].concat()).ok();
    let file = scratch.path("t.json");
    run(&["trace", &file, "--capture", &capture]).ok();
    let trace = Trace::read(&file);
    let messages: Vec<_> = trace
        .on("X", "queue pair")
        .filter(|e| e["name"].as_str().unwrap().starts_with("write"))
        .collect();
    let bytes: u64 = messages.iter().map(|e| number(&e["args"]["bytes"])).sum();
    assert!(bytes >= 30 * 40 * 1024, "{bytes} in {} messages", messages.len());
    let again: u64 = trace.on("X", "queue pair").map(|e| number(&e["args"]["sent again"])).sum();
    let told = trace.events("i").filter(|e| e["name"].as_str().unwrap().starts_with("sent again"));
    assert_eq!((told.count() as u64, again > 0), (again, true));
    assert!(trace.on("X", "path ").all(|e| e["name"] == "in flight"));
    let packets: u64 = trace.on("X", "path ").map(|e| number(&e["args"]["packets"])).sum();
    let of_messages: u64 = trace
        .events("X")
        .filter(|e| e["args"]["message"].is_u64())
        .map(|e| number(&e["args"]["packets"]))
        .sum();
    assert_eq!(packets, of_messages);
    let rtts: Vec<_> = trace.counter("RTT of each packet (us)").collect();
    assert!(rtts.len() > 5 && rtts.iter().all(|us| *us < 10e6), "{rtts:?}");
    assert!(trace.counter("in flight (bytes)").any(|bytes| bytes > 0.0));
    // A capture that was cut anywhere is read as far as it goes, and what is none is refused.
    let whole = std::fs::read(&capture).unwrap();
    for len in [whole.len() / 2, whole.len() - 1] {
        std::fs::write(&capture, &whole[..len]).unwrap();
        run(&["trace", &file, "--capture", &capture]).ok();
        Trace::read(&file);
    }
    std::fs::write(&capture, b"something else").unwrap();
    run(&["trace", &file, "--capture", &capture]).fails(2, "not a capture");
    run(&["trace", &file, "--capture", &scratch.path("none")]).fails(2, "cannot read");
    server.end();
}

#[test]
fn running_processes_become_a_trace() {
    let (server, scratch) = (Server::start(&[]), Scratch::new("trace-live"));
    let file = scratch.path("t.json");
    let args = ["perf", "bw", "{}", "--op", "write", "--size", "64K", "--iters", "1000000000"];
    let client = Running::start(server.client(&args));
    let pid = client.pid().to_string();
    until("the sender has a peer", || {
        let text = run(&["stat", "--json", &pid]);
        text.code == Some(0) && text.stdout.contains("\"peers\":[{")
    });
    let mut tracing = Running::start(srd(&["trace", &file, &pid, "--for", "2s"]));
    tracing.wait().ok();
    let trace = Trace::read(&file);
    let groups = trace.events("M").filter(|e| e["name"] == "process_name");
    let groups: Vec<_> = groups.map(|e| e["args"]["name"].as_str().unwrap()).collect();
    assert!(groups.len() == 1 && groups[0].starts_with(&format!("{pid} srd")), "{groups:?}");
    assert!(trace.on("X", "limited by").count() > 0);
    let states = ["live", "penalised", "retired", "probing"];
    let state = |e: &Value| states.contains(&e["name"].as_str().unwrap());
    assert!(trace.on("X", ": path 63").any(state));
    assert!(trace.counter("window (bytes)").any(|bytes| bytes > 0.0));
    assert!(trace.counter("messages sent per second").any(|n| n > 0.0));
    drop(client);
    run(&["trace", &file, &pid, "--for", "100ms"]).fails(1, "has no open SRD device");
    run(&["trace", &file, "--for", "1s", "--capture", "x"]).fails(2, "cannot be used with");
    run(&["trace", "/nowhere/t.json", "--for", "1s"]).fails(1, "cannot write the trace");
    server.end();
}
