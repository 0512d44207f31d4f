//! Table of the groups of a network with several transports.

use crate::figures::{head, name_of};
use crate::result::RunResult;
use crate::stats::Quantiles;

/// Times over floors and rates of each group.
pub fn group_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "group",
        "flows",
        "med/floor",
        "p99/floor",
        "max/floor",
        "Gb/s",
        "of all groups' %",
        "least flow's Gb/s",
        "most",
        "sent again %",
        "timeouts",
    ]);
    let groups: Vec<_> = cases.iter().filter(|c| c[0].spec.workload.name.is_some()).collect();
    for case in &groups {
        let ratios: Vec<f64> = case.iter().flat_map(over_floor).collect();
        let q = Quantiles::of(ratios.clone());
        let mean = |case: &[RunResult]| {
            case.iter().map(|r| gbps(r, &r.goodput)).sum::<f64>() / case.len() as f64
        };
        // The groups of one network have its labels but for the last, their own.
        let same = |other: &&&&[RunResult]| {
            let (a, b) = (&other[0].spec.labels, &case[0].spec.labels);
            a.len() == b.len() && a[..a.len() - 1] == b[..b.len() - 1]
        };
        let all: f64 = groups.iter().filter(same).map(|c| mean(c)).sum();
        let each: Vec<f64> =
            case.iter().flat_map(|r| r.flow_goodput.iter().map(|f| gbps(r, f))).collect();
        let dash = |known: bool, text: String| if known { text } else { "-".into() };
        let times = [q.median, q.p99, q.max].map(|v| dash(!ratios.is_empty(), format!("{v:.3}")));
        let flows = Quantiles::of(each.clone());
        let sent: u64 = case.iter().map(packets).sum();
        let again: u64 = case.iter().map(|r| r.tally.retransmitted).sum();
        let mut row = vec![name_of(case), case[0].flows.len().to_string()];
        row.extend(times);
        row.push(dash(all > 0.0, format!("{:.2}", mean(case))));
        row.push(dash(all > 0.0, format!("{:.1}", 100.0 * mean(case) / all)));
        row.extend([flows.min, flows.max].map(|v| dash(!each.is_empty(), format!("{v:.2}"))));
        row.push(format!("{:.2}", 100.0 * again as f64 / sent.max(1) as f64));
        row.push(case.iter().map(|r| r.tally.timeouts).sum::<u64>().to_string());
        rows.push(row);
    }
    rows
}

fn over_floor(r: &RunResult) -> Vec<f64> {
    let rounds = r.fct_ps.iter().flat_map(|round| round.iter().zip(&r.floor_ps));
    rounds.filter_map(|(fct, floor)| Some((*fct)? as f64 / *floor as f64)).collect()
}

/// Data packets without repetitions.
fn packets(r: &RunResult) -> u64 {
    if r.spec.workload.endless { r.data_packets } else { r.data_packets.max(1) }
}

/// Mean rate of a series after the first tenth of the run, in which flows start.
fn gbps(r: &RunResult, series: &[u64]) -> f64 {
    let width_ps = r.spec.measure.goodput_us * srd_fabric::US;
    if width_ps == 0 {
        return 0.0;
    }
    // The last interval is not complete.
    let end = (r.end_ps / width_ps) as usize;
    let first = end / 10;
    let bytes: u64 = series.iter().take(end).skip(first).sum();
    bytes as f64 * 8e3 / ((end - first).max(1) as f64 * width_ps as f64)
}
