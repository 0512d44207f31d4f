//! Results as a table, as CSV and as JSON.

mod charts;
mod copa;
mod html;
mod phases;
pub mod rows;
mod series;
mod sweeps;
mod texts;

#[cfg(feature = "cli")]
pub use html::{add_figure, document, page, plot_library};
pub use html::{page_with, rows_page};
pub use series::{csv, series_csv, summary_csv};
pub use texts::{summaries_join, summary_page, summary_table};

use crate::figures_app::{APP_COLUMNS, app_cells};
use crate::pauses::{PauseOutcome, TierPauses};
use crate::poisson::{OpenLoop, by_class};
use crate::result::RunResult;
use crate::rings::RingOutcome;
use crate::state::HostState;
use crate::stats::Quantiles;
use crate::trace::TraceOutcome;
use rows::{Cost, Row};
use serde_json::{Value, json as object};
use srd_fabric::DropReason;
use std::fmt::Write as _;

/// Text columns as wide as their contents.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let n = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max();
    let widths: Vec<usize> = (0..n).map(|c| width(c).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[c] - cell.chars().count());
            // The first column is text, the others are numbers.
            let sep = if c == 0 { "" } else { "  " };
            let (left, right) = if c == 0 { ("", pad.as_str()) } else { (pad.as_str(), "") };
            let _ = write!(line, "{sep}{left}{cell}{right}");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Splits results into cases, in order.
fn cases(results: &[RunResult]) -> Vec<&[RunResult]> {
    results.chunk_by(|a, b| a.spec.case == b.spec.case && a.spec.name == b.spec.name).collect()
}

/// A table with one line per case: medians over seeds, and the worst seed for upper bounds (max,
/// max/floor, max/min). `cost`: with speed and memory, which differ from run to run.
pub fn table(results: &[RunResult], cost: bool) -> String {
    table_of(&results.iter().map(Row::of).collect::<Vec<_>>(), cost)
}

/// Like [`table`], of the summaries of runs.
pub fn table_of(rows: &[Row], cost: bool) -> String {
    let mut head = vec![
        "case",
        "seeds",
        "flows",
        "floor us",
        "min us",
        "median us",
        "p99 us",
        "max us",
        "med/floor",
        "max/floor",
        "max/min",
        "retx %",
        "spurious",
        "drops",
        "marked %",
        "undone",
    ];
    if cost {
        head.extend(["kpkt/cpu-s", "Mev/s", "MB"]);
    }
    head.push("hash");
    let mut lines = vec![head.iter().map(|h| (*h).to_string()).collect::<Vec<_>>()];
    // Runs without packets have no rounds.
    for case in rows::cases(rows).into_iter().filter(|c| c[0].number("rounds") > 0.0) {
        lines.push(line(case, cost));
    }
    if lines.len() == 1 { String::new() } else { columns(&lines) }
}

fn line(case: &[Row], cost: bool) -> Vec<String> {
    let of = |f: &dyn Fn(&Row) -> f64| Quantiles::of(case.iter().map(f).collect());
    let number = |column: &str| of(&|r| r.number(column));
    let undone: f64 = case.iter().map(|r| r.number("unfinished")).sum();
    let mut row = vec![
        case[0].name().to_string(),
        case.len().to_string(),
        case[0].number("flows").to_string(),
        format!("{:.1}", number("floor_us").median),
        format!("{:.1}", number("fct_min_us").min),
        format!("{:.1}", number("fct_median_us").median),
        format!("{:.1}", number("fct_p99_us").median),
        format!("{:.1}", number("fct_max_us").max),
        format!("{:.4}", number("over_floor_median").median),
        format!("{:.4}", number("over_floor_max").max),
        format!("{:.4}", number("max_over_min").max),
        format!("{:.2}", of(&Row::retransmitted_percent).median),
        format!("{:.0}", number("spurious").median),
        format!("{:.0}", of(&Row::drops).median),
        format!("{:.2}", of(&Row::marked_percent).median),
        undone.to_string(),
    ];
    if cost {
        let cost = |f: &dyn Fn(&Cost) -> f64| of(&|r| r.cost.as_ref().map_or(0.0, f));
        row.push(format!("{:.0}", cost(&|c| c.packets_per_cpu_s / 1e3).median));
        row.push(format!("{:.2}", cost(&|c| c.events_per_cpu_us).median));
        row.push(format!("{:.0}", cost(&|c| c.memory_bytes as f64 / 1e6).max));
    }
    // One hash over all seeds of the case.
    let hash = case.iter().fold(0u64, |h, r| h.rotate_left(9) ^ r.hash);
    row.push(format!("{hash:016x}"));
    row
}

/// Where results come from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The command line that repeats them.
    pub command: &'a str,
    /// The commit that the program was built from; `None`: not known.
    pub commit: Option<&'a str>,
}

/// Origin of the results, and parameters, summary, counters, cost and series of all runs;
/// everything except single flows.
pub fn json(results: &[RunResult], origin: Origin<'_>) -> Value {
    object!({
        "experiment": results.first().map(|r| r.spec.name.as_str()),
        "version": env!("CARGO_PKG_VERSION"),
        "commit": origin.commit,
        "command": origin.command,
        "runs": results.iter().map(one).collect::<Vec<_>>(),
    })
}

fn quantiles(q: &Quantiles) -> Value {
    object!({ "min": q.min, "median": q.median, "p99": q.p99, "max": q.max, "mean": q.mean })
}

