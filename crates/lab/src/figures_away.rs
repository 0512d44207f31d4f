//! Table of hosts whose processors are away.

use crate::figures::{head, name_of};
use crate::result::RunResult;
use crate::stats::Quantiles;

/// What absences cost transport and application; only for experiments in which hosts have any.
pub fn away_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "away %",
        "longest us",
        "med/floor",
        "p99/floor",
        "max/floor",
        "seen: med/floor",
        "max/floor",
        "round us",
        "longest",
        "timeouts",
        "per 1000 packets",
        "sent in vain %",
        "host full",
    ]);
    if cases.iter().all(|c| c[0].away.is_none()) {
        return rows;
    }
    for case in cases {
        let quantiles = |of: fn(&RunResult) -> &Vec<Vec<Option<u64>>>| {
            let ratios = |r: &RunResult| -> Vec<f64> {
                let all = of(r).iter().flat_map(|round| round.iter().zip(&r.floor_ps));
                all.filter_map(|(t, floor)| Some((*t)? as f64 / *floor as f64)).collect()
            };
            Quantiles::of(case.iter().flat_map(ratios).collect())
        };
        let done = quantiles(|r| &r.fct_ps);
        let seen = quantiles(|r| if r.away.is_some() { &r.seen_ps } else { &r.fct_ps });
        let us = |ps: u64| ps as f64 / 1e6;
        let rounds = case.iter().flat_map(|r| r.round_ps.iter().map(|ps| us(*ps))).collect();
        let rounds = Quantiles::of(rounds);
        let sum = |of: fn(&RunResult) -> u64| case.iter().map(of).sum::<u64>();
        let packets = sum(|r| r.data_packets).max(1) as f64;
        let timeouts = sum(|r| r.tally.timeouts);
        let away = case.iter().filter_map(|r| r.away);
        let share = away.clone().fold(0.0, |sum, a| sum + a.share) / case.len() as f64;
        let longest = away.map(|a| a.longest_ps).max().unwrap_or(0);
        let mut row = vec![name_of(case), format!("{:.2}", 100.0 * share)];
        row.push(format!("{:.1}", us(longest)));
        let over = [done.median, done.p99, done.max, seen.median, seen.max];
        row.extend(over.map(|v| format!("{v:.3}")));
        row.extend([rounds.median, rounds.max].map(|v| format!("{v:.1}")));
        row.push(timeouts.to_string());
        row.push(format!("{:.2}", 1000.0 * timeouts as f64 / packets));
        row.push(format!("{:.3}", 100.0 * sum(|r| r.tally.spurious) as f64 / packets));
        row.push(sum(|r| r.drops.of(srd_fabric::DropReason::HostFull)).to_string());
        rows.push(row);
    }
    rows
}
