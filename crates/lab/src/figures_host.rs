//! Tables of hosts that are slower than their link.

use crate::figures::{head, name_of};
use crate::host::KernelCounts;
use crate::result::RunResult;
use crate::rings::RingOutcome;

/// Counters of kernel models, one line per case that has them.
pub fn kernel_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "host",
        "pkt/receive",
        "pkt/send",
        "received",
        "socket drops",
        "stolen us",
        "wait max us",
        "busy max %",
    ]);
    for case in cases {
        let counts = case.iter().filter_map(RunResult::kernels);
        let Some(k) = counts.reduce(KernelCounts::plus) else { continue };
        rows.push(vec![
            name_of(case),
            case[0].spec.host_model.clone().unwrap_or_default(),
            format!("{:.2}", k.received as f64 / k.receives.max(1) as f64),
            format!("{:.2}", k.sent as f64 / k.sends.max(1) as f64),
            k.received.to_string(),
            k.socket_drops.to_string(),
            format!("{:.0}", k.stolen_ps as f64 / 1e6),
            format!("{:.1}", k.waited_ps_max as f64 / 1e6),
            format!("{:.1}", k.busy_permille_max as f64 / 10.0),
        ]);
    }
    rows
}

/// Drops at switches and at hosts, one line per case with rings.
pub fn endpoint_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "hosts",
        "drain Gb/s",
        "ring KB",
        "drops at switches",
        "at endpoints",
        "of arrived %",
        "ring max KB",
        "p99 KB",
        "host idle %",
    ]);
    for case in cases.iter().filter(|c| !c[0].rings.is_empty()) {
        let Some(host) = &case[0].spec.host else { continue };
        let rings = || case.iter().flat_map(|r| &r.rings);
        let sum = |f: fn(&RingOutcome) -> u64| rings().map(f).sum::<u64>();
        let most = |f: fn(&RingOutcome) -> u64| rings().map(f).max().unwrap_or(0) as f64 / 1e3;
        let ends: u64 = case.iter().map(|r| r.drops.at_hosts()).sum();
        let all: u64 = case.iter().map(|r| r.drops.total()).sum();
        let (arrived, lost) = (sum(|r| r.stats.arrived), sum(|r| r.stats.dropped));
        let (idle, wrote) = (sum(|r| r.stats.idle_bytes), sum(|r| r.stats.written_bytes));
        rows.push(vec![
            name_of(case),
            case[0].rings.len().to_string(),
            host.drain_gbps.map_or("-".into(), |g| format!("{g:.1}")),
            format!("{:.1}", host.ring_bytes as f64 / 1e3),
            (all - ends).to_string(),
            ends.to_string(),
            format!("{:.3}", 100.0 * lost as f64 / arrived.max(1) as f64),
            format!("{:.1}", most(|r| r.stats.depth_bytes_max)),
            format!("{:.1}", most(|r| r.stats.depth_bytes_p99)),
            format!("{:.2}", 100.0 * idle as f64 / (idle + wrote).max(1) as f64),
        ]);
    }
    rows
}
