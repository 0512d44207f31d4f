//! Tables of rivals: their counters, and flows beside an incast.

use crate::figures::{head, name_of};
use crate::result::RunResult;
use crate::stats::Quantiles;

/// Counters of the rivals' hosts, one table per set of names.
pub fn count_tables(cases: &[&[RunResult]]) -> Vec<Vec<Vec<String>>> {
    let mut tables: Vec<(Vec<&str>, Vec<Vec<String>>)> = Vec::new();
    for case in cases {
        let Some(first) = case[0].rival() else { continue };
        let names: Vec<&str> = first.counts.iter().map(|(name, _)| *name).collect();
        let sum = |name: &str| -> u64 {
            let outcomes = case.iter().filter_map(RunResult::rival);
            outcomes.flat_map(|o| &o.counts).filter(|(n, _)| *n == name).map(|(_, v)| v).sum()
        };
        let mut row = vec![name_of(case)];
        row.extend(names.iter().map(|name| sum(name).to_string()));
        match tables.iter_mut().find(|(known, _)| *known == names) {
            Some((_, rows)) => rows.push(row),
            None => {
                let mut titles = vec!["case"];
                titles.extend(&names);
                let mut rows = head(&titles);
                rows.push(row);
                tables.push((names, rows));
            }
        }
    }
    tables.into_iter().map(|(_, rows)| rows).collect()
}

/// Completion times over their floors, of an incast's flows and of those beside it.
pub fn victim_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "incast med/floor",
        "max/floor",
        "beside: med/floor",
        "p99/floor",
        "max/floor",
        "undone",
    ]);
    for case in cases.iter().filter(|c| c[0].spec.workload.victims > 0) {
        let w = &case[0].spec.workload;
        let per_pair = w.flows_per_pair as usize * if w.both_ways { 2 } else { 1 };
        let first = case[0].flows.len().saturating_sub(w.victims as usize * per_pair);
        let ratios = |beside: bool| {
            let of = |r: &RunResult| -> Vec<f64> {
                // The floor of a flow beside is its time alone: no other flow shares its ends.
                let rounds = r.fct_ps.iter().flat_map(|round| round.iter().enumerate());
                let chosen = rounds.filter(|(i, _)| (*i >= first) == beside);
                chosen.filter_map(|(i, t)| Some((*t)? as f64 / r.floor_ps[i] as f64)).collect()
            };
            Quantiles::of(case.iter().flat_map(of).collect())
        };
        let (incast, beside) = (ratios(false), ratios(true));
        let undone: usize = case.iter().map(RunResult::unfinished).sum();
        let mut row = vec![name_of(case)];
        let cells = [incast.median, incast.max, beside.median, beside.p99, beside.max];
        row.extend(cells.map(|v| format!("{v:.3}")));
        row.push(undone.to_string());
        rows.push(row);
    }
    rows
}
