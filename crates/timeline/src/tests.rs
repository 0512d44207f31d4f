//! The written file is read as JSON and checked by the rules of the format.

use super::*;
use serde_json::Value as Json;
use std::collections::BTreeMap;

fn read(timeline: &Timeline) -> (Json, u64) {
    let mut file = Vec::new();
    let left_out = timeline.write(&mut file).unwrap();
    (serde_json::from_slice(&file).unwrap(), left_out)
}

fn events<'a>(json: &'a Json, phase: &str) -> Vec<&'a Json> {
    json["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == phase).collect()
}

#[test]
fn overlapping_slices_get_rows_of_their_own() {
    let mut t = Timeline::new("x");
    let host = t.group("host");
    let track = t.track(host, "queue pair 1", 3);
    for (from, to) in [(10, 50), (20, 40), (30, 60), (40, 45), (50, 70), (50, 50), (50, 50)] {
        t.slice(track, "m", from, to, vec![("from", from.into()), ("to", to.into())]);
    }
    let (json, left_out) = read(&t);
    assert_eq!(left_out, 0);
    let mut rows: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for e in events(&json, "X") {
        let (ts, dur) = (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap());
        assert_eq!((ts * 1e3).round() as u64, e["args"]["from"].as_u64().unwrap());
        assert_eq!(((ts + dur) * 1e3).round() as u64, e["args"]["to"].as_u64().unwrap());
        rows.entry(e["tid"].as_u64().unwrap()).or_default().push((ts, ts + dur));
    }
    for row in rows.values() {
        assert!(row.windows(2).all(|w| w[0].1 <= w[1].0), "{row:?}");
    }
    let names: Vec<_> = events(&json, "M")
        .iter()
        .filter(|e| e["name"] == "thread_name")
        .map(|e| e["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), rows.len());
    assert_eq!(names[..2], ["queue pair 1", "queue pair 1 (2)"]);
}

#[test]
fn texts_and_times_survive() {
    let mut t = Timeline::new("a \"title\"\n");
    let group = t.group("h\u{1}\"ost");
    let track = t.track(group, "ä\\", 0);
    t.instant(track, "sent \"again\"", 1_234_567_891, vec![("why", "a\tb".into())]);
    t.counter(group, "rate", 5, f64::INFINITY);
    t.counter(group, "rate", 1_000_000_000_000_000_001, 0.25);
    let (json, _) = read(&t);
    assert_eq!(json["otherData"]["title"], "a \"title\"\n");
    let instant = events(&json, "i")[0];
    assert_eq!(
        (&instant["name"], &instant["args"]["why"]),
        (&"sent \"again\"".into(), &"a\tb".into())
    );
    assert_eq!(instant["ts"].as_f64(), Some(1_234_567.891));
    let values: Vec<_> = events(&json, "C").iter().map(|e| e["args"]["value"].as_f64()).collect();
    assert_eq!(values, [Some(0.0), Some(0.25)]);
    let mut file = Vec::new();
    t.write(&mut file).unwrap();
    assert!(String::from_utf8(file).unwrap().contains("\"ts\":1000000000000000.001,"));
}

#[test]
fn what_does_not_fit_is_counted() {
    let mut t = Timeline::new("");
    let group = t.group("g");
    let track = t.track(group, "t", 0);
    for _ in 0..ROWS_MAX + 7 {
        t.slice(track, "m", 0, 10, Vec::new());
    }
    let (json, left_out) = read(&t);
    assert_eq!((left_out, events(&json, "X").len()), (7, ROWS_MAX));
    assert_eq!(json["otherData"]["events_left_out"], 7);
    for _ in 0..EVENTS_MAX {
        t.counter(group, "c", 0, 0.0);
    }
    assert_eq!(t.left_out(), ROWS_MAX as u64 + 7);
    let mut many = Timeline::new("");
    for _ in 0..=TRACKS_MAX {
        many.group("g");
    }
    let last = many.group("g");
    let track = many.track(last, "t", 0);
    many.instant(track, "i", 0, Vec::new());
    many.counter(last, "c", 0, 1.0);
    assert_eq!((many.left_out(), many.is_empty()), (2, true));
}