/// Slowdowns by size class.
fn open_loop(r: &OpenLoop) -> Value {
    let class = |(name, flows, q): (&str, usize, Quantiles)| {
        let slowdown = quantiles(&q);
        object!({ "sizes": name, "flows": flows, "slowdown": slowdown })
    };
    let all = |of| by_class(of).into_iter().map(class).collect::<Vec<Value>>();
    let (classes, fluid) = (all(&r.slowdowns), all(&r.fluid));
    let fluid = (!r.fluid.is_empty()).then_some(fluid);
    object!({ "offered": r.offered, "undone": r.undone, "classes": classes, "fluid": fluid })
}

/// Times of a program: the values of the summary, `null` where one is undefined.
fn app(r: &RunResult) -> Option<Value> {
    let done = r.app.as_ref()?.done;
    let names = APP_COLUMNS.split(',').map(|name| name.trim().trim_start_matches("app_"));
    let values = app_cells(r).into_iter().map(Value::from);
    let mut out: serde_json::Map<String, Value> = names.map(String::from).zip(values).collect();
    out.insert("done".into(), done.into());
    Some(Value::Object(out))
}

/// State of the host that has most.
fn state(s: &HostState) -> Value {
    object!({
        "queue_pairs": s.queue_pairs,
        "contexts": s.contexts,
        "peers": s.peers,
        "bytes": s.bytes,
    })
}

/// What the network saw of packets.
fn trace(t: &TraceOutcome) -> Value {
    let times = |us: &[f64]| quantiles(&Quantiles::of(us.to_vec()));
    object!({
        "packets": t.packets,
        "early": t.early,
        "wait_us": times(&t.waits_us),
        "lost": t.lost,
        "repair_us": times(&t.repairs_us),
        "under_way_us": times(&t.travels_us),
        "marked": t.marked,
        "paths": t.paths,
        "paths_all": t.paths_all,
    })
}

fn ring(r: &RingOutcome) -> Value {
    let s = &r.stats;
    object!({
        "host": r.host.0,
        "arrived": s.arrived,
        "dropped": s.dropped,
        "written_bytes": s.written_bytes,
        "waiting_bytes": s.waiting_bytes,
        "depth_bytes_max": s.depth_bytes_max,
        "depth_bytes_p99": s.depth_bytes_p99,
        "idle_share": r.idle_share(),
        "idle_us": s.idle_ps as f64 / 1e6,
        "span_us": s.span_ps as f64 / 1e6,
    })
}

fn pauses(p: &PauseOutcome) -> Value {
    let tier = |t: &TierPauses| {
        object!({
            "tier": t.name,
            "links": t.links,
            "links_paused": t.paused_links,
            "paused_us": t.paused_ps as f64 / 1e6,
            "frames": t.frames,
            "held_bytes_max": t.held_bytes_max,
        })
    };
    let link = |(name, ps): &(String, u64)| object!({ "link": name, "us": *ps as f64 / 1e6 });
    object!({
        "tiers": p.tiers.iter().map(tier).collect::<Vec<_>>(),
        "longest": p.longest.iter().map(link).collect::<Vec<_>>(),
    })
}

fn one(r: &RunResult) -> Value {
    let drops: serde_json::Map<String, Value> = DropReason::ALL
        .iter()
        .filter(|d| r.drops.of(**d) > 0)
        .map(|d| (d.name().to_string(), r.drops.of(*d).into()))
        .collect();
    let c = &r.tally;
    let srd = r.srd_counters().cloned().unwrap_or_default();
    object!({
        "spec": r.spec,
        "seed": r.seed,
        "hash": format!("{:016x}", r.hash),
        "parameters": r.parameters().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "bytes_counted": "UDP payload + 66 (UDP 8, IPv4 20, Ethernet 18, preamble and gap 20), \
                          at least 84 per packet",
        "hosts": r.hosts,
        "base_rtt_us": r.base_rtt_ps as f64 / 1e6,
        "fct_us": quantiles(&r.summary.fct_us),
        "floor_us": r.summary.floor_us,
        "over_floor": quantiles(&r.summary.over_floor),
        "max_over_min": r.summary.max_over_min,
        "unfinished": r.unfinished(),
        "failures": r.failures,
        "data_packets": r.data_packets,
        "retransmitted": c.retransmitted,
        "retransmitted_spurious": c.spurious,
        "timeouts": c.timeouts,
        "tail_probes": c.tail_probes,
        "duplicates": c.duplicates,
        "acks": c.acks,
        "ce": srd.ce_pkts,
        "probes": srd.probe_pkts,
        "paths_retired": srd.paths_retired,
        "stalls": srd.stalls,
        "packets_sent": r.packets_sent,
        "marked": r.marked,
        "drops": drops,
        "rings": r.rings.iter().map(ring).collect::<Vec<_>>(),
        "deadlock": r.deadlock,
        "pauses": r.pauses.as_ref().map(pauses),
        "open_loop": r.open_loop.as_ref().map(open_loop),
        "app": app(r),
        "state": state(&r.state),
        "trace": r.trace.as_ref().map(trace),
        "events": r.events,
        "simulated_us": r.end_ps as f64 / 1e6,
        "cpu_s": r.cpu_ns as f64 / 1e9,
        "wall_s": r.wall_ns as f64 / 1e9,
        "packets_per_cpu_s": r.packets_per_cpu_s(),
        "memory_bytes": r.memory_bytes,
        "goodput_bytes": r.goodput,
    })
}
