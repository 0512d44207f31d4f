//! Results for other programs: full precision, one value per line or column.

use crate::figures_phase::{PHASE_COLUMNS, phase_cells};
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
    let mut out = String::from(
        "experiment,case,transport,seed,hash,hosts,flows,rounds,unfinished,failures,base_rtt_us,\
         ideal_us,floor_us,fct_min_us,fct_median_us,fct_p99_us,fct_max_us,fct_mean_us,\
         over_floor_median,over_floor_p99,over_floor_max,max_over_min,data_packets,retransmitted,\
         spurious,timeouts,tail_probes,acks,duplicates,packets_sent,marked,last_hop_bytes_max",
    );
    for reason in DropReason::ALL {
        let _ = write!(out, ",drops_{}", reason.name().replace(' ', "_"));
    }
    out.push_str(",events,simulated_us,");
    out.push_str(PHASE_COLUMNS);
    out.push('\n');
    for r in results {
        let (s, t) = (&r.summary, &r.tally);
        let (f, o) = (&s.fct_us, &s.over_floor);
        let us = |ps: u64| ps as f64 / 1e6;
        let transport = format!("{:?}", r.transport()).to_lowercase();
        let _ = write!(
            out,
            "{},{},{transport},{},{:016x},{},{},{},{},{},{},{},{}",
            cell(&r.spec.name),
            cell(&r.spec.case),
            r.seed,
            r.hash,
            r.hosts,
            r.flows.len(),
            r.fct_ps.len(),
            r.unfinished(),
            r.failures,
            us(r.base_rtt_ps),
            us(r.ideal_ps.iter().copied().max().unwrap_or(0)),
            s.floor_us,
        );
        for v in [f.min, f.median, f.p99, f.max, f.mean, o.median, o.p99, o.max, s.max_over_min] {
            let _ = write!(out, ",{v}");
        }
        for n in [
            r.data_packets,
            t.retransmitted,
            t.spurious,
            t.timeouts,
            t.tail_probes,
            t.acks,
            t.duplicates,
            r.packets_sent,
            r.marked,
            r.last_hop_bytes_max,
        ] {
            let _ = write!(out, ",{n}");
        }
        DropReason::ALL.iter().for_each(|d| {
            let _ = write!(out, ",{}", r.drops.of(*d));
        });
        let phase = phase_cells(r).map(|v| v.map_or(String::new(), |v| v.to_string())).join(",");
        let _ = writeln!(out, ",{},{},{phase}", r.events, us(r.end_ps));
    }
    out
}

/// One line per value of every observed series: `case,seed,series,what,start_us,end_us,value`.
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
    let mut out = String::from("case,seed,series,what,start_us,end_us,value\n");
    for (r, o) in &watched {
        let head = format!("{},{}", cell(&r.spec.case), r.seed);
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
