//! Tables of what the network saw of packets, and of the state of hosts.

use crate::figures::{head, name_of};
use crate::result::RunResult;
use crate::stats::Quantiles;
use crate::trace::TraceOutcome;

/// Order, repair and paths, one line per case with a trace; all seeds together.
pub fn trace_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "packets",
        "early %",
        "wait mean us",
        "max us",
        "paths",
        "of",
        "lost",
        "repair med us",
        "p99 us",
        "max us",
        "marked %",
        "under way med us",
        "p99 us",
        "max us",
        "queue KB",
        "max/floor",
    ]);
    for case in cases {
        let traces: Vec<&TraceOutcome> = case.iter().filter_map(|r| r.trace.as_ref()).collect();
        let Some(first) = traces.first() else { continue };
        let sum = |of: fn(&TraceOutcome) -> u64| traces.iter().map(|t| of(t)).sum::<u64>();
        let all = |of: fn(&TraceOutcome) -> &Vec<f64>| {
            let values: Vec<f64> = traces.iter().flat_map(|t| of(t).iter().copied()).collect();
            (values.len(), Quantiles::of(values))
        };
        let packets = sum(|t| t.packets);
        let percent = |n: u64| format!("{:.2}", 100.0 * n as f64 / packets.max(1) as f64);
        let (waited, waits) = all(|t| &t.waits_us);
        let (repaired, repairs) = all(|t| &t.repairs_us);
        let (_, travels) = all(|t| &t.travels_us);
        let dash = |known: bool, value: f64| match known {
            true => format!("{value:.1}"),
            false => "-".into(),
        };
        let number = |n: Option<u32>| n.map_or_else(|| "-".into(), |n| n.to_string());
        let wait = |value: f64| match first.any_order {
            true => "any".into(),
            false => dash(waited > 0, value),
        };
        let mut row = vec![name_of(case), packets.to_string(), percent(sum(|t| t.early))];
        row.extend([wait(waits.mean), wait(waits.max)]);
        row.extend([number(first.paths), number(first.paths_all), sum(|t| t.lost).to_string()]);
        row.extend([repairs.median, repairs.p99, repairs.max].map(|v| dash(repaired > 0, v)));
        row.push(percent(sum(|t| t.marked)));
        row.extend([travels.median, travels.p99, travels.max].map(|v| format!("{v:.1}")));
        let queue = case.iter().map(|r| r.last_hop_bytes_max).max().unwrap_or(0);
        row.push(format!("{:.0}", queue as f64 / 1e3));
        let slowest = case.iter().map(|r| r.summary.over_floor.max).fold(0.0, f64::max);
        row.push(format!("{slowest:.3}"));
        rows.push(row);
    }
    rows
}

/// State of the host that has most of each kind.
pub fn state_rows(cases: &[&[RunResult]], cost: bool) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "hosts",
        "peers",
        "processes",
        "queue pairs or connections",
        "contexts",
        "bytes",
        "bytes per peer and process",
    ]);
    if cost {
        rows[0].push("memory grown per host KB".into());
    }
    for case in cases {
        let r = &case[0];
        let (state, processes) = (r.state, r.spec.workload.processes_per_host);
        let pairs = state.peers * u64::from(processes);
        let mut row = vec![
            name_of(case),
            r.hosts.to_string(),
            state.peers.to_string(),
            processes.to_string(),
            state.queue_pairs.to_string(),
            state.contexts.to_string(),
            state.bytes.to_string(),
            format!("{:.0}", state.bytes as f64 / pairs.max(1) as f64),
        ];
        if cost {
            let grown = r.memory_grown_bytes as f64 / f64::from(r.hosts.max(1));
            row.push(format!("{:.1}", grown / 1e3));
        }
        rows.push(row);
    }
    rows
}
