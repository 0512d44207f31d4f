//! `srd export`: metrics that Prometheus and node_exporter read, and a dashboard that names them.

use crate::common::{Running, Server, run, srd, until};
use openmetrics_parser::{
    MetricsExposition, PrometheusType, PrometheusValue, prometheus::parse_prometheus,
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

type Metrics = MetricsExposition<PrometheusType, PrometheusValue>;

/// Parses by the grammar of the format.
fn parse(text: &str) -> Metrics {
    parse_prometheus(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// One request, as Prometheus sends it; returns head and body.
fn http(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    let (head, body) = all.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Sum of the samples of a metric whose labels contain these.
fn sum(metrics: &Metrics, name: &str, labels: &[(&str, &str)]) -> f64 {
    let family = metrics.families.get(name).unwrap_or_else(|| panic!("no metric {name}"));
    let has = |sample: &openmetrics_parser::Sample<PrometheusValue>| {
        let all = sample.get_labelset().unwrap();
        labels.iter().all(|(label, value)| all.get_label_value(label) == Some(value))
    };
    let values = family.iter_samples().filter(|s| has(s)).map(|s| match &s.value {
        PrometheusValue::Counter(c) => c.value.as_f64(),
        PrometheusValue::Gauge(n) => n.as_f64(),
        other => panic!("{name}: {other:?}"),
    });
    values.sum()
}

#[test]
fn metrics_of_running_processes_are_served_and_totals_keep_those_that_ended() {
    let exporter = Running::start(srd(&["export", "--listen", "127.0.0.1:0", "--paths"]));
    until("it listens", || exporter.stdout().contains("/metrics"));
    let url = exporter.stdout();
    let address = url.trim().strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let scrape = || {
        let (head, body) = http(address, "GET /metrics");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("text/plain; version=0.0.4"), "{head}");
        parse(&body)
    };
    let server = Server::start(&[]);
    let args = ["perf", "bw", "{}", "--op", "write", "--size", "64K", "--iters", "1000000000"];
    let client = Running::start(server.client(&args));
    let pid = client.pid().to_string();
    let device = [("device", "lo"), ("port", "1")];
    let sent = "node_infiniband_port_packets_transmitted_total";
    until("packets are counted", || {
        let metrics = scrape();
        metrics.families.contains_key("srd_tx_pkts_total")
            && sum(&metrics, "srd_tx_pkts_total", &[("pid", &pid)]) > 1_000.0
            && sum(&metrics, sent, &device) > 1_000.0
            && sum(&metrics, "srd_path_packets_total", &[("peer", "127.0.0.1")]) > 1_000.0
    });
    let metrics = scrape();
    assert_eq!(sum(&metrics, "srd_contexts", &[("pid", &pid)]), 1.0);
    assert!(sum(&metrics, "srd_peer_rtt_seconds", &[("pid", &pid)]) < 1.0);
    assert_eq!(sum(&metrics, "srd_peer_paths", &[("pid", &pid)]), 64.0, "in all states");
    // Whoever ends takes its own lines along, and nothing from the totals.
    let before = sum(&metrics, sent, &device);
    drop(client);
    until("the client's lines vanish", || sum(&scrape(), "srd_contexts", &[("pid", &pid)]) == 0.0);
    server.end();
    assert!(sum(&scrape(), sent, &device) >= before);
    assert!(http(address, "GET /other").0.starts_with("HTTP/1.1 404 "));
    assert!(http(address, "POST /metrics").0.starts_with("HTTP/1.1 405 "));
    exporter.signal(rustix::process::Signal::TERM);
}

/// What anybody who reaches the port may send: announced bodies that never come (one longer than
/// the memory, one longer than numbers go), heads that never end, readers that say nothing.
#[test]
fn nobody_who_asks_keeps_others_from_their_answer() {
    let exporter = Running::start(srd(&["export", "--listen", "127.0.0.1:0"]));
    until("it listens", || exporter.stdout().contains("/metrics"));
    let url = exporter.stdout();
    let address = url.trim().strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let begin = |text: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // One that was ended already cannot be written to.
        let _ = stream.write_all(text.as_bytes());
        stream
    };
    let mut held = Vec::new();
    for bytes in ["2000", "100000000000000", "18446744073709551615", "-1", "x"] {
        for length in ["Content-Length", "Expect: 100-continue\r\nContent-Length"] {
            let head = format!("POST /metrics HTTP/1.1\r\nHost: x\r\n{length}: {bytes}\r\n\r\n");
            held.extend((0..10).map(|_| begin(&head)));
        }
    }
    held.extend((0..200).map(|i| begin(["", "GET /metrics HTTP/1.1\r\nHost: "][i % 2])));
    assert!(http(address, "GET /metrics").1.contains("\nsrd_export_devices_of_others "));
    let tasks = format!("/proc/{}/task", exporter.pid());
    let threads = || fs::read_dir(&tasks).unwrap().count();
    // Those that have made room for others may not have ended yet on a busy machine. Without a
    // bound each would serve until its time of 10 s is over.
    let patience = Instant::now() + Duration::from_secs(5);
    while threads() > 2 + 32 && Instant::now() < patience {
        thread::sleep(Duration::from_millis(10));
    }
    let threads = threads();
    assert!(threads <= 2 + 32, "{threads} threads for {} connections", held.len());
    drop(held);
    let mut long = begin(&format!("GET /{} HTTP/1.1\r\n", "x".repeat(20_000)));
    let mut answer = String::new();
    long.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert!(http(address, "GET /metrics x").0.starts_with("HTTP/1.1 400 "));
    let (head, body) = http(address, "HEAD /metrics");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head}");
    exporter.signal(rustix::process::Signal::TERM);
}

#[test]
fn the_file_for_node_exporter_is_replaced_whole_and_holds_the_same_metrics() {
    let folder = std::env::temp_dir().join(format!("srd-export-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let file = folder.join("srd.prom");
    let name = file.to_str().unwrap();
    let args = ["export", "--textfile", name, "--interval", "50ms"];
    let exporter = Running::start(srd(&args));
    until("the file is written", || file.exists());
    let first = parse(&fs::read_to_string(&file).unwrap());
    let once = parse(&run(&["export"]).ok().stdout);
    let names = |m: &Metrics| m.families.keys().cloned().collect::<BTreeSet<String>>();
    assert_eq!(names(&first), names(&once));
    fs::remove_file(&file).unwrap();
    until("it is written again", || file.exists());
    exporter.signal(rustix::process::Signal::TERM);
    until("no half file is left", || fs::read_dir(&folder).unwrap().count() == 1);
    fs::remove_dir_all(&folder).unwrap();
    run(&["export", "--textfile", "metrics.txt"]).fails(2, "must end with .prom");
    run(&["export", "--interval", "1s"]).fails(2, "--textfile");
    run(&["export", "--textfile", "/none/srd.prom"]).fails(1, "cannot write /none/srd.prom");
    run(&["export", "--listen", "192.0.2.1:9"]).fails(1, "choose another address or port");
}

#[test]
fn the_dashboard_shows_metrics_that_exist() {
    let dashboard: Value =
        serde_json::from_str(&run(&["export", "--dashboard"]).ok().stdout).unwrap();
    let exported: BTreeSet<String> =
        parse(&run(&["export", "--paths"]).ok().stdout).families.keys().cloned().collect();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut texts: Vec<&str> = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten()
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(texts.len() > 20);
    texts.extend(
        dashboard["templating"]["list"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|v| v["definition"].as_str()),
    );
    let mut used = BTreeSet::new();
    for text in texts {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let ours = |w: &&str| w.starts_with("srd_") || w.starts_with("node_");
        used.extend(words.filter(ours).map(str::to_owned));
    }
    assert!(used.len() > 20 && used.is_subset(&exported), "{:?}", used.difference(&exported));
}
