//! Limits of single flows at their senders' cards: what they let through, against the arithmetic.

use crate::figures::{head, name_of};
use crate::result::RunResult;
use srd_fabric::{FlowLimitStats, Host, HostId, World};

/// Counters of a world's cards; `None` without a limit.
pub fn outcome<P: Clone, H: Host<P>>(world: &World<P, H>) -> Option<FlowLimitStats> {
    let hosts = (0..world.topology().hosts()).map(HostId);
    let cards = hosts.filter_map(|h| world.flow_limit_stats(h));
    cards.reduce(|a, b| FlowLimitStats {
        flows: a.flows.max(b.flows),
        waited: a.waited + b.waited,
        dropped: a.dropped + b.dropped,
        wait_ps_max: a.wait_ps_max.max(b.wait_ps_max),
    })
}

/// Bits on the wire per second of a run's only flow, with the headers of its packets.
fn wire_gbps(r: &RunResult) -> Option<f64> {
    let [fct] = r.fct_ps.first()?.as_slice() else { return None };
    // The floor is the time of all bytes on the wire at line rate, and a base RTT.
    let wire_ps = r.floor_ps[0].saturating_sub(r.base_rtt_ps);
    Some(r.spec.network.link_gbps * wire_ps as f64 / (*fct)? as f64)
}

/// Rate of a single flow against its limit, for each case of an experiment with limits.
pub fn limit_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "limit Gb/s",
        "flows",
        "on the wire Gb/s",
        "expected",
        "of it %",
        "waited",
        "dropped",
        "longest wait us",
    ]);
    if cases.iter().all(|c| c[0].limits.is_none()) {
        return rows;
    }
    for case in cases {
        let network = &case[0].spec.network;
        let line = network.link_gbps;
        let rates: Vec<f64> = case.iter().filter_map(wire_gbps).collect();
        let rate = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let limits = case.iter().filter_map(|r| r.limits);
        let flows = limits.clone().map(|l| l.flows).min();
        let expected = match (network.flow_gbps, flows) {
            (Some(gbps), Some(flows)) => line.min(gbps * flows as f64),
            _ => line,
        };
        let dash = || "-".to_string();
        let counted = |of: fn(FlowLimitStats) -> u64| {
            flows.map_or_else(dash, |_| limits.clone().map(of).sum::<u64>().to_string())
        };
        let of_one = |value: String| if rates.is_empty() { dash() } else { value };
        let wait = limits.clone().map(|l| l.wait_ps_max).max();
        rows.push(vec![
            name_of(case),
            network.flow_gbps.map_or_else(dash, |g| format!("{g}")),
            flows.map_or_else(dash, |n| n.to_string()),
            of_one(format!("{rate:.2}")),
            of_one(format!("{expected:.1}")),
            of_one(format!("{:.1}", 100.0 * rate / expected)),
            counted(|l| l.waited),
            counted(|l| l.dropped),
            wait.map_or_else(dash, |ps| format!("{:.1}", ps as f64 / 1e6)),
        ]);
    }
    rows
}
