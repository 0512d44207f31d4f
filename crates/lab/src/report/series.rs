//! Results for other programs: full precision, one value per line or column.

use super::rows::{self, Row};
use crate::observe::{Observation, gbps};
use crate::result::RunResult;
use srd_fabric::DropReason;
use std::fmt::Write as _;

/// Most lines of a series file, some 20 MB. Longer series are merged into longer intervals, those
/// of single flows and links first.
const LINES_MAX: usize = 300_000;

/// Quotes text for CSV if it contains a comma.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_string()
}

/// One line per run with all summary values.
pub fn summary_csv(results: &[RunResult]) -> String {
    rows::write(&results.iter().map(Row::of).collect::<Vec<_>>())
}

/// One line per flow and round of all runs, times in us with all digits. `start_us`: from the start
/// of the run; empty for flows that another one starts.
pub fn csv(results: &[RunResult]) -> String {
    let rows: Vec<Row> = results.iter().map(Row::of).collect();
    let axes = rows::axes_of(rows.iter().map(|r| r.axes.as_slice()));
    let mut head = vec!["experiment".to_string(), "case".to_string()];
    head.extend(rows::axis_columns(&axes));
    let own = "seed,round,flow,src,dst,bytes,start_us,fct_us,floor_us";
    head.extend(own.split(',').map(String::from));
    let us = |ps: u64| (ps as f64 / 1e6).to_string();
    let mut records = vec![head];
    for (r, row) in results.iter().zip(&rows) {
        let mut start = vec![row.experiment.clone(), row.case.clone()];
        start.extend(rows::axis_cells(&axes, &row.axes));
        start.push(r.seed.to_string());
        for (round, fcts) in r.fct_ps.iter().enumerate() {
            for (i, fct) in fcts.iter().enumerate() {
                let f = &r.flows[i];
                let began = f.start_ps.zip(r.round_at_ps.get(round)).map(|(own, at)| own + at);
                let mut record = start.clone();
                record.extend([round as u64, i as u64].map(|n| n.to_string()));
                record.extend([f.src.0, f.dst.0].map(|n| n.to_string()));
                record.extend([f.bytes.to_string(), began.map_or(String::new(), us)]);
                record.extend([fct.map_or(String::new(), us), us(r.floor_ps[i])]);
                records.push(record);
            }
        }
    }
    rows::csv_text(records)
}

/// One line per value of every observed series:
/// `experiment,case,seed,series,what,start_us,end_us,value`.
/// Single links have no line for idle intervals. At most some 300,000 lines: beyond that, intervals
/// are merged; each line gives the bounds of its interval.
pub fn series_csv(results: &[RunResult]) -> String {
    series_csv_of(results, LINES_MAX)
}

/// Like [`series_csv`] with at most about `lines_max` lines, but at least one interval per run.
fn series_csv_of(results: &[RunResult], lines_max: usize) -> String {
    let watched: Vec<(&RunResult, &Observation)> =
        results.iter().filter_map(|r| Some((r, r.observation.as_deref()?))).collect();
    let lines = |factor: u32, walk: Walk| {
        let mut n = 0;
        for (_, o) in &watched {
            walk(&o.thinned(factor), &mut |_, _, _, _| n += 1);
        }
        n
    };
    let longest = watched.iter().map(|(_, o)| o.intervals.len()).max().unwrap_or(0);
    let enough = |factor: u32| factor as usize >= longest;
    let mut coarse = 1;
    while lines(coarse, sums) > lines_max / 2 && !enough(coarse) {
        coarse *= 2;
    }
    let left = lines_max.saturating_sub(lines(coarse, sums));
    let mut single = coarse;
    while lines(single, singles) > left && !enough(single) {
        single *= 2;
    }
    let mut out = String::from("experiment,case,seed,series,what,start_us,end_us,value\n");
    for (r, o) in &watched {
        let head = format!("{},{},{}", cell(&r.spec.name), cell(&r.spec.case), r.seed);
        for (factor, walk) in [(coarse, sums as Walk), (single, singles)] {
            let o = o.thinned(factor);
            walk(&o, &mut |series, what, i, value| {
                let start = o.start_ps + i as u64 * o.interval_ps;
                let (start, end) = (start as f64 / 1e6, (start + o.width_ps(i)) as f64 / 1e6);
                let _ = writeln!(out, "{head},{series},{what},{start},{end},{value}");
            });
        }
    }
    out
}

/// Receives a value: series, item, interval, value.
type Add<'a> = dyn FnMut(&str, &str, usize, f64) + 'a;
/// Iterates over values of a run.
type Walk = fn(&Observation, &mut Add<'_>);

/// Values of the whole network and over all flows and links.
fn sums(o: &Observation, add: &mut Add<'_>) {
    for (i, n) in o.intervals.iter().enumerate() {
        add("network", "payload_gbps", i, gbps(n.bytes, o.width_ps(i)));
        add("network", "retransmitted", i, n.retransmitted as f64);
        add("network", "timeouts", i, n.timeouts as f64);
        add("network", "marked", i, n.marked as f64);
        for d in DropReason::ALL.into_iter().filter(|d| n.drops[*d as usize] > 0) {
            let what = format!("drops_{}", d.name().replace(' ', "_"));
            add("network", &what, i, n.drops[d as usize] as f64);
        }
    }
    for (i, s) in o.spreads.iter().enumerate() {
        add("flows", "under_way", i, f64::from(s.flows));
        add("flows", "min_gbps", i, s.min);
        add("flows", "median_gbps", i, s.median);
        add("flows", "max_gbps", i, s.max);
        add("flows", "jain", i, s.jain);
    }
    for t in &o.tiers {
        for (i, n) in t.intervals.iter().enumerate() {
            add(&t.name, "used_mean", i, n.used_mean);
            add(&t.name, "used_max", i, n.used_max);
            add(&t.name, "queue_median_bytes", i, n.queue_median as f64);
            add(&t.name, "queue_p99_bytes", i, n.queue_p99 as f64);
            add(&t.name, "queue_max_bytes", i, n.queue_max as f64);
        }
    }
    let last = o.intervals.len().saturating_sub(1);
    for (path, packets) in o.paths.iter().enumerate() {
        add(&format!("path{path}"), "packets_in_all", last, *packets as f64);
    }
    for s in &o.spines {
        add(&s.name, "packets_in_all", last, s.packets as f64);
    }
}

/// Values of single flows and links.
fn singles(o: &Observation, add: &mut Add<'_>) {
    for f in &o.flows {
        let name = format!("flow{}", f.flow);
        for (i, b) in f.bytes.iter().enumerate() {
            add(&name, "payload_gbps", i, gbps(*b, o.width_ps(i)));
        }
    }
    for r in &o.rings {
        let name = format!("ring{}", r.host);
        for (i, (depth, drops)) in r.depth_max.iter().zip(&r.drops).enumerate() {
            add(&name, "depth_max_bytes", i, *depth as f64);
            add(&name, "drops", i, *drops as f64);
        }
    }
    for l in &o.links {
        for (i, (b, q)) in l.bytes.iter().zip(&l.queue_max).enumerate() {
            // Most links are idle most of the time; missing lines mean 0.
            if *b > 0 || *q > 0 {
                add(&l.name, "gbps", i, gbps(*b, o.width_ps(i)));
                add(&l.name, "queue_max_bytes", i, *q as f64);
            }
        }
    }
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;
