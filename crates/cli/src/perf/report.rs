//! The results: a table printed row by row, or JSON at the end.

use super::{
    Op, PerfArgs, Test,
    session::{Run, Session, Snapshot},
};
use crate::failure::{Failure, Result};
use clap::ValueEnum as _;
use serde::Serialize;

/// Results for one size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Bytes per operation.
    pub bytes: u32,
    /// Number of measured operations.
    pub iterations: u64,
    /// Elapsed time in seconds.
    pub seconds: f64,
    /// Payload in 10^9 bytes per second.
    pub gbytes_per_sec: f64,
    /// Payload in 10^9 bits per second.
    pub gbits_per_sec: f64,
    /// Operations per second.
    pub operations_per_sec: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile of the latency in microseconds.
    pub p999_us: f64,
    /// Largest latency in microseconds.
    pub max_us: f64,
    /// CPU time of the client's process in seconds.
    pub cpu_client_sec: f64,
    /// CPU time of the server's process in seconds.
    pub cpu_server_sec: f64,
    /// Payload in 10^9 bits per second of CPU time of both ends together.
    pub gbits_per_cpu_sec: f64,
    /// Number of paths on which the client sent packets.
    pub paths_used: usize,
    /// Packets retransmitted by either end.
    pub retransmitted: u64,
}

/// All results, with the parameters of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// "lat", "bw" or "rate".
    pub test: String,
    /// "send", "write" or "read".
    pub operation: String,
    /// Address of the server.
    pub server: String,
    /// Address of this host.
    pub client: String,
    /// What the latency columns measure.
    pub latency_is: &'static str,
    /// Paths per host.
    pub paths: u16,
    /// Path policy.
    pub path_policy: String,
    /// Rate policy.
    pub rate_policy: String,
    /// Largest message (MTU) in bytes.
    pub mtu: u32,
    /// Number of queue pairs.
    pub qps: u8,
    /// Operations in flight per queue pair.
    pub window: u32,
    /// "spin" or "block".
    pub poll: &'static str,
    /// One row per size.
    pub rows: Vec<Row>,
}

impl Row {
    /// The results of a run, given counter snapshots taken before and after it.
    pub fn new(bytes: u32, run: &Run, before: &Snapshot, after: &Snapshot) -> Self {
        let seconds = run.elapsed.as_secs_f64().max(1e-9);
        let payload = f64::from(bytes) * run.iterations as f64;
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |q| us(run.latency.value_at_quantile(q));
        let cpu = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        let cpu_client_sec = cpu(before.client_cpu_ns, after.client_cpu_ns);
        let cpu_server_sec = cpu(before.server_cpu_ns, after.server_cpu_ns);
        let sent_before = |i: usize| before.path_packets.get(i).copied().unwrap_or(0);
        let used = after.path_packets.iter().enumerate().filter(|(i, n)| **n > sent_before(*i));
        Self {
            bytes,
            iterations: run.iterations,
            seconds,
            gbytes_per_sec: payload / 1e9 / seconds,
            gbits_per_sec: payload * 8.0 / 1e9 / seconds,
            operations_per_sec: run.iterations as f64 / seconds,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(run.latency.max()),
            cpu_client_sec,
            cpu_server_sec,
            gbits_per_cpu_sec: payload * 8.0 / 1e9 / (cpu_client_sec + cpu_server_sec).max(1e-9),
            paths_used: used.count(),
            retransmitted: after.retransmitted.saturating_sub(before.retransmitted),
        }
    }

    /// The row as a line of the table.
    pub fn line(&self) -> String {
        format!(
            "{:>9} {:>10} {:>8.3} {:>8.2} {:>10.0} {:>8.2} {:>8.2} {:>8.2} {:>9.1} {:>7.2} {:>7.2} \
             {:>8.2} {:>5} {:>7}",
            self.bytes,
            self.iterations,
            self.gbytes_per_sec,
            self.gbits_per_sec,
            self.operations_per_sec,
            self.p50_us,
            self.p99_us,
            self.p999_us,
            self.max_us,
            self.cpu_client_sec,
            self.cpu_server_sec,
            self.gbits_per_cpu_sec,
            self.paths_used,
            self.retransmitted,
        )
    }
}

/// Column headings of the table, as wide as in [`Row::line`].
const COLUMNS: &str = "    bytes iterations     GB/s     Gb/s      msg/s   p50 us   p99 us \
                       p99.9 us    max us cpu-c s cpu-s s  Gb/cpus paths retrans";

impl Report {
    /// A report without rows.
    pub fn new(args: &PerfArgs, session: &Session) -> Self {
        let name = |v: Option<clap::builder::PossibleValue>| {
            v.map_or_else(String::new, |v| v.get_name().to_owned())
        };
        let latency_is = match (args.test, session.plan.echo) {
            (Test::Lat, true) => "half of the round-trip time (RTT/2)",
            (Test::Lat, false) => "the whole round-trip time, from post to completion",
            _ if args.op == Op::Read => "from post to completion: the data has arrived",
            _ => "from post to completion: accepted by the server's device",
        };
        let policy = args.device.path_policy.unwrap_or(crate::device::PathPolicy::Srd);
        Self {
            test: name(args.test.to_possible_value()),
            operation: name(args.op.to_possible_value()),
            server: session.server().to_string(),
            client: session.device().ip().to_string(),
            latency_is,
            paths: session.device().port().paths,
            path_policy: name(policy.to_possible_value()),
            rate_policy: name(args.device.rate_policy.to_possible_value()),
            mtu: session.mtu(),
            qps: session.plan.qps,
            window: session.plan.window,
            poll: if session.plan.spin { "spin" } else { "block" },
            rows: Vec::new(),
        }
    }

    /// Lines above the table.
    pub fn head(&self) -> Vec<String> {
        vec![
            format!(
                "{} of {} to {}: {} paths ({}), rate {}, MTU {}, {} QPs, window {}, {}",
                self.test,
                self.operation,
                self.server,
                self.paths,
                self.path_policy,
                self.rate_policy,
                self.mtu,
                self.qps,
                self.window,
                self.poll
            ),
            format!("latency: {}", self.latency_is),
            COLUMNS.to_owned(),
        ]
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// A number has no JSON representation.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|e| Failure::new(format!("cannot write the results as JSON: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_row_is_computed_from_differences_and_fits_the_headings() {
        let mut run = Run::new();
        run.iterations = 1000;
        run.elapsed = Duration::from_millis(500);
        (1..=1000).for_each(|us| run.latency.record(us * 1000).unwrap());
        let snapshot = |cpu, packets: &[u64]| Snapshot {
            client_cpu_ns: cpu,
            server_cpu_ns: 2 * cpu,
            retransmitted: cpu / 100_000_000,
            path_packets: packets.to_vec(),
        };
        let before = snapshot(100_000_000, &[5, 5]);
        let after = snapshot(400_000_000, &[5, 6, 7]);
        let row = Row::new(1_000_000, &run, &before, &after);
        assert!((row.gbytes_per_sec - 2.0).abs() < 1e-9);
        assert!((row.cpu_client_sec - 0.3).abs() < 1e-9);
        assert!((row.gbits_per_cpu_sec - 8.0 / 0.9).abs() < 1e-9);
        assert!((row.p50_us - 500.0).abs() < 1.0 && (row.max_us - 1000.0).abs() < 1.0);
        assert_eq!((row.paths_used, row.retransmitted), (2, 3));
        assert_eq!(row.line().len(), COLUMNS.len());
    }
}
