//! Tables of flows that arrive at random times.

use crate::figures::{head, name_of};
use crate::poisson::{OpenLoop, by_class};
use crate::result::RunResult;
use crate::stats::Quantiles;

/// Slowdowns by size class, one line per case with all seeds together.
pub fn slowdown_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "flows",
        "load",
        "p50",
        "p99",
        "< 10 KB p50",
        "p99",
        "10-100 KB p50",
        "p99",
        "100 KB-1 MB p50",
        "p99",
        "> 1 MB p50",
        "p99",
        "lost",
        "resent",
        "resent/lost",
        "timeouts",
        "undone",
    ]);
    for case in cases {
        let runs: Vec<_> = case.iter().filter_map(|r| r.open_loop.as_ref()).collect();
        if runs.is_empty() {
            continue;
        }
        let all = |f: fn(&OpenLoop) -> &Vec<(u64, f64)>| {
            by_class(&runs.iter().flat_map(|r| f(r).iter().copied()).collect::<Vec<_>>())
        };
        let classes = all(|r| &r.slowdowns);
        let undone: usize = runs.iter().map(|r| r.undone).sum();
        let offered = runs.iter().map(|r| r.offered).sum::<f64>() / runs.len() as f64;
        let mut row =
            vec![name_of(case), (classes[0].1 + undone).to_string(), format!("{offered:.3}")];
        row.extend(cells(&classes));
        let sum = |f: fn(&RunResult) -> u64| case.iter().map(f).sum::<u64>();
        let (lost, resent) = (sum(RunResult::lost), sum(|r| r.tally.retransmitted));
        row.extend([
            lost.to_string(),
            resent.to_string(),
            resent_per_lost(case).map_or("-".into(), |r| format!("{r:.2}")),
            sum(|r| r.tally.timeouts).to_string(),
            undone.to_string(),
        ]);
        rows.push(row);
        let fluid = all(|r| &r.fluid);
        if fluid[0].1 > 0 {
            let name = format!("{}, fluid optimum", name_of(case));
            let mut row = vec![name, fluid[0].1.to_string(), format!("{offered:.3}")];
            row.extend(cells(&fluid));
            row.resize(rows[0].len(), "-".into());
            rows.push(row);
        }
    }
    rows
}

/// Median and 99th percentile of each class.
fn cells(classes: &[(&str, usize, Quantiles)]) -> Vec<String> {
    let cell = |flows, v: f64| if flows == 0 { "-".into() } else { format!("{v:.2}") };
    classes.iter().flat_map(|(_, n, q)| [cell(*n, q.median), cell(*n, q.p99)]).collect()
}

/// Retransmitted packets per lost packet; `None` without losses.
pub fn resent_per_lost(case: &[RunResult]) -> Option<f64> {
    let sum = |f: fn(&RunResult) -> u64| case.iter().map(f).sum::<u64>() as f64;
    let (lost, resent) = (sum(RunResult::lost), sum(|r| r.tally.retransmitted));
    (lost > 0.0).then(|| resent / lost)
}
