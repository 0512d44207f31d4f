//! Tables of COPA's policies: losses at endpoints, goodput of hosts, sharing among senders.

use crate::figures::{head, jain, name_of};
use crate::result::RunResult;
use crate::rings::RingOutcome;
use crate::spec::FaultSpec;
use srd_fabric::Ps;

fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

/// Sum of a counter over all hosts and runs of a case.
fn counted(case: &[RunResult], f: fn(&srd_copa::Counters) -> u64) -> u64 {
    case.iter().filter_map(RunResult::copa).map(|o| f(&o.counters)).sum()
}

fn rings(case: &[RunResult], f: fn(&RingOutcome) -> u64) -> u64 {
    case.iter().flat_map(|r| &r.rings).map(f).sum()
}

/// Data packets dropped by full rings, in percent of those sent.
pub fn lost_percent(case: &[RunResult]) -> f64 {
    100.0 * ratio(counted(case, |c| c.full), counted(case, |c| c.data_sent))
}

/// Bytes that hosts could have written between their first packet and their last byte.
fn could(case: &[RunResult]) -> u64 {
    rings(case, |r| r.stats.written_bytes + r.stats.idle_bytes)
}

/// Bytes dropped at endpoints, in percent of those that hosts could have written.
pub fn dropped_over_host(case: &[RunResult]) -> f64 {
    100.0 * ratio(rings(case, |r| r.stats.dropped_bytes), could(case))
}

/// Bytes written, each packet counted once, as a share of those that hosts could have written.
pub fn goodput_over_host(case: &[RunResult]) -> f64 {
    ratio(rings(case, |r| r.stats.written_bytes), could(case))
}

/// One line per case.
pub fn transport_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "sent",
        "lost at endpoints %",
        "at switches %",
        "early %",
        "sent again %",
        "duplicates %",
        "NACKs",
        "timeouts",
        "dropped/host %",
        "goodput/host",
    ]);
    for case in cases.iter().filter(|c| c[0].copa().is_some()) {
        let sent = counted(case, |c| c.data_sent);
        let percent = |n: u64| format!("{:.3}", 100.0 * ratio(n, sent));
        let switches: u64 = case.iter().map(|r| r.drops.total() - r.drops.at_hosts()).sum();
        let with_rings = !case[0].rings.is_empty();
        let dash = |text: String| if with_rings { text } else { "-".into() };
        rows.push(vec![
            name_of(case),
            sent.to_string(),
            format!("{:.3}", lost_percent(case)),
            percent(switches),
            percent(counted(case, |c| c.early)),
            percent(counted(case, |c| c.resent)),
            percent(counted(case, |c| c.duplicates_sent)),
            counted(case, |c| c.nacks_sent).to_string(),
            counted(case, |c| c.timeouts).to_string(),
            dash(format!("{:.3}", dropped_over_host(case))),
            dash(format!("{:.4}", goodput_over_host(case))),
        ]);
    }
    rows
}

/// A value of each case, with the last label as column and the others as row; empty unless all
/// cases have at least two labels.
pub fn grid(cases: &[&[RunResult]], value: fn(&[RunResult]) -> String) -> Vec<Vec<String>> {
    let labelled = |c: &&&[RunResult]| c[0].copa().is_some() && c[0].spec.labels.len() > 1;
    let cases: Vec<_> = cases.iter().filter(labelled).collect();
    let mut rows = vec![vec![String::new()]];
    for case in cases {
        let labels = &case[0].spec.labels;
        let (last, first) = labels.split_last().expect("two at least");
        let column = rows[0].iter().skip(1).position(|l| l == last).unwrap_or_else(|| {
            rows[0].push(last.clone());
            rows[0].len() - 2
        }) + 1;
        let name = first.join(", ");
        let row = rows.iter().skip(1).position(|r| r[0] == name).unwrap_or_else(|| {
            rows.push(vec![name]);
            rows.len() - 2
        }) + 1;
        if rows[row].len() <= column {
            rows[row].resize(column + 1, "-".into());
        }
        rows[row][column] = value(case);
    }
    rows
}

/// Hosts that are slow from the start.
fn slow_hosts(r: &RunResult) -> Vec<u32> {
    let slow = |f: &FaultSpec| match f {
        FaultSpec::HostSlow { at_us: 0, host, for_us: None, .. } => Some(*host),
        _ => None,
    };
    r.spec.fault.iter().filter_map(slow).collect()
}

/// Mean rates of a run's completed flows in Gb/s of payload.
fn rates(r: &RunResult) -> Vec<(u32, f64)> {
    let rate = |(i, fct): (usize, &Option<Ps>)| {
        let f = &r.flows[i];
        let to = if r.spec.reads() { f.src } else { f.dst };
        Some((to.0, f.bytes as f64 * 8e3 / (*fct)? as f64))
    };
    r.fct_ps.iter().flat_map(|round| round.iter().enumerate().filter_map(rate)).collect()
}

/// Sharing among flows of several hosts, one line per case.
pub fn sharing_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "flows",
        "slowest Gb/s",
        "fastest Gb/s",
        "Jain",
        "slow hosts",
        "healthy / without them",
    ]);
    let several = |c: &&&[RunResult]| c[0].copa().is_some() && c[0].flows.len() > 1;
    for case in cases.iter().filter(several) {
        let r = &case[0];
        let all: Vec<f64> = rates(r).into_iter().map(|(_, rate)| rate).collect();
        // An incomplete flow has no rate, so sharing cannot be computed.
        let ended = all.len() == r.flows.len() * r.fct_ps.len();
        let dash = |text: String| if ended { text } else { "-".into() };
        let slow = slow_hosts(r);
        // The case that differs only in the slow host and its label.
        let twin = cases.iter().map(|c| &c[0]).find(|t| {
            let (a, b) = (&t.spec.labels, &r.spec.labels);
            let differ = a.iter().zip(b).filter(|(a, b)| a != b).count();
            t.spec.fault.is_empty()
                && a.len() == b.len()
                && differ == 1
                && t.seed == r.seed
                && t.spec.copa == r.spec.copa
                && t.flows == r.flows
        });
        let healthy = twin.filter(|_| !slow.is_empty() && ended).map(|t| {
            let pairs = rates(r).into_iter().zip(rates(t));
            let healthy = pairs.filter(|((to, _), _)| !slow.contains(to));
            healthy.map(|((_, with), (_, without))| with / without).fold(f64::INFINITY, f64::min)
        });
        rows.push(vec![
            name_of(case),
            r.flows.len().to_string(),
            dash(format!("{:.2}", all.iter().copied().fold(f64::INFINITY, f64::min))),
            dash(format!("{:.2}", all.iter().copied().fold(0.0, f64::max))),
            dash(format!("{:.4}", jain(&all))),
            slow.len().to_string(),
            healthy.map_or("-".into(), |h| format!("{h:.4}")),
        ]);
    }
    rows
}
